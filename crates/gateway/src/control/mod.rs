//! [`Control`]: the one handle on the running node, for the Admin APIs, signals and commands.
pub(crate) mod metrics;
pub(crate) mod otlp;
pub(crate) mod process;
mod rotation;
mod succession;

use crate::analytics::{self, Analytics, Prometheus};
use crate::cluster::cached::{self, Cached};
use crate::cluster::{self, Cluster, Shared};
use crate::configuration::{self, Configuration, Origin, Source};
use crate::data_plane::{DataPlane, StreamListenCheck, compiler};
use crate::handover::FilesGate;
use crate::listener::{RequestsInFlight, ServedCounts};
use crate::logger;
use crate::options::{access_logs, options};
use crate::plugins::{self, Definitions};
use crate::registry::{INITIAL, Registry};
use crate::settings::{Role, Settings};
use crate::start_error::StartError;
use crate::store::{self, Loaded, Store};
use crate::threads::spawn_low_priority;
use serde_json::{Map, Value as Json};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use succession::OtherProcesses;
use tokio::runtime::Handle;
use tokio::task::spawn_blocking;
use weir_cluster::data_plane::Stored;
use weir_model::entity::{Entity, Target, Upstream};
use weir_model::{Document, Entities, PluginSchema};
use weir_net::resolve::{Addresses, NameStats, ResolveError};
use weir_net::tls::CertifiedKey;
use weir_plugin::{Background, Vaults};
use weir_proxy::CompileError;
use weir_proxy::access_log::AccessLog;
use weir_proxy::costs::Cost;
use weir_proxy::explain::{Asked, BadQuestion, Explained, explain};
use weir_proxy::listen::SocketTable;
use weir_proxy::{
    Address, Compiler, DrainTimeouts, Inheritance, InternalEndpoints, Listening, NodeId, NodeLog, Options,
    Proxy, Retained, Snapshot, Totals, Traffic,
};
use weir_upstream::health::{self, TargetStatus};

/// How long a stopping node waits at least for plugins to deliver their queues, because requests that `drain_timeout`
/// cuts off are logged only then.
const MIN_DELIVERY_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a control plane that stops waits at most until its data planes have heard of it.
const MAX_FLEET_DRAIN: Duration = Duration::from_secs(2);

/// The running data plane, and the configuration it serves.
pub(crate) struct Control {
    plane: Arc<DataPlane>,
    registry: Arc<Registry>,
    source: Arc<Source>,
    settings: Settings,
    /// The fields without effect in the declarative file; each is logged once for as long as it is there.
    ignored_fields: Mutex<BTreeSet<String>>,
    draining: AtomicBool,
    /// Identifies this process in monitoring.
    node_id: String,
    /// The settings as the Admin API shows them.
    shown_settings: Map<String, Json>,
    /// What the Admin API has served.
    admin_counts: Arc<ServedCounts>,
    requests_in_flight: Arc<RequestsInFlight>,
    cluster: Cluster,
    /// What a control plane shares with others by its store.
    shared: Option<Shared>,
    /// None where nothing is recorded.
    analytics: Option<Analytics>,
    prometheus: Option<Prometheus>,
    /// What gets metrics by OTLP.
    otlp: Option<otlp::Collector>,
    /// What a data plane has on disk, until its connection takes it over.
    stored: Mutex<Stored>,
    others: OtherProcesses,
    /// What was posted to `/config`, if that is what is served.
    posted: Mutex<Option<Arc<str>>>,
    started: SystemTime,
    sockets: Arc<SocketTable>,
    files: Arc<FilesGate>,
}

/// The outcome of a successful reload.
#[derive(Debug)]
pub(crate) struct Published {
    /// Its hash.
    pub(crate) hash: String,
    /// Warnings about it.
    pub(crate) warnings: Vec<String>,
    /// The certificates and plugins that cannot be used with their secrets, which are logged already.
    pub(crate) unusable: Vec<String>,
}

