//! This machine as a host: everything is a call of the module that does it.
use super::exchange::Client;
use super::server::LocalServer;
use super::{ClientRequest, ClientResponse, Host, HostError, IdleConnections, Server, Trees};
use crate::flame::{self, Stacks};
use crate::generator::Task;
use crate::load::{Edge, Idle, LoadError, Outcome, Plan};
use crate::manifest;
use crate::observe::procfs::Stat;
use crate::observe::{self, MachineSample, ProcessTree, Sample};
use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// This machine.
pub struct Local {
    /// This very program.
    program: PathBuf,
    address: IpAddr,
    folder: PathBuf,
    client: Client,
}

impl Local {
    /// This machine, with servers on loopback, and a folder for what is needed for a moment.
    ///
    /// # Errors
    /// When this program's own path is unknown.
    pub fn new(folder: &Path) -> io::Result<Local> {
        Local::at(IpAddr::V4(Ipv4Addr::LOCALHOST), folder)
    }

    /// This machine, with servers on one of its addresses.
    pub(super) fn at(address: IpAddr, folder: &Path) -> io::Result<Local> {
        let program = std::env::current_exe()?;
        Ok(Local { program, address, folder: folder.to_owned(), client: Client::new() })
    }

    /// This very program.
    pub(super) fn program_path(&self) -> &Path {
        &self.program
    }
}

fn failed(error: LoadError) -> HostError {
    HostError::Failed(error.to_string())
}

impl Host for Local {
    fn address(&self) -> IpAddr {
        self.address
    }

    fn serve(&self, arguments: &[String], cpus: &[usize]) -> Result<Box<dyn Server>, HostError> {
        let server = LocalServer::start(&self.program, arguments, cpus).map_err(HostError::Failed)?;
        Ok(Box::new(server))
    }

    fn watch(&self, roots: &[u32]) -> Result<Box<dyn Trees>, HostError> {
        let trees: Vec<ProcessTree> = roots.iter().map(|pid| ProcessTree::new(*pid)).collect();
        Ok(Box::new(trees))
    }

    fn machine(&self) -> Option<MachineSample> {
        MachineSample::now().ok()
    }

    fn frequency_mhz(&self) -> Option<f64> {
        observe::frequency_mhz()
    }

    fn has(&self, pid: u32) -> bool {
        // Until it is waited for, no other process gets its pid.
        Stat::of(pid).is_some_and(|stat| !stat.ended())
    }

    fn family(&self, roots: &[u32]) -> Vec<u32> {
        let of = |root: &u32| {
            let mut tree = ProcessTree::new(*root);
            tree.sample();
            tree.pids()
        };
        roots.iter().flat_map(of).collect()
    }

    fn connections(&self, roots: &[u32], ports: &[u16]) -> Vec<u32> {
        let family = self.family(roots);
        let at = |port: &u16| observe::connections_per_worker(&family, *port);
        ports.iter().flat_map(at).filter(|count| *count > 0).collect()
    }

    fn load(
        &self,
        task: &Task<'_>,
        observer: &mut dyn FnMut(Edge),
        stop: &AtomicBool,
    ) -> Result<Outcome, HostError> {
        task.run(&self.folder, observer, stop).map_err(|error| HostError::Failed(error.to_string()))
    }

    fn idle(&self, plan: &Plan, more: usize) -> Result<Box<dyn IdleConnections>, HostError> {
        Ok(Box::new(Idle::new(plan, more).map_err(failed)?))
    }

    fn send(&self, request: &ClientRequest) -> Result<ClientResponse, HostError> {
        self.client.send(request).map_err(HostError::Failed)
    }

    fn stacks(&self, pids: &[u32], duration: Duration, frequency: u32) -> Result<Stacks, HostError> {
        let stacks = flame::stacks(pids, duration, frequency, &self.folder);
        stacks.map_err(|error| HostError::Failed(error.to_string()))
    }

    fn program(&self, program: &Path, version: &[String]) -> (String, String) {
        let hash = manifest::sha256_of(program).unwrap_or_default();
        (hash, manifest::target_version(version).unwrap_or_default())
    }
}

impl Trees for Vec<ProcessTree> {
    fn sample(&mut self) -> Result<Vec<Sample>, HostError> {
        Ok(self.iter_mut().map(ProcessTree::sample).collect())
    }
}

impl IdleConnections for Idle {
    fn open(&mut self, count: usize, stop: &AtomicBool) -> Result<(), HostError> {
        Idle::open(self, count, stop).map_err(failed)
    }

    fn ended(&mut self) -> Result<usize, HostError> {
        Ok(Idle::ended(self))
    }
}
