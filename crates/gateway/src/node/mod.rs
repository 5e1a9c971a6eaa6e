//! The life of a node: it opens everything, serves until a signal or a command stops it, and drains.
//!
//! The data plane has threads of its own. Everything else runs on this thread, on one runtime: the Admin APIs, the
//! status API, the command socket, and the signals.
pub(crate) mod command_socket;
pub(crate) mod listeners;
mod node_id;
mod reload;
mod request_debug;
mod signals;
mod watchdog;

use crate::admin::kong_manager::AdminPorts;
use crate::admin::{entity_access, plugin_conflicts};
use crate::configuration::{Environment, Origin, Source};
use crate::control::{Beginning, Control, otlp};
use crate::listener::{ControlListener, bind};
use crate::plugins::{Definitions, NodePlugins};
use crate::prefix::{self, Prefix, PrefixError};
use crate::service_manager::{self, ServiceManager};
use crate::settings::{AutoOr, Database, Listeners, Loaded, LogTarget, Role, Settings};
use crate::start_error::StartError;
use crate::upgrade::{Launch, Predecessor, Upgrader};
use crate::{apisix_admin, cluster, logger, store};
use command_socket::{CommandServer, Stop};
use listeners::openable;
use reload::Reloader;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::Serialize;
use signals::{Ended, Requests, Signals, Stopped};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, watch};
use weir_proxy::listen::{Bound, SocketTable};
use weir_proxy::{Address, Inheritance};

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

/// How a process comes to be the node's.
pub(crate) struct Start {
    /// How the process that replaces this one is started.
    pub(crate) launch: Launch,
    /// The process that this one replaces.
    pub(crate) predecessor: Option<Predecessor>,
    /// A folder that is removed when the node ends.
    pub(crate) temporary: Option<TempDir>,
}

/// A node that has started.
pub(crate) struct Node {
    control: Arc<Control>,
    addresses: Addresses,
    servers: Vec<ControlListener>,
    commands: UnixListener,
    signals: Signals,
    stop: Stop,
    manager: Arc<ServiceManager>,
    upgrader: Arc<Upgrader>,
    /// Dropped to end the watchdog.
    watching: Sender<()>,
    predecessor: Option<Predecessor>,
    runtime: Runtime,
    prefix: Prefix,
    temporary: Option<TempDir>,
}

