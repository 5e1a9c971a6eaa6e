//! Starts and stops the processes of a measurement. Upstreams run as long as the session; a target, and the front before
//! several of its instances, runs as long as a block.
use super::control_plane::ControlPlane;
use super::parity;
use super::probe;
use crate::driver::Running;
use crate::generator::Generator;
use crate::host::{Host, HostError, Hosts, Server, Site};
use crate::observe::Layout;
use crate::result::TargetManifest;
use crate::scenario::{CasePlan, Document, Measure, UpstreamPlan};
use crate::target::{Certificate, KONG_YML, Launch, Listeners, Preparation, Target};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
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
    /// Whether the user named the program, or it was built: then it goes to the machine that it runs on.
    pub is_named: bool,
    /// Why it cannot take part, if it is not on this machine.
    pub unavailable: Option<String>,
    /// What is known of its version.
    pub manifest: TargetManifest,
    /// What puts load on it.
    pub generator: Generator,
}

/// Starts targets and the upstreams behind them, for all blocks of a session.
pub(crate) struct TargetRunner {
    pub(crate) upstreams: HashMap<String, Box<dyn Server>>,
    pub(crate) certificate: Certificate,
    /// Declared after the upstreams, which end before their host is left.
    pub(crate) site: Site,
    /// Messages for the user that are not printed yet.
    pub(crate) notes: Vec<String>,
}

/// A target that runs and listens.
pub(crate) struct RunningTarget {
    pub(crate) running: Mutex<Vec<Box<dyn Running>>>,
    /// The machines that it, its upstream and its load are on.
    pub(crate) hosts: Hosts,
    pub(crate) listeners: Listeners,
    /// How the first instance was started.
    pub(crate) launch: Launch,
    pub(crate) workers: usize,
    /// Where the load goes.
    pub(crate) address: SocketAddr,
    pub(crate) tls: bool,
    /// The ports of the target's own listeners, which a front hides.
    pub(crate) ports: Vec<u16>,
    pub(crate) upstream: SocketAddr,
    pub(crate) upstream_pid: u32,
    /// The declarative file as rendered.
    pub(crate) document: Document,
    /// From the start to the first right answer, where the case asks.
    pub(crate) first_answer: Option<Duration>,
    pub(crate) control_plane: Option<ControlPlane>,
    pub(crate) front: Option<Box<dyn Server>>,
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

    /// The machine that the target's processes are on: that of the upstream, where it is the target.
    pub(crate) fn target_host(&self) -> &dyn Host {
        let running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.is_empty() { &*self.hosts.upstream } else { &*self.hosts.target }
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
        let document = case.document(upstream.listen()).map_err(|error| error.to_string())?;
        let tls = case.is_tls();
        let mut first_answer = None;
        let mut instances = Vec::new();
        let common = Preparation {
            label: &contender.label,
            binary: &contender.binary,
            case,
            document: &document,
            folder: &self.site.folder,
            addresses: &[],
            workers,
            upstream: upstream.listen(),
            upstream_tls: upstream.listen_tls(),
            certificate: &self.certificate,
            control_plane: None,
            container: self.site.driver.name() == "docker",
        };
        let control_plane = self.control_plane(cell, &contender.target, &common, layout)?;
        let address_of_control_plane = control_plane.as_ref().and_then(ControlPlane::cluster);
        let count = case.gateway.instances.max(1);
        for instance in 0..count {
            let addresses = self.addresses(contender.target.listeners())?;
            let preparation = Preparation {
                folder: &self.folder(cell, &instance.to_string()),
                addresses: &addresses,
                control_plane: address_of_control_plane,
                ..common
            };
            let cpus = (layout.of_instance(instance, count), layout.generator.as_slice());
            instances.push(self.instance(&contender.target, &preparation, cpus, &mut first_answer)?);
        }
        let launch = instances[0].0.clone();
        let mut listeners = launch.listeners.clone();
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
            instances.iter().filter_map(|(launch, _)| traffic(&launch.listeners)).collect();
        let running: Vec<Box<dyn Running>> =
            instances.into_iter().filter_map(|(_, running)| running).collect();
        let front = case.has_front().then(|| self.front(&addresses, layout)).transpose()?;
        let address = front.as_ref().and_then(|front| front.listen().first()).or(addresses.first());
        let address = *address
            .ok_or_else(|| format!("{} has no listener for {}", contender.label, case.case.scheme))?;
        Ok(RunningTarget {
            running: Mutex::new(running),
            hosts: self.site.hosts.clone(),
            listeners,
            launch,
            workers,
            address,
            tls,
            ports: addresses.iter().map(SocketAddr::port).collect(),
            upstream: upstream.listen()[0],
            upstream_pid: upstream.pid(),
            document,
            first_answer,
            control_plane,
            front,
        })
    }

