//! Commands to a running node over the socket in its prefix: one word in, one line of JSON out.
use super::reload::Reloader;
use crate::prefix;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot};

/// The longest request.
const MAX_REQUEST_LEN: usize = 4096 + 64;

/// A command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Request {
    /// Say whether the node serves.
    Health,
    /// Read the declarative file again.
    Reload,
    /// Drain and stop.
    Quit(Quit),
    /// Let a new process take over, of this program if one is named, that is ready within so many milliseconds.
    Upgrade(Option<PathBuf>, Option<u64>),
}

/// How a node is to stop, in milliseconds; the settings decide what is not given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Quit {
    /// How long requests in flight may take.
    pub(crate) timeout: Option<u64>,
    /// How long connections are still accepted before.
    pub(crate) delay: Option<u64>,
}

impl Quit {
    /// Without any delay.
    pub(crate) const AT_ONCE: Quit = Quit { timeout: Some(0), delay: Some(0) };
}

/// The outcome of a command.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// The errors; empty if it succeeded.
    #[serde(default)]
    pub(crate) errors: Vec<String>,
    /// Warnings, even if it succeeded.
    #[serde(default)]
    pub(crate) warnings: Vec<String>,
    /// The hash of the configuration that is active now.
    #[serde(default)]
    pub(crate) configuration_hash: Option<String>,
    /// When the node stops: how long requests in flight may take, in milliseconds.
    #[serde(default)]
    pub(crate) drain_timeout: u64,
    /// When the node stops: how long connections are still accepted before, in milliseconds.
    #[serde(default)]
    pub(crate) shutdown_delay: u64,
    /// After an upgrade: the number of the new process.
    #[serde(default)]
    pub(crate) pid: Option<u32>,
    /// Whether a reload had nothing to read, because the configuration is in a database.
    #[serde(default)]
    pub(crate) is_stored: bool,
}

impl Request {
    fn line(&self) -> String {
        let word = |given: &Option<u64>| given.map_or("default".to_owned(), |given| given.to_string());
        match self {
            Request::Health => "health\n".to_owned(),
            Request::Reload => "reload\n".to_owned(),
            Request::Upgrade(program, timeout) => {
                let program = program.as_deref().map(|path| path.display().to_string()).unwrap_or_default();
                format!("upgrade {} {program}\n", word(timeout))
            }
            Request::Quit(Quit { timeout, delay }) => {
                match (timeout, delay) {
                    // The form of older nodes.
                    (None, None) => "quit\n".to_owned(),
                    (Some(timeout), None) => format!("quit {timeout}\n"),
                    (timeout, Some(_)) => format!("quit {} {}\n", word(timeout), word(delay)),
                }
            }
        }
    }

    fn from_line(line: &str) -> Option<Request> {
        match line {
            "health" => Some(Request::Health),
            "reload" => Some(Request::Reload),
            _ => {
                let number = |word: Option<&str>| match word {
                    None | Some("default" | "") => Some(None),
                    Some(word) => word.parse().ok().map(Some),
                };
                let mut words = line.splitn(3, ' ');
                match (words.next()?, number(words.next())?, words.next()) {
                    ("quit", timeout, delay) => Some(Request::Quit(Quit { timeout, delay: number(delay)? })),
                    ("upgrade", timeout, program) => {
                        let program = program.filter(|path| !path.is_empty()).map(PathBuf::from);
                        Some(Request::Upgrade(program, timeout))
                    }
                    _ => None,
                }
            }
        }
    }
}

/// The socket of a node; only its own user can connect.
pub(crate) fn bind(folder: &Path) -> io::Result<UnixListener> {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(prefix::socket(folder));
    rustix::process::umask(before);
    listener
}

/// A request to let a new process take over.
pub(crate) struct UpgradeRequest {
    /// Another program than this one.
    pub(crate) program: Option<PathBuf>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) reply: Option<oneshot::Sender<UpgradeOutcome>>,
}

