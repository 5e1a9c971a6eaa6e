//! The life of a node: it opens everything, serves until a signal or a command stops it, and drains.
//!
//! The data plane has threads of its own. Everything else runs on this thread, on one runtime: the Admin APIs, the
//! status API, the command socket, and the signals.
pub(crate) mod command_socket;
pub(crate) mod listeners;
mod node_id;
mod request_debug;

use crate::admin::kong_manager::AdminPorts;
use crate::admin::{entity_access, plugin_conflicts};
use crate::configuration::{Environment, Origin, Source};
use crate::control::reload::Reloader;
use crate::control::{Control, otlp};
use crate::listener::{ControlListener, bind};
use crate::plugins::{Definitions, NodePlugins};
use crate::prefix::{self, Prefix, PrefixError};
use crate::settings::{AutoOr, Database, Listeners, Loaded, LogTarget, Role, Settings};
use crate::start_error::StartError;
use crate::{apisix_admin, cluster, logger, store};
use command_socket::CommandServer;
use listeners::openable;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use weir_proxy::Address;
use weir_proxy::listen::Bound;

/// The addresses that a node listens on, with their real ports: the line it prints when it has started.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Addresses {
    pub(crate) pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) role: Option<String>,
    pub(crate) proxy: Vec<Address>,
    pub(crate) proxy_ssl: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) proxy_quic: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) stream: Vec<Address>,
    pub(crate) admin: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) admin_gui: Vec<Address>,
    pub(crate) status: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) cluster: Vec<Address>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) apisix_admin: Vec<Address>,
}

/// A node that has started.
pub(crate) struct Node {
    control: Arc<Control>,
    addresses: Addresses,
    servers: Vec<ControlListener>,
    commands: UnixListener,
    signals: Signals,
    drain_timeout: Duration,
    runtime: Runtime,
    prefix: Prefix,
}

struct Signals {
    hangup: Signal,
    /// SIGUSR1, which log rotation sends, as for nginx.
    reopen: Signal,
    stop: [Signal; 3],
}

impl Node {
    /// Starts the data plane, and opens the listeners of the APIs.
    pub(crate) fn start(
        loaded: Loaded,
        environment: Environment,
        definitions: Definitions,
    ) -> Result<Node, StartError> {
        let Loaded { mut settings, given, warnings, shown } = loaded;
        let origin = origin(&settings);
        let folder = prefix::or_default(settings.prefix.clone()).map_err(StartError::Prefix)?;
        let prefix = Prefix::take(folder).map_err(StartError::Prefix)?;
        place_logs(&mut settings, prefix.path())?;
        start_log(&settings)?;
        node_id::place(&mut settings, prefix.path()).map_err(StartError::Prefix)?;
        request_debug::place_token(&mut settings, prefix.path()).map_err(StartError::Prefix)?;
        let plugins = NodePlugins::load(definitions, &settings, plugin_conflicts::check)
            .map_err(StartError::Plugins)?;
        let NodePlugins { definitions, schemas, lua } = plugins;
        warnings
            .into_iter()
            .chain(store::unused(&settings, &given))
            .for_each(|warning| tracing::warn!("{warning}"));
        raise_descriptor_limit(settings.worker_rlimit_nofile);
        let source = Source { origin, environment, definitions, plugins: schemas, lua };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let signals = Signals::install()?;
        let commands = command_socket::bind(prefix.path())
            .map_err(|error| PrefixError::Io { path: prefix::socket(prefix.path()), error })
            .map_err(StartError::Prefix)?;
        drop(entered);
        let apisix = apisix_admin::ApisixListeners::open(&settings, prefix.path())?;
        let admin_listen = openable("admin_listen", &settings.admin_listen, &settings);
        let admin = bind("admin_listen", &admin_listen)?;
        let gui_listen = openable("admin_gui_listen", &settings.admin_gui_listen, &settings);
        let gui = bind_gui(&gui_listen, given.contains(&"admin_gui_listen"))?;
        let status = bind("status_listen", &settings.status_listen)?;
        let cluster = bind("cluster_listen", &settings.cluster_listen)?;
        let own = apisix.as_ref().map(apisix_admin::ApisixListeners::own).unwrap_or_default();
        let starting = Box::pin(Control::start(settings.clone(), shown, source, own));
        let (control, warnings) = runtime.block_on(starting)?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let control = Arc::new(control);
        entity_access::provide(&control);
        let mut addresses = addresses(&control, [&admin, &gui, &status, &cluster])?;
        let entered = runtime.enter();
        let ports = AdminPorts::of(admin_listen.0.iter().zip(&addresses.admin));
        let mut servers = listeners::admin(&settings, &control, admin_listen.0.iter().zip(admin))?;
        servers.extend(listeners::gui(&settings, &control, ports, gui_listen.0.iter().zip(gui))?);
        let status = settings.status_listen.0.iter().zip(status);
        servers.extend(listeners::status(&settings, &control, status)?);
        if let Some(apisix) = apisix {
            addresses.apisix_admin = apisix.addresses()?;
            let (listeners, router) = apisix.serve(&control, runtime.handle());
            let listeners = settings.apisix_admin_listen.0.iter().zip(listeners);
            servers.extend(listeners::apisix(&settings, &control, listeners, &router)?);
        }
        cluster::start(&settings, control.cluster_parts(), cluster)?;
        otlp::start(&control);
        drop(entered);
        let drain_timeout = settings.drain_timeout;
        Ok(Node { control, addresses, servers, commands, signals, drain_timeout, runtime, prefix })
    }

