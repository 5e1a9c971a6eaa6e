//! The contract between the engine and its plugins: a plugin imports nothing of the proxy but this module.
//!
//! A plugin is one file in `plugins/` and one line in `plugins/mod.rs`. It declares its name, priority, configuration
//! and hooks by [`Define`]; schema, validation, documentation and order of execution derive from that.
//!
//! Hooks are synchronous and run on the worker that owns the connection. One that must wait returns [`Flow::Wait`];
//! only such a plugin pays for waiting.

pub(crate) mod background;
pub(crate) mod body_memory;
pub(crate) mod count;
pub(crate) mod exchange;
pub(crate) mod fingerprint;
pub(crate) mod grpc_client;
pub(crate) mod http_client;
pub(crate) mod json_text;
pub(crate) mod node_log;
pub(crate) mod retained;
pub(crate) mod whole_lines;

use crate::tls::{self, Subject, TlsError};
use rustls::pki_types::CertificateDer;
use std::any::{Any, TypeId};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_model::schema::PluginSchema;

pub use crate::answer::Answer;
pub use crate::costs::{BOUNDS, Cost, Phase, PhaseCost, Spread};
pub use crate::dialer::Dialer;
pub(crate) use crate::head::{host_end, without_port};
pub use crate::plugin::background::{Background, Delivered, Failed, Lines, Queue, QueueConfig, Undelivered};
pub(crate) use crate::plugin::background::{Dropped, Sender};
pub use crate::plugin::body_memory::{HeldBodies, HeldBody, NoRoom};
pub(crate) use crate::plugin::count::Count;
pub use crate::plugin::exchange::{
    ConsumerIndex, Credential, Exchange, FailedTry, Latencies, Observer, Source, WORKSPACE,
};
pub(crate) use crate::plugin::fingerprint::{Fingerprint, FingerprintMap, FingerprintState, Fingerprinter};
pub use crate::plugin::grpc_client::{CallError, GrpcClient};
pub use crate::plugin::http_client::{HttpClient, HttpError, host_and_port};
pub use crate::plugin::node_log::{Listener, NodeLog, NodeMessage};
pub use crate::plugin::retained::{NodeId, Retained};
pub(crate) use crate::plugin::whole_lines::append;
pub use crate::stream::Session;
pub use crate::tls::{ClientAuthorities, ClientCertificate};
pub(crate) use crate::upstream::retry_budget::RetryBudgets;
pub use bytes::Bytes;
pub use weir_http1::{FieldRef, Framing, Headers, Known, Method, Version};
pub use weir_model::schema::{Json, Record, Secret, Streams, Violation};
pub use weir_model::{Document, Uuid};
pub use weir_router::Captures;

/// What the exchange does after a hook.
pub enum Flow {
    /// Go on with the next plugin.
    Continue,
    /// Answer the client now; the upstream is not asked.
    Respond(Answer),
    /// Wait for the future, then go on with what the value it yields says. Dropped when the client leaves.
    Wait(Pin<Box<dyn Future<Output = Resume>>>),
}

/// Whether a plugin reads the bodies of requests, and what becomes of one while the node has no room to hold it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WantsBody {
    /// It reads none.
    #[default]
    No,
    /// It can do without: the body passes.
    IfRoom,
    /// It cannot: the request is answered 503.
    Yes,
}

/// What becomes of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It goes on.
    Admit,
    /// It is closed, with the status 403 in the log.
    Refuse,
}

/// What a [`Flow::Wait`] yields: the rest of the hook.
pub type Resume = Box<dyn FnOnce(&mut Exchange) -> Flow>;

/// The hooks of one configured plugin, in the order in which a request meets them.
pub trait Hooks: Send + Sync + 'static {
    /// Before the upstream is asked. Runs in order of priority until a plugin responds.
    fn access(&self, exchange: &mut Exchange) -> Flow {
        exchange.has_no_hook();
        Flow::Continue
    }
    /// Before the response head goes to the client, whoever answered.
    fn response(&self, exchange: &mut Exchange) {
        exchange.has_no_hook();
    }
    /// Before the response's head goes to the client, with its whole body, where a response hook of the chain has asked
    /// for that with [`Exchange::hold_response_body`]. Returns the body to send. One that is longer than what is held
    /// passes as it is.
    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        exchange.has_no_hook();
        body
    }
    /// After the last byte.
    fn log(&self, exchange: &Exchange) {
        exchange.has_no_hook();
    }
    /// Before a session of a stream listener reaches its upstream. It is closed if a plugin does not admit it.
    fn preread(&self, _session: &Session) -> Admission {
        Admission::Admit
    }
    /// After the last byte of a session of a stream listener.
    fn session(&self, _session: &Session) {}
    /// Whether the access hook reads the request's body, which is then collected before it runs, and after those of higher
    /// priority have let the request pass.
    fn wants_body(&self) -> WantsBody {
        WantsBody::No
    }
    /// Whether clients are to be asked for a certificate in their TLS handshake.
    fn wants_client_certificate(&self) -> bool {
        false
    }
}