    /// The declarative files that processes of a cell are given, in folders that do not stay.
    pub(crate) fn rendered_files(&self, cell: usize, case: &CasePlan) -> Vec<PathBuf> {
        let instances = (0..case.gateway.instances.max(1)).map(|instance| instance.to_string());
        let names = instances.chain(["control-plane".to_owned()]);
        names.map(|name| self.folder(cell, &name).join(KONG_YML)).collect()
    }

    /// The folder of a process of a cell. It is short, for Unix sockets have short paths.
    fn folder(&self, cell: usize, name: &str) -> PathBuf {
        self.site.folder.join(format!("t/{cell}/{name}"))
    }

    fn addresses(&self, count: usize) -> Result<Vec<SocketAddr>, String> {
        self.site.driver.addresses(count).map_err(|error| error.to_string())
    }

    /// Starts the control plane of a target, if it and the case have one.
    fn control_plane(
        &self,
        cell: usize,
        target: &Target,
        common: &Preparation<'_>,
        layout: &Layout,
    ) -> Result<Option<ControlPlane>, String> {
        let Some(listeners) = target.control_plane_listeners(common.case) else { return Ok(None) };
        let addresses = self.addresses(listeners)?;
        let folder = self.folder(cell, "control-plane");
        let preparation = Preparation { folder: &folder, addresses: &addresses, ..*common };
        let launch = target.prepare_control_plane(&preparation).map_err(|error| error.to_string())?;
        let start = |launch| ControlPlane::start(&*self.site.driver, launch, &layout.control_plane);
        launch.map(start).transpose()
    }

    /// Starts the front before several instances, beside the upstream.
    fn front(&self, addresses: &[SocketAddr], layout: &Layout) -> Result<Box<dyn Server>, String> {
        let host = &self.site.hosts.upstream;
        let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
        let listen = any_port(&**host);
        let arguments = ["front", "--to", &list.join(","), "--listen", &listen].map(str::to_owned);
        host.serve(&arguments, &layout.upstream).map_err(|error| error.to_string())
    }

    fn instance(
        &self,
        target: &Target,
        preparation: &Preparation<'_>,
        (own_cpus, generator_cpus): (Vec<usize>, &[usize]),
        first_answer: &mut Option<Duration>,
    ) -> Result<(Launch, Option<Box<dyn Running>>), String> {
        let launch = target.prepare(preparation).map_err(|error| error.to_string())?;
        if launch.command.is_empty() {
            return Ok((launch, None));
        }
        let start = || self.site.driver.start(&launch, &own_cpus).map_err(|error| error.to_string());
        let running = if preparation.case.measure == Measure::Start {
            let subject = subject(preparation, &launch.listeners)?;
            let (running, took) = probe::first_answer(
                start,
                &*self.site.hosts.generator,
                &subject,
                &preparation.case.parity[0],
                generator_cpus,
            )?;
            *first_answer = took;
            running
        } else {
            start()?
        };
        Ok((launch, Some(running)))
    }

    /// Makes sure that the upstream runs.
    fn ensure_upstream(&mut self, plan: &UpstreamPlan, layout: &Layout) -> Result<(), String> {
        let key = key(plan, layout);
        let host = &self.site.hosts.upstream;
        if let Some(upstream) = self.upstreams.get(&key) {
            if host.has(upstream.pid()) {
                return Ok(());
            }
            self.notes
                .push(format!("the upstream (pid {}) ended by itself and is restarted", upstream.pid()));
        }
        let upstream = serve(&**host, plan, &layout.upstream).map_err(|error| error.to_string())?;
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

fn serve(host: &dyn Host, plan: &UpstreamPlan, cpus: &[usize]) -> Result<Box<dyn Server>, HostError> {
    let listen = any_port(host);
    let mut arguments = vec!["upstream".to_owned()];
    for _ in 0..plan.listeners.max(1) {
        arguments.extend(["--listen".to_owned(), listen.clone()]);
    }
    arguments.extend(["--listen-tls".to_owned(), listen]);
    let has = |option: &str| plan.arguments.iter().any(|argument| argument.starts_with(option));
    if !has("--body") {
        arguments.extend(["--body-bytes".to_owned(), plan.body_bytes.to_string()]);
    }
    if !has("--threads") {
        arguments.extend(["--threads".to_owned(), cpus.len().max(1).to_string()]);
    }
    arguments.extend(plan.arguments.iter().cloned());
    host.serve(&arguments, cpus)
}

fn any_port(host: &dyn Host) -> String {
    SocketAddr::new(host.address(), 0).to_string()
}

/// Cases share an upstream that answers alike on the same CPUs.
fn key(plan: &UpstreamPlan, layout: &Layout) -> String {
    format!("{plan:?} on {:?}", layout.upstream)
}
