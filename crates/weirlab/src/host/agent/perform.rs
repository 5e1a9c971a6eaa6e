//! Does what a session asks.
use super::protocol::{Body, Message, Request, Serving, Started};
use super::state::{Item, Shared, State, lock, shared};
use crate::driver::process::Process;
use crate::driver::{Driver, DriverError, Running};
use crate::generator::{Generator, Kind, Task};
use crate::host::{Host, HostError, IdleConnections, Local, Trees, settings};
use crate::target::Launch;
use crate::{manifest, observe, target};
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often the load average is looked at, which the kernel computes every five seconds.
const LOAD_INTERVAL: Duration = Duration::from_secs(1);

/// What serves a session.
pub(super) struct Agent {
    local: Local,
    folder: PathBuf,
    state: State,
}

type Reply = Result<Value, String>;

fn reply<T: Serialize>(value: T) -> Reply {
    serde_json::to_value(value).map_err(|error| format!("the reply cannot be written: {error}"))
}

fn of_host(error: HostError) -> String {
    error.to_string()
}

fn of_driver(error: DriverError) -> String {
    error.to_string()
}

impl Agent {
    pub(super) fn new(local: Local, folder: PathBuf) -> Agent {
        Agent { local, folder, state: State::default() }
    }

    /// Stops loads in flight.
    pub(super) fn stop_loads(&self) {
        self.state.stop_all();
    }

    pub(super) fn perform(&self, id: u64, request: Request) -> Reply {
        match request {
            Request::Prepare => reply(settings::apply(&self.folder).map_err(|error| error.to_string())?),
            Request::AwaitQuiet { below, at_most } => {
                reply(await_quiet(below, at_most, &self.state.stop_of(id)))
            }
            Request::Time | Request::Describe | Request::Machine => self.of_machine(&request),
            Request::Addresses { .. } | Request::Find { .. } | Request::Program { .. } => self.find(request),
            Request::Start { launch, cpus } => self.start(&launch, &cpus),
            Request::Alive { running }
            | Request::Reload { running }
            | Request::Signal { running, .. }
            | Request::Replace { running, .. }
            | Request::Log { running }
            | Request::Stop { running } => steer(&mut **lock(&*self.running(running)?), request),
            Request::End { id } => {
                self.state.end(id);
                Ok(Value::Null)
            }
            Request::Serve { arguments, cpus } => self.serve(&arguments, &cpus),
            Request::Observe { roots } => {
                let trees = self.local.watch(&roots).map_err(of_host)?;
                reply(self.state.keep(Item::Trees(shared(trees))))
            }
            Request::Sample { trees } => reply(lock(&*self.trees(trees)?).sample().map_err(of_host)?),
            Request::Has { pid } => reply(self.local.has(pid)),
            Request::Family { roots } => reply(self.local.family(&roots)),
            Request::Connections { roots, ports } => reply(self.local.connections(&roots, &ports)),
            Request::Generator { kind, program } => reply(generator(kind, program)),
            Request::Load { plan, generator, script } => {
                self.load(id, &Task { plan: &plan, generator: &generator, script: script.as_ref() })
            }
            Request::Interrupt { id } => {
                self.state.stop_of(id).store(true, Ordering::Relaxed);
                Ok(Value::Null)
            }
            Request::Idle { plan, more } => {
                let idle = self.local.idle(&plan, more).map_err(of_host)?;
                reply(self.state.keep(Item::Idle(shared(idle))))
            }
            Request::Open { idle, count } => self.open(id, idle, count),
            Request::Ended { idle } => reply(lock(&*self.idle(idle)?).ended().map_err(of_host)?),
            Request::Stacks { pids, duration, frequency } => {
                reply(self.local.stacks(&pids, duration, frequency).map_err(of_host)?)
            }
            Request::Send { request } => reply(self.local.send(&request).map_err(of_host)?),
        }
    }

    fn of_machine(&self, request: &Request) -> Reply {
        match request {
            Request::Time => reply(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()),
            Request::Describe => reply(manifest::this_machine()),
            _ => reply(self.local.machine()),
        }
    }

