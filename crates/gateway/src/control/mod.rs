//! The one handle on the running node: whoever asks it or changes it, the Admin API, a signal or a command, does so
//! through [`Control`].
mod process;
pub(crate) mod reload;

use crate::configuration::{self, Configuration, Origin, Source};
use crate::control::process::process;
use crate::data_plane::options::{access_logs, options};
use crate::data_plane::{DataPlane, Unreached, compiler};
use crate::logger;
use crate::low_priority::aside;
use crate::plugins::Definitions;
use crate::registry::Registry;
use crate::settings::Settings;
use crate::start_error::StartError;
use crate::store::{self, Loaded, Store};
use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio::runtime::Handle;
use weir_model::entity::{Target, Upstream};
use weir_model::{Document, Entities, PluginSchema};
use weir_net::resolve::{Addresses, ResolveError};
use weir_net::tls::CertifiedKey;
use weir_plugin::Background;
use weir_plugins::prometheus::{
    Connections, NodeFacts, TargetHealth, TargetState, UpstreamRetries, exposition,
};
use weir_proxy::access_log::AccessLog;
use weir_proxy::costs::Cost;
use weir_proxy::explain::{Asked, BadQuestion, Explained, explain};
use weir_proxy::{
    Address, Compiler, InternalEndpoints, Listening, NodeId, NodeLog, Options, Proxy, Retained, Totals,
    Traffic,
};
use weir_upstream::health::{self, TargetStatus};
use weir_upstream::retry_budget::{RetryBudgets, RetryCounts};

/// How long a node that ends waits at least for what plugins have still to deliver: the requests that `drain_timeout` cut
/// off are logged only then.
const SHORTEST_DELIVERY_TIMEOUT: Duration = Duration::from_secs(1);

/// The running data plane, and the configuration it serves.
pub(crate) struct Control {
    plane: Arc<DataPlane>,
    registry: Arc<Registry>,
    source: Arc<Source>,
    settings: Settings,
    /// The declared fields without effect, each logged once for as long as it is declared.
    ignored_fields: Mutex<BTreeSet<String>>,
    draining: AtomicBool,
    /// Names this process among the nodes that a monitor sees.
    node_id: String,
    started: SystemTime,
}

/// A configuration came into force.
#[derive(Debug)]
pub(crate) struct Published {
    /// Its hash.
    pub(crate) hash: String,
    /// What is to be said about it.
    pub(crate) warnings: Vec<String>,
}

/// What a node begins with.
enum Beginning {
    Declared(Box<Configuration>),
    Stored(Arc<dyn Store>, Loaded),
}

impl Control {
    /// Reads the configuration, wherever it is, and starts to serve it.
    pub(crate) async fn start(
        settings: Settings,
        source: Source,
        own: InternalEndpoints,
    ) -> Result<(Control, Vec<String>), StartError> {
        let compiler = compiler(&settings, source.definitions)?;
        let source = Arc::new(source);
        let (plane, registry, warnings, ignored_fields) = match begin(&settings, &source).await? {
            Beginning::Declared(read) => {
                let read = *read;
                let plane = serve(options(&settings, own), &settings, compiler, &read.document, |errors| {
                    read.refusals(&source.origin, errors)
                })?;
                let listed = read.ignored_fields_beside(&BTreeSet::new(), &source.origin);
                let ignored_fields = read.ignored_fields();
                let warnings = read.warnings.into_iter().chain(listed).collect();
                (plane.clone(), Registry::declared(plane, read.document, read.hash), warnings, ignored_fields)
            }
            Beginning::Stored(store, Loaded { revision, entities }) => {
                let entities = Entities::from_iter(entities);
                let plane =
                    serve(options(&settings, own), &settings, compiler, &entities.document(), |errors| {
                        errors.iter().map(ToString::to_string).collect()
                    })?;
                let registry = Registry::stored(plane.clone(), store, revision, entities, &source.plugins)
                    .map_err(StartError::System)?;
                (plane, registry, Vec::new(), BTreeSet::new())
            }
        };
        logger::send_to_plugins(plane.compiler.retained.get::<NodeLog>());
        let node_id = plane.compiler.retained.get::<NodeId>().0.to_string();
        let control = Control {
            plane,
            registry: Arc::new(registry),
            source,
            settings,
            ignored_fields: Mutex::new(ignored_fields),
            draining: AtomicBool::new(false),
            node_id,
            started: SystemTime::now(),
        };
        Ok((control, warnings))
    }

