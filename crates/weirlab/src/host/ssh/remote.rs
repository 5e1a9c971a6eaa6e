//! A host at the other end of a connection: every call is a request to its agent.
use super::connection::Connection;
use crate::driver::{Driver, DriverError, Running};
use crate::flame::Stacks;
use crate::generator::{Script, Task};
use crate::host::agent::protocol::{Request, Serving, Started};
use crate::host::{ClientRequest, ClientResponse, Host, HostError, IdleConnections, Server, Trees};
use crate::load::{Edge, Outcome, Plan};
use crate::observe::{MachineSample, Sample};
use crate::target::Launch;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Another machine.
pub(super) struct Remote {
    pub(super) connection: Arc<Connection>,
}

impl Host for Remote {
    fn address(&self) -> IpAddr {
        self.connection.host.internal_address
    }

    fn serve(&self, arguments: &[String], cpus: &[usize]) -> Result<Box<dyn Server>, HostError> {
        let request = Request::Serve { arguments: arguments.to_vec(), cpus: cpus.to_vec() };
        let serving = self.connection.call::<Serving>(request)?;
        let item = Item { connection: Arc::clone(&self.connection), id: serving.id };
        Ok(Box::new(RemoteServer { serving, _item: item }))
    }

    fn watch(&self, roots: &[u32]) -> Result<Box<dyn Trees>, HostError> {
        let id = self.connection.call(Request::Observe { roots: roots.to_vec() })?;
        Ok(Box::new(RemoteTrees(Item { connection: Arc::clone(&self.connection), id })))
    }

    fn machine(&self) -> Option<MachineSample> {
        self.connection.call(Request::Machine).ok().flatten()
    }

    fn has(&self, pid: u32) -> bool {
        self.connection.call(Request::Has { pid }).unwrap_or(false)
    }

    fn family(&self, roots: &[u32]) -> Vec<u32> {
        self.connection.call(Request::Family { roots: roots.to_vec() }).unwrap_or_default()
    }

    fn connections(&self, roots: &[u32], ports: &[u16]) -> Vec<u32> {
        let request = Request::Connections { roots: roots.to_vec(), ports: ports.to_vec() };
        self.connection.call(request).unwrap_or_default()
    }

    fn load(
        &self,
        task: &Task<'_>,
        observer: &mut dyn FnMut(Edge),
        stop: &AtomicBool,
    ) -> Result<Outcome, HostError> {
        let sent = |script: &Script| -> Result<Script, HostError> {
            let text = script.text().map_err(|error| HostError::Failed(error.to_string()))?;
            Ok(Script { text: Some(text), ..script.clone() })
        };
        let pending = self.connection.ask(Request::Load {
            plan: Box::new(task.plan.clone()),
            generator: Box::new(task.generator.clone()),
            script: task.script.map(sent).transpose()?,
        })?;
        pending.reply(observer, &mut || stop.load(Ordering::Relaxed))
    }

    fn idle(&self, plan: &Plan, more: usize) -> Result<Box<dyn IdleConnections>, HostError> {
        let id = self.connection.call(Request::Idle { plan: Box::new(plan.clone()), more })?;
        Ok(Box::new(RemoteIdle(Item { connection: Arc::clone(&self.connection), id })))
    }

    fn send(&self, request: &ClientRequest) -> Result<ClientResponse, HostError> {
        self.connection.call(Request::Send { request: request.clone() })
    }

    fn stacks(&self, pids: &[u32], duration: Duration, frequency: u32) -> Result<Stacks, HostError> {
        self.connection.call(Request::Stacks { pids: pids.to_vec(), duration, frequency })
    }

    fn program(&self, program: &Path, version: &[String]) -> (String, String) {
        let request = Request::Program { program: program.to_owned(), version: version.to_vec() };
        self.connection.call(request).unwrap_or_default()
    }
}

/// Something that an agent has started, by its number. Dropping it ends that.
struct Item {
    connection: Arc<Connection>,
    id: u64,
}

impl Drop for Item {
    fn drop(&mut self) {
        // Once the connection is lost, the agent ends it by itself.
        let _ = self.connection.call::<()>(Request::End { id: self.id });
    }
}

struct RemoteServer {
    serving: Serving,
    _item: Item,
}

impl Server for RemoteServer {
    fn pid(&self) -> u32 {
        self.serving.pid
    }

    fn listen(&self) -> &[SocketAddr] {
        &self.serving.listen
    }

