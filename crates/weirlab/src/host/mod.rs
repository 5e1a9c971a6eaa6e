//! The machines that the parts of a measurement run on: this one, or others over ssh. A session uses the two traits here
//! and [`crate::driver::Driver`]; it does not know where they lead.
//!
//! ```text
//! session ─► Site ─► Driver, Host ─► Local
//!                                ─► ssh: Remote ─► agent, a process of this program over there ─► Process, Local
//! ```
pub mod agent;
mod exchange;
pub mod guard;
mod local;
mod server;
mod settings;
mod site;
pub mod ssh;
mod working_folder;

pub(crate) use exchange::{ClientRequest, ClientResponse};
pub use local::Local;
pub use site::Site;
pub(crate) use working_folder::WorkingFolder;

use crate::flame::Stacks;
use crate::generator::Task;
use crate::load::{Edge, Outcome, Plan};
use crate::observe::{MachineSample, Sample};
use serde_json::Value;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// A machine that upstreams, loads and observations run on.
pub trait Host: Send + Sync {
    /// The address that its servers listen on.
    fn address(&self) -> IpAddr;

    /// Starts `weirlab <arguments>` there, a server, and returns when it listens.
    ///
    /// # Errors
    /// When it does not start.
    fn serve(&self, arguments: &[String], cpus: &[usize]) -> Result<Box<dyn Server>, HostError>;

    /// Begins to observe the process trees below these roots.
    ///
    /// # Errors
    /// When the connection is lost.
    fn watch(&self, roots: &[u32]) -> Result<Box<dyn Trees>, HostError>;

    /// What the machine has done so far; none where it does not say.
    fn machine(&self) -> Option<MachineSample>;

    /// The mean frequency of its CPUs at this moment in MHz; none where that is not known.
    fn frequency_mhz(&self) -> Option<f64> {
        None
    }

    /// Whether a process runs there.
    fn has(&self, pid: u32) -> bool;

    /// These processes and all that they have started.
    fn family(&self, roots: &[u32]) -> Vec<u32>;

    /// Established connections to the ports, for each process below the roots that may be a worker.
    fn connections(&self, roots: &[u32], ports: &[u16]) -> Vec<u32>;

    /// Generates a load from there, as [`Task::run`] does.
    ///
    /// # Errors
    /// When there is nothing to measure, or the generator cannot.
    fn load(
        &self,
        task: &Task<'_>,
        observer: &mut dyn FnMut(Edge),
        stop: &AtomicBool,
    ) -> Result<Outcome, HostError>;

    /// Prepares to hold the plan's connections, and `more` beyond them, open from there.
    ///
    /// # Errors
    /// When the plan makes no sense, or the limit of open files is too low.
    fn idle(&self, plan: &Plan, more: usize) -> Result<Box<dyn IdleConnections>, HostError>;

    /// Makes one exchange from there.
    ///
    /// # Errors
    /// When there is no response.
    fn send(&self, request: &ClientRequest) -> Result<ClientResponse, HostError>;

    /// Samples the stacks of processes there.
    ///
    /// # Errors
    /// When `perf` is missing there or not permitted, or there are no samples.
    fn stacks(&self, pids: &[u32], duration: Duration, frequency: u32) -> Result<Stacks, HostError>;

    /// The SHA-256 of a program there, and what its command says of its version.
    fn program(&self, program: &Path, version: &[String]) -> (String, String);
}

impl dyn Host {
    /// What an address answers in JSON.
    ///
    /// # Errors
    /// When there is no response, or it is not JSON.
    pub(crate) fn json(&self, address: SocketAddr, path: &str) -> Result<Value, String> {
        let request = ClientRequest::get(address, path);
        let answer = self.send(&request).map_err(|error| error.to_string())?;
        serde_json::from_slice(&answer.body)
            .map_err(|error| format!("GET {path}: status {}: {error}", answer.status))
    }
}

/// A server of the laboratory beside a target. Dropping it ends it.
pub trait Server: Send + Sync {
    /// Its process.
    fn pid(&self) -> u32;

    /// Where it listens.
    fn listen(&self) -> &[SocketAddr];

    /// Where it listens with TLS.
    fn listen_tls(&self) -> &[SocketAddr];
}

/// Process trees that are observed.
pub trait Trees: Send {
    /// What each has used so far, in the order of the roots.
    ///
    /// # Errors
    /// When the connection is lost.
    fn sample(&mut self) -> Result<Vec<Sample>, HostError>;
}

/// Connections that are held open. Dropping them ends them.
pub trait IdleConnections: Send {
    /// Opens so many more and waits for a response on each.
    ///
    /// # Errors
    /// When one cannot be opened or is not answered rightly, and when `stop` is raised.
    fn open(&mut self, count: usize, stop: &AtomicBool) -> Result<(), HostError>;

    /// How many the peer has ended.
    ///
    /// # Errors
    /// When the connection to the host is lost.
    fn ended(&mut self) -> Result<usize, HostError>;
}

/// The machines of a session, by role; several roles may be of one machine.
#[derive(Clone)]
pub struct Hosts {
    /// Where targets run.
    pub target: Arc<dyn Host>,
    /// Where upstreams, and the front before several instances, run.
    pub upstream: Arc<dyn Host>,
    /// Where the load comes from.
    pub generator: Arc<dyn Host>,
}

/// Why a host could not do its part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostError {
    /// It could not be reached or used; the text says where that is written, why, and how to fix it.
    Unusable(String),
    /// The connection to it is gone, and with it all that was started there.
    Lost(String),
    /// It did not do what was asked; the text says why.
    Failed(String),
}

impl fmt::Display for HostError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HostError::Unusable(text) | HostError::Lost(text) | HostError::Failed(text) => {
                formatter.write_str(text)
            }
        }
    }
}

impl std::error::Error for HostError {}