/// What a process begins with besides settings and configuration.
pub(crate) struct Beginning {
    pub(crate) inheritance: Inheritance,
    /// Whether it replaces another process of the node.
    pub(crate) replaces: bool,
    /// What was posted to `/config` of that process, if that is what it serves.
    pub(crate) posted: Option<String>,
}

/// How a process ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    /// How long requests in flight may take.
    pub(crate) timeout: Duration,
    /// Whether another process has taken its place.
    pub(crate) is_replaced: bool,
}

/// How long a connection may take to send the request that is on its way when a drain begins.
const IDLE_GRACE: Duration = Duration::from_secs(1);
/// The same after an upgrade, when no command waits for the process to end.
const REPLACED_IDLE_GRACE: Duration = Duration::from_secs(5);

/// The configuration that a node starts with.
enum InitialConfiguration {
    Cached(Box<Cached>),
    Declared(Box<Configuration>),
    Stored(Arc<dyn Store>, Loaded),
}

impl Control {
    /// Reads the configuration from its file or store, and starts to serve it.
    pub(crate) async fn start(
        settings: Settings,
        shown_settings: Map<String, Json>,
        source: Source,
        own: InternalEndpoints,
        Beginning { inheritance, replaces, posted }: Beginning,
    ) -> Result<(Control, Vec<String>), StartError> {
        let (sockets, files) = (inheritance.sockets.clone(), Arc::new(FilesGate::new(replaces)));
        let compiler = compiler(&settings, source.definitions, &source.lua)?;
        compiler.retained.get::<Background>().start()?;
        compiler.retained.provide(crate::options::lua_configuration(&shown_settings));
        let source = Arc::new(source);
        let analytics = analytics::Prepared::new(&settings, &compiler.retained);
        let (cached, stored) = cached::open(&settings, &source.plugins, &compiler);
        let options = options(&settings, own);
        let initial = begin(&settings, &source, cached, replaces, posted.as_deref()).await?;
        let (plane, registry, warnings, ignored_fields) = match initial {
            InitialConfiguration::Cached(cached) => {
                let Cached { document, hash, snapshot } = *cached;
                let plane = serve((options, inheritance), &settings, compiler, snapshot, &document)?;
                (plane.clone(), Registry::received(plane, document, hash)?, Vec::new(), BTreeSet::new())
            }
            InitialConfiguration::Declared(read) => {
                let read = *read;
                let snapshot = compiler.compile(&read.document).map_err(|errors| {
                    StartError::Configuration(read.compile_errors(&source.origin, &errors))
                })?;
                let plane = serve((options, inheritance), &settings, compiler, snapshot, &read.document)?;
                let listed = read.new_ignored_fields(&BTreeSet::new(), &source.origin);
                let ignored_fields = read.ignored_field_names();
                let warnings = read.warnings.into_iter().chain(listed).collect();
                (plane.clone(), Registry::declared(plane, read.document, read.hash), warnings, ignored_fields)
            }
            InitialConfiguration::Stored(store, Loaded { revision, entities }) => {
                let entities = Entities::from_iter(entities);
                let document = served(&settings, &entities);
                let snapshot = compiler.compile(&document).map_err(|errors| {
                    StartError::Configuration(errors.iter().map(ToString::to_string).collect())
                })?;
                let plane = serve((options, inheritance), &settings, compiler, snapshot, &document)?;
                let registry = Registry::stored(plane.clone(), store, revision, entities, &source.plugins)
                    .map_err(StartError::System)?;
                (plane, registry, Vec::new(), BTreeSet::new())
            }
        };
        logger::send_to_plugins(plane.compiler.retained.get::<NodeLog>());
        let node_id = plane.compiler.retained.get::<NodeId>().0;
        let registry = Arc::new(registry);
        rotation::start(plane.clone(), registry.clone(), settings.vault_rotation_interval);
        let analytics = analytics.map(|prepared| prepared.start(&registry, &files)).transpose();
        let analytics = analytics.map_err(StartError::System)?;
        let server = settings.analytics_prometheus.clone();
        let prometheus = server.map(|server| Prometheus::new(server, &plane.compiler.retained));
        let otlp = otlp::Collector::of(&settings, &plane.compiler.retained);
        let cluster = Cluster::of(&settings, node_id);
        let shared = match &cluster {
            Cluster::ControlPlane(fleet) => cluster::share(&settings, fleet.clone()).await?,
            Cluster::Alone | Cluster::DataPlane(_) => None,
        };
        let control = Control {
            plane,
            registry,
            source,
            settings,
            ignored_fields: Mutex::new(ignored_fields),
            draining: AtomicBool::new(false),
            node_id: node_id.to_string(),
            shown_settings,
            admin_counts: Arc::default(),
            requests_in_flight: Arc::new(RequestsInFlight::new()),
            cluster,
            shared,
            analytics,
            prometheus,
            otlp,
            stored: Mutex::new(stored),
            others: OtherProcesses::new(replaces),
            posted: Mutex::new(posted.map(Arc::from)),
            started: SystemTime::now(),
            sockets,
            files,
        };
        Ok((control, warnings))
    }