    fn listen_tls(&self) -> &[SocketAddr] {
        &self.serving.listen_tls
    }
}

struct RemoteTrees(Item);

impl Trees for RemoteTrees {
    fn sample(&mut self) -> Result<Vec<Sample>, HostError> {
        self.0.connection.call(Request::Sample { trees: self.0.id })
    }
}

struct RemoteIdle(Item);

impl IdleConnections for RemoteIdle {
    fn open(&mut self, count: usize, stop: &AtomicBool) -> Result<(), HostError> {
        let pending = self.0.connection.ask(Request::Open { idle: self.0.id, count })?;
        pending.reply(&mut |_| (), &mut || stop.load(Ordering::Relaxed))
    }

    fn ended(&mut self) -> Result<usize, HostError> {
        self.0.connection.call(Request::Ended { idle: self.0.id })
    }
}

/// Starts gateways on a host.
pub(super) struct Ssh {
    pub(super) connection: Arc<Connection>,
}

fn of_driver(error: HostError) -> DriverError {
    DriverError::Unable(error.to_string())
}

impl Driver for Ssh {
    fn name(&self) -> &'static str {
        "ssh"
    }

    fn addresses(&self, count: usize) -> Result<Vec<SocketAddr>, DriverError> {
        self.connection.call(Request::Addresses { count }).map_err(of_driver)
    }

    fn start(&self, launch: &Launch, cpus: &[usize]) -> Result<Box<dyn Running>, DriverError> {
        let request = Request::Start { launch: Box::new(launch.clone()), cpus: cpus.to_vec() };
        let Started { id, pid, age } = self.connection.call(request).map_err(of_driver)?;
        let began = Instant::now().checked_sub(age).unwrap_or_else(Instant::now);
        let item = Item { connection: Arc::clone(&self.connection), id };
        Ok(Box::new(RemoteGateway { item, pid, began }))
    }

    fn end_below(&self, _: &Path) -> Result<(), DriverError> {
        // An agent ends what it finds when it starts, and what it has started when it ends.
        Ok(())
    }
}

struct RemoteGateway {
    item: Item,
    pid: u32,
    began: Instant,
}

impl RemoteGateway {
    fn done(&self, request: Request) -> Result<(), DriverError> {
        self.item.connection.call(request).map_err(of_driver)
    }
}

impl Running for RemoteGateway {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn began(&self) -> Instant {
        self.began
    }

    fn reload(&mut self) -> Result<(), DriverError> {
        self.done(Request::Reload { running: self.item.id })
    }

    fn signal(&mut self, name: &str) -> Result<(), DriverError> {
        self.done(Request::Signal { running: self.item.id, name: name.to_owned() })
    }

    fn replace(&mut self, file: &str, text: &str) -> Result<(), DriverError> {
        let (file, text) = (file.to_owned(), text.to_owned());
        self.done(Request::Replace { running: self.item.id, file, text })
    }

    fn alive(&mut self) -> bool {
        let pid = self.item.connection.call::<Option<u32>>(Request::Alive { running: self.item.id });
        let pid = pid.ok().flatten();
        self.pid = pid.unwrap_or(self.pid);
        pid.is_some()
    }

    fn log(&self) -> String {
        self.item.connection.call(Request::Log { running: self.item.id }).unwrap_or_default()
    }

    fn stop(&mut self) -> Result<(), DriverError> {
        self.done(Request::Stop { running: self.item.id })
    }
}

impl Connection {
    /// By how much the host's clock is ahead of this one's, and the shortest of some round trips: of that, the error of
    /// the offset is at most half.
    pub(super) fn clock(&self) -> Result<(f64, Duration), HostError> {
        const TRIPS: usize = 9;
        let mut shortest: Option<(f64, Duration)> = None;
        for _ in 0..TRIPS {
            let (before, begun) = (since_epoch(), Instant::now());
            let there: Duration = self.call(Request::Time)?;
            let trip = begun.elapsed();
            let offset = there.as_secs_f64() - (before + trip / 2).as_secs_f64();
            if shortest.is_none_or(|(_, known)| trip < known) {
                shortest = Some((offset, trip));
            }
        }
        Ok(shortest.unwrap_or_default())
    }

    /// The first of these programs that is on the host; of none, the agent's own.
    pub(super) fn find(&self, candidates: &[String]) -> Result<Option<PathBuf>, HostError> {
        self.call(Request::Find { candidates: candidates.to_vec() })
    }
}

fn since_epoch() -> Duration {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
