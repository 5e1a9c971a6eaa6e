//! The side of the process that is replaced.
use super::VARIABLE;
use super::attempt::Attempt;
use super::channel::{Channel, Message};
use super::draining::DrainingProcesses;
use super::supervised::Supervised;
use crate::control::Control;
use crate::{prefix, process_limit, program};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_proxy::listen::NamedSocket;

/// Variables of the service manager that are for one process alone.
const OF_ONE_PROCESS: [&str; 4] = ["WATCHDOG_PID", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"];

/// How this process was started, and so how the next one is.
#[derive(Debug, Clone)]
pub(crate) struct Launch {
    /// The file of the program: by the time of an upgrade another one is there.
    program: PathBuf,
    /// The name that it is called by.
    name: String,
    options: Vec<OsString>,
    /// What would end with this process. Looked for at the start, because a process whose parent ends is process 1's.
    supervised: Option<Supervised>,
}

impl Launch {
    /// A node that was started by this name with these options.
    pub(crate) fn new(name: &str, options: Vec<OsString>) -> io::Result<Launch> {
        let (program, supervised) = (program::own()?, Supervised::find());
        Ok(Launch { program, name: name.to_owned(), options, supervised })
    }

    /// Of a node that cannot be started again.
    pub(crate) fn none() -> Launch {
        Launch { program: PathBuf::new(), name: String::new(), options: Vec::new(), supervised: None }
    }

    fn start(&self, program: &Path, channel: OwnedFd) -> Result<Child, UpgradeError> {
        let mut command = Command::new(program);
        command
            .arg0(program::argument(program, &self.name))
            .arg("run")
            .args(&self.options)
            .stdin(channel)
            .env(VARIABLE, "1");
        for name in OF_ONE_PROCESS {
            command.env_remove(name);
        }
        command.spawn().map_err(|error| UpgradeError::NoProgram(program.to_owned(), error))
    }
}

/// Why the process was not replaced.
#[derive(Debug)]
pub(crate) enum UpgradeError {
    /// The program cannot be run.
    NoProgram(PathBuf, io::Error),
    /// The new process says why it did not start.
    Failed(String),
    /// It ended without saying anything.
    Ended(String),
    /// It took too long.
    Late(Duration),
    /// The socket to the new process failed, which says little by itself.
    Channel(io::Error),
    /// A system call failed.
    System(io::Error),
    /// The new process would end with this one, because of what this process is.
    Supervised(Supervised),
    /// A reload does not end.
    Reloading,
    /// There is no command that would start the same.
    Demo,
    /// The node is to stop.
    Cancelled,
    /// The process that this one has replaced has not left the node to it so far.
    Early,
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UpgradeError::NoProgram(program, error) if error.raw_os_error() == Some(Errno::NOEXEC.raw_os_error()) => {
                write!(f, "cannot run {}: {error}: install the program for this kind of machine there", program.display())
            }
            UpgradeError::NoProgram(program, error) => {
                let hint = match process_limit::hint(error) {
                    "" => ": install the program there, or name one with `--program`",
                    hint => hint,
                };
                write!(f, "cannot run {}: {error}{hint}", program.display())
            }
            UpgradeError::Failed(reason) => write!(f, "the new process did not start: {reason}"),
            UpgradeError::Ended(status) => write!(
                f,
                "the new process ended before it was ready ({status}): see the log, and check that the program is a version \
                 with `weir upgrade`"
            ),
            UpgradeError::Late(timeout) => write!(
                f,
                "the new process was not ready within {} s and was killed: see the log, or allow more with `--timeout`",
                timeout.as_secs_f64()
            ),
            UpgradeError::Channel(error) | UpgradeError::System(error) => {
                write!(f, "the new process could not be prepared: {error}{}", process_limit::hint(error))
            }
            UpgradeError::Early => f.write_str(
                "this process has replaced another a moment ago, which still closes its listeners: try again",
            ),
            UpgradeError::Cancelled => f.write_str("the node was asked to stop"),
            UpgradeError::Demo => f.write_str("the demo cannot be upgraded: stop it, and start it again"),
            UpgradeError::Supervised(supervised) => supervised.fmt(f),
            UpgradeError::Reloading => {
                f.write_str("a reload of the configuration has not ended so far: try again, or allow more with `--timeout`")
            }
        }
    }
}