    fn find(&self, request: Request) -> Reply {
        match request {
            Request::Addresses { count } => {
                let address = self.local.address();
                let found = target::free_addresses(address, count);
                reply(found.map_err(|error| format!("it cannot listen on {address}: {error}"))?)
            }
            Request::Find { candidates } if candidates.is_empty() => reply(self.local.program_path()),
            Request::Find { candidates } => {
                reply(candidates.iter().find_map(|candidate| target::locate(Path::new("/"), candidate)))
            }
            Request::Program { program, version } => reply(self.local.program(&program, &version)),
            _ => Ok(Value::Null),
        }
    }

    fn start(&self, launch: &Launch, cpus: &[usize]) -> Reply {
        let running = Process.start(launch, cpus).map_err(of_driver)?;
        let (pid, age) = (running.pid(), running.began().elapsed());
        let id = self.state.keep(Item::Running(shared(running)));
        reply(Started { id, pid, age })
    }

    fn serve(&self, arguments: &[String], cpus: &[usize]) -> Reply {
        let server = self.local.serve(arguments, cpus).map_err(of_host)?;
        let (pid, listen, listen_tls) =
            (server.pid(), server.listen().to_vec(), server.listen_tls().to_vec());
        let id = self.state.keep(Item::Server(server.into()));
        reply(Serving { id, pid, listen, listen_tls })
    }

    fn load(&self, id: u64, task: &Task<'_>) -> Reply {
        let stop = self.state.stop_of(id);
        let mut at_edge = |edge| super::send(&Message { id, body: Body::Edge(edge) });
        let outcome = self.local.load(task, &mut at_edge, &stop);
        self.state.forget_stop(id);
        reply(outcome.map_err(of_host)?)
    }

    fn open(&self, id: u64, idle: u64, count: usize) -> Reply {
        let stop = self.state.stop_of(id);
        let opened = lock(&*self.idle(idle)?).open(count, &stop);
        self.state.forget_stop(id);
        reply(opened.map_err(of_host)?)
    }

    fn running(&self, id: u64) -> Result<Shared<Box<dyn Running>>, String> {
        match self.state.get(id) {
            Some(Item::Running(running)) => Ok(running),
            _ => Err(unknown(id)),
        }
    }

    fn trees(&self, id: u64) -> Result<Shared<Box<dyn Trees>>, String> {
        match self.state.get(id) {
            Some(Item::Trees(trees)) => Ok(trees),
            _ => Err(unknown(id)),
        }
    }

    fn idle(&self, id: u64) -> Result<Shared<Box<dyn IdleConnections>>, String> {
        match self.state.get(id) {
            Some(Item::Idle(idle)) => Ok(idle),
            _ => Err(unknown(id)),
        }
    }
}

fn unknown(id: u64) -> String {
    format!("there is nothing with the number {id}: it was ended before")
}

/// The generator as this program, if it runs here and says so; else the installed one, if there is one.
fn generator(kind: Kind, program: Option<PathBuf>) -> Option<Generator> {
    match program {
        Some(program) => Some(Generator::at(kind, program)).filter(|found| !found.version.is_empty()),
        None => Generator::find(kind).ok(),
    }
}

/// Acts upon a gateway.
fn steer(running: &mut dyn Running, request: Request) -> Reply {
    let outcome = match request {
        Request::Alive { .. } => return reply(running.alive().then(|| running.pid())),
        Request::Log { .. } => return reply(running.log()),
        Request::Reload { .. } => running.reload(),
        Request::Signal { name, .. } => running.signal(&name),
        Request::Replace { file, text, .. } => running.replace(&file, &text),
        _ => running.stop(),
    };
    reply(outcome.map_err(of_driver)?)
}

/// Waits until the load average of a minute, for each core, is below a limit; returns what it is then.
fn await_quiet(below: f64, at_most: Duration, stop: &AtomicBool) -> f64 {
    // Without one it waits for as long as it takes.
    let deadline = Instant::now().checked_add(at_most);
    let cores = observe::allowed_cores().len().max(1) as f64;
    loop {
        let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let average = text.split(' ').next().and_then(|average| average.parse::<f64>().ok()).unwrap_or(0.0);
        if average / cores < below
            || deadline.is_some_and(|deadline| Instant::now() >= deadline)
            || stop.load(Ordering::Relaxed)
        {
            return average / cores;
        }
        thread::sleep(LOAD_INTERVAL);
    }
}
