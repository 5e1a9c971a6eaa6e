//! What a scenario runs in: upstream servers, a name server, and the gateway; and what steps do to them.
use super::FaultError;
use super::act::{Act, DiskAct, ProcessAct, StoreAct};
use super::behaviour::Behaviour;
use super::certificates;
use super::descriptors;
use super::dns::{Answers, NameServer};
use super::facilities::{self, Clock, Disk, Network, SlowSync};
use super::gateway::{Gateway, Surroundings};
use super::journal::Journal;
use super::run::Options;
use super::scenario::{Scenario, Step};
use super::server::Plan;
use super::server_process::{ServerProcess, send};
use super::stores::Stores;
use super::writes::Writer;
use crate::driver::process::Process;
use crate::driver::{Driver, Running};
use crate::observe::procfs;
use crate::target::{Launch, free_addresses};
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use time::OffsetDateTime;

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Where a name leads by turns when it flaps.
const SECOND: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));

/// Everything that runs. Dropping it ends all of it, the gateway first.
pub(super) struct World {
    gateway: Option<Box<dyn Running>>,
    launch: Launch,
    admin: SocketAddr,
    servers: Vec<ServerProcess>,
    names: Option<NameServer>,
    facilities: Facilities,
    journal: Arc<Mutex<Journal>>,
    clients: u32,
    /// Whether a process of the gateway had opened all descriptors that it was left.
    has_run_out: bool,
}

/// What some scenarios need.
struct Facilities {
    stores: Option<Stores>,
    disk: Option<Disk>,
    clock: Option<Clock>,
    network: Option<Network>,
    slow_sync: Option<SlowSync>,
}

impl Facilities {
    fn of(scenario: &Scenario, folder: &Path, ports: [u16; 3]) -> Result<Self, FaultError> {
        if let Some(why) = facilities::unable(scenario) {
            return Err(FaultError::Unable(why.to_owned()));
        }
        let needs = |what: &str| scenario.needs.contains(what);
        Ok(Self {
            stores: Stores::start(scenario, folder, ports)?,
            disk: needs("disk").then(|| Disk::mount(folder)).transpose()?,
            clock: needs("clock").then(|| Clock::new(folder)).transpose()?,
            network: needs("network").then(Network::new).transpose()?,
            slow_sync: needs("slow-sync").then(|| SlowSync::new(folder)),
        })
    }
}

impl World {
    pub(super) fn start(
        scenario: &Scenario,
        gateway: &Gateway,
        options: &Options,
        folder: &Path,
    ) -> Result<Self, FaultError> {
        let io = |what: &'static str| move |error| FaultError::system(what, error);
        fs::create_dir_all(folder).map_err(io("the working folder cannot be made"))?;
        let free = free_addresses(LOOPBACK, scenario.upstreams + 6).map_err(io("no port is free"))?;
        let (listeners, upstreams) = free.split_at(6);
        let facilities = Facilities::of(scenario, folder, [3, 4, 5].map(|at| listeners[at].port()))?;
        let mut upstreams = upstreams.to_vec();
        if let (Some(network), Some(first)) = (&facilities.network, upstreams.first_mut()) {
            first.set_ip(IpAddr::V4(network.inside));
        }
        let tls = scenario.tls.map(|tls| certificates::write(folder, tls, upstreams.len())).transpose()?;
        let journal = Arc::new(Mutex::new(Journal::new(tls.as_ref().and_then(|tls| tls.expires))));
        let servers = upstreams.iter().enumerate().map(|(number, address)| {
            let plan = Plan {
                listen: listen(scenario, *address),
                tls: tls.as_ref().and_then(|tls| tls.servers.get(number)).cloned(),
                body_bytes: scenario.load.body,
            };
            let network = facilities.network.as_ref().filter(|_| number == 0);
            let namespace = network.map(|network| network.namespace.clone());
            ServerProcess::start(number, &options.weirlab, namespace, plan, &journal)
        });
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        let names = scenario.needs.contains("dns").then(NameServer::start).transpose();
        let names = names.map_err(io("the name server cannot listen"))?;
        let (clock, stores) = (facilities.clock.as_ref(), facilities.stores.as_ref());
        let launch = gateway.prepare(&Surroundings {
            folder: &folder.join("gateway"),
            listeners: [listeners[0], listeners[1], listeners[2]],
            upstreams: &upstreams,
            ca: tls.as_ref().map(|tls| tls.ca.as_path()),
            resolver: names.as_ref().map(|names| names.address),
            store: stores.map(Stores::address),
            standby: stores.and_then(Stores::standby),
            sentinel: stores.and_then(Stores::sentinel),
            disk: facilities.disk.as_ref().map(|disk| disk.folder.as_path()),
            needs: &scenario.needs,
            environment: clock.map(Clock::environment).unwrap_or_default(),
            wrap: facilities.slow_sync.as_ref().map(SlowSync::wrap).unwrap_or_default(),
        })?;
        let running = Process.start(&launch, &[])?;
        Ok(Self {
            gateway: Some(running),
            // A later start must find what the gateway has written.
            launch: Launch { files: Vec::new(), ..launch },
            admin: listeners[1],
            servers,
            names,
            facilities,
            journal,
            clients: scenario.load.clients,
            has_run_out: false,
        })
    }

