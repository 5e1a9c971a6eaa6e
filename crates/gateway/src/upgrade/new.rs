//! The side of the process that replaces another.
use super::channel::{Channel, Message};
use super::draining::DrainingProcesses;
use super::{VARIABLE, old};
use crate::control::Control;
use rustix::stdio;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;
use weir_proxy::listen::{NamedSocket, SocketTable};
use weir_proxy::{Inheritance, QuicIdentity, QuicInheritance};

/// The process that this one replaces, and what it has sent.
pub(crate) struct Predecessor {
    pid: u32,
    channel: Arc<Channel>,
    sockets: Vec<NamedSocket>,
    pid_file: Option<OwnedFd>,
    commands: Option<OwnedFd>,
    quic: Option<(QuicIdentity, OwnedFd)>,
    /// The ways to the processes before, by their numbers.
    quic_of: Vec<(u8, OwnedFd)>,
    /// The channels of the processes before that still drain.
    draining: Vec<Channel>,
    configuration: Option<OwnedFd>,
}

/// The way to say that this process does not start.
pub(crate) struct Failing(Arc<Channel>);

impl Failing {
    pub(crate) fn tell(&self, reason: &str) {
        self.0.fail(reason);
    }
}

impl Predecessor {
    /// The process that has started this one to be replaced by it; none where a user or a service manager has started it.
    pub(crate) fn of_environment() -> io::Result<Option<Predecessor>> {
        // A process that was started by one that replaced another inherits the variable, but no such socket.
        let is_socket = || rustix::net::sockopt::socket_type(stdio::stdin()).is_ok();
        if std::env::var_os(VARIABLE).is_none() || !is_socket() {
            return Ok(None);
        }
        let socket = stdio::stdin().try_clone_to_owned()?;
        stdio::dup2_stdin(File::open("/dev/null")?)?;
        Self::receive(Channel::of(socket)).map(Some)
    }

    fn receive(channel: Channel) -> io::Result<Predecessor> {
        let channel = Arc::new(channel);
        let mut own = Predecessor {
            pid: 0,
            channel,
            sockets: Vec::new(),
            pid_file: None,
            commands: None,
            quic: None,
            quic_of: Vec::new(),
            draining: Vec::new(),
            configuration: None,
        };
        loop {
            match own.channel.receive()? {
                (Message::Socket { setting, asked, is_of_manager }, Some(socket)) => {
                    let asked = asked.and_then(|text| text.parse().ok());
                    own.sockets.push(NamedSocket { setting, asked, is_of_manager, socket });
                }
                (Message::PidFile, file) => own.pid_file = file,
                (Message::Commands, socket) => own.commands = socket,
                (Message::Quic(identity), Some(way)) => own.quic = Some((identity, way)),
                (Message::QuicOf { generation }, Some(way)) => own.quic_of.push((generation, way)),
                (Message::Draining, Some(channel)) => own.draining.push(Channel::of(channel)),
                (Message::Configuration, file) => own.configuration = file,
                (Message::Begin { pid, key }, _) => {
                    own.pid = pid;
                    weir_plugin::inherit_node_key(key);
                    return Ok(own);
                }
                _ => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "the process to replace speaks another protocol",
                    ));
                }
            }
        }
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.pid
    }

    pub(crate) fn failing(&self) -> Failing {
        Failing(self.channel.clone())
    }

    /// The pid file, and the socket for commands.
    pub(crate) fn take_files(&mut self) -> io::Result<(File, UnixListener)> {
        let missing =
            || io::Error::new(io::ErrorKind::InvalidData, "the process to replace has not sent its pid file");
        let (file, socket) = self.pid_file.take().zip(self.commands.take()).ok_or_else(missing)?;
        let commands = UnixListener::from(socket);
        commands.set_nonblocking(true)?;
        Ok((File::from(file), commands))
    }

    /// What was posted to its `/config`, if that is what it serves.
    pub(crate) fn posted(&mut self) -> io::Result<Option<String>> {
        let Some(file) = self.configuration.take() else { return Ok(None) };
        let mut file = File::from(file);
        file.rewind()?;
        io::read_to_string(file).map(Some)
    }

    /// What the data plane begins with.
    pub(crate) fn inheritance(&mut self) -> Inheritance {
        let sockets = Arc::new(SocketTable::shared(std::mem::take(&mut self.sockets)));
        let earlier = std::mem::take(&mut self.quic_of);
        let quic = self.quic.take().map(|(identity, way)| QuicInheritance { identity, way, earlier });
        Inheritance { sockets, quic }
    }

    /// Says that this process is ready, waits until it is its turn, takes the state over, and lets clients in. `take_node` takes
    /// over what else the node has, and `left` is called once the other process has left the node to this one. The processes that
    /// still drain become known to `draining`.
    pub(crate) fn take_over(
        self,
        control: &Arc<Control>,
        draining: &Arc<DrainingProcesses>,
        take_node: impl FnOnce() -> io::Result<()>,
        left: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let [.., quic] = control.addresses();
        self.channel.send(&Message::Ready { quic: old::quic_addresses(&quic) })?;
        let (Message::Serve, Some(state)) = self.channel.receive()? else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the process to replace changed its mind",
            ));
        };
        control.import_state(File::from(state));
        take_node()?;
        draining.add(self.channel.clone());
        self.draining.into_iter().for_each(|channel| draining.add(Arc::new(channel)));
        let serving = follow_once_serving(self.channel.clone(), control.clone(), draining.clone(), left)?;
        // The other process stops to accept once it has this. Nothing fails from here on.
        self.channel.send(&Message::Serving)?;
        control.sockets().own_files();
        control.proxy().open();
        let _ = serving.send(());
        Ok(())
    }
}

/// Starts the thread that follows the processes before this one, once it hears that this one serves.
fn follow_once_serving(
    channel: Arc<Channel>,
    control: Arc<Control>,
    draining: Arc<DrainingProcesses>,
    left: impl FnOnce() + Send + 'static,
) -> io::Result<Sender<()>> {
    let (serving, serves) = mpsc::channel();
    thread::Builder::new().name("weir-upgrade".to_owned()).spawn(move || {
        if serves.recv().is_err() {
            return;
        }
        // Its end is as good: it writes nothing more then.
        let _ = channel.receive();
        drop(channel);
        control.files().open();
        left();
        follow(&draining, &control);
    })?;
    Ok(serving)
}

/// How often the store is looked at for what the old process still commits.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// How often the store is tried to be held alone, once the old process has ended.
const MAX_STORE_ATTEMPTS: usize = 50;

#[expect(clippy::disallowed_methods, reason = "this thread serves no client")]
/// Takes over what the processes before commit while their last connections end.
fn follow(draining: &DrainingProcesses, control: &Control) {
    control.catch_up();
    while draining.any_is_left() {
        thread::sleep(FOLLOW_INTERVAL);
        control.catch_up();
    }
    // The other process has closed its channel, and is about to close the store.
    for _ in 0..MAX_STORE_ATTEMPTS {
        if control.take_store() {
            break;
        }
        thread::sleep(FOLLOW_INTERVAL);
    }
    control.catch_up();
    control.end_following();
}
