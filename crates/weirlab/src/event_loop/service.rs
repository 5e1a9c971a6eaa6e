//! What the servers have in common towards outside: where they listen, where they run, what they say when they do,
//! and how they end.
use super::{EventLoop, Handler};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use serde::Serialize;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};

/// Options of every server.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct ServiceArgs {
    /// Where to listen; may be given several times. Port 0 takes a free one; so does giving none.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Vec<SocketAddr>,
    /// The CPUs to run on, such as `1` or `0,2`; any, if not given.
    #[arg(long, value_name = "CPUS", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// End when standard input ends, so that nothing is left behind when the parent is gone.
    #[arg(long)]
    pub with_parent: bool,
}

impl ServiceArgs {
    /// Where to listen: the given addresses, or any free port.
    pub fn listeners(&self) -> Vec<SocketAddr> {
        if self.listen.is_empty() {
            vec![SocketAddr::from((Ipv4Addr::LOCALHOST, 0))]
        } else {
            self.listen.clone()
        }
    }

    /// Binds this process to the CPUs asked for, and allows it as many descriptors as it may have. To be called before
    /// threads are started: they inherit it.
    ///
    /// # Errors
    /// When there is no such CPU.
    pub fn settle(&self) -> Result<(), ServiceError> {
        let limit = getrlimit(Resource::Nofile);
        // Without it there is room for fewer connections, and no more.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
        if self.cpus.is_empty() {
            return Ok(());
        }
        let mut set = CpuSet::new();
        self.cpus.iter().filter(|cpu| **cpu < CpuSet::MAX_CPU).for_each(|cpu| set.set(*cpu));
        sched_setaffinity(None, &set).map_err(|error| ServiceError::Cpus(self.cpus.clone(), error.into()))
    }

    /// Announces the addresses and waits until the server, or with `--with-parent` the parent, is gone. Signals end the
    /// process the way they always do.
    ///
    /// # Errors
    /// When a thread of the server failed.
    pub fn serve(&self, running: &Running, announcement: &Announcement) -> Result<ExitCode, ServiceError> {
        announcement.print().map_err(ServiceError::System)?;
        if self.with_parent {
            watch_parent(running.over.clone());
        }
        match running.ended.recv() {
            Ok(Err(error)) => Err(ServiceError::System(error)),
            Ok(Ok(())) | Err(_) => Ok(ExitCode::SUCCESS),
        }
    }
}

fn watch_parent(over: Sender<io::Result<()>>) {
    thread::spawn(move || {
        let mut ignored = [0; 256];
        while io::stdin().read(&mut ignored).is_ok_and(|count| count > 0) {}
        // The receiver is gone after the server ended by itself.
        let _ = over.send(Ok(()));
    });
}

/// The line of JSON that names the addresses a server listens on.
#[derive(Debug, Serialize)]
pub struct Announcement {
    /// The process.
    pub pid: u32,
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Where it listens with TLS.
    pub listen_tls: Vec<SocketAddr>,
}

impl Announcement {
    /// This process listens here.
    pub fn new(listen: Vec<SocketAddr>) -> Self {
        Self { pid: std::process::id(), listen, listen_tls: Vec::new() }
    }

    fn print(&self) -> io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut out = io::stdout().lock();
        out.write_all(&line)?;
        out.flush()
    }
}

/// Listens on an address, `shares` times; the kernel deals connections to the shares.
///
/// # Errors
/// When the address is taken or not of this machine.
pub fn bind(address: SocketAddr, shares: usize) -> Result<Vec<TcpListener>, ServiceError> {
    let refused = |error: io::Error| ServiceError::Listen(address, error);
    let first = bind_one(address, shares > 1).map_err(refused)?;
    let chosen = first.local_addr().map_err(refused)?;
    let mut listeners = vec![first];
    for _ in 1..shares {
        listeners.push(bind_one(chosen, true).map_err(refused)?);
    }
    Ok(listeners)
}

fn bind_one(address: SocketAddr, shared: bool) -> io::Result<TcpListener> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = rustix::net::socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if shared {
        sockopt::set_socket_reuseport(&socket, true)?;
    }
    // Accepted connections inherit it.
    sockopt::set_tcp_nodelay(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, 4096)?;
    Ok(TcpListener::from(socket))
}

/// A server's threads. Dropping it ends them.
pub struct Running {
    stops: Vec<OwnedFd>,
    threads: Vec<JoinHandle<()>>,
    over: Sender<io::Result<()>>,
    ended: Receiver<io::Result<()>>,
}

impl Running {
    /// Runs one thread for each handler with its listeners.
    ///
    /// # Errors
    /// When the kernel is out of descriptors or threads.
    pub fn start<H: Handler + Send + 'static>(
        servers: Vec<(Vec<TcpListener>, H)>,
    ) -> Result<Self, ServiceError> {
        let (over, ended) = mpsc::channel();
        let mut running = Self { stops: Vec::new(), threads: Vec::new(), over, ended };
        for (listeners, handler) in servers {
            running.spawn(listeners, handler).map_err(ServiceError::System)?;
        }
        Ok(running)
    }

    fn spawn<H: Handler + Send + 'static>(
        &mut self,
        listeners: Vec<TcpListener>,
        mut handler: H,
    ) -> io::Result<()> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC)?;
        let event_loop = EventLoop::new(listeners, &stop)?;
        let over = self.over.clone();
        let work = move || {
            // The receiver is gone once another thread has ended.
            let _ = over.send(event_loop.run(&mut handler));
        };
        self.threads.push(thread::Builder::new().spawn(work)?);
        self.stops.push(stop);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for stop in &self.stops {
            // A loop that has ended needs no stop.
            let _ = rustix::io::write(stop, &1u64.to_ne_bytes());
        }
        for thread in self.threads.drain(..) {
            // Its result is not needed any more.
            let _ = thread.join();
        }
    }
}

/// Why a server could not run.
#[derive(Debug)]
pub enum ServiceError {
    /// The address could not be listened on.
    Listen(SocketAddr, io::Error),
    /// The process could not be bound to these CPUs.
    Cpus(Vec<usize>, io::Error),
    /// The certificate of its TLS listeners could not be made.
    Tls(String),
    /// A system call failed.
    System(io::Error),
}

impl fmt::Display for ServiceError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => {
                write!(
                    out,
                    "cannot listen on {address}: {error}; give `--listen` a free address, or port 0 for any"
                )
            }
            Self::Cpus(cpus, error) => {
                write!(
                    out,
                    "cannot run on CPUs {cpus:?}: {error}; `nproc` says how many there are, from 0 on"
                )
            }
            Self::Tls(error) => write!(out, "cannot make a certificate: {error}"),
            Self::System(error) => write!(out, "the server failed: {error}"),
        }
    }
}

impl std::error::Error for ServiceError {}
