//! The contract between the engine and its plugins: all that a plugin may see and do, and nothing of the engine.
//!
//! A plugin declares its name, priority, configuration and hooks by [`Plugin`]; schema, validation, documentation and order
//! of execution derive from that. The engine makes one instance per configured plugin, which asks [`BuildContext`] for what it
//! needs: other servers, queues, what is [`Retained`]. Then it calls the instance's [`Hooks`] for each [`Exchange`] (or
//! [`Session`] of a stream), and does what the returned [`Flow`] says: go on, send a response, or wait.
//!
//! Hooks are synchronous and run on the worker that owns the connection. One that must wait returns [`Flow::Wait`];
//! only such a plugin pays for waiting.
//!
//! What the engine alone calls is in [`engine`]; a test refuses plugins that name it.

mod access_effect;
mod admin;
mod authority;
mod background;
mod body_memory;
mod build;
mod cost;
mod count;
mod dns;
mod durations;
pub mod engine;
mod entity_access;
mod error_templates;
mod exchange;
mod extensions;
mod fingerprint;
pub mod form;
mod grpc_client;
mod handover;
mod handshake;
mod http_client;
mod http_proxy;
mod instrumentations;
pub mod json_text;
mod metrics;
mod model_calls;
mod node_log;
mod node_statistics;
mod panics;
mod phases;
mod request_record;
mod retained;
mod rows;
mod scripts;
mod session;
mod shared_dict;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod vaults;
mod views;
mod whole_lines;
mod worker;

/// A plugin's configuration: the trait, and what derives it.
mod record {
    pub use weir_model::schema::*;
    pub use weir_model_derive::PluginRecord as Record;
}

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

pub use access_effect::AccessEffect;
pub use admin::{AdminHandler, AdminMethod, AdminRequest, AdminResponse, AdminRoute, PendingResponse};
pub use authority::{host_end, without_port};
pub use background::{Background, Delivered, Dropped, Failed, Lines, Queue, QueueConfig, Timer, Undelivered};
pub use body_memory::{BodyMemoryExhausted, BodyMemoryUsage, BufferedBody};
pub use build::BuildContext;
pub use bytes::Bytes;
pub use cost::{Cost, Phase, PhaseCost};
pub use count::Count;
pub use dns::DnsResolver;
pub use durations::{BOUNDS, Spread};
pub use entity_access::{
    EntityAccess, EntityDatabase, EntityError, EntityKey, EntityOutcome, EntityPage, EntityVerb, EntityWrite,
};
pub use error_templates::{ErrorTemplates, ErrorType};
pub use exchange::{
    BodyBegin, BodyFilter, Credential, Exchange, FailedTry, HeaderError, HeadersOf, Latencies, LocalResponse,
    LogField, LogFieldMode, Observer, ResponseSource, ResumeBody, ServiceOverride, ServiceTarget, Source,
    TargetError, Timing, UpstreamOutcome, WaitForBody,
};
pub use extensions::Extensions;
pub use fingerprint::{
    Fingerprint, FingerprintMap, FingerprintState, Fingerprinter, inherit_node_key, node_key,
};
pub use grpc_client::{CallError, GrpcClient, GrpcStream};
pub use handover::Handover;
pub use handshake::{CertificateKey, Handshake, HandshakeAnswer, HandshakeFlow, HandshakeResume};
pub use http_client::{HttpClient, HttpError, host_and_port};
pub use http_proxy::{HttpProxies, HttpProxy};
pub use instrumentations::{Instrumentations, TracedStep, Tracing};
pub use metrics::{Metric, Metrics, Sample};
pub use model_calls::{ModelCall, ModelCalls};
pub use node_log::{Listener, NodeLog, NodeMessage};
pub use node_statistics::{NodeStatistics, ServedTotals};
pub use phases::Phases;
pub use record::Record;
pub use request_record::RequestRecord;
pub use retained::{NodeId, Retained};
pub use rows::{MemoryRows, PendingRows, ROWS_HANDOVER, Row, RowError, RowKey, RowStore, Rows, unix_time};
pub use scripts::{Script, ScriptCode, ScriptError, ScriptKind, ScriptValue, Scripts};
pub use session::{Session, SessionTls};
pub use shared_dict::{
    DictEntry, DictError, DictValue, SharedDict, WriteCondition, WriteOptions, WriteOutcome,
};
pub use vaults::{FileVault, HcvVault, SecretError, TokenFiles, Vault, Vaults};
pub use views::{Consumer, ConsumerIndex, Route, Service, WORKSPACE};
pub use weir_http1::{
    FieldRef, Framing, Headers, Known, KnownSet, Method, RequestHead, ResponseHead, Version, is_same_header,
};
pub use weir_model::Streams;
pub use weir_model::entity::{CustomEntity, CustomEntitySchema, DerivedId};
#[doc(hidden)]
pub use weir_model::node;
pub use weir_model::schema::{FieldError, FieldWarning, Json, Secret};
pub use weir_model::{
    CheckPlugin, Document, EntityKinds, EntityWarning, PluginSchema, ReadConfig, SecretReference, Uuid,
    entity, is_reference, rule, schema,
};
pub use weir_net::dialer::Dialer;
pub use weir_net::resolve::{Address, Addresses, ResolveError};
pub use weir_net::tls::{ClientAuthorities, ClientCertificate};
pub use weir_router::{Captures, Condition, Variables, normalize_path};
pub use whole_lines::append;
pub use worker::WorkerContext;

