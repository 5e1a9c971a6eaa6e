//! Starts and stops the processes of a measurement. Upstreams run as long as the session; a target, and the front before
//! several of its instances, runs as long as a block.
use super::certificate::Certificate;
use super::control_plane::ControlPlane;
use super::parity;
use super::probe;
use super::upstreams::LocalServer;
use crate::driver::{Driver, Running};
use crate::generator::Generator;
use crate::observe::Layout;
use crate::result::TargetManifest;
use crate::scenario::{CasePlan, Document, Measure, UpstreamPlan};
use crate::target::{Listeners, Preparation, Target};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A target as it takes part in a session.
#[derive(Clone, Debug)]
pub struct Contender {
    /// Its label.
    pub label: String,
    /// What it was named on the command line; none for versions, which take part in every case.
    pub named: Option<String>,
    /// Whether it is the A/A control.
    pub control: bool,
    /// What it is.
    pub target: Target,
    /// Its program; empty for those without one.
    pub binary: PathBuf,
    /// Why it cannot take part, if it is not on this machine.
    pub unavailable: Option<String>,
    /// What is known of its version.
    pub manifest: TargetManifest,
    /// What puts load on it.
    pub generator: Generator,
}

/// Starts targets and the upstreams behind them, for all blocks of a session.
pub(crate) struct TargetRunner {
    pub(crate) driver: Box<dyn Driver>,
    /// This very program.
    pub(crate) program: PathBuf,
    /// Where targets keep their files; short, for Unix sockets have short paths.
    pub(crate) folder: PathBuf,
    pub(crate) certificate: Certificate,
    pub(crate) upstreams: HashMap<String, LocalServer>,
    /// Messages for the user that are not printed yet.
    pub(crate) notes: Vec<String>,
}

/// A target that runs and listens.
pub(crate) struct RunningTarget {
    pub(crate) running: Mutex<Vec<Box<dyn Running>>>,
    pub(crate) listeners: Listeners,
    /// Where the load goes.
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
    /// The ports of the target's own listeners, which a front hides.
    pub(crate) ports: Vec<u16>,
    pub(crate) upstream: SocketAddr,
    pub(crate) upstream_pid: u32,
    /// The declarative file as rendered.
    pub(crate) document: Document,
    /// Where the first instance keeps its files.
    pub(crate) folder: PathBuf,
    /// From the start to the first right answer, where the case asks.
    pub(crate) first_answer: Option<Duration>,
    pub(crate) control_plane: Option<ControlPlane>,
    pub(crate) front: Option<LocalServer>,
}

impl RunningTarget {
    /// The roots of the target's process trees, as they are now: a target may go into the background after it has
    /// begun to listen. Without a process of its own, the target is the upstream itself.
    pub(crate) fn pids(&self) -> Result<Vec<u32>, String> {
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_empty() {
            return Ok(vec![self.upstream_pid]);
        }
        let root = |one: &mut Box<dyn Running>| match one.alive() {
            true => Ok(one.pid()),
            false => Err("the target ended by itself; see its log in the folder of the run".to_owned()),
        };
        running.iter_mut().map(root).collect()
    }

    /// Where the parity check sends its requests.
    pub(crate) fn subject(&self, case: &CasePlan) -> parity::Subject<'static> {
        let protocol = case.load.protocol;
        parity::Subject {
            address: self.address,
            protocol,
            tls: self.tls,
            host: None,
            upstream: self.upstream,
        }
    }
}

impl TargetRunner {
    /// Starts the contender for a case and everything it needs. Each cell has folders of its own, because the target of
    /// another may still be running.
    pub(crate) fn open(
        &mut self,
        cell: usize,
        case: &CasePlan,
        contender: &Contender,
        layout: &Layout,
        workers: usize,
    ) -> Result<RunningTarget, String> {
        self.ensure_upstream(&case.upstream, layout)?;
        let upstream = &self.upstreams[&key(&case.upstream, layout)];
        let document = case.document(&upstream.listen).map_err(|error| error.to_string())?;
        let tls = case.is_tls();
        let mut first_answer = None;
        let mut instances = Vec::new();
        let common = Preparation {
            label: &contender.label,
            binary: &contender.binary,
            case,
            document: &document,
            folder: &self.folder,
            workers,
            upstream: &upstream.listen,
            upstream_tls: &upstream.listen_tls,
            certificate: self.certificate.paths(),
            control_plane: None,
            container: self.driver.name() == "docker",
        };
        let control_plane = self.control_plane(cell, &contender.target, &common, layout)?;
        let address_of_control_plane = control_plane.as_ref().and_then(ControlPlane::cluster);
        let count = case.gateway.instances.max(1);
        for instance in 0..count {
            let (folder, certificate) = self.place(cell, &instance.to_string())?;
            let preparation = Preparation {
                folder: &folder,
                certificate: certificate.paths(),
                control_plane: address_of_control_plane,
                ..common
            };
            let cpus = (layout.of_instance(instance, count), layout.generator.as_slice());
            instances.push(self.instance(&contender.target, &preparation, cpus, &mut first_answer)?);
        }
        let mut listeners = instances[0].0.clone();
        if let Some(control_plane) = &control_plane {
            listeners.admin = control_plane.admin();
        }
        let of_admin = case.needs.contains("admin-load");
        let traffic = |listeners: &Listeners| match (of_admin, tls) {
            (true, _) => listeners.admin,
            (false, true) => listeners.https,
            (false, false) => listeners.http,
        };
        let addresses: Vec<SocketAddr> =
            instances.iter().filter_map(|(listeners, _)| traffic(listeners)).collect();
        let running: Vec<Box<dyn Running>> =
            instances.into_iter().filter_map(|(_, running)| running).collect();
        let front = case.has_front().then(|| front(&self.program, &addresses, layout)).transpose()?;
        let address = front.as_ref().and_then(|front| front.listen.first()).or(addresses.first());
        let address = *address
            .ok_or_else(|| format!("{} has no listener for {}", contender.label, case.case.scheme))?;
        Ok(RunningTarget {
            running: Mutex::new(running),
            listeners,
            address,
            tls,
            ports: addresses.iter().map(SocketAddr::port).collect(),
            upstream: upstream.listen[0],
            upstream_pid: upstream.pid(),
            document,
            folder: self.folder.join(format!("{cell}/0")),
            first_answer,
            control_plane,
            front,
        })
    }

