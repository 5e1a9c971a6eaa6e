//! The laboratory's own servers beside a target: upstreams and the front. Each is a process of this very program.
use super::Server;
use serde::Deserialize;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A running server of the laboratory. It ends when this value is dropped, and also when this process ends in any way,
/// because its standard input is a pipe from here.
pub(crate) struct LocalServer {
    child: Child,
    _lifeline: Option<ChildStdin>,
    listen: Vec<SocketAddr>,
    listen_tls: Vec<SocketAddr>,
}

/// What a server says when it listens.
#[derive(Deserialize)]
struct Ready {
    listen: Vec<SocketAddr>,
    #[serde(default)]
    listen_tls: Vec<SocketAddr>,
}

impl LocalServer {
    /// Starts `weirlab <arguments>` on the CPUs and waits until it listens.
    pub(crate) fn start(program: &Path, arguments: &[String], cpus: &[usize]) -> Result<LocalServer, String> {
        let mut command = Command::new(program);
        command.args(arguments).arg("--with-parent").stdin(Stdio::piped()).stdout(Stdio::piped());
        // A terminal's Ctrl-C is for the session, which ends what it started when the block allows it.
        command.process_group(0);
        if !cpus.is_empty() {
            let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
            command.args(["--cpus", &list.join(",")]);
        }
        let words = || format!("weirlab {}", arguments.join(" "));
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", words()))?;
        let lifeline = child.stdin.take();
        let mut line = String::new();
        if let Some(output) = child.stdout.take() {
            let _ = BufReader::new(output).read_line(&mut line);
        }
        match serde_json::from_str::<Ready>(&line) {
            Ok(Ready { listen, listen_tls }) => {
                Ok(LocalServer { child, _lifeline: lifeline, listen, listen_tls })
            }
            Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(format!("{} did not start: its message is above", words()))
            }
        }
    }
}

impl Server for LocalServer {
    fn pid(&self) -> u32 {
        self.child.id()
    }

    fn listen(&self) -> &[SocketAddr] {
        &self.listen
    }

    fn listen_tls(&self) -> &[SocketAddr] {
        &self.listen_tls
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