impl Node {
    /// Starts the data plane, and opens the listeners of the APIs. Nothing is accepted before [`Node::open`].
    pub(crate) fn start(
        loaded: Loaded,
        environment: Environment,
        definitions: Definitions,
        Start { launch, mut predecessor, temporary }: Start,
    ) -> Result<Node, StartError> {
        let runtime = weir_net::thread::runtime(&mut Builder::new_current_thread())?;
        // Before anything is put into the folder, because a signal that is not handled would leave it there.
        let mut signals = {
            let _entered = runtime.enter();
            Signals::install()?
        };
        let Loaded { mut settings, given, warnings, shown } = loaded;
        let origin = origin(&settings);
        let folder = prefix::or_default(settings.prefix.clone()).map_err(StartError::Prefix)?;
        let (prefix, commands) = match &mut predecessor {
            None => (Prefix::take(folder).map_err(StartError::Prefix)?, None),
            Some(predecessor) => {
                let (pid_file, commands) = predecessor.take_files()?;
                (Prefix::share(folder, pid_file), Some(commands))
            }
        };
        place_logs(&mut settings, prefix.path())?;
        start_log(&settings)?;
        logger::follow_standard_error(&prefix::error_log(prefix.path()));
        node_id::place(&mut settings, prefix.path()).map_err(StartError::Prefix)?;
        request_debug::choose_token(&mut settings, prefix.path(), predecessor.is_some());
        if predecessor.is_none() {
            request_debug::write_token(&settings, prefix.path()).map_err(StartError::Prefix)?;
        }
        if let Some(predecessor) = &predecessor {
            tracing::info!(pid = predecessor.pid(), "upgrade: this process is to replace another");
        }
        let plugins = NodePlugins::load(definitions, &settings, plugin_conflicts::check)
            .map_err(StartError::Plugins)?;
        let NodePlugins { definitions, schemas, lua, warnings: of_plugins } = plugins;
        of_plugins.iter().for_each(|(plugin, warning)| tracing::warn!(plugin, "{warning}"));
        warnings
            .into_iter()
            .chain(store::unused(&settings, &given))
            .for_each(|warning| tracing::warn!("{warning}"));
        raise_descriptor_limit(settings.worker_rlimit_nofile);
        let source = Source { origin, environment, definitions, plugins: schemas, lua };
        let entered = runtime.enter();
        let commands = match commands {
            Some(commands) => UnixListener::from_std(commands)?,
            None => command_socket::bind(prefix.path())
                .map_err(|error| PrefixError::Io { path: prefix::socket(prefix.path()), error })
                .map_err(StartError::Prefix)?,
        };
        drop(entered);
        let manager = Arc::new(ServiceManager::of_environment());
        let inheritance = match &mut predecessor {
            Some(predecessor) => predecessor.inheritance(),
            None => {
                let sockets = SocketTable::given(service_manager::given_sockets());
                Inheritance { sockets: Arc::new(sockets.for_addresses(listened(&settings))), quic: None }
            }
        };
        let sockets = inheritance.sockets.clone();
        let apisix = apisix_admin::ApisixListeners::open(&settings, prefix.path(), &sockets)?;
        let admin_listen = openable("admin_listen", &settings.admin_listen, &settings);
        let admin = bind("admin_listen", &admin_listen, &sockets)?;
        let gui_listen = openable("admin_gui_listen", &settings.admin_gui_listen, &settings);
        let gui = bind_gui(&gui_listen, given.contains(&"admin_gui_listen"), &sockets)?;
        let status = bind("status_listen", &settings.status_listen, &sockets)?;
        let cluster = bind("cluster_listen", &settings.cluster_listen, &sockets)?;
        let own = apisix.as_ref().map(apisix_admin::ApisixListeners::own).unwrap_or_default();
        let posted = predecessor.as_mut().map(Predecessor::posted).transpose()?.flatten();
        let beginning = Beginning { inheritance, replaces: predecessor.is_some(), posted };
        let starting = Box::pin(Control::start(settings.clone(), shown, source, own, beginning));
        let Some(started) = runtime.block_on(signals.unless_stopped(starting)) else {
            // What the start waited for may hang.
            runtime.shutdown_background();
            return Err(StartError::Stopped);
        };
        let (control, warnings) = started?;
        warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let control = Arc::new(control);
        entity_access::provide(&control);
        control.provide_statistics();
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
        let upgrader = Arc::new(Upgrader::new(control.clone(), launch, prefix.pid_file()?, &commands)?);
        let watching = watchdog::start(control.clone(), manager.clone(), runtime.handle().clone())?;
        let stop = Stop { delay: settings.shutdown_delay, drain_timeout: settings.drain_timeout };
        for socket in sockets.close_unused() {
            tracing::warn!(
                "the socket {socket} was given to this process, and no setting listens there: it is closed"
            );
        }
        Ok(Node {
            control,
            addresses,
            servers,
            commands,
            signals,
            stop,
            manager,
            upgrader,
            watching,
            predecessor,
            runtime,
            prefix,
            temporary,
        })
    }

    /// Where the node listens.
    pub(crate) fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Lets clients in, after the process that this one replaces has handed over.
    pub(crate) fn open(&mut self) -> io::Result<()> {
        match self.predecessor.take() {
            None => {
                self.control.proxy().open();
                self.manager.ready();
            }
            Some(predecessor) => {
                let (control, manager) = (&self.control, self.manager.clone());
                let catch_up = || {
                    if control.registry().is_stored() {
                        self.runtime.block_on(control.registry().catch_up());
                    }
                };
                catch_up();
                let take_node = || {
                    // Again, because the other process has gone on meanwhile.
                    catch_up();
                    // Not earlier, because the other process goes on with its own if this one fails.
                    if let Err(error) = request_debug::write_token(control.settings(), self.prefix.path()) {
                        tracing::error!(%error, "the token for request debugging is not in its file");
                    }
                    self.prefix.write_pid()
                };
                // The service manager hears of this process from the other one first.
                let draining = self.upgrader.draining();
                predecessor.take_over(control, draining, take_node, move || manager.ready())?;
                self.prefix.own();
            }
        }
        Ok(())
    }