    /// Where the node listens.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until it is stopped, then drains. A second signal while it drains ends the process at once.
    pub(crate) fn serve(self) -> io::Result<()> {
        let Node { control, mut servers, commands, mut signals, drain_timeout, runtime, prefix, .. } = self;
        let sockets: Vec<_> = servers.iter_mut().filter_map(ControlListener::take_file).collect();
        let stopped = runtime.block_on(async {
            servers.into_iter().for_each(|listener| drop(tokio::spawn(listener.serve())));
            let (quit, asked_to_quit) = mpsc::channel(1);
            let reloader = Reloader::new(control.clone());
            let server = CommandServer { reloader: reloader.clone(), quit, drain_timeout };
            tokio::spawn(server.serve(commands));
            let asked = signals.until_stop(&reloader, asked_to_quit).await;
            io::Result::Ok(signals.drain(&control, asked.unwrap_or(drain_timeout)).await)
        });
        // Removed however the process ends.
        drop(sockets);
        drop(prefix);
        match stopped? {
            Stopped::AtOnce => std::process::exit(1),
            Stopped::Drained => runtime.shutdown_background(),
        }
        Ok(())
    }
}

/// How the drain ended.
enum Stopped {
    Drained,
    AtOnce,
}

impl Signals {
    fn install() -> io::Result<Signals> {
        let stop =
            [signal(SignalKind::terminate())?, signal(SignalKind::quit())?, signal(SignalKind::interrupt())?];
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            reopen: signal(SignalKind::user_defined1())?,
            stop,
        })
    }

    /// The next signal to stop.
    async fn stop(&mut self) {
        let [terminate, quit, interrupt] = &mut self.stop;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = quit.recv() => {}
            _ = interrupt.recv() => {}
        }
    }

    /// Handles signals and requests to reload, until the node is stopped; returns how long requests in flight may take,
    /// if a command said so.
    async fn until_stop(
        &mut self,
        reloader: &Arc<Reloader>,
        mut asked_to_quit: mpsc::Receiver<Duration>,
    ) -> Option<Duration> {
        loop {
            let [terminate, quit, interrupt] = &mut self.stop;
            tokio::select! {
                _ = self.hangup.recv() => {
                    let reloader = reloader.clone();
                    tokio::spawn(async move { reloader.reload().await });
                }
                _ = self.reopen.recv() => reloader.control().reopen_access_logs(),
                _ = terminate.recv() => return None,
                _ = quit.recv() => return None,
                _ = interrupt.recv() => return None,
                drain_timeout = asked_to_quit.recv() => return drain_timeout,
            }
        }
    }

    async fn drain(&mut self, control: &Control, timeout: Duration) -> Stopped {
        tracing::info!(timeout_s = timeout.as_secs_f64(), "draining");
        tokio::select! {
            in_time = control.drain(timeout) => {
                if !in_time {
                    tracing::warn!("drain_timeout ended before all requests did; the others are cut off");
                }
                tracing::info!("stopped");
                Stopped::Drained
            }
            () = self.stop() => {
                tracing::warn!("a second signal stopped the node at once");
                Stopped::AtOnce
            }
        }
    }
}