/// The version of Kong whose plugins, Admin API and PDK this is: tools decide by it what to send.
pub const KONG_VERSION: &str = "3.9.1";

/// What the exchange does after a hook.
pub enum Flow {
    /// Go on with the next plugin.
    Continue,
    /// LocalResponse the client now; the upstream is not asked.
    Respond(LocalResponse),
    /// Wait for the future, then go on with what the value it yields says. Dropped when the client leaves.
    Wait(Pin<Box<dyn Future<Output = Resume>>>),
}

/// Whether a plugin reads the bodies of requests, and what happens to one while the node has no memory for it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WantsBody {
    /// It reads none.
    #[default]
    No,
    /// It reads forms and JSON, and can do without: other bodies, such as the streams of gRPC, are not collected.
    Form,
    /// It can do without: the body passes.
    Optional,
    /// It cannot, but for binary messages of gRPC-Web: these pass as they come, because a call may be answered while it is sent.
    Translated,
    /// It cannot: the request is answered 503.
    Yes,
}

impl WantsBody {
    /// What is collected for two plugins.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Optional, Self::Translated) | (Self::Translated, Self::Optional) => Self::Yes,
            _ => self.max(other),
        }
    }
}

/// Whether a session may go on.
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
pub trait Hooks: Any + Send + Sync {
    /// The phases that the instance takes part in, asked once. The engine calls no hook of other phases, so that a plugin
    /// costs nothing in them.
    fn phases(&self) -> Phases {
        Phases::ALL
    }
    /// Before the route is found, which may depend on what the hook changes: headers, [`Exchange::set_method`],
    /// [`Exchange::set_path`]. Runs for requests that match no route too, but of a plugin's configurations only for the one
    /// that is for no route, service, consumer or group in particular, whatever others there are.
    fn rewrite(&self, exchange: &mut Exchange) -> Flow {
        exchange.has_no_hook();
        Flow::Continue
    }
    /// Before the upstream is asked. Runs in order of priority until a plugin responds.
    fn access(&self, exchange: &mut Exchange) -> Flow {
        exchange.has_no_hook();
        Flow::Continue
    }
    /// Before the response head goes to the client, also if the gateway made the response.
    fn response(&self, exchange: &mut Exchange) {
        exchange.has_no_hook();
    }
    /// Before the response's head goes to the client, with its whole body, where a response hook of the chain has asked
    /// for that with [`Exchange::buffer_response_body`]. Returns the body to send. One that is longer than what is
    /// buffered passes as it is.
    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        exchange.has_no_hook();
        body
    }
    /// After the last byte.
    fn log(&self, exchange: &mut Exchange) {
        exchange.has_no_hook();
    }
    /// A client's TLS handshake has begun. Runs for global plugin entities alone. Over QUIC it runs when the
    /// handshake is over, and may refuse the connection.
    fn certificate(&self, _handshake: &mut Handshake) -> HandshakeFlow {
        HandshakeFlow::Continue
    }
    /// Before a session of a stream listener reaches its upstream. It is closed if a plugin does not admit it.
    fn preread(&self, _session: &Session) -> Admission {
        Admission::Admit
    }
    /// After the last byte of a session of a stream listener.
    fn log_stream(&self, _session: &Session) {}
    /// Whether the access hook reads the request's body, which is then collected before it runs, and after those of higher
    /// priority have let the request pass.
    fn wants_body(&self) -> WantsBody {
        WantsBody::No
    }
    /// What the access hook does to the way of this request, for those who [explain](AccessEffect) it.
    fn access_effect(&self, _exchange: &Exchange) -> AccessEffect {
        AccessEffect::Passes
    }
    /// Whether the rewrite hook may answer this request or change it, for those who [explain](AccessEffect) it.
    fn may_rewrite(&self, _exchange: &Exchange) -> bool {
        false
    }
    /// Whether a header of the request is the plugin's alone to set or to remove, whether the request has it or not. A trailer of
    /// this name reaches no upstream, because applications may take trailers for headers. The name is as the client has
    /// written it: compare it with [`is_same_header`].
    fn owns_request_header(&self, _name: &[u8]) -> bool {
        false
    }
    /// Whether clients are to be asked for a certificate in their TLS handshake.
    fn wants_client_certificate(&self) -> bool {
        false
    }
}

