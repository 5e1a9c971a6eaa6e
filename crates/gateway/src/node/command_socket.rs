//! Commands to a running node over the socket in its prefix: one word in, one line of JSON out.
use crate::control::reload::Reloader;
use crate::prefix;
use serde::{Deserialize, Serialize};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::net::UnixStream as BlockingStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;

/// A command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Request {
    /// Say whether the node serves.
    Health,
    /// Read the declarative file again.
    Reload,
    /// Drain and stop, within so many milliseconds if some are given.
    Quit(Option<u64>),
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
    /// Whether a reload had nothing to read, because the configuration is in a database.
    #[serde(default)]
    pub(crate) is_stored: bool,
}

impl Request {
    fn line(self) -> String {
        match self {
            Request::Health => "health\n".to_owned(),
            Request::Reload => "reload\n".to_owned(),
            Request::Quit(None) => "quit\n".to_owned(),
            Request::Quit(Some(timeout)) => format!("quit {timeout}\n"),
        }
    }

    fn from_line(line: &str) -> Option<Request> {
        match line {
            "health" => Some(Request::Health),
            "reload" => Some(Request::Reload),
            "quit" => Some(Request::Quit(None)),
            _ => Some(Request::Quit(Some(line.strip_prefix("quit ")?.parse().ok()?))),
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

/// Answers commands for as long as the node lives.
pub(crate) struct CommandServer {
    pub(crate) reloader: Arc<Reloader>,
    /// Receives how long a drain may take, once the node is to stop.
    pub(crate) quit: mpsc::Sender<Duration>,
    /// How long one takes unless the command says otherwise.
    pub(crate) drain_timeout: Duration,
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
        let mut word = String::new();
        while !word.ends_with('\n') && word.len() < 64 {
            word.push(char::from(stream.read_u8().await?));
        }
        let reply = match Request::from_line(word.trim()) {
            Some(Request::Health) => Reply::default(),
            Some(Request::Reload) => self.reload().await,
            Some(Request::Quit(timeout)) => {
                let timeout = timeout.map_or(self.drain_timeout, Duration::from_millis);
                // Fails if the node is quitting already.
                let _ = self.quit.try_send(timeout);
                let drain_timeout = timeout.as_millis().try_into().unwrap_or(u64::MAX);
                stream.write_all(&line(&Reply { drain_timeout, ..Reply::default() })?).await?;
                // The client waits until the stream closes, which must happen at the end of the process, not before.
                let _ = stream.into_std()?.into_raw_fd();
                return Ok(());
            }
            None => Reply {
                errors: vec!["unknown command: use the `weir` of the version that runs".to_owned()],
                ..Reply::default()
            },
        };
        stream.write_all(&line(&reply)?).await
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
    exchange(&mut stream, request).map_err(CommandError::NoReply)
}

/// How long a node that serves may take to say so.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);

fn exchange(stream: &mut BlockingStream, request: Request) -> io::Result<Reply> {
    stream.write_all(request.line().as_bytes())?;
    let mut reader = BufReader::new(stream);
    let mut reply = String::new();
    reader.read_line(&mut reply)?;
    if matches!(request, Request::Quit(_)) {
        reader.read_to_end(&mut Vec::new())?;
    }
    Ok(serde_json::from_str(&reply)?)
}