/// How a plugin is declared.
pub trait Define: Hooks + Sized {
    /// Kong's name of the plugin.
    const NAME: &'static str;
    /// Plugins run from the highest priority to the lowest.
    const PRIORITY: i32;
    /// Its configuration, one declaration for validation, defaults and documentation.
    type Config: Record;
    /// Whether it may be set for one consumer: not where it is the plugin that finds the consumer.
    const FOR_CONSUMERS: bool = true;
    /// Whether it may be set for a consumer group.
    const FOR_CONSUMER_GROUPS: bool = false;
    /// Whether it runs for sessions of streams as well.
    const STREAMS: Streams = Streams::Never;
    /// Which fields of a valid configuration are accepted but without effect.
    fn not_in_force(_config: &Json) -> Vec<Violation> {
        Vec::new()
    }
    /// What of a valid configuration is probably a mistake all the same.
    fn doubtful(_config: &Json) -> Vec<Violation> {
        Vec::new()
    }
    /// One instance per plugin entity.
    fn new(config: Self::Config, build: &Build<'_>) -> Result<Self, String>;
}

/// An instance of a plugin, or why there is none and how to mend it.
pub type Built = Result<Arc<dyn Hooks>, String>;

/// A plugin's declaration with its type erased: a row of `plugins::PLUGINS`.
pub struct Definition {
    /// Kong's name of the plugin.
    pub name: &'static str,
    /// Plugins run from the highest priority to the lowest.
    pub priority: i32,
    /// Its name and configuration, as the model checks it.
    pub schema: PluginSchema,
    /// Makes one instance from a checked configuration.
    pub build: fn(&Json, &Build<'_>) -> Built,
}

/// The row of a plugin in `plugins::PLUGINS`.
pub const fn define<P: Define>() -> Definition {
    Definition {
        name: P::NAME,
        priority: P::PRIORITY,
        schema: schema::<P>(),
        build: |config, build| {
            let config = P::Config::from_value(config).map_err(|violations| {
                let lines = violations.iter().map(|v| format!("{}: {}", v.path, v.message));
                lines.collect::<Vec<_>>().join("; ")
            })?;
            Ok(Arc::new(P::new(config, build)?))
        },
    }
}

const fn schema<P: Define>() -> PluginSchema {
    let schema = PluginSchema::of::<P::Config>(P::NAME);
    let schema =
        schema.with_not_in_force(P::not_in_force).with_doubtful(P::doubtful).with_streams(P::STREAMS);
    let schema = if P::FOR_CONSUMER_GROUPS { schema.with_consumer_groups() } else { schema };
    if P::FOR_CONSUMERS { schema } else { schema.without_consumer() }
}

/// What a plugin may ask for while it is built.
pub struct Build<'a> {
    /// State that outlives configurations.
    pub retained: &'a Retained,
    /// The entity being built.
    pub entity: &'a weir_model::entity::Plugin,
    document: &'a Document,
    consumers: &'a HashMap<Uuid, ConsumerIndex>,
    shared: &'a Shared,
    /// Whether the plugin asked for more than its own entity.
    looked_around: Cell<bool>,
}

/// Sets of authorities that are in use, by their certificates: connections remember what a set said of them.
#[derive(Default)]
struct AuthoritySets(Mutex<HashMap<Vec<CertificateDer<'static>>, Weak<ClientAuthorities>>>);

impl AuthoritySets {
    fn of(&self, document: &Document, ids: &[Uuid]) -> Result<Arc<ClientAuthorities>, TlsError> {
        let certificates = tls::roots(document, ids)?;
        let mut sets = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = sets.get(&certificates).and_then(Weak::upgrade) {
            return Ok(known);
        }
        let made = ClientAuthorities::new(certificates.clone())
            .map_err(|problem| TlsError { subject: Subject::CaCertificate(None), problem })?;
        let made = Arc::new(made);
        sets.retain(|_, set| set.strong_count() > 0);
        sets.insert(certificates, Arc::downgrade(&made));
        Ok(made)
    }
}

/// What the instances of one plugin share within one configuration.
#[derive(Default)]
pub(crate) struct Shared {
    values: RefCell<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    /// What servers are verified against.
    trusted: Vec<CertificateDer<'static>>,
    /// Whether those that logs and spans are sent to are.
    verifies_logs: bool,
    /// TLS that verifies servers, and that does not, once somebody needs it.
    verifying: OnceCell<TlsConfig>,
    unverifying: OnceCell<TlsConfig>,
}

type TlsConfig = Result<Arc<rustls::ClientConfig>, String>;

impl Shared {
    pub(crate) fn new(trusted: &[CertificateDer<'static>], verifies_logs: bool) -> Self {
        Self { trusted: trusted.to_vec(), verifies_logs, ..Self::default() }
    }

    fn tls(&self, verify: bool) -> TlsConfig {
        let known = if verify { &self.verifying } else { &self.unverifying };
        let make = || {
            if verify && self.trusted.is_empty() {
                return Err("lua_ssl_trusted_certificate names no authority".to_owned());
            }
            let roots = self.trusted.clone();
            let config = tls::client_config(verify.then_some(tls::Verify { roots, depth: None }), None);
            config.map_err(|error| error.to_string())
        };
        known.get_or_init(make).clone()
    }
}

impl<'a> Build<'a> {
    pub(crate) fn new(
        document: &'a Document,
        retained: &'a Retained,
        entity: &'a weir_model::entity::Plugin,
        consumers: &'a HashMap<Uuid, ConsumerIndex>,
        shared: &'a Shared,
    ) -> Self {
        Self { retained, entity, document, consumers, shared, looked_around: Cell::new(false) }
    }

    /// Whether the instance depends on its own entity alone, so that it holds for other documents too.
    pub(crate) fn stands_alone(&self) -> bool {
        !self.looked_around.get()
    }

    /// The configuration being compiled, for its consumers, credentials, plugins and CA certificates: an instance that looked
    /// here is built anew when one of these has changed, and for nothing else.
    pub fn document(&self) -> &'a Document {
        self.looked_around.set(true);
        self.document
    }

    /// A value made once per configuration and shared by all that ask for its type, such as an index of credentials.
    pub fn once<T: Send + Sync + 'static>(&self, make: impl FnOnce(&Self) -> T) -> Arc<T> {
        self.looked_around.set(true);
        let known = self.shared.values.borrow().get(&TypeId::of::<T>()).cloned();
        if let Some(value) = known.and_then(|value| value.downcast().ok()) {
            return value;
        }
        let value = Arc::new(make(self));
        self.shared.values.borrow_mut().insert(TypeId::of::<T>(), value.clone());
        value
    }

    /// Where to work off the request path.
    pub fn background(&self) -> Arc<Background> {
        self.retained.get()
    }

    /// A bounded queue of what is to be delivered off the request path, named after the plugin's entity.
    pub fn queue<T, F, E>(
        &self,
        config: QueueConfig,
        deliver: impl Fn(Arc<[T]>) -> F + Send + Sync + 'static,
    ) -> Queue<T>
    where
        T: Send + Sync + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Failed>,
    {
        Queue::new(self.sender(), config, deliver)
    }

    /// Lines of text that are to be delivered off the request path, some at a time, named after the plugin's entity.
    pub fn lines<F>(&self, deliver: impl Fn(Vec<u8>) -> F + Send + Sync + 'static) -> Lines
    where
        F: Future<Output = Delivered> + Send + 'static,
    {
        Lines::new(self.sender(), deliver)
    }

    fn sender(&self) -> Sender {
        let (plugin, id) = (&*self.entity.name, self.entity.id);
        let dropped = self.retained.get::<Dropped>().of(plugin, id);
        Sender {
            name: format!("{plugin}.{id}"),
            background: self.background(),
            dropped,
            untold: Mutex::default(),
        }
    }

    /// What opens connections in clear to other servers.
    pub fn dialer(&self) -> Dialer {
        Dialer::new(self.retained.get())
    }

    /// What opens connections to other servers, over TLS too. Where `verify` says so, certificates are verified against the
    /// node's `lua_ssl_trusted_certificate`; `switch` is what turns that off, as in `config.ssl_verify: false`.
    pub fn tls_dialer(&self, verify: bool, switch: &'static str) -> Result<Dialer, String> {
        Ok(self.dialer().with_tls(Ok(self.shared.tls(verify)?), switch))
    }

    /// What opens connections to a server that logs or spans are sent to, over TLS or not: the node's `log_tls_verify`
    /// decides on verification. Where nothing can be verified, connections fail, but the node serves.
    pub fn log_dialer(&self, over_tls: bool) -> Dialer {
        match over_tls {
            true => self.dialer().with_tls(self.shared.tls(self.shared.verifies_logs), "log_tls_verify=off"),
            false => self.dialer(),
        }
    }

    /// The authorities of these CA certificates; the same for the same certificates, over configurations too.
    pub fn client_authorities(&self, ids: &[Uuid]) -> Result<Arc<ClientAuthorities>, String> {
        self.retained.get::<AuthoritySets>().of(self.document(), ids).map_err(|error| error.to_string())
    }

    /// Where a consumer stands in this configuration.
    pub fn consumer(&self, id: Uuid) -> Option<ConsumerIndex> {
        self.looked_around.set(true);
        self.consumers.get(&id).copied()
    }

    /// A consumer by id, username or (as Kong's `anonymous` allows) either written as text.
    pub fn consumer_named(&self, id_or_username: &str) -> Option<ConsumerIndex> {
        if let Some(index) = id_or_username.parse().ok().and_then(|id| self.consumer(id)) {
            return Some(index);
        }
        let same = |c: &&Arc<weir_model::entity::Consumer>| c.username.as_deref() == Some(id_or_username);
        self.document().consumers.iter().find(same).and_then(|c| self.consumer(c.id))
    }
}

#[cfg(test)]
mod tests;