/// How a plugin is declared.
pub trait Plugin: Hooks + Sized {
    /// Kong's name of the plugin.
    const NAME: &'static str;
    /// Plugins run from the highest priority to the lowest.
    const PRIORITY: i32;
    /// Its version, as the Admin API shows it.
    const VERSION: &'static str = "0.1.0";
    /// Its configuration, one declaration for validation, defaults and documentation.
    type Config: Record + 'static;
    /// Whether it may be set for one consumer: not where it is the plugin that finds the consumer.
    const FOR_CONSUMERS: bool = true;
    /// Whether requests pass without it while it cannot be built with the secrets that it refers to: where it only observes
    /// them. Otherwise they are answered 500 meanwhile.
    const FAILS_OPEN: bool = false;
    /// Whether it may be set for a consumer group.
    const FOR_CONSUMER_GROUPS: bool = false;
    /// Whether it may be configured for everything alone: for no route, service, consumer or group.
    const GLOBAL_ONLY: bool = false;
    /// Whether Kong 3.9 does not have the plugin, so that a file for Kong must not hold it.
    const EXTENSION: bool = false;
    /// State that a process hands to the one that replaces it.
    const HANDOVERS: &'static [Handover] = &[];
    /// Whether it runs for sessions of streams as well.
    const STREAMS: Streams = Streams::Never;
    /// Entities of its own, such as credentials.
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[];
    /// A field of the configuration: instances with the same value of it share their counters, so that they must be
    /// configured alike.
    const SHARED_BY: Option<&'static str> = None;
    /// What it adds to the Admin API. The path of each begins with the plugin's name.
    const ADMIN_ROUTES: &'static [AdminRoute] = &[];
    /// First segments of these paths, without `/`, whose second one may be a secret: logs do not show it.
    const SECRET_PATHS: &'static [&'static str] = &[];
    /// Runs on each worker once, before that serves, whether the plugin is configured or not. An error is logged.
    const INIT: Option<Init> = None;
    /// Runs on each worker after [`Plugin::INIT`], and again after each change of plugins, before requests see the change: with
    /// all instances, or an empty slice. An error is logged.
    const CONFIGURE: Option<Configure<Self>> = None;
    /// Which fields of a valid configuration are accepted but without effect.
    fn ignored_fields(_config: &Json) -> Vec<FieldWarning> {
        Vec::new()
    }
    /// What of a valid configuration is probably a mistake all the same.
    fn warnings(_config: &Json) -> Vec<FieldWarning> {
        Vec::new()
    }
    /// What of a whole document is probably a mistake, as far as it concerns this plugin.
    fn document_warnings(_document: &Document) -> Vec<EntityWarning> {
        Vec::new()
    }
    /// The upstreams that a valid configuration names, besides the hosts of services.
    fn upstreams(_config: &Json) -> Vec<&str> {
        Vec::new()
    }
    /// One instance per plugin entity.
    fn new(config: Self::Config, build: &BuildContext<'_>) -> Result<Self, String>;
}