    /// What is configured, and who may change it.
    pub(crate) fn registry(&self) -> &Arc<Registry> {
        &self.registry
    }

    /// What outlives configurations.
    pub(crate) fn retained(&self) -> &Retained {
        &self.plane.compiler.retained
    }

    /// The plugins that may be configured.
    pub(crate) fn plugins(&self) -> &[PluginSchema] {
        &self.source.plugins
    }

    /// How plugins are declared, be they allowed or not.
    pub(crate) fn plugin_definitions(&self) -> Definitions {
        self.source.definitions
    }

    /// What the node was started with.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Reads the declarative file again and puts it in force; returns when every worker serves it.
    pub(crate) async fn reload(&self) -> Result<Published, Vec<String>> {
        let source = self.source.clone();
        if let Some(reason) = self.is_not_reloadable() {
            return Err(vec![format!("{}: {reason}", source.origin)]);
        }
        let read = aside("weir-reload", move || configuration::read(&source))
            .await
            .unwrap_or_else(|error| Err(vec![error.to_string()]))?;
        let declared = self.registry.declare(read.document.clone(), read.hash.clone()).await;
        declared.map_err(|errors| read.refusals(&self.source.origin, &errors))?;
        Ok(self.published(read))
    }

    fn is_not_reloadable(&self) -> Option<&'static str> {
        match self.source.origin {
            Origin::File(_) => None,
            Origin::Nowhere if self.registry.is_stored() => Some(
                "it is kept in a database, which is followed all the time: there is nothing to read again",
            ),
            Origin::Setting(_) | Origin::Nowhere => Some(
                "there is no file to read again: start the node anew, or with a file named by `--config`",
            ),
        }
    }

    fn published(&self, mut read: Configuration) -> Published {
        let mut known = self.ignored_fields.lock().unwrap_or_else(PoisonError::into_inner);
        let mut warnings = std::mem::take(&mut read.warnings);
        warnings.extend(read.ignored_fields_beside(&known, &self.source.origin));
        *known = read.ignored_fields();
        Published { hash: read.hash, warnings }
    }

    /// The logs of proxied requests and of sessions, by the settings that name them.
    fn access_logs(&self) -> [(&'static str, &AccessLog); 2] {
        let proxy = &self.plane.proxy;
        [("proxy_access_log", proxy.access_log()), ("proxy_stream_access_log", proxy.session_log())]
    }

    /// Opens the logs of proxied requests and of sessions anew, once they have been moved away.
    pub(crate) fn reopen_access_logs(&self) {
        for (name, log) in self.access_logs() {
            match log.reopen() {
                Ok(()) => tracing::info!("{name} reopened"),
                Err(error) => tracing::error!(%error, "{name} cannot be reopened: lines go to the old file"),
            }
        }
    }

    /// Takes no more connections, and returns when the requests in flight have ended: true if all did in time.
    pub(crate) async fn drain(&self, timeout: Duration) -> bool {
        self.draining.store(true, Ordering::SeqCst);
        let end = Instant::now() + timeout;
        let background = self.plane.compiler.retained.get::<Background>();
        background.hurry();
        let in_time = self.plane.proxy.drain(timeout).await;
        self.plane.proxy.access_log().flush();
        self.plane.proxy.session_log().flush();
        let left = end.saturating_duration_since(Instant::now()).max(SHORTEST_DELIVERY_TIMEOUT);
        let delivering = background.clone();
        let finished = tokio::task::spawn_blocking(move || delivering.finish(left)).await;
        tell_undelivered(&background, matches!(finished, Ok(true)));
        in_time
    }

    /// Whether a load balancer may send requests; otherwise why not.
    pub(crate) fn ready(&self) -> Result<(), &'static str> {
        if self.draining.load(Ordering::SeqCst) {
            return Err("draining");
        }
        if !self.registry.is_stored() && self.registry.configuration().hash == configuration::UNCONFIGURED {
            return Err("no configuration available (empty configuration present)");
        }
        Ok(())
    }

    /// The addresses where requests come, with the ports they really have: plain ones, those that speak TLS, and those of
    /// HTTP/3.
    pub(crate) fn addresses(&self) -> [Vec<Address>; 3] {
        [(Traffic::Http, false), (Traffic::Http, true), (Traffic::Quic, true)].map(|(traffic, tls)| {
            let those = self.http_listeners().filter(|it| it.traffic == traffic && it.tls == tls);
            those.map(|it| it.address.clone()).collect()
        })
    }

    /// The listeners where requests come, in the order of the settings.
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

    /// Names this process among the nodes that a monitor sees.
    pub(crate) fn node_id(&self) -> &str {
        &self.node_id
    }

    /// The metrics, in Prometheus' text format. Takes long where there are many routes.
    pub(crate) fn metrics(&self) -> String {
        self.scrape(exposition)
    }

    /// What was counted, and what is known of the node, as a text.
    pub(crate) fn scrape(&self, render: impl FnOnce(&Retained, &NodeFacts<'_>) -> String) -> String {
        let totals = self.totals();
        let Totals { connections, accepted, sessions, sessions_accepted, .. } = totals;
        let streams = Connections::of(sessions_accepted, sessions);
        let configuration = self.registry.configuration();
        let document = &configuration.document;
        let costs = self.costs();
        let node = NodeFacts {
            node_id: &self.node_id,
            version: env!("CARGO_PKG_VERSION"),
            process: process(self.started),
            connections: Connections::of(accepted - sessions_accepted, connections.saturating_sub(sessions)),
            streams: (!self.settings.stream_listen.0.is_empty()).then_some(streams),
            total_requests: totals.requests,
            http2_requests: totals.http2_requests,
            http3_requests: totals.http3_requests,
            datastore_reachable: self.registry.is_reachable(),
            document,
            costs: &costs,
            retries: &self.retries(),
            worker_cpu: self.worker_cpu(),
            held_bodies: self.plane.proxy.held_bodies(),
            lost_log_lines: self.access_logs().map(|(name, log)| (name, log.dropped())),
            targets: &targets(&self.plane.compiler.retained, document),
        };
        render(&self.plane.compiler.retained, &node)
    }

    /// Requests that were sent again, by upstream.
    fn retries(&self) -> Vec<UpstreamRetries> {
        let counts = self.plane.compiler.retained.get::<RetryBudgets>().counts();
        let told =
            |RetryCounts { upstream, retries, exhausted }| UpstreamRetries { upstream, retries, exhausted };
        counts.into_iter().map(told).collect()
    }

    /// The CPU time that all workers have used.
    pub(crate) fn worker_cpu(&self) -> Duration {
        self.plane.proxy.costs().worker_cpu()
    }

    /// What each plugin in force has cost on each of its routes.
    pub(crate) fn costs(&self) -> Vec<Cost> {
        self.plane.proxy.costs().of(&self.registry.configuration().document)
    }

    /// The addresses of a host, as requests would find them.
    pub(crate) async fn resolve(&self, host: &str) -> Result<Arc<Addresses>, ResolveError> {
        self.plane.proxy.resolve(host).await
    }

    /// How a target of an upstream that uses health checks fares.
    pub(crate) fn vitals(&self, target: &Target) -> TargetStatus {
        health::standing(&self.plane.compiler.retained.get(), target.upstream, &target.target)
    }

    /// Sets the health of an address of a target, or of all those that it has now.
    pub(crate) fn mark(
        &self,
        upstream: &Upstream,
        target: (&str, &[SocketAddr]),
        address: Option<SocketAddr>,
        healthy: bool,
    ) {
        health::mark(&self.plane.compiler.retained.get(), upstream, target, address, healthy);
    }

    /// What would become of a request by the configuration in force. Takes long where there are many routes.
    pub(crate) fn explain(&self, asked: &Asked) -> Result<Explained, BadQuestion> {
        let configuration = self.registry.configuration();
        let explained = explain(&self.plane.proxy.snapshot(), &configuration.document, asked)?;
        Ok(explained.by_health(&self.plane.compiler.retained, &configuration.document))
    }

    /// What the node has served so far.
    pub(crate) fn totals(&self) -> Totals {
        self.plane.proxy.totals()
    }

    /// The hash of the configuration in force.
    pub(crate) fn config_hash(&self) -> String {
        self.registry.configuration().hash.clone()
    }
}

