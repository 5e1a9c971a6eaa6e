//! Where a script measures, and which gateway.
use super::{FlameGraph, Gateway, Load, RunningGateway, RunningLoad, RunningUpstream, ScriptError, Upstream};
use crate::catalogue;
use crate::driver::process::Process;
use crate::host::WorkingFolder;
use crate::interrupt;
use crate::observe::{Layout, allowed_cpus};
use crate::session::contenders::{Named, contenders};
use crate::session::{Contender, make_certificate};
use crate::target::Certificate;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Sets a laboratory up for a version of Weir: `git:main`, a tag, `worktree`, or the path of a binary. What has to be built
/// is built.
///
/// # Errors
/// When the version is unknown or does not build, or the laboratory cannot be set up.
pub fn setup(version: &str) -> Result<Lab, ScriptError> {
    Setup::new().version(version).begin()
}

/// What a laboratory is set up for.
///
/// ```no_run
/// # fn main() -> Result<(), weirlab::script::ScriptError> {
/// let lab = weirlab::script::Setup::new().target("nginx").workers(2).begin()?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Setup {
    target: String,
    version: Option<String>,
    workers: usize,
    catalogue: Option<PathBuf>,
    cache: Option<PathBuf>,
}

impl Default for Setup {
    fn default() -> Self {
        Setup { target: "weir".to_owned(), version: None, workers: 1, catalogue: None, cache: None }
    }
}

impl Setup {
    /// Weir as it is installed, with one worker.
    #[must_use]
    pub fn new() -> Setup {
        Setup::default()
    }

    /// Another target of the catalogue, such as `nginx`.
    #[must_use]
    pub fn target(mut self, name: &str) -> Setup {
        name.clone_into(&mut self.target);
        self
    }

    /// A version of Weir, as [`setup`] takes it.
    #[must_use]
    pub fn version(mut self, version: &str) -> Setup {
        self.version = Some(version.to_owned());
        self
    }

    /// How many workers gateways have.
    #[must_use]
    pub fn workers(mut self, workers: usize) -> Setup {
        self.workers = workers.max(1);
        self
    }

    /// The folder with `scenarios/` and `targets/`, if it is not the nearest above the working directory.
    #[must_use]
    pub fn catalogue(mut self, folder: impl Into<PathBuf>) -> Setup {
        self.catalogue = Some(folder.into());
        self
    }

    /// Where versions are built and kept, if not in `target/weirlab`.
    #[must_use]
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Setup {
        self.cache = Some(folder.into());
        self
    }

    /// Sets the laboratory up.
    ///
    /// # Errors
    /// When the target or the version is unknown or cannot be had, or the working folder cannot be made.
    pub fn begin(self) -> Result<Lab, ScriptError> {
        let system = |what: &str, error: io::Error| ScriptError::Setup(format!("{what}: {error}"));
        // Before anything is started, so that an interruption leaves nothing.
        let stop = interrupt::flag().map_err(|error| system("signals cannot be caught", error))?;
        let contender = self.contender()?;
        let folder = WorkingFolder::begin(&std::env::temp_dir(), &Process)
            .map_err(|error| system("cannot set up the working folder", error))?;
        Ok(Lab {
            version: self.version.unwrap_or_else(|| contender.label.clone()),
            contender,
            workers: self.workers,
            layout: Layout::plan(&allowed_cpus(), self.workers),
            certificate: make_certificate().map_err(|error| system("cannot make a certificate", error))?,
            stop,
            folder,
            gateways: AtomicUsize::new(0),
            upstreams: Mutex::new(Vec::new()),
        })
    }

    fn contender(&self) -> Result<Contender, ScriptError> {
        let catalogue = catalogue::root(self.catalogue.as_deref())?;
        let wanted = match &self.version {
            Some(version) => format!("{}@{version}", self.target),
            None => self.target.clone(),
        };
        let named = Named {
            targets: &[wanted],
            versions: &[],
            weir: None,
            catalogue: &catalogue,
            cache: self.cache.as_deref(),
        };
        let found = contenders(&named, &mut |line| {
            // Progress that cannot be shown is no reason to stop.
            let _ = writeln!(io::stderr(), "{line}");
        });
        let contender = found.map_err(ScriptError::Setup)?.into_iter().next();
        let contender =
            contender.ok_or_else(|| ScriptError::Setup(format!("there is no target {}", self.target)))?;
        match contender.unavailable.clone() {
            Some(why) => Err(ScriptError::Setup(why)),
            None => Ok(contender),
        }
    }
}

/// A laboratory for one version of a gateway, on this machine. Dropping it removes its working folder; what it has started
/// must be dropped before.
pub struct Lab {
    pub(super) contender: Contender,
    version: String,
    pub(super) workers: usize,
    pub(super) layout: Layout,
    pub(super) certificate: Certificate,
    pub(super) stop: Arc<AtomicBool>,
    folder: WorkingFolder,
    gateways: AtomicUsize,
    upstreams: Mutex<Vec<SocketAddr>>,
}

impl Lab {
    /// What was asked for: the version, or the target's name.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Starts an upstream in threads of this process, which is ready when this returns.
    ///
    /// # Errors
    /// When what it is to answer makes no sense, or no port is free.
    pub fn start_upstream(&self, upstream: Upstream) -> Result<RunningUpstream, ScriptError> {
        let running = upstream.start(&self.layout.upstream)?;
        let mut known = self.upstreams.lock().unwrap_or_else(PoisonError::into_inner);
        known.extend_from_slice(running.addresses());
        Ok(running)
    }

    /// Starts a gateway and waits until it is ready.
    ///
    /// # Errors
    /// When its configuration is wrong, or it does not start.
    pub fn start_gateway(&self, gateway: Gateway) -> Result<RunningGateway, ScriptError> {
        gateway.start(self)
    }

    /// Begins to put load on a gateway. Returns at once.
    ///
    /// # Errors
    /// When the generator is not installed, or the path is not one.
    pub fn start_load(&self, gateway: &RunningGateway, load: Load) -> Result<RunningLoad, ScriptError> {
        load.start(self, gateway.address(), Some(gateway.pid()))
    }

    /// Begins to put load on an upstream itself: what a gateway is compared with. Returns at once.
    ///
    /// # Errors
    /// As [`Lab::start_load`].
    pub fn start_load_on_upstream(
        &self,
        upstream: &RunningUpstream,
        load: Load,
    ) -> Result<RunningLoad, ScriptError> {
        load.start(self, upstream.addresses()[0], None)
    }

    /// Samples a gateway, which should be under load meanwhile, and draws what it does.
    ///
    /// # Errors
    /// When `perf` is missing or not permitted, the gateway does nothing, or the graph cannot be written.
    pub fn flame_graph(&self, gateway: &RunningGateway, graph: FlameGraph) -> Result<PathBuf, ScriptError> {
        graph.record(gateway.pid(), self.folder.path())
    }

    /// A folder for the next gateway. It is short, because Unix sockets have short paths.
    pub(super) fn next_folder(&self) -> PathBuf {
        let nth = self.gateways.fetch_add(1, Ordering::Relaxed);
        self.folder.path().join(format!("g/{nth}"))
    }

    /// Where all upstreams that were started listen.
    pub(super) fn upstreams(&self) -> Vec<SocketAddr> {
        self.upstreams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