    /// The entities, and the way to change them.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// The state that survives reloads.
    pub(crate) fn retained(&self) -> &Retained {
        &self.plane.compiler.retained
    }

    /// The schemas of the plugins.
    pub(crate) fn plugins(&self) -> &[PluginSchema] {
        &self.source.plugins
    }

    /// The plugins of this program, allowed or not.
    pub(crate) fn plugin_definitions(&self) -> Definitions {
        self.source.definitions
    }

    /// The requests to the node's own APIs that it answers.
    pub(crate) fn requests_in_flight(&self) -> &Arc<RequestsInFlight> {
        &self.requests_in_flight
    }

    /// The settings of the node.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The settings as the Admin API shows them, without secrets.
    pub(crate) fn shown_settings(&self) -> &Map<String, Json> {
        &self.shown_settings
    }

    /// What the Admin API has served.
    pub(crate) fn admin_counts(&self) -> Arc<ServedCounts> {
        self.admin_counts.clone()
    }

    /// Reads the declarative file again and applies it; returns when every worker serves it.
    pub(crate) async fn reload(&self) -> Result<Published, Vec<String>> {
        let source = self.source.clone();
        if let Some(reason) = self.is_not_reloadable() {
            return match plugins::on_disk(source.definitions).is_empty() {
                true => Err(vec![format!("{}: {reason}", source.origin)]),
                false => self.reload_plugins().await,
            };
        }
        let vaults = self.plane.compiler.retained.get::<Vaults>();
        let read = move || match source.lua.read_files_anew(&plugins::on_disk(source.definitions)) {
            Ok(former) => {
                let rotated = vaults.rotate();
                (rotated, configuration::read(&source).map_err(|invalid| invalid.errors), Some(former))
            }
            Err(errors) => (false, Err(errors), None),
        };
        let read = spawn_low_priority("weir-reload", read).await;
        let (rotated, read, former) =
            read.unwrap_or_else(|error| (false, Err(vec![error.to_string()]), None));
        let published = match read {
            Ok(read) => self.declare(read).await,
            Err(errors) => Err(errors),
        };
        if let Some(former) = former.filter(|_| published.is_err()) {
            self.source.lua.files.go_back(former);
        }
        // The rotation finds nothing new in secrets that were read here.
        if rotated && published.is_err() {
            self.registry.refresh().await;
        }
        published
    }

    /// Reads the files of plugins on disk again, where the configuration is in no file.
    async fn reload_plugins(&self) -> Result<Published, Vec<String>> {
        let source = self.source.clone();
        let read = move || source.lua.read_files_anew(&plugins::on_disk(source.definitions)).map(|_| ());
        let read = spawn_low_priority("weir-reload", read).await;
        read.unwrap_or_else(|error| Err(vec![error.to_string()]))?;
        self.registry.refresh().await;
        let unusable = self.plane.proxy.snapshot().unusable.clone();
        Ok(Published { hash: self.registry.configuration().hash.clone(), warnings: Vec::new(), unusable })
    }

