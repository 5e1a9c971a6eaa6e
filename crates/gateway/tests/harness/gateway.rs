//! The gateway under test: the real binary, in a folder of its own, on free ports.
use super::disk::Disk;
use super::http::{Message, Peer};
use super::{PATIENCE, PostgresServer, eventually};
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use tempfile::TempDir;

/// The binary with an environment that only the test decides on.
pub fn weir() -> Command {
    program(Path::new(env!("CARGO_BIN_EXE_weir")))
}

fn program(binary: &Path) -> Command {
    let mut command = Command::new(binary);
    command.env_clear().stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

fn through_prlimit(weir: &Command, open_files: usize) -> Command {
    let mut command = Command::new("prlimit");
    command.arg(format!("--nofile={open_files}:{open_files}")).arg(weir.get_program());
    command.env_clear().envs(weir.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.stdin(Stdio::null());
    command
}

/// The line that the binary prints once it serves.
#[derive(Debug, Deserialize)]
struct StartLine {
    pid: u32,
    proxy: Vec<Place>,
    proxy_ssl: Vec<Place>,
    #[serde(default)]
    proxy_quic: Vec<Place>,
    #[serde(default)]
    stream: Vec<Place>,
    admin: Vec<Place>,
    #[serde(default)]
    admin_gui: Vec<Place>,
    status: Vec<Place>,
    #[serde(default)]
    cluster: Vec<Place>,
    #[serde(default)]
    apisix_admin: Vec<Place>,
}

/// Where something listens: an address, or `unix:` and a path.
#[derive(Debug, Deserialize)]
struct Place(String);

impl Place {
    fn address(&self) -> SocketAddr {
        self.0.parse().expect("an address, not a Unix socket")
    }
}

/// What a gateway is started with.
pub struct Builder {
    configuration: String,
    settings: Vec<(String, String)>,
    environment: Vec<(String, String)>,
    open_files: Option<usize>,
    disk: Option<&'static str>,
    inline: bool,
    empty: bool,
    binary: PathBuf,
}

/// A running gateway; killed when dropped.
pub struct Gateway {
    child: Child,
    folder: TempDir,
    start: StartLine,
}

impl Builder {
    /// Adds a setting.
    pub fn set(mut self, key: &str, value: &str) -> Builder {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Adds an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Builder {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Limits the files that it can open.
    pub fn open_files(mut self, limit: usize) -> Builder {
        self.open_files = Some(limit);
        self
    }

    /// Puts its prefix on a disk of its own, of a size as `mount` reads it: see [`Gateway::disk`].
    pub fn disk(mut self, size: &'static str) -> Builder {
        self.disk = Some(size);
        self
    }

    /// Gives the configuration as `KONG_DECLARATIVE_CONFIG_STRING` rather than as a file.
    pub fn inline(mut self) -> Builder {
        self.inline = true;
        self
    }

    /// Runs another binary than `weir`: a gateway with plugins of its own.
    pub fn binary(mut self, binary: PathBuf) -> Builder {
        self.binary = binary;
        self
    }

    /// Starts, and waits until it serves.
    #[track_caller]
    pub fn start(self) -> Gateway {
        let folder = tempfile::tempdir().unwrap();
        let mut child = self.spawn(&folder);
        match first_line(&mut child) {
            Some(line) => {
                let start = serde_json::from_str(&line).expect("the first line is the start line");
                Gateway { child, folder, start }
            }
            None => panic!("the gateway did not start:\n{}", log(&folder)),
        }
    }

    /// Starts what cannot start; returns its exit status and what it said.
    #[track_caller]
    pub fn fail(self) -> (ExitStatus, String) {
        let folder = tempfile::tempdir().unwrap();
        let mut child = self.spawn(&folder);
        if let Some(line) = first_line(&mut child) {
            let _ = child.kill();
            panic!("the gateway started: {line}");
        }
        (child.wait().unwrap(), log(&folder))
    }

    fn spawn(&self, folder: &TempDir) -> Child {
        let file = folder.path().join("kong.yml");
        fs::write(&file, &self.configuration).unwrap();
        let prefix = folder.path().join("prefix");
        let binary = program(&self.binary);
        let mut command = match (self.open_files, self.disk) {
            (Some(limit), _) => through_prlimit(&binary, limit),
            (None, Some(size)) => Disk::command(&binary, size, &prefix),
            (None, None) => binary,
        };
        command.arg("run");
        if self.inline {
            command.env("KONG_DECLARATIVE_CONFIG_STRING", &self.configuration);
        } else if !self.empty {
            command.arg("--config").arg(file);
        }
        command.arg("--set").arg(format!("prefix={}", prefix.display()));
        for (key, value) in &self.settings {
            command.arg("--set").arg(format!("{key}={value}"));
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(File::create(folder.path().join("stderr")).unwrap());
        command.spawn().expect("the binary runs")
    }
}

impl Gateway {
    /// A gateway to be: a declarative file, one worker, and free ports.
    pub fn builder(configuration: &str) -> Builder {
        let settings = [
            ("workers", "1"),
            ("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl"),
            ("admin_listen", "127.0.0.1:0"),
            ("admin_gui_listen", "off"),
            ("status_listen", "127.0.0.1:0"),
        ];
        let settings = settings.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        Builder {
            configuration: configuration.to_owned(),
            settings,
            environment: Vec::new(),
            open_files: None,
            disk: None,
            inline: false,
            empty: false,
            binary: env!("CARGO_BIN_EXE_weir").into(),
        }
    }

    /// A gateway to be, that has no file: it starts with nothing, and its Admin API can be written to.
    pub fn empty() -> Builder {
        Builder { empty: true, ..Gateway::builder("") }
    }

    /// Starts with a declarative file.
    #[track_caller]
    pub fn start(configuration: &str) -> Gateway {
        Gateway::builder(configuration).start()
    }

    /// Nodes on one schema of a PostgreSQL server, which get it ready.
    pub fn sharing<const COUNT: usize>(port: u16, schema: &str) -> [Gateway; COUNT] {
        Self::sharing_by(&PostgresServer::settings(port, schema))
    }

    /// The same by these settings of a node.
    pub fn sharing_by<const COUNT: usize>(settings: &[(String, String)]) -> [Gateway; COUNT] {
        let mut bootstrap = weir();
        // A busy machine takes longer than the default to answer.
        bootstrap.args(["migrations", "bootstrap", "--set", "pg_timeout=90000"]);
        bootstrap
            .args(settings.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]));
        assert!(bootstrap.status().unwrap().success());
        let builder =
            || settings.iter().fold(Gateway::empty(), |builder, (key, value)| builder.set(key, value));
        [(); COUNT].map(|()| builder().start())
    }

    /// Asks the proxy for a path.
    #[track_caller]
    pub fn get(&self, path: &str) -> Message {
        self.get_with(path, "")
    }

    /// Asks the proxy for a path with more header lines, each ended by CRLF.
    #[track_caller]
    pub fn get_with(&self, path: &str, headers: &str) -> Message {
        self.send(&format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n"))
    }

    /// Sends bytes over a connection of their own and reads one response.
    #[track_caller]
    pub fn send(&self, request: &str) -> Message {
        self.connect().send(request).response()
    }

    /// Connects to the proxy.
    #[track_caller]
    pub fn connect(&self) -> Peer {
        Peer::connect(self.proxy())
    }

    /// Asks the status listener for a path.
    #[track_caller]
    pub fn status(&self, path: &str) -> Message {
        ask(self.start.status[0].address(), path)
    }

    /// How often a limit of the node has acted.
    #[track_caller]
    pub fn acted(&self, limit: &str) -> u64 {
        let name = format!("weir_limit_acted_total{{limit=\"{limit}\"}} ");
        let metrics = self.status("/metrics");
        let count = metrics.text().lines().find_map(|line| line.strip_prefix(&name)?.parse().ok());
        count.unwrap_or_else(|| panic!("no limit has the name {limit}"))
    }

    /// Asks the Admin API for a path.
    #[track_caller]
    pub fn admin(&self, path: &str) -> Message {
        ask(self.start.admin[0].address(), path)
    }

    /// Asks the Admin API for paths, and compares the status and how the message begins.
    #[track_caller]
    pub fn assert_admin_messages(&self, prefix: &str, cases: &[(&str, u16, &str)]) {
        for (path, status, expected) in cases {
            let answer = self.admin(&format!("{prefix}{path}"));
            let message = answer.json()["message"].as_str().unwrap_or_default().to_owned();
            let is_expected = answer.status == *status && message.starts_with(expected);
            assert!(is_expected, "{path}: {} {message}", answer.status);
        }
    }

    /// Sends JSON to the Admin API.
    #[track_caller]
    pub fn ask_admin(&self, method: &str, path: &str, body: &str) -> Message {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: \
             {length}\r\n\r\n"
        );
        Peer::connect(self.start.admin[0].address()).send(head + body).response_to(method)
    }

    /// Where the proxy listens.
    pub fn proxy(&self) -> SocketAddr {
        self.start.proxy[0].address()
    }

    /// Where the proxy speaks TLS.
    pub fn proxy_ssl(&self) -> SocketAddr {
        self.start.proxy_ssl[0].address()
    }

    /// Where the proxy speaks HTTP/3.
    pub fn proxy_quic(&self) -> SocketAddr {
        self.start.proxy_quic[0].address()
    }

    /// Where the Admin API listens.
    pub fn admin_addresses(&self) -> Vec<SocketAddr> {
        self.start.admin.iter().map(Place::address).collect()
    }

    /// Where the web UI listens.
    pub fn web_ui(&self) -> SocketAddr {
        self.start.admin_gui[0].address()
    }

    /// Where a listener of streams is, by its place in `stream_listen`.
    pub fn stream(&self, index: usize) -> SocketAddr {
        self.start.stream[index].address()
    }

    /// Where a control plane listens for data planes.
    pub fn cluster(&self) -> SocketAddr {
        self.start.cluster[0].address()
    }

    /// The address of the status listener.
    pub fn status_address(&self) -> SocketAddr {
        self.start.status[0].address()
    }

    /// Where the proxy listens for APISIX's clients.
    pub fn apisix_proxy(&self) -> SocketAddr {
        self.start.proxy.last().expect("the proxy listens").address()
    }

    /// Where APISIX's Admin API listens.
    pub fn apisix_admin(&self) -> SocketAddr {
        self.start.apisix_admin[0].address()
    }

    /// The declarative file.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join("kong.yml")
    }

    /// The node's folder.
    pub fn prefix(&self) -> PathBuf {
        self.folder.path().join("prefix")
    }

    /// The disk that its prefix is on, where it was given one.
    pub fn disk(&self) -> Disk {
        Disk::of(self.pid(), &self.prefix())
    }

    /// Writes the declarative file and runs `weir reload`.
    pub fn reload(&self, configuration: &str) -> Output {
        fs::write(self.file(), configuration).unwrap();
        self.command("reload")
    }

    /// Runs `weir reload` or `weir quit` against this gateway.
    pub fn command(&self, name: &str) -> Output {
        weir().arg(name).arg("--prefix").arg(self.prefix()).output().expect("the binary runs")
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.start.pid
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.start.pid).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).expect("the gateway runs");
    }

    /// Waits for the end of the process.
    #[track_caller]
    pub fn exit(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the gateway ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Everything logged so far.
    pub fn log(&self) -> String {
        log(&self.folder)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("--- the gateway's log ---\n{}", self.log());
        }
    }
}

#[track_caller]
fn ask(address: SocketAddr, path: &str) -> Message {
    Peer::connect(address).send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")).response()
}

/// The first line of a process's output; none if it ends without one.
fn first_line(child: &mut Child) -> Option<String> {
    let output = child.stdout.take().unwrap();
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        let line = BufReader::new(output).lines().next();
        let _ = sender.send(line.and_then(Result::ok));
    });
    receiver.recv_timeout(PATIENCE).unwrap_or_else(|_| {
        let _ = child.kill();
        None
    })
}

fn log(folder: &TempDir) -> String {
    fs::read_to_string(folder.path().join("stderr")).unwrap_or_default()
}