    /// The load begins.
    pub(super) fn begin(&mut self) {
        self.facilities.slow_sync.iter_mut().for_each(SlowSync::begin);
    }

    /// What nothing has met, of the faults of these steps and of those that are there all the time. To be asked for as soon as the
    /// load has ended.
    #[must_use]
    pub(super) fn inactive(&self, steps: &[Step]) -> Vec<String> {
        let expiry = self.journal().missed_expiry(OffsetDateTime::now_utc().unix_timestamp());
        let is_prompt = self.facilities.slow_sync.as_ref().is_some_and(|disk| !disk.has_acted());
        let waits = is_prompt.then_some("nothing waited for the disk");
        let of_steps = steps.iter().filter_map(|step| self.why_inactive(&step.act));
        let mut reasons: Vec<String> =
            expiry.into_iter().chain(waits).map(str::to_owned).chain(of_steps).collect();
        reasons.dedup();
        reasons
    }

    /// Why a step shows nothing, if so. Those that fail unless they have an effect do not need this.
    fn why_inactive(&self, act: &Act) -> Option<String> {
        let (stores, disk) = (self.facilities.stores.as_ref(), self.facilities.disk.as_ref());
        let (has_acted, why) = match act {
            Act::Behave(_, Behaviour::Healthy) | Act::Dns(Answers::Right) => return None,
            Act::Behave(server, behaviour) => (
                self.journal().has_acted(*server, *behaviour),
                format!("nothing met `{behaviour}` of upstream server {server}"),
            ),
            Act::Dns(answers) => (
                self.names.as_ref().is_some_and(|names| names.has_acted(*answers)),
                format!("the name server was not asked while its answers were {answers:?}"),
            ),
            Act::Store(StoreAct::Slow(true)) => {
                (stores.is_some_and(Stores::was_slow), "no answer of the store came late".to_owned())
            }
            Act::Disk(DiskAct::Fill) => (
                disk.is_some_and(Disk::was_written_when_full),
                "nothing was written to the disk while it was full".to_owned(),
            ),
            Act::Descriptors(Some(_)) => {
                (self.has_run_out, "the gateway did not open all descriptors that it was left".to_owned())
            }
            _ => return None,
        };
        (!has_acted).then_some(why)
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Somebody who writes to the Admin API meanwhile, if the scenario asks for one.
    pub(super) fn writer(&self, scenario: &Scenario, options: &Options) -> Option<Writer> {
        scenario.needs.contains("admin-writes").then(|| Writer::start(self.admin, options.patience))
    }

    /// Forgets what was counted in the server of counters, if there is one.
    pub(super) fn forget_counts(&self) -> Result<(), FaultError> {
        self.facilities.stores.as_ref().map_or(Ok(()), Stores::forget)
    }

    /// Whether something was counted since; none without a server of counters.
    pub(super) fn has_counts(&self) -> Option<bool> {
        Some(self.facilities.stores.as_ref()?.counters()?.has_keys())
    }

    /// Where the gateway takes requests.
    pub(super) fn address(&self) -> Result<SocketAddr, FaultError> {
        self.launch.listeners.http.ok_or_else(|| FaultError::lost("the gateway"))
    }

    pub(super) fn act(&mut self, act: &Act) -> Result<(), FaultError> {
        match act {
            Act::Behave(number, behaviour) => self.server(*number)?.behave(*behaviour),
            Act::Upstream(number, act) => self.act_on_server(*number, *act),
            Act::Gateway(act) => self.act_on_gateway(*act),
            Act::Reload => Ok(self.running()?.reload()?),
            Act::Upgrade => Ok(self.running()?.upgrade()?),
            Act::Descriptors(limit) => self.limit_descriptors(*limit),
            Act::Dns(answers) => {
                let names = self.names.as_ref();
                names
                    .ok_or_else(|| FaultError::Unable("the scenario does not need dns".to_owned()))?
                    .answer(*answers);
                Ok(())
            }
            Act::Store(act) => needed(self.facilities.stores.as_mut(), "redis or postgres")?.act(*act),
            Act::Disk(act) => {
                let processes = self.processes()?;
                needed(self.facilities.disk.as_mut(), "disk")?.act(*act, &processes)
            }
            Act::Clock(seconds) => needed(self.facilities.clock.as_mut(), "clock")?.set(*seconds),
            Act::Network(cut) => self.cut_network(*cut),
        }
    }

    /// Kills the gateway and starts it again, so that it knows only what it has kept.
    pub(super) fn restart(&mut self) -> Result<(), FaultError> {
        self.act_on_gateway(ProcessAct::Kill)?;
        self.act_on_gateway(ProcessAct::Start)
    }

    fn cut_network(&mut self, cut: bool) -> Result<(), FaultError> {
        self.excuse_what_is_under_way();
        // No response counts as done that is written in between.
        if cut {
            self.server(0)?.cut_off(true);
        }
        needed(self.facilities.network.as_mut(), "network")?.cut(cut)?;
        if !cut {
            self.server(0)?.cut_off(false);
        }
        Ok(())
    }

    fn server(&mut self, number: usize) -> Result<&mut ServerProcess, FaultError> {
        let unknown = || FaultError::Unable(format!("there is no upstream server {number}"));
        self.servers.get_mut(number).ok_or_else(unknown)
    }

    fn running(&mut self) -> Result<&mut Box<dyn Running>, FaultError> {
        self.gateway.as_mut().ok_or_else(|| FaultError::lost("the gateway"))
    }

    fn act_on_server(&mut self, number: usize, act: ProcessAct) -> Result<(), FaultError> {
        self.server(number)?.act(act)?;
        if act == ProcessAct::Kill || act == ProcessAct::Stop {
            self.excuse_what_is_under_way();
        }
        Ok(())
    }

    /// What was sent and not yet read by a server that is gone: no gateway can know how much of it was.
    fn excuse_what_is_under_way(&self) {
        self.journal().excuse_unread(self.clients as usize);
    }

    fn act_on_gateway(&mut self, act: ProcessAct) -> Result<(), FaultError> {
        match act {
            ProcessAct::Kill => self.signal_gateway(Signal::KILL),
            ProcessAct::Stop => self.signal_gateway(Signal::STOP),
            ProcessAct::Continue => self.signal_gateway(Signal::CONT),
            ProcessAct::Start => {
                // It was killed; what it leaves, such as its ports, goes with its last process.
                if let Some(mut killed) = self.gateway.take() {
                    killed.stop()?;
                }
                self.gateway = Some(Process.start(&self.launch, &[])?);
                Ok(())
            }
        }
    }

    /// To all of its processes, because workers of some gateways are processes of their own.
    fn signal_gateway(&mut self, signal: Signal) -> Result<(), FaultError> {
        for process in self.processes()? {
            send(process, signal)?;
        }
        Ok(())
    }

    fn processes(&mut self) -> Result<BTreeSet<u32>, FaultError> {
        let root = self.running()?.pid();
        Ok(procfs::with_descendants(BTreeSet::from([root]), &procfs::processes()))
    }

    /// Beyond the descriptors that stay open, so many may be open.
    fn limit_descriptors(&mut self, more: Option<u64>) -> Result<(), FaultError> {
        let processes = self.processes()?;
        match more {
            None => descriptors::restore(&processes),
            Some(more) => {
                self.has_run_out |= descriptors::exhaust(&processes, more)?;
                Ok(())
            }
        }
    }

    /// Ends everything and returns what upstream servers have seen.
    pub(super) fn end(mut self) -> Journal {
        self.gateway = None;
        self.servers.iter_mut().for_each(ServerProcess::end);
        std::mem::take(&mut *self.journal())
    }

    /// What the gateway has said so far.
    pub(super) fn log(&self) -> String {
        self.gateway.as_ref().map_or_else(String::new, |gateway| gateway.log())
    }
}

fn needed<'a, T>(facility: Option<&'a mut T>, what: &str) -> Result<&'a mut T, FaultError> {
    facility
        .ok_or_else(|| FaultError::Unable(format!("the scenario has a step for which it must need {what}")))
}

fn listen(scenario: &Scenario, address: SocketAddr) -> Vec<SocketAddr> {
    if scenario.needs.contains("dns") {
        return vec![address, SocketAddr::new(SECOND, address.port())];
    }
    vec![address]
}
