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
    /// Read the declarative file again.
    Reload,
    /// Drain and stop.
    Quit,
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
}

impl Request {
    fn word(self) -> &'static str {
        match self {
            Request::Reload => "reload",
            Request::Quit => "quit",
        }
    }

    fn from_word(word: &str) -> Option<Request> {
        [Request::Reload, Request::Quit].into_iter().find(|request| request.word() == word)
    }
}

/// The socket of a node; only its own user can connect.
pub(crate) fn bind(folder: &Path) -> io::Result<UnixListener> {
    let before = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(prefix::socket(folder));
    rustix::process::umask(before);
    listener
}

/// Serves commands for as long as the node lives; `quit` receives those to quit.
pub(crate) async fn serve(listener: UnixListener, reloader: Arc<Reloader>, quit: mpsc::Sender<()>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (reloader, quit) = (reloader.clone(), quit.clone());
                tokio::spawn(async move {
                    if let Err(error) = answer(stream, &reloader, quit).await {
                        tracing::debug!(%error, "a command got no response");
                    }
                });
            }
            // Out of descriptors: wait, because a busy loop would not free any.
            Err(_) => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(mut stream: UnixStream, reloader: &Reloader, quit: mpsc::Sender<()>) -> io::Result<()> {
    let mut word = String::new();
    while !word.ends_with('\n') && word.len() < 64 {
        word.push(char::from(stream.read_u8().await?));
    }
    let reply = match Request::from_word(word.trim()) {
        Some(Request::Reload) => match reloader.reload().await {
            Ok(published) => Reply {
                warnings: published.warnings,
                configuration_hash: Some(published.hash),
                ..Reply::default()
            },
            Err(errors) => Reply { errors, ..Reply::default() },
        },
        Some(Request::Quit) => {
            // Fails if the node is quitting already.
            let _ = quit.try_send(());
            stream.write_all(&line(&Reply::default())?).await?;
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

fn line(reply: &Reply) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    Ok(line)
}

/// Sends a command to a running node; returns when it is done.
pub(crate) fn ask(folder: &Path, request: Request) -> Result<Reply, String> {
    let socket = prefix::socket(folder);
    let mut stream = BlockingStream::connect(&socket).map_err(|error| {
        format!(
            "no node runs at {}: {error}: start one, or name its folder with `--prefix DIR`",
            socket.display()
        )
    })?;
    exchange(&mut stream, request)
        .map_err(|error| format!("the node at {} did not respond: {error}", socket.display()))
}

fn exchange(stream: &mut BlockingStream, request: Request) -> io::Result<Reply> {
    writeln!(stream, "{}", request.word())?;
    let mut reader = BufReader::new(stream);
    let mut reply = String::new();
    reader.read_line(&mut reply)?;
    if request == Request::Quit {
        reader.read_to_end(&mut Vec::new())?;
    }
    Ok(serde_json::from_str(&reply)?)
}