/// Says what plugins could not deliver before the node ends.
fn tell_undelivered(background: &Background, finished: bool) {
    let undelivered = background.undelivered();
    for (queue, entries) in &undelivered {
        tracing::error!(
            queue,
            entries,
            "entries are lost: they could not be delivered before the node stopped (drain_timeout)"
        );
    }
    if !finished && undelivered.is_empty() {
        tracing::warn!("drain_timeout ended before plugins had told other servers all that they had counted");
    }
}

/// Reads what there is to begin with.
async fn begin(settings: &Settings, source: &Source) -> Result<Beginning, StartError> {
    match store::open(settings, source.plugins.clone()).await.map_err(StartError::Store)? {
        Some(store) => {
            let loaded = store.load().await.map_err(StartError::Store)?;
            Ok(Beginning::Stored(store, loaded))
        }
        None => {
            let read = configuration::read(source).map_err(StartError::Configuration)?;
            Ok(Beginning::Declared(Box::new(read)))
        }
    }
}

/// Starts the data plane with a first configuration.
fn serve(
    options: Options,
    settings: &Settings,
    compiler: Compiler,
    document: &Document,
    explain: impl FnOnce(&[weir_proxy::CompileError]) -> Vec<String>,
) -> Result<Arc<DataPlane>, StartError> {
    let snapshot =
        compiler.compile(document).map_err(|errors| StartError::Configuration(explain(&errors)))?;
    let proxy = Proxy::start(options, access_logs(settings)?, snapshot, &compiler.retained)
        .map_err(StartError::Proxy)?;
    let unreached = Unreached::new(settings);
    unreached.tell(document);
    Ok(Arc::new(DataPlane { proxy, compiler, runtime: Handle::current(), unreached }))
}