    /// Serves until it is stopped or replaced, then drains. A second signal while it drains ends the process at once.
    pub(crate) fn serve(self) {
        let Node {
            control,
            mut servers,
            commands,
            mut signals,
            stop,
            manager,
            upgrader,
            watching: _watching,
            runtime,
            prefix,
            temporary,
            ..
        } = self;
        let sockets: Vec<_> = servers.iter_mut().filter_map(ControlListener::take_file).collect();
        let (folder, mut prefix) = (prefix.path().to_owned(), Some(prefix));
        let stopped = runtime.block_on(async {
            let replaced = watch::Sender::new(false);
            for listener in servers {
                tokio::spawn(listener.serve(replaced.subscribe()));
            }
            let ((quit, quits), (upgrade, upgrades)) = (mpsc::channel(1), mpsc::channel(1));
            let reloader = Reloader::new(control.clone(), manager.clone(), &folder);
            let server = CommandServer { reloader: reloader.clone(), quit, upgrade, stop };
            let serving = tokio::spawn(server.serve(commands));
            let requests = Requests { quit: quits, upgrade: upgrades };
            match signals.until_ended(&reloader, &upgrader, requests, stop).await {
                Ended::Stop(stop) => signals.drain(&control, stop, &manager).await,
                Ended::Replaced(successor, reply, stop) => {
                    serving.abort();
                    replaced.send_replace(true);
                    control.sockets().leave_files();
                    control.proxy().stop_accepting().await;
                    manager.replaced_by(successor.pid);
                    // What keeps another node out is the new process's from now on, however long this one drains.
                    prefix.take().into_iter().for_each(Prefix::leave);
                    drop(upgrader);
                    control.leave_store();
                    control.leave_files();
                    successor.leave_files();
                    signals::answer(reply, Ok(successor.pid)).await;
                    let settings = control.settings();
                    let timeout = settings.upgrade_drain_timeout.unwrap_or(settings.drain_timeout);
                    let timeout = stop.map_or(timeout, |stop| stop.drain_timeout);
                    signals.drain_replaced(&control, timeout).await
                }
            }
        });
        // Removed however the process ends; the prefix after what the next node in it needs.
        drop(sockets);
        match stopped {
            Stopped::AtOnce => {
                drop((prefix, temporary));
                std::process::exit(1)
            }
            Stopped::Drained => runtime.shutdown_background(),
        }
        drop(control);
        drop((prefix, temporary));
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

/// All addresses that the settings listen at.
fn listened(settings: &Settings) -> Vec<Address> {
    let own = [&settings.proxy_listen.0, &settings.stream_listen.0, &settings.cluster_listen.0];
    let apis = [&settings.admin_listen.0, &settings.admin_gui_listen.0, &settings.status_listen.0];
    own.into_iter().chain(apis).flatten().map(|listen| listen.address.clone()).collect()
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
    let Err(error) = setrlimit(Resource::Nofile, Rlimit { current, maximum }) else { return };
    let highest = allowed.unwrap_or(u64::MAX);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: allowed, maximum: allowed });
    let limit = if raised.is_ok() { highest } else { getrlimit(Resource::Nofile).current.unwrap_or(highest) };
    tracing::warn!(
        %error,
        limit,
        "the limit of open files could not be set to worker_rlimit_nofile: raise the hard limit with `ulimit -Hn` as root, or \
         with LimitNOFILE= of systemd"
    );
}

/// Binds the listeners of the web UI. If it was not asked for, a port that is in use is no reason not to start.
fn bind_gui(listen: &Listeners, is_given: bool, sockets: &SocketTable) -> Result<Vec<Bound>, StartError> {
    match bind("admin_gui_listen", listen, sockets) {
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