    /// An empty folder below that of a cell, and the certificate in it.
    fn place(&self, cell: usize, name: &str) -> Result<(PathBuf, Certificate), String> {
        let folder = self.folder.join(format!("{cell}/{name}"));
        let certificate = empty(&folder)
            .and_then(|()| self.certificate.copy_into(&folder))
            .map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok((folder, certificate))
    }

    /// Starts the control plane of a target, if it and the case have one.
    fn control_plane(
        &self,
        cell: usize,
        target: &Target,
        common: &Preparation<'_>,
        layout: &Layout,
    ) -> Result<Option<ControlPlane>, String> {
        let (folder, certificate) = self.place(cell, "control-plane")?;
        let preparation = Preparation { folder: &folder, certificate: certificate.paths(), ..*common };
        let launch = target.prepare_control_plane(&preparation).map_err(|error| error.to_string())?;
        launch.map(|launch| ControlPlane::start(&*self.driver, launch, &layout.upstream)).transpose()
    }

    fn instance(
        &self,
        target: &Target,
        preparation: &Preparation<'_>,
        (own_cpus, generator_cpus): (Vec<usize>, &[usize]),
        first_answer: &mut Option<Duration>,
    ) -> Result<(Listeners, Option<Box<dyn Running>>), String> {
        let launch = target.prepare(preparation).map_err(|error| error.to_string())?;
        if launch.command.is_empty() {
            return Ok((launch.listeners, None));
        }
        let start = || self.driver.start(&launch, &own_cpus).map_err(|error| error.to_string());
        let running = if preparation.case.measure == Measure::Start {
            let subject = subject(preparation, &launch.listeners)?;
            let (running, took) =
                probe::first_answer(start, &subject, &preparation.case.parity[0], generator_cpus)?;
            *first_answer = took;
            running
        } else {
            start()?
        };
        Ok((launch.listeners, Some(running)))
    }

    /// Makes sure that the upstream runs.
    fn ensure_upstream(&mut self, plan: &UpstreamPlan, layout: &Layout) -> Result<(), String> {
        let key = key(plan, layout);
        if let Some(upstream) = self.upstreams.get_mut(&key) {
            if upstream.alive() {
                return Ok(());
            }
            self.notes
                .push(format!("the upstream (pid {}) ended by itself and is restarted", upstream.pid()));
        }
        let mut arguments = vec!["upstream".to_owned()];
        for _ in 0..plan.listeners.max(1) {
            arguments.extend(["--listen".to_owned(), "127.0.0.1:0".to_owned()]);
        }
        arguments.extend(["--listen-tls".to_owned(), "127.0.0.1:0".to_owned()]);
        arguments.extend(["--body-bytes".to_owned(), plan.body_bytes.to_string()]);
        if !plan.arguments.iter().any(|argument| argument.starts_with("--threads")) {
            arguments.extend(["--threads".to_owned(), layout.upstream.len().max(1).to_string()]);
        }
        arguments.extend(plan.arguments.iter().cloned());
        let upstream = LocalServer::start(&self.program, &arguments, &layout.upstream)?;
        self.upstreams.insert(key, upstream);
        Ok(())
    }
}

impl RunningTarget {
    /// Stops the target and returns its log.
    pub(crate) fn close(self) -> (String, Result<(), String>) {
        let mut log = String::new();
        let mut outcome = Ok(());
        for mut running in self.running.into_inner().unwrap_or_else(PoisonError::into_inner) {
            outcome = outcome.and(running.stop().map_err(|error| error.to_string()));
            log.push_str(&running.log());
        }
        if let Some((of_control_plane, ended)) = self.control_plane.map(ControlPlane::close) {
            log.push_str(&of_control_plane);
            outcome = outcome.and(ended);
        }
        (log, outcome)
    }
}

/// Where the first response is expected.
fn subject(preparation: &Preparation<'_>, listeners: &Listeners) -> Result<parity::Subject<'static>, String> {
    let tls = preparation.case.is_tls();
    let address = if tls { listeners.https } else { listeners.http };
    let address = address.ok_or_else(|| format!("{} has no listener for traffic", preparation.label))?;
    let protocol = preparation.case.load.protocol;
    Ok(parity::Subject { address, protocol, tls, host: None, upstream: preparation.upstream[0] })
}

fn front(program: &Path, addresses: &[SocketAddr], layout: &Layout) -> Result<LocalServer, String> {
    let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let arguments = ["front", "--to", &list.join(","), "--listen", "127.0.0.1:0"].map(str::to_owned);
    LocalServer::start(program, &arguments, &layout.upstream)
}

/// Cases share an upstream that answers alike on the same CPUs.
fn key(plan: &UpstreamPlan, layout: &Layout) -> String {
    format!("{plan:?} on {:?}", layout.upstream)
}

fn empty(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => fs::create_dir_all(folder),
    }
}
