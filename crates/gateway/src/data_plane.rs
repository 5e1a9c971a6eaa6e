//! The data plane of the node: the proxy, and the compiler with the certificates of the settings.
use crate::configuration::{self, Configuration, InvalidConfiguration, Source};
use crate::plugins::{self, Definitions};
use crate::registry;
use crate::settings::{
    KeyFile, RouterFlavor, Settings, configure_vaults, trusted_certificate_files, verify_by_system,
};
use crate::start_error::StartError;
use crate::store;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::runtime::Handle;
use tokio_rustls::rustls::pki_types::CertificateDer;
use weir_guests::LuaSettings;
use weir_model::entity::{Entity, Route};
use weir_model::{Document, Entities};
use weir_net::tls::{ca_certificates, client_certificate, default_certificate};
use weir_plugin::{RequestRecord, Rows, Tracing};
use weir_plugins::limits::ClusterStore;
use weir_proxy::{CompileError, Compiler, Flavor, NodeId, Proxy, Retained, Snapshot, UpstreamVerification};

/// The running proxy and its compiler.
pub(crate) struct DataPlane {
    pub(crate) proxy: Proxy,
    pub(crate) compiler: Compiler,
    /// The runtime on which a publication waits for the workers.
    pub(crate) runtime: Handle,
    pub(crate) stream_listen_check: StreamListenCheck,
    /// Whether the node proxies. A control plane checks entities, and compiles no configuration.
    pub(crate) serves: bool,
}

/// Warns of stream routes while `stream_listen` is off, once for as long as that stays so.
pub(crate) struct StreamListenCheck {
    streams_are_on: bool,
    warned: AtomicBool,
}

impl StreamListenCheck {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self { streams_are_on: !settings.stream_listen.0.is_empty(), warned: AtomicBool::new(false) }
    }

    /// Checks the active configuration.
    pub(crate) fn warn_once(&self, document: &Document) {
        let is_stream = |route: &&Arc<Route>| route.protocols.iter().all(|protocol| protocol.is_stream());
        let route = document.routes.iter().find(is_stream).filter(|_| !self.streams_are_on);
        let warned = self.warned.swap(route.is_some(), Ordering::Relaxed);
        if let Some(route) = route.filter(|_| !warned) {
            let route = route.name.clone().unwrap_or_else(|| route.id.to_string());
            tracing::warn!(
                route,
                "routes of tcp, tls, tls_passthrough and udp get no traffic, because stream_listen is off; set it, as \
                 in `--set stream_listen=0.0.0.0:9000`"
            );
        }
    }
}

impl registry::DataPlane for DataPlane {
    fn check(&self, entity: &Entity, others: &Entities) -> Result<(), CompileError> {
        self.compiler.check(entity, others)
    }

    fn publish(&self, document: &Document) -> Result<(), Vec<CompileError>> {
        if !self.serves {
            return Ok(());
        }
        let snapshot = self.compiler.compile(document)?;
        self.runtime.block_on(self.proxy.publish(snapshot));
        self.stream_listen_check.warn_once(document);
        Ok(())
    }
}

/// The compiler of a node with these settings and plugins.
pub(crate) fn compiler(
    settings: &Settings,
    plugins: Definitions,
    lua: &LuaSettings,
) -> Result<Compiler, StartError> {
    let shown = files(&settings.ssl_cert, &settings.ssl_cert_key);
    let default_certificate = default_certificate(shown).map_err(StartError::Tls)?;
    let client_certificate = match files(&settings.client_ssl_cert, &settings.client_ssl_cert_key) {
        _ if !settings.client_ssl => None,
        Some(files) => Some(client_certificate(files).map_err(StartError::Tls)?),
        None => Some(default_certificate.clone()),
    };
    let name = "lua_ssl_trusted_certificate";
    let mut trusted_certificates = Vec::new();
    for path in trusted_certificate_files(&settings.lua_ssl_trusted_certificate) {
        trusted_certificates.extend(read_trusted(name, &path)?);
    }
    let retained = Arc::new(Retained::default());
    if let Some(id) = settings.node_id {
        retained.provide(NodeId(id));
    }
    retained.provide(Tracing {
        instrumentations: settings.tracing_instrumentations.0,
        sampling_rate: settings.tracing_sampling_rate.0,
    });
    retained.provide(lua.clone());
    retained.provide(RequestRecord(weir_plugins::request_record));
    provide_counters(&retained, settings)?;
    provide_rows(&retained, settings)?;
    configure_vaults(&retained.get(), settings);
    Ok(Compiler {
        workers: settings.workers.0,
        default_certificate,
        client_certificate,
        trusted_certificates,
        upstream_verification: upstream_verification(settings)?,
        log_tls_verify: settings.log_tls_verify,
        plugins: plugins::allowed(plugins, &settings.plugins),
        router_flavor: flavor(settings.router_flavor),
        retained,
    })
}

