//! What a plugin may ask for while it is built.

use super::background::{Background, Delivered, Dropped, Failed, Lines, Queue, QueueConfig, Sender};
use super::dns::DnsResolver;
use super::retained::{NodeId, Retained};
use super::rows::Rows;
use super::vaults::{SecretError, Vaults};
use super::views::ConsumerIndex;
use rustls::pki_types::CertificateDer;
use std::any::{Any, TypeId};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_model::entity::CustomEntity;
use weir_model::{Document, Uuid};
use weir_net::dialer::Dialer;
use weir_net::tls::{self, ClientAuthorities, Subject, TlsError};

/// What a plugin may ask for while it is built.
pub struct BuildContext<'a> {
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
pub struct Shared {
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
    /// For the engine, or a test, that builds instances.
    pub fn new(trusted: &[CertificateDer<'static>], verifies_logs: bool) -> Self {
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

impl<'a> BuildContext<'a> {
    /// For the engine, or a test, that builds instances.
    pub fn new(
        document: &'a Document,
        retained: &'a Retained,
        entity: &'a weir_model::entity::Plugin,
        consumers: &'a HashMap<Uuid, ConsumerIndex>,
        shared: &'a Shared,
    ) -> Self {
        Self { retained, entity, document, consumers, shared, looked_around: Cell::new(false) }
    }

    /// Whether the instance depends on its own entity alone, so that it holds for other documents too.
    pub fn stands_alone(&self) -> bool {
        !self.looked_around.get()
    }

    /// The configuration being compiled, for its consumers, credentials, plugins and CA certificates: an instance that looked
    /// here is built anew when one of these has changed, and for nothing else.
    pub fn document(&self) -> &'a Document {
        self.looked_around.set(true);
        self.document
    }

    /// The plugin's own entities in the configuration being compiled.
    pub fn entities<T: CustomEntity>(&self) -> impl Iterator<Item = &'a T> + use<'a, T> {
        self.document().custom.of()
    }

    /// The same, to be kept beyond the compilation.
    pub fn shared_entities<T: CustomEntity>(&self) -> impl Iterator<Item = Arc<T>> + use<'a, T> {
        self.document().custom.shared()
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

    /// Rows that the plugin creates while the node runs; `what` they are, such as `tokens of oauth2`, is for a warning on nodes
    /// without a database.
    pub fn rows(&self, what: &'static str) -> Arc<Rows> {
        let rows = self.retained.get::<Rows>();
        rows.mark_kept(what);
        rows
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

    /// Looks names up as the node does.
    pub fn resolver(&self) -> DnsResolver {
        DnsResolver::new(self.retained.get())
    }

    /// The secret that a reference such as `{vault://env/redis-password}` leads to; waits for the vault. In fields of the
    /// configuration that take references, secrets stand in their place already.
    pub fn secret(&self, reference: &str) -> Result<String, SecretError> {
        self.retained.get::<Vaults>().get(reference, &self.document().vaults)
    }

    /// The node's id.
    pub fn node_id(&self) -> Uuid {
        self.retained.get::<NodeId>().0
    }

    /// The name of the machine.
    pub fn hostname(&self) -> String {
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        name.trim().to_owned()
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
