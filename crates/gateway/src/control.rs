//! The one handle on the running data plane: whoever asks it or changes it, the Admin API, a signal or a command,
//! does so through [`Control`].
use crate::configuration::{self, Configuration, Origin, Source};
use crate::node::StartError;
use crate::options::{access_log, options, trusted_certificate_files};
use crate::settings::Settings;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_model::entity::Target;
use weir_model::{Document, Uuid};
use weir_proxy::plugins::prometheus::{Connections, NodeFacts, TargetHealth, TargetState, exposition};
use weir_proxy::tls::{ca_certificates, default_certificate};
use weir_proxy::{Compiler, Proxy, Retained, Snapshot, Totals};

/// The running data plane, and the configuration it serves.
pub(crate) struct Control {
    proxy: Proxy,
    compiler: Compiler,
    source: Source,
    in_force: Mutex<Arc<InForce>>,
    draining: AtomicBool,
    /// Names this process among the nodes that a monitor sees.
    node_id: String,
}

/// The configuration that workers serve.
struct InForce {
    hash: String,
    document: Document,
    /// The warning of fields without effect, said once for as long as it stays the same.
    not_in_force: Option<String>,
}

/// A configuration that can be put in force.
pub(crate) struct Prepared {
    snapshot: Snapshot,
    in_force: Arc<InForce>,
    warnings: Vec<String>,
}

/// A configuration came into force.
#[derive(Debug)]
pub(crate) struct Published {
    /// Its hash.
    pub(crate) hash: String,
    /// What is to be said about it.
    pub(crate) warnings: Vec<String>,
}

impl Control {
    /// Reads the configuration and starts to serve it.
    pub(crate) fn start(settings: &Settings, source: Source) -> Result<(Control, Published), StartError> {
        let compiler = compiler(settings)?;
        let Prepared { snapshot, in_force, mut warnings } =
            prepare(&compiler, &source).map_err(StartError::Configuration)?;
        let access_log = access_log(settings)
            .map_err(|error| StartError::of_log("proxy_access_log", &settings.proxy_access_log, error))?;
        let proxy = Proxy::start(options(settings), access_log, snapshot).map_err(StartError::Proxy)?;
        warnings.extend(in_force.not_in_force.clone());
        let published = Published { hash: in_force.hash.clone(), warnings };
        let (in_force, draining) = (Mutex::new(in_force), AtomicBool::new(false));
        let node_id = Uuid::new_v4().to_string();
        Ok((Control { proxy, compiler, source, in_force, draining, node_id }, published))
    }

    /// Reads the declarative file again and compiles it; takes long and changes nothing.
    pub(crate) fn prepare(&self) -> Result<Prepared, Vec<String>> {
        if let Origin::Setting(_) = self.source.origin {
            return Err(vec![format!(
                "{}: there is no file to read again: start the node anew, or with a file named by `--config`",
                self.source.origin
            )]);
        }
        prepare(&self.compiler, &self.source)
    }

    /// Puts a configuration in force; returns when every worker serves it.
    pub(crate) async fn publish(&self, prepared: Prepared) -> Published {
        let Prepared { snapshot, in_force, mut warnings } = prepared;
        if in_force.not_in_force != self.in_force().not_in_force {
            warnings.extend(in_force.not_in_force.clone());
        }
        let hash = in_force.hash.clone();
        self.proxy.publish(snapshot).await;
        *self.in_force.lock().unwrap_or_else(PoisonError::into_inner) = in_force;
        Published { hash, warnings }
    }

    /// Opens the log of proxied requests anew, once it has been moved away.
    pub(crate) fn reopen_access_log(&self) {
        match self.proxy.access_log().reopen() {
            Ok(()) => tracing::info!("proxy_access_log reopened"),
            Err(error) => {
                tracing::error!(%error, "proxy_access_log cannot be reopened: lines go to the old file")
            }
        }
    }

    /// Takes no more connections, and returns when the requests in flight have ended: true if all did in time.
    pub(crate) async fn drain(&self, timeout: Duration) -> bool {
        self.draining.store(true, Ordering::SeqCst);
        let in_time = self.proxy.drain(timeout).await;
        self.proxy.access_log().flush();
        in_time
    }