    async fn declare(&self, read: Configuration) -> Result<Published, Vec<String>> {
        let declared = self.registry.declare(read.document.clone(), read.hash.clone()).await;
        declared.map_err(|errors| read.compile_errors(&self.source.origin, &errors))?;
        *self.posted.lock().unwrap_or_else(PoisonError::into_inner) = None;
        Ok(self.published(read))
    }

    fn is_not_reloadable(&self) -> Option<&'static str> {
        match self.source.origin {
            _ if self.settings.role == Role::DataPlane => {
                Some("the control plane sends the configuration: there is nothing to reload")
            }
            Origin::File(_) => None,
            Origin::Nowhere if self.registry.is_stored() => Some(
                "the configuration is in a database, whose changes apply at once: there is nothing to reload",
            ),
            Origin::Setting(_) | Origin::AdminApi { .. } | Origin::Nowhere => {
                Some("there is no file to reload: restart the node, or start it with `--config FILE`")
            }
        }
    }

    fn published(&self, mut read: Configuration) -> Published {
        let mut known = self.ignored_fields.lock().unwrap_or_else(PoisonError::into_inner);
        let mut warnings = std::mem::take(&mut read.warnings);
        warnings.extend(read.new_ignored_fields(&known, &self.source.origin));
        *known = read.ignored_field_names();
        let unusable = self.plane.proxy.snapshot().unusable.clone();
        Published { hash: read.hash, warnings, unusable }
    }

    /// The logs of proxied requests and of sessions, by the settings that name them.
    fn access_logs(&self) -> [(&'static str, &AccessLog); 2] {
        let proxy = &self.plane.proxy;
        [("proxy_access_log", proxy.access_log()), ("proxy_stream_access_log", proxy.session_log())]
    }

    /// Reopens all logs that are files, after log rotation has moved these.
    pub(crate) fn reopen_logs(&self) {
        let access_logs = self.access_logs().map(|(name, log)| (name, log.reopen()));
        for (name, result) in access_logs.into_iter().chain(logger::reopen()) {
            match result {
                Ok(()) => tracing::info!("{name} reopened"),
                Err(error) => {
                    tracing::error!(%error, "{name} could not be reopened: lines go to the old file; make its folder writable")
                }
            }
        }
    }

    /// Has balancers send no more connections, which are still accepted.
    pub(crate) fn fail_readiness(&self) {
        self.draining.store(true, Ordering::SeqCst);
    }

    /// Stops accepting connections, and returns when the requests in flight have ended; true if all did in time.
    pub(crate) async fn drain(&self, Drain { timeout, is_replaced }: Drain) -> bool {
        if !is_replaced {
            self.fail_readiness();
        }
        self.sockets.close_copies();
        let end = Instant::now() + timeout;
        let background = self.plane.compiler.retained.get::<Background>();
        background.hurry();
        if let Cluster::ControlPlane(fleet) = &self.cluster {
            fleet.drain(timeout.min(MAX_FLEET_DRAIN)).await;
        }
        // A process that was replaced has the id of the one that replaced it.
        if let Some(shared) = self.shared.as_ref().filter(|_| !is_replaced) {
            shared.leave().await;
        }
        let idle = if is_replaced { REPLACED_IDLE_GRACE } else { IDLE_GRACE };
        let in_time = self.plane.proxy.drain(DrainTimeouts { total: timeout, idle }).await;
        // Last, because its own APIs still take requests.
        let answered = tokio::time::timeout_at(end.into(), self.requests_in_flight.ended()).await;
        let in_time = in_time && answered.is_ok();
        self.plane.proxy.access_log().flush();
        self.plane.proxy.session_log().flush();
        let left = end.saturating_duration_since(Instant::now()).max(MIN_DELIVERY_TIMEOUT);
        let delivering = background.clone();
        // By a thread that is there: the system may start no other. Its other work may hang, such as the search for a name.
        let finishing = spawn_blocking(move || delivering.finish(left));
        let finished = tokio::time::timeout(left + MIN_DELIVERY_TIMEOUT, finishing).await;
        log_undelivered(&background, matches!(finished, Ok(Ok(true))));
        otlp::finish(self).await;
        if let Some(analytics) = &self.analytics {
            analytics.finish();
        }
        in_time
    }

    /// Whether the node is ready for traffic; otherwise why not.
    pub(crate) fn ready(&self) -> Result<(), &'static str> {
        if self.draining.load(Ordering::SeqCst) {
            return Err("draining");
        }
        if !self.plane.proxy.has_memory() {
            return Err("no memory: requests are answered 503 until the process uses less than memory_limit");
        }
        let active = self.registry.configuration();
        if self.registry.is_stored() || active.hash != configuration::UNCONFIGURED {
            return Ok(());
        }
        match self.settings.role {
            // A control plane may have sent an empty one.
            Role::DataPlane if active.revision > INITIAL => Ok(()),
            Role::DataPlane => Err("no configuration available (configuration hash is not initialized)"),
            _ => Err("no configuration available (empty configuration present)"),
        }
    }

    /// The addresses of the HTTP listeners, with their real ports: plain, TLS, and HTTP/3.
    pub(crate) fn addresses(&self) -> [Vec<Address>; 3] {
        [(Traffic::Http, false), (Traffic::Http, true), (Traffic::Quic, true)].map(|(traffic, tls)| {
            let those = self.http_listeners().filter(|it| it.traffic == traffic && it.tls == tls);
            those.map(|it| it.address.clone()).collect()
        })
    }

    /// The HTTP listeners, in the order of the settings.
    pub(crate) fn http_listeners(&self) -> impl DoubleEndedIterator<Item = &Listening> {
        self.plane.proxy.listening().iter().filter(|listening| listening.traffic.is_http())
    }

    /// The listeners of streams, in the order of the setting.
    pub(crate) fn stream_listeners(&self) -> impl Iterator<Item = &Listening> {
        self.plane.proxy.listening().iter().filter(|listening| !listening.traffic.is_http())
    }

    /// The certificate of listeners that have no other.
    pub(crate) fn default_certificate(&self) -> Arc<CertifiedKey> {
        self.plane.compiler.default_certificate.clone()
    }

    /// Identifies this process in monitoring.
    pub(crate) fn node_id(&self) -> &str {
        &self.node_id
    }

    /// What the node's part in its fleet works with. What is on disk is taken once.
    pub(crate) fn cluster_parts(&self) -> cluster::Parts<'_> {
        cluster::Parts {
            cluster: &self.cluster,
            registry: &self.registry,
            plugins: self.plugins(),
            analytics: self.analytics(),
            shown_settings: &self.shown_settings,
            stored: std::mem::take(&mut *self.stored.lock().unwrap_or_else(PoisonError::into_inner)),
            files: &self.files,
        }
    }

    /// What the node knows of its fleet.
    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What was measured; none where nothing is recorded.
    pub(crate) fn analytics(&self) -> Option<&Analytics> {
        self.analytics.as_ref()
    }

    /// The Prometheus that remembers what this node has forgotten, if one is set.
    pub(crate) fn prometheus(&self) -> Option<&Prometheus> {
        self.prometheus.as_ref()
    }

    /// The CPU time that all workers have used.
    pub(crate) fn worker_cpu(&self) -> Duration {
        self.plane.proxy.costs().worker_cpu()
    }

    /// The cost of each active plugin on each of its routes.
    pub(crate) fn costs(&self) -> Vec<Cost> {
        self.plane.proxy.costs().of(&self.registry.configuration().document)
    }

    /// Resolves a host as requests do.
    pub(crate) async fn resolve(&self, host: &str) -> Result<Arc<Addresses>, ResolveError> {
        self.plane.proxy.resolve(host).await
    }

    /// What the resolver has done for each name.
    pub(crate) fn dns_stats(&self) -> Vec<NameStats> {
        self.plane.proxy.dns_stats()
    }

    /// The health of a target.
    pub(crate) fn target_health(&self, upstream: &Upstream, target: &Target) -> TargetStatus {
        health::standing(&self.plane.compiler.retained.get(), &upstream.name, &target.target)
    }

    /// Sets the health of an address of a target, or of all its current addresses.
    pub(crate) fn mark(
        &self,
        upstream: &Upstream,
        target: (&str, &[SocketAddr]),
        address: Option<SocketAddr>,
        healthy: bool,
    ) {
        health::mark(&self.plane.compiler.retained.get(), upstream, target, address, healthy);
    }

    /// Whether an entity can be compiled.
    pub(crate) fn check(&self, entity: &Entity) -> Result<(), CompileError> {
        self.plane.compiler.check(entity, &self.registry.entities())
    }

    /// Explains how the active configuration would handle a request. Takes long where there are many routes.
    pub(crate) fn explain(&self, asked: &Asked) -> Result<Explained, BadQuestion> {
        let configuration = self.registry.configuration();
        let proxy = &self.plane.proxy;
        let explained = explain(&proxy.snapshot(), &configuration.document, asked, proxy.options())?;
        Ok(explained.by_health(&self.plane.compiler.retained, &configuration.document))
    }

    /// What the node has served since its start.
    pub(crate) fn totals(&self) -> Totals {
        self.plane.proxy.totals()
    }

    /// The hash of the active configuration.
    pub(crate) fn config_hash(&self) -> String {
        self.registry.configuration().hash.clone()
    }
}

