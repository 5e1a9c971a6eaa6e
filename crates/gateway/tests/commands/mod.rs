//! Kong's command lines and the environment of its containers: the binary under the names that Kong's image has.
mod check;
mod compose;
mod container;
mod directives;
mod generate;
mod life;
mod migrations;

use crate::harness::{PATIENCE, Peer, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

const EMPTY: &str = "_format_version: \"3.0\"\n";

/// A machine with `kong` on it: a folder with links to the binary, a prefix, and the environment of a node.
struct Kong {
    folder: TempDir,
    environment: Vec<(String, String)>,
}

/// The outcome of a command.
struct Done {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

impl Kong {
    /// Without a database, and with every listener in the folder.
    fn declared(configuration: &str) -> Kong {
        let kong = Kong::bare();
        fs::write(kong.path("kong.yml"), configuration).unwrap();
        let socket = |name: &str| format!("unix:{}", kong.path(name).display());
        let settings = [
            ("KONG_PREFIX", kong.path("prefix").display().to_string()),
            ("KONG_DATABASE", "off".to_owned()),
            ("KONG_DECLARATIVE_CONFIG", kong.path("kong.yml").display().to_string()),
            ("KONG_PROXY_LISTEN", socket("proxy.sock")),
            ("KONG_ADMIN_LISTEN", socket("admin.sock")),
            ("KONG_STATUS_LISTEN", "off".to_owned()),
            ("KONG_NGINX_WORKER_PROCESSES", "1".to_owned()),
        ];
        settings.into_iter().fold(kong, |kong, (name, value)| kong.with(name, &value))
    }

    /// Without any settings.
    fn bare() -> Kong {
        let folder = tempfile::tempdir().unwrap();
        // Other users may have to pass through it.
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        for name in ["kong", "weir", "docker-entrypoint.sh"] {
            symlink(env!("CARGO_BIN_EXE_weir"), folder.path().join("bin").join(name)).unwrap();
        }
        Kong { folder, environment: Vec::new() }
    }

    fn with(mut self, name: &str, value: &str) -> Kong {
        self.environment.retain(|(other, _)| other != name);
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Where the node is.
    fn prefix(&self) -> String {
        self.path("prefix").display().to_string()
    }

    /// A command of the machine's.
    fn command(&self, words: &[&str]) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(self.path("bin").join(words[0]));
        if !self.path("bin").join(words[0]).exists() {
            command = Command::new(words[0]);
        }
        command.args(&words[1..]).env_clear().stdin(Stdio::null()).current_dir(self.folder.path());
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs a command to its end.
    fn run(&self, words: &[&str]) -> Done {
        let Output { status, stdout, stderr } = self.command(words).output().expect("the binary runs");
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Done { code: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Starts a command that stays in the foreground; returns once the node serves.
    #[track_caller]
    fn serve(&self, words: &[&str]) -> Foreground {
        let log = fs::File::create(self.path("stderr")).unwrap();
        let mut child = self.command(words).stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let log = fs::read_to_string(self.path("stderr")).unwrap();
        let start = serde_json::from_str(&line).unwrap_or_else(|_| panic!("no start line: {line}{log}"));
        Foreground { child, start, output }
    }

    /// The status of a request on a socket in the folder.
    #[track_caller]
    fn status(&self, socket: &str, path: &str) -> u16 {
        let (status, _) = self.ask(socket, path);
        status
    }

    #[track_caller]
    fn ask(&self, socket: &str, path: &str) -> (u16, String) {
        let mut stream = UnixStream::connect(self.path(socket)).expect("the node listens");
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        (response[9..12].parse().unwrap(), response)
    }

    /// The node's process, by the pid file that Kong's scripts read.
    fn pid(&self) -> Option<Pid> {
        let text = fs::read_to_string(self.path("prefix/pids/nginx.pid")).ok()?;
        Pid::from_raw(text.trim().parse().ok()?)
    }
}

impl Drop for Kong {
    fn drop(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// A node in the foreground; killed when dropped.
struct Foreground {
    child: Child,
    start: Value,
    output: BufReader<std::process::ChildStdout>,
}

impl Foreground {
    fn address(&self, listener: &str) -> SocketAddr {
        self.start[listener][0].as_str().unwrap().parse().unwrap()
    }

    /// The status of a request.
    #[track_caller]
    fn status(&self, listener: &str, path: &str) -> u16 {
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        Peer::connect(self.address(listener)).send(request).response().status
    }

    /// Stops as Docker does, and returns the exit code with what else was printed.
    fn stop(mut self) -> (Option<i32>, String) {
        // A shell may be in between.
        let pid = self.start["pid"].as_u64().unwrap();
        kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), Signal::QUIT).unwrap();
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let mut status = None;
        eventually("the node ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap().code(), rest)
    }
}

impl Drop for Foreground {
    fn drop(&mut self) {
        let pid = self.start["pid"].as_u64().and_then(|pid| Pid::from_raw(pid.try_into().ok()?));
        if let Some(pid) = pid.filter(|_| self.child.try_wait().is_ok_and(|ended| ended.is_none())) {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Done {
    /// Fails unless the command ended so: with this code, these lines on standard output, and this in its errors.
    #[track_caller]
    fn expect(&self, code: i32, stdout: &str, stderr: &str) {
        let Done { code: ended, stdout: out, stderr: err } = self;
        assert_eq!(*ended, Some(code), "{out}{err}");
        assert_eq!(out, stdout, "{err}");
        assert!(err.contains(stderr), "{stderr} is not in: {err}");
    }
}

fn is_link_to(path: &Path, target: &str) -> bool {
    fs::read_link(path).is_ok_and(|linked| linked == Path::new(target))
}