    /// Whether a load balancer may send requests; otherwise why not.
    pub(crate) fn ready(&self) -> Result<(), &'static str> {
        if self.draining.load(Ordering::SeqCst) { Err("draining") } else { Ok(()) }
    }

    /// The addresses proxied from, with the ports they really have: plain ones, then those that speak TLS.
    pub(crate) fn addresses(&self) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
        let of = |wanted| {
            self.proxy.addresses().iter().filter(|(_, tls)| *tls == wanted).map(|(a, _)| *a).collect()
        };
        (of(false), of(true))
    }

    /// The metrics, in Prometheus' text format. Takes long where there are many routes.
    pub(crate) fn metrics(&self) -> String {
        let Totals { connections, accepted, requests } = self.totals();
        let document = &self.in_force().document;
        let node = NodeFacts {
            node_id: &self.node_id,
            version: env!("CARGO_PKG_VERSION"),
            connections: Connections {
                accepted,
                handled: accepted,
                active: connections as u64,
                ..Connections::default()
            },
            total_requests: requests,
            datastore_reachable: true,
            document,
            targets: &targets(document),
        };
        exposition(&self.compiler.retained, &node)
    }

    /// What the node has served so far.
    pub(crate) fn totals(&self) -> Totals {
        self.proxy.totals()
    }

    /// The hash of the configuration in force.
    pub(crate) fn config_hash(&self) -> String {
        self.in_force().hash.clone()
    }

    fn in_force(&self) -> Arc<InForce> {
        self.in_force.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Every target, as Kong reports one whose health nobody checks.
fn targets(document: &Document) -> Vec<TargetHealth> {
    let upstreams: HashMap<_, _> =
        document.upstreams.iter().map(|upstream| (upstream.id, &upstream.name)).collect();
    let health = |target: &Target| {
        Some(TargetHealth {
            upstream: (*upstreams.get(&target.upstream)?).clone(),
            target: target.target.clone(),
            address: String::new(),
            state: TargetState::HealthchecksOff,
        })
    };
    document.targets.iter().filter_map(health).collect()
}

fn compiler(settings: &Settings) -> Result<Compiler, StartError> {
    let files = settings.ssl_cert.as_deref().zip(settings.ssl_cert_key.as_ref().map(|key| key.0.as_path()));
    let mut trusted_certificates = Vec::new();
    for path in trusted_certificate_files(&settings.lua_ssl_trusted_certificate) {
        trusted_certificates.extend(ca_certificates(&read_trusted(&path)?).map_err(StartError::Tls)?);
    }
    Ok(Compiler {
        workers: settings.workers.0,
        default_certificate: default_certificate(files).map_err(StartError::Tls)?,
        trusted_certificates,
        retained: Arc::new(Retained::default()),
    })
}

fn read_trusted(path: &Path) -> Result<String, StartError> {
    let name = "lua_ssl_trusted_certificate";
    std::fs::read_to_string(path).map_err(|error| StartError::Setting {
        name,
        value: path.display().to_string(),
        error,
    })
}

fn prepare(compiler: &Compiler, source: &Source) -> Result<Prepared, Vec<String>> {
    let configuration = configuration::read(source)?;
    let snapshot = compile(compiler, source, &configuration)?;
    let not_in_force = configuration.not_in_force_at_once();
    let not_in_force = not_in_force.map(|warning| format!("{}: {warning}", source.origin));
    let Configuration { document, hash, warnings, .. } = configuration;
    Ok(Prepared { snapshot, in_force: Arc::new(InForce { hash, document, not_in_force }), warnings })
}

fn compile(
    compiler: &Compiler,
    source: &Source,
    configuration: &Configuration,
) -> Result<Snapshot, Vec<String>> {
    compiler
        .compile(&configuration.document)
        .map_err(|errors| errors.iter().map(|error| configuration.refusal(&source.origin, error)).collect())
}

/// Compiles a configuration as a node with no settings would, for `weir check`.
pub(crate) fn try_out(source: &Source) -> Result<Configuration, Vec<String>> {
    let configuration = configuration::read(source)?;
    let default_certificate = default_certificate(None).map_err(|error| vec![error.to_string()])?;
    let system = trusted_certificate_files(&["system".to_owned()]);
    let pems = system.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let trusted_certificates = pems.filter_map(|pem| ca_certificates(&pem).ok()).flatten().collect();
    let retained = Arc::new(Retained::default());
    let compiler = Compiler { workers: 1, default_certificate, trusted_certificates, retained };
    compile(&compiler, source, &configuration)?;
    Ok(configuration)
}