/// What became of an upgrade.
pub(crate) struct UpgradeOutcome {
    /// The number of the new process, or why there is none.
    pub(crate) result: Result<u32, String>,
    /// Dropped once the command has its reply.
    pub(crate) _written: oneshot::Sender<()>,
}

/// How a node stops.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Stop {
    /// How long it is not ready and still accepts connections.
    pub(crate) delay: Duration,
    /// How long requests in flight may take then.
    pub(crate) drain_timeout: Duration,
}

/// Answers commands for as long as the node lives.
pub(crate) struct CommandServer {
    pub(crate) reloader: Arc<Reloader>,
    /// Receives how the node is to stop.
    pub(crate) quit: mpsc::Sender<Stop>,
    /// Receives upgrades.
    pub(crate) upgrade: mpsc::Sender<UpgradeRequest>,
    /// How it stops unless the command says otherwise.
    pub(crate) stop: Stop,
}

impl CommandServer {
    pub(crate) async fn serve(self, listener: UnixListener) {
        let server = Arc::new(self);
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let server = server.clone();
                    tokio::spawn(async move {
                        if let Err(error) = server.answer(stream).await {
                            tracing::debug!(%error, "a command got no response");
                        }
                    });
                }
                // Out of descriptors: wait, because a busy loop would not free any.
                Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    async fn answer(&self, mut stream: UnixStream) -> io::Result<()> {
        let mut word = Vec::new();
        while !word.ends_with(b"\n") && word.len() < MAX_REQUEST_LEN {
            word.push(stream.read_u8().await?);
        }
        let reply = match Request::from_line(String::from_utf8_lossy(&word).trim_end_matches('\n')) {
            Some(Request::Health) => Reply::default(),
            Some(Request::Reload) => self.reload().await,
            Some(Request::Upgrade(program, timeout)) => {
                let (reply, _written) = self.upgrade(program, timeout).await;
                return stream.write_all(&line(&reply)?).await;
            }
            Some(Request::Quit(quit)) => return self.quit(quit, stream).await,
            None => Reply {
                errors: vec!["unknown command: use the `weir` of the version that runs".to_owned()],
                ..Reply::default()
            },
        };
        stream.write_all(&line(&reply)?).await
    }

    async fn quit(&self, quit: Quit, mut stream: UnixStream) -> io::Result<()> {
        let stop = Stop {
            delay: quit.delay.map_or(self.stop.delay, Duration::from_millis),
            drain_timeout: quit.timeout.map_or(self.stop.drain_timeout, Duration::from_millis),
        };
        // Fails if the node is quitting already, or this process was replaced while the command was on its way.
        if self.quit.try_send(stop).is_err() && self.reloader.is_replaced() {
            let reply = self.reloader.ask_next_process(Request::Quit(quit)).await;
            let failed = "the process was replaced, and the new one does not answer: ask again".to_owned();
            let reply = reply.unwrap_or_else(|| Reply { errors: vec![failed], ..Reply::default() });
            return stream.write_all(&line(&reply)?).await;
        }
        let milliseconds = |time: Duration| time.as_millis().try_into().unwrap_or(u64::MAX);
        let reply = Reply {
            drain_timeout: milliseconds(stop.drain_timeout),
            shutdown_delay: milliseconds(stop.delay),
            ..Reply::default()
        };
        stream.write_all(&line(&reply)?).await?;
        // The client waits until the stream closes, which must happen at the end of the process, not before.
        let _ = stream.into_std()?.into_raw_fd();
        Ok(())
    }