impl From<io::Error> for UpgradeError {
    fn from(error: io::Error) -> Self {
        UpgradeError::System(error)
    }
}

/// What it takes to replace this process.
pub(crate) struct Upgrader {
    control: Arc<Control>,
    launch: Launch,
    pid_file: File,
    commands: OwnedFd,
    /// The processes before this one that still drain.
    draining: Arc<DrainingProcesses>,
    starting: Mutex<Starting>,
}

/// A new process, which may have taken over.
#[derive(Default)]
struct Starting {
    pid: Option<Pid>,
    /// It may take over at any time.
    may_take_over: bool,
    /// It is not to take over any more.
    is_cancelled: bool,
}

/// The process that has taken over.
pub(crate) struct Successor {
    pub(crate) pid: u32,
    channel: Channel,
}

impl Successor {
    /// Asks it to stop as well.
    pub(crate) fn stop(&self) {
        if let Some(pid) = process_id(self.pid) {
            // If it is gone, that is as good.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Lets it use the files of this process.
    pub(crate) fn leave_files(&self) {
        if let Err(error) = self.channel.send(&Message::Left) {
            tracing::warn!(%error, "the new process did not learn that this one has left");
        }
    }
}

impl Upgrader {
    /// Opens everything that an upgrade passes on of this process.
    pub(crate) fn new(
        control: Arc<Control>,
        launch: Launch,
        pid_file: File,
        commands: impl AsFd,
    ) -> io::Result<Upgrader> {
        let commands = commands.as_fd().try_clone_to_owned()?;
        let (draining, starting) = (Arc::default(), Mutex::default());
        Ok(Upgrader { control, launch, pid_file, commands, draining, starting })
    }

    /// The processes before this one that still drain.
    pub(crate) fn draining(&self) -> &Arc<DrainingProcesses> {
        &self.draining
    }

    /// Starts a new process, and returns once that takes over. If that fails, this one goes on as before.
    pub(crate) fn run(&self, program: Option<PathBuf>, timeout: Duration) -> Result<Successor, UpgradeError> {
        if let Some(supervised) = self.launch.supervised.clone() {
            return Err(UpgradeError::Supervised(supervised));
        }
        if self.launch.program.as_os_str().is_empty() {
            return Err(UpgradeError::Demo);
        }
        self.starting().unless_cancelled()?;
        let (channel, other) = Channel::pair()?;
        let program = program.unwrap_or_else(|| self.launch.program.clone());
        let mut attempt = self.start(&program, other)?;
        let pid = attempt.pid();
        tracing::info!(pid, program = %program.display(), "upgrade: a new process starts");
        let replaced = self.begun(pid).and_then(|()| self.replace(&channel, Instant::now() + timeout));
        let is_cancelled = self.starting().is_cancelled;
        match replaced {
            Ok(()) => {
                attempt.succeed();
                Ok(Successor { pid, channel })
            }
            Err(_) if is_cancelled => Err(UpgradeError::Cancelled),
            Err(error) => {
                let error = attempt.explain(error, timeout);
                tracing::error!("upgrade refused: {error}; this process goes on");
                Err(error)
            }
        }
    }

    fn start(&self, program: &Path, channel: OwnedFd) -> Result<Attempt<impl FnMut()>, UpgradeError> {
        // It can only be opened in both while each lets the other.
        self.control.share_store(true);
        let child = self.launch.start(program, channel).inspect_err(|_| self.control.share_store(false))?;
        Ok(Attempt::new(child, || self.undo()))
    }

    /// All is as it was before a new process was started, which has ended.
    fn undo(&self) {
        let is_cancelled = self.starting().is_cancelled;
        *self.starting() = Starting { is_cancelled, ..Starting::default() };
        let [.., quic] = self.control.addresses();
        self.control.proxy().take_back_quic(&quic_addresses(&quic));
        self.control.share_store(false);
        if let Err(error) = prefix::write_pid(&self.pid_file) {
            tracing::error!(%error, "the pid file may name the process that did not start");
        }
    }

    fn starting(&self) -> MutexGuard<'_, Starting> {
        self.starting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process was started, unless it is not to take over any more.
    fn begun(&self, pid: u32) -> Result<(), UpgradeError> {
        let mut starting = self.starting();
        starting.pid = process_id(pid);
        starting.unless_cancelled()
    }

    /// Ends the process that is to take over, unless it was let do so already.
    pub(crate) fn cancel(&self) {
        let mut starting = self.starting();
        starting.is_cancelled = true;
        if !starting.may_take_over {
            starting.signal(Signal::KILL);
        }
    }

    /// Has the new process stop that may be taking over at this moment, or may have.
    pub(crate) fn stop_new_process(&self) {
        self.starting().signal(Signal::TERM);
    }

    /// From here on, the new process may take over.
    fn let_take_over(&self) -> Result<(), UpgradeError> {
        let mut starting = self.starting();
        starting.may_take_over = true;
        starting.unless_cancelled()
    }

    fn replace(&self, channel: &Channel, end: Instant) -> Result<(), UpgradeError> {
        let left = || end.saturating_duration_since(Instant::now());
        channel.set_timeout(left())?;
        let quic = self.send_sockets(channel).map_err(UpgradeError::Channel)?;
        channel.set_timeout(left())?;
        let listeners = match channel.receive().map_err(UpgradeError::Channel)?.0 {
            Message::Ready { quic } => quic,
            Message::Failed(reason) => return Err(UpgradeError::Failed(reason)),
            _ => return Err(unexpected().into()),
        };
        let state = self.control.export_state()?;
        self.control.proxy().hand_over_quic(&listeners, quic)?;
        self.let_take_over()?;
        self.control.expect_changes();
        channel.set_timeout(left())?;
        channel.send_descriptor(&Message::Serve, state.as_fd()).map_err(UpgradeError::Channel)?;
        match channel.receive_in_time().map_err(UpgradeError::Channel)? {
            Message::Serving => Ok(()),
            Message::Failed(reason) => Err(UpgradeError::Failed(reason)),
            _ => Err(unexpected().into()),
        }
    }

    /// Sends everything that is listened on; returns the end of the way that datagrams of QUIC come back.
    fn send_sockets(&self, channel: &Channel) -> io::Result<OwnedFd> {
        let proxy = self.control.proxy();
        for NamedSocket { setting, asked, is_of_manager, socket } in self.control.sockets().copies()? {
            let asked = asked.map(|address| address.to_string());
            channel.send_descriptor(&Message::Socket { setting, asked, is_of_manager }, socket)?;
        }
        channel.send_descriptor(&Message::PidFile, &self.pid_file)?;
        channel.send_descriptor(&Message::Commands, &self.commands)?;
        if let Some(text) = self.control.posted() {
            channel.send_descriptor(&Message::Configuration, memory_file(&text)?)?;
        }
        let (own, other) = Channel::pair()?;
        channel.send_descriptor(&Message::Quic(proxy.quic_successor()), other)?;
        for (generation, way) in proxy.quic_ways()? {
            channel.send_descriptor(&Message::QuicOf { generation }, way)?;
        }
        self.draining.send(channel)?;
        channel.send(&Message::Begin { pid: std::process::id(), key: weir_plugin::node_key() })?;
        Ok(own.into_socket())
    }
}

impl Starting {
    fn unless_cancelled(&self) -> Result<(), UpgradeError> {
        if self.is_cancelled { Err(UpgradeError::Cancelled) } else { Ok(()) }
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.pid {
            // If it is gone, that is as good.
            let _ = kill_process(pid, signal);
        }
    }
}

/// A file in memory, with this text.
fn memory_file(text: &str) -> io::Result<File> {
    let mut file = File::from(memfd_create("weir-configuration", MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    Ok(file)
}

fn process_id(number: u32) -> Option<Pid> {
    Pid::from_raw(number.try_into().ok()?)
}

fn unexpected() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it speaks another protocol")
}

/// The addresses of UDP among these, which a process with HTTP/3 receives from.
pub(super) fn quic_addresses(addresses: &[weir_proxy::Address]) -> Vec<SocketAddr> {
    addresses.iter().filter_map(weir_proxy::Address::ip).collect()
}