/// Every address of every target, as far as it is known, and how it fares.
fn targets(retained: &Retained, document: &Document) -> Vec<TargetHealth> {
    let upstreams: HashMap<_, _> =
        document.upstreams.iter().map(|upstream| (upstream.id, upstream)).collect();
    let of_target = |target: &Arc<Target>| {
        let upstream = *upstreams.get(&target.upstream)?;
        let health = |address, state| TargetHealth {
            upstream: upstream.name.clone(),
            target: target.target.clone(),
            address,
            state,
        };
        Some(match health::are_used(upstream) && !target.is_socket() {
            false => {
                let address = target.target.parse::<SocketAddr>().map(|address| address.to_string());
                vec![health(address.unwrap_or_default(), TargetState::HealthchecksOff)]
            }
            true => match health::standing(&retained.get(), upstream.id, &target.target).addresses {
                none if none.is_empty() => vec![health(String::new(), TargetState::DnsError)],
                addresses => {
                    addresses.iter().map(|(at, healthy)| health(at.to_string(), state(*healthy))).collect()
                }
            },
        })
    };
    document.targets.iter().filter_map(of_target).flatten().collect()
}

fn state(healthy: bool) -> TargetState {
    if healthy { TargetState::Healthy } else { TargetState::Unhealthy }
}