    /// The outcome of an upgrade, and what is to be dropped once the reply is written.
    async fn upgrade(
        &self,
        program: Option<PathBuf>,
        timeout: Option<u64>,
    ) -> (Reply, Option<oneshot::Sender<()>>) {
        let (reply, outcome) = oneshot::channel();
        let timeout = timeout.map(Duration::from_millis);
        let request = UpgradeRequest { program, timeout, reply: Some(reply) };
        let outcome = match self.upgrade.send(request).await {
            Ok(()) => outcome.await.ok(),
            Err(_) => None,
        };
        let failed = |error| Reply { errors: vec![error], ..Reply::default() };
        match outcome {
            Some(UpgradeOutcome { result, _written }) => {
                let upgraded = |pid| Reply { pid: Some(pid), ..Reply::default() };
                (result.map_or_else(failed, upgraded), Some(_written))
            }
            None if self.reloader.is_replaced() => {
                (failed("the process was replaced meanwhile: ask again".to_owned()), None)
            }
            None => (failed("the node stops".to_owned()), None),
        }
    }

    async fn reload(&self) -> Reply {
        match self.reloader.reload().await {
            Ok(published) => Reply {
                warnings: [published.warnings, published.unusable].concat(),
                configuration_hash: Some(published.hash),
                ..Reply::default()
            },
            Err(errors) => {
                let is_stored = self.reloader.control().registry().is_stored();
                Reply { errors, is_stored, ..Reply::default() }
            }
        }
    }
}

fn line(reply: &Reply) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    Ok(line)
}

/// Whether a node runs in a folder.
pub(crate) fn is_running(folder: &Path) -> bool {
    BlockingStream::connect(prefix::socket(folder)).is_ok()
}

/// Why a command got no reply.
#[derive(Debug)]
pub(crate) enum CommandError {
    /// No node runs in the folder.
    NotRunning(io::Error),
    /// The node did not reply.
    NoReply(io::Error),
}

/// Sends a command to a running node; returns when it is done.
pub(crate) fn ask(folder: &Path, request: Request) -> Result<Reply, CommandError> {
    let mut stream = BlockingStream::connect(prefix::socket(folder)).map_err(CommandError::NotRunning)?;
    if request == Request::Health {
        stream.set_read_timeout(Some(HEALTH_TIMEOUT)).map_err(CommandError::NoReply)?;
    }
    exchange(&mut stream, &request).map_err(CommandError::NoReply)
}

/// How long a node that serves may take to say so.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

/// The longest reply that is read: the node may be of another user than who asks.
const MAX_REPLY_LEN: u64 = 16 * 1024 * 1024;

fn exchange(stream: &mut BlockingStream, request: &Request) -> io::Result<Reply> {
    stream.write_all(request.line().as_bytes())?;
    let mut reader = BufReader::new(stream.take(MAX_REPLY_LEN));
    let mut reply = String::new();
    reader.read_line(&mut reply)?;
    if matches!(request, Request::Quit(_)) {
        reader.read_to_end(&mut Vec::new())?;
    }
    Ok(serde_json::from_str(&reply)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_without_an_end_is_given_up() {
        let (mut asking, mut node) = BlockingStream::pair().unwrap();
        let endless = std::thread::spawn(move || while node.write_all(&[b'x'; 64 * 1024]).is_ok() {});
        assert!(exchange(&mut asking, &Request::Health).is_err());
        drop(asking);
        endless.join().unwrap();
    }

    #[test]
    fn requests_are_read_as_they_are_written() {
        let quit = |timeout, delay| Request::Quit(Quit { timeout, delay });
        let requests = [
            Request::Health,
            Request::Reload,
            quit(None, None),
            quit(Some(7), None),
            quit(None, Some(8)),
            quit(Some(7), Some(8)),
            Request::Upgrade(None, None),
            Request::Upgrade(None, Some(9)),
            Request::Upgrade(Some("/opt/new weir".into()), None),
        ];
        for request in requests {
            assert_eq!(Request::from_line(request.line().trim_end_matches('\n')), Some(request));
        }
        for line in ["", "quit x", "quit 1 x", "quitter", "reload 1", "upgrade x"] {
            assert_eq!(Request::from_line(line), None, "{line}");
        }
    }
}