fn flavor(setting: RouterFlavor) -> Flavor {
    match setting {
        RouterFlavor::TraditionalCompatible => Flavor::TraditionalCompatible,
        RouterFlavor::Traditional => Flavor::Traditional,
        RouterFlavor::Expressions => Flavor::Expressions,
    }
}

/// Gives plugins the counters that the nodes of one database share.
fn provide_counters(retained: &Retained, settings: &Settings) -> Result<(), StartError> {
    if let Some(counters) = store::counters(settings).map_err(StartError::Store)? {
        ClusterStore::provide(retained, counters);
    }
    Ok(())
}

/// Gives plugins the rows that the nodes of one database share.
fn provide_rows(retained: &Retained, settings: &Settings) -> Result<(), StartError> {
    if let Some(rows) = store::rows(settings, retained.get()).map_err(StartError::Store)? {
        retained.get::<Rows>().provide(rows);
    }
    Ok(())
}

/// The files of a certificate and its key.
pub(crate) fn files<'a>(cert: &'a Option<PathBuf>, key: &'a Option<KeyFile>) -> Option<(&'a Path, &'a Path)> {
    cert.as_deref().zip(key.as_ref().map(|key| key.0.as_path()))
}

fn upstream_verification(settings: &Settings) -> Result<UpstreamVerification, StartError> {
    let trusted = settings.proxy_ssl_trusted_certificate.as_deref();
    let trusted = trusted.map(|path| read_trusted("proxy_ssl_trusted_certificate", path));
    Ok(UpstreamVerification {
        of_requests: settings.proxy_ssl_verify,
        of_sessions: settings.stream_proxy_ssl_verify,
        trusted_certificates: trusted.transpose()?,
        depth: settings.proxy_ssl_verify_depth.map(|depth| depth.try_into().unwrap_or(u8::MAX)),
    })
}

/// The authorities in the file that a setting names.
fn read_trusted(name: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, StartError> {
    let pem = std::fs::read_to_string(path).map_err(|error| StartError::Setting {
        name,
        value: path.display().to_string(),
        error,
    })?;
    ca_certificates(&pem).map_err(StartError::Tls)
}

/// Reads and compiles a configuration without serving it, with the database of these settings if they name one.
pub(crate) fn try_out(source: &Source, settings: &Settings) -> Result<Configuration, InvalidConfiguration> {
    compiled(source, settings).map(|(configuration, _)| configuration)
}

/// The same, with the snapshot.
pub(crate) fn compiled(
    source: &Source,
    settings: &Settings,
) -> Result<(Configuration, Snapshot), InvalidConfiguration> {
    let mut configuration = configuration::read(source)?;
    let default_certificate = default_certificate(None).map_err(|error| vec![error.to_string()])?;
    let trusted_certificates = verify_by_system().roots;
    let retained = Arc::new(Retained::default());
    retained.provide(source.lua.clone());
    retained.provide(RequestRecord(weir_plugins::request_record));
    provide_counters(&retained, settings).map_err(|error| vec![error.to_string()])?;
    // A file is for a node without a database, unless a setting says which it is to be imported to.
    if settings.database.is_some() {
        provide_rows(&retained, settings).map_err(|error| vec![error.to_string()])?;
    }
    configure_vaults(&retained.get(), settings);
    let client_certificate = None;
    let compiler = Compiler {
        workers: 1,
        default_certificate,
        client_certificate,
        trusted_certificates,
        upstream_verification: UpstreamVerification::default(),
        log_tls_verify: true,
        plugins: source.definitions,
        router_flavor: flavor(settings.router_flavor),
        retained: retained.clone(),
    };
    match compiler.compile(&configuration.document) {
        Ok(snapshot) => {
            let of_rows = retained.get::<Rows>().warning();
            configuration.warnings.extend(of_rows.map(|warning| format!("{}: {warning}", source.origin)));
            Ok((configuration, snapshot))
        }
        Err(errors) => {
            let errors = configuration.compile_errors(&source.origin, &errors);
            Err(configuration.invalid(&source.origin, errors))
        }
    }
}