/// Places logs with relative paths in the prefix, as Kong does.
fn place_logs(settings: &mut Settings, prefix: &Path) -> Result<(), StartError> {
    for (name, log) in [
        ("proxy_access_log", &mut settings.proxy_access_log),
        ("proxy_stream_access_log", &mut settings.proxy_stream_access_log.0),
        ("proxy_error_log", &mut settings.proxy_error_log),
        ("admin_access_log", &mut settings.admin_access_log),
    ] {
        let LogTarget::Path(path) = log else { continue };
        if path.is_relative() {
            *path = prefix.join(&*path);
            let created = path.parent().map_or(Ok(()), fs::create_dir_all);
            created.map_err(|error| StartError::of_log(name, &LogTarget::Path(path.clone()), error))?;
        }
        // Opening a link to these, as containers have it, fails where they are sockets or of another user.
        let is_stream = |to: &PathBuf| ["/dev/stdout", "/dev/stderr"].map(Path::new).contains(&to.as_path());
        if let Some(stream) = fs::read_link(&*path).ok().filter(is_stream) {
            *path = stream;
        }
    }
    Ok(())
}

/// Where the settings say that the declarative configuration is.
pub(crate) fn origin(settings: &Settings) -> Origin {
    if matches!(settings.database, Some(Database::Sqlite | Database::Postgres)) {
        return Origin::Nowhere;
    }
    let file = settings.declarative_config.clone().map(Origin::File);
    let text = || settings.declarative_config_string.clone().map(|text| Origin::Setting(text.0));
    file.or_else(text).unwrap_or(Origin::Nowhere)
}

fn start_log(settings: &Settings) -> Result<(), StartError> {
    let target = &settings.proxy_error_log;
    logger::start(settings.log_level, target)
        .map_err(|error| StartError::of_log("proxy_error_log", target, error))
}

/// Raises the soft limit of open files, which is often 1024, because every connection needs one; or sets it to a number.
fn raise_descriptor_limit(AutoOr(wanted): AutoOr) {
    let Rlimit { maximum: allowed, .. } = getrlimit(Resource::Nofile);
    let wanted = wanted.map(u64::from);
    let current = wanted.or(allowed);
    // Only root can raise the hard limit.
    let maximum = allowed.map(|allowed| allowed.max(wanted.unwrap_or(0)));
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current, maximum }) {
        tracing::warn!(%error, "could not raise the limit of open files; raise it with `ulimit -n`");
    }
}

/// Binds the listeners of the web UI. If it was not asked for, a port that is in use is no reason not to start.
fn bind_gui(listen: &Listeners, is_given: bool) -> Result<Vec<Bound>, StartError> {
    match bind("admin_gui_listen", listen) {
        Err(error) if !is_given => {
            tracing::warn!(
                "the web UI is not served: {error}; set admin_gui_listen to another address or to off"
            );
            Ok(Vec::new())
        }
        bound => bound,
    }
}

fn addresses(control: &Control, [admin, gui, status, cluster]: [&[Bound]; 4]) -> io::Result<Addresses> {
    let role = control.settings().role;
    let role = (role != Role::Traditional).then(|| role.to_string());
    let [proxy, proxy_ssl, proxy_quic] = control.addresses();
    let stream = control.stream_listeners().map(|listening| listening.address.clone()).collect();
    let of = |bound: &[Bound]| bound.iter().map(Bound::address).collect::<io::Result<Vec<_>>>();
    let (admin, admin_gui, status, cluster) = (of(admin)?, of(gui)?, of(status)?, of(cluster)?);
    let apisix_admin = Vec::new();
    let pid = std::process::id();
    Ok(Addresses {
        pid,
        role,
        proxy,
        proxy_ssl,
        proxy_quic,
        stream,
        admin,
        admin_gui,
        status,
        cluster,
        apisix_admin,
    })
}