/// What a plugin does on each worker before that serves.
pub type Init = fn(&WorkerContext) -> Result<(), String>;

/// What a plugin does on each worker with all its instances.
pub type Configure<P> = fn(&WorkerContext, &[&P]) -> Result<(), String>;

/// An instance of a plugin, or why there is none and how to fix it.
pub type Built = Result<Arc<dyn Hooks>, String>;

/// A plugin's declaration with its type erased: a row of the list of plugins.
#[derive(Clone, Copy)]
pub struct Definition {
    /// Kong's name of the plugin.
    pub name: &'static str,
    /// Plugins run from the highest priority to the lowest.
    pub priority: i32,
    /// Its version, as the Admin API shows it.
    pub version: &'static str,
    /// Its name and configuration, as the model checks it.
    pub schema: PluginSchema,
    /// Whether requests pass without it while its secrets cannot be used.
    pub fails_open: bool,
    /// What it adds to the Admin API.
    pub admin_routes: &'static [AdminRoute],
    /// State that a process hands to the one that replaces it.
    pub handovers: &'static [Handover],
    /// Makes one instance from a checked configuration.
    pub build: fn(&Json, &BuildContext<'_>) -> Built,
    /// What it does on each worker before that serves.
    pub init: Option<Init>,
    /// What it does on each worker with all its instances.
    pub configure: Option<Configure<dyn Hooks>>,
}

/// The row of a plugin in the list of plugins.
pub const fn define<P: Plugin>() -> Definition {
    Definition {
        name: P::NAME,
        priority: P::PRIORITY,
        version: P::VERSION,
        schema: schema::<P>(),
        fails_open: P::FAILS_OPEN,
        admin_routes: admin::checked(P::ADMIN_ROUTES, P::NAME),
        handovers: P::HANDOVERS,
        build: |config, build| {
            // What stood in the place of references was checked when the entity was read.
            let config = P::Config::from_resolved(config).map_err(|violations| {
                let lines = violations.iter().map(|v| format!("{}: {}", v.path, v.message));
                lines.collect::<Vec<_>>().join("; ")
            })?;
            Ok(Arc::new(P::new(config, build)?))
        },
        init: P::INIT,
        configure: if P::CONFIGURE.is_some() { Some(configure::<P>) } else { None },
    }
}

fn configure<P: Plugin>(worker: &WorkerContext, instances: &[&dyn Hooks]) -> Result<(), String> {
    let Some(configure) = P::CONFIGURE else { return Ok(()) };
    let own = instances.iter().filter_map(|hooks| (*hooks as &dyn Any).downcast_ref());
    configure(worker, &own.collect::<Vec<&P>>())
}

const fn schema<P: Plugin>() -> PluginSchema {
    let schema = PluginSchema::of::<P::Config>(P::NAME);
    let schema =
        schema.with_ignored_fields(P::ignored_fields).with_warnings(P::warnings).with_streams(P::STREAMS);
    let schema = schema.with_document_warnings(P::document_warnings).with_upstreams(P::upstreams);
    let schema = schema.with_extension(P::EXTENSION);
    let schema = schema.with_entities(P::ENTITIES).with_shared_by(P::SHARED_BY);
    let scopes: &[&str] = if P::GLOBAL_ONLY { &["service", "route", "consumer"] } else { &[] };
    let schema = schema.with_secret_paths(P::SECRET_PATHS).with_refused_scopes(scopes);
    let schema = if P::FOR_CONSUMER_GROUPS { schema.with_consumer_groups() } else { schema };
    if P::FOR_CONSUMERS { schema } else { schema.without_consumer() }
}