/// Logs what plugins could not deliver before the node stops.
fn log_undelivered(background: &Background, finished: bool) {
    let undelivered = background.undelivered();
    for (queue, entries) in &undelivered {
        tracing::error!(
            queue,
            entries,
            "entries are lost: they could not be delivered before the node stopped (drain_timeout)"
        );
    }
    if !finished && undelivered.is_empty() {
        tracing::warn!(
            "drain_timeout ended before plugins had sent all their counts to other servers; these counts are lost"
        );
    }
}

/// Reads the configuration to start with.
async fn begin(
    settings: &Settings,
    source: &Source,
    cached: Option<Cached>,
    replaces: bool,
    posted: Option<&str>,
) -> Result<InitialConfiguration, StartError> {
    if let Some(cached) = cached {
        return Ok(InitialConfiguration::Cached(Box::new(cached)));
    }
    // It compiles apart from the node, so that what cannot be used leaves nothing behind.
    let own = compiler(settings, source.definitions, &source.lua)?;
    let check =
        move |entity: &Entity, others: &Entities| own.check(entity, others).map_err(|error| error.message);
    let store = store::open(settings, source.plugins.clone(), Box::new(check), replaces).await;
    match store.map_err(StartError::Store)? {
        Some(store) => {
            let loaded = store.load().await.map_err(StartError::Store)?;
            Ok(InitialConfiguration::Stored(store, loaded))
        }
        None => {
            let read = match posted {
                Some(text) => configuration::posted(text, &source.plugins),
                None => configuration::read(source).map_err(|invalid| invalid.errors),
            };
            let read = read.map_err(StartError::Configuration)?;
            Ok(InitialConfiguration::Declared(Box::new(read)))
        }
    }
}

/// What the node proxies of what the store holds. A control plane proxies nothing.
fn served(settings: &Settings, entities: &Entities) -> Document {
    if settings.role == Role::ControlPlane { Document::default() } else { entities.document() }
}

/// Starts the data plane with a first configuration. It accepts nothing before [`Proxy::open`].
fn serve(
    (options, inheritance): (Options, Inheritance),
    settings: &Settings,
    compiler: Compiler,
    snapshot: Snapshot,
    document: &Document,
) -> Result<Arc<DataPlane>, StartError> {
    let serves = settings.role != Role::ControlPlane;
    let proxy = Proxy::prepare(options, access_logs(settings)?, snapshot, &compiler.retained, inheritance)
        .map_err(StartError::Proxy)?;
    let stream_listen_check = StreamListenCheck::new(settings);
    stream_listen_check.warn_once(document);
    Ok(Arc::new(DataPlane { proxy, compiler, runtime: Handle::current(), stream_listen_check, serves }))
}
