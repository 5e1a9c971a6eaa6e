//! Redis servers of the tests' own, from the system's packages: in folders of their own, on free ports.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::{PATIENCE, eventually, unused_ports};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server; killed when dropped.
pub struct RedisServer {
    program: PathBuf,
    arguments: Vec<String>,
    child: Child,
    folder: TempDir,
    /// How `redis-cli` gets in.
    login: Vec<String>,
    pub port: u16,
}

impl RedisServer {
    /// Starts one of Redis.
    pub fn start() -> RedisServer {
        RedisServer::with(&[], &[])
    }

    /// The same, with these arguments, and these that `redis-cli` needs for it.
    pub fn with(arguments: &[&str], login: &[&str]) -> RedisServer {
        RedisServer::of("redis-server".into(), arguments, login)
    }

    /// One that speaks TLS alone, with these arguments.
    pub fn over_tls(arguments: &[&str], login: &[&str]) -> RedisServer {
        RedisServer::of("redis-server".into(), &[&["--tls-port", "same"], arguments].concat(), login)
    }

    /// Starts one of Valkey; none where it is not installed.
    pub fn valkey() -> Option<RedisServer> {
        let named = std::env::var_os("VALKEY").map(PathBuf::from).filter(|path| path.exists());
        let program = named.unwrap_or_else(|| "valkey-server".into());
        let is_there = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
        is_there.is_ok_and(|status| status.success()).then(|| RedisServer::of(program, &[], &[]))
    }

    /// A server of this program that answers. A sentinel takes its file as the first argument.
    pub fn of(program: PathBuf, arguments: &[&str], login: &[&str]) -> RedisServer {
        for _ in 0..5 {
            let port = unused_ports(1);
            let folder = tempfile::tempdir().unwrap();
            let arguments: Vec<_> = arguments.iter().map(|argument| (*argument).to_owned()).collect();
            let child = spawn(&program, &arguments, port, &folder);
            let login = login.iter().map(|argument| (*argument).to_owned()).collect();
            let mut server = RedisServer { program: program.clone(), arguments, child, folder, login, port };
            if server.answers() {
                return server;
            }
        }
        panic!("{} does not start: is the package `redis-server` installed?", program.display());
    }

    /// Whether it listens before it ends, and answers. Another test's server may have the port already, and answer.
    fn answers(&mut self) -> bool {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end && self.child.try_wait().unwrap().is_none() {
            let log = fs::read_to_string(self.folder.path().join("log")).unwrap();
            let listens =
                ["Ready to accept connections", "Sentinel ID is"].iter().any(|line| log.contains(line));
            if listens && self.ask(&["ping"]).contains("PONG") {
                return true;
            }
            thread::park_timeout(Duration::from_millis(20));
        }
        false
    }

    /// What `redis-cli` prints.
    pub fn ask(&self, question: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command.args(["60", "redis-cli", "-h", "127.0.0.1", "-p", &self.port.to_string()]).args(&self.login);
        let output = command.args(question).stderr(Stdio::null()).output().expect("redis-cli runs");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    /// The keys that it has, in order.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self.ask(&["--scan"]).lines().map(str::to_owned).collect();
        keys.sort();
        keys
    }

    /// A key's number; 0 where there is none.
    pub fn number(&self, key: &str) -> u64 {
        self.ask(&["get", key]).parse().unwrap_or(0)
    }

    /// Stops it in the middle of whatever it does, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, signal).expect("it runs");
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again, with nothing in it.
    pub fn restart(&mut self) {
        self.child = spawn(&self.program, &self.arguments, self.port, &self.folder);
        assert!(self.answers(), "it does not start again");
    }

    /// Starts servers that are one cluster.
    pub fn cluster<const COUNT: usize>() -> [RedisServer; COUNT] {
        let servers = [(); COUNT].map(|()| {
            RedisServer::with(&["--cluster-enabled", "yes", "--cluster-node-timeout", "5000"], &[])
        });
        let mut create = Command::new("redis-cli");
        create.args(["--cluster", "create"]);
        create.args(servers.iter().map(|server| format!("127.0.0.1:{}", server.port)));
        let created = create.arg("--cluster-yes").output().expect("redis-cli runs");
        assert!(created.status.success(), "{}", String::from_utf8_lossy(&created.stdout));
        for server in &servers {
            eventually("the cluster is whole", || server.ask(&["cluster", "info"]).contains("state:ok"));
        }
        servers
    }

    /// Starts a sentinel that watches a master of this name.
    pub fn sentinel(name: &str, master: &RedisServer) -> RedisServer {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("sentinel.conf");
        let text = format!(
            "sentinel monitor {name} 127.0.0.1 {} 1\nsentinel down-after-milliseconds {name} 500\n\
             sentinel failover-timeout {name} 3000\n",
            master.port
        );
        fs::write(&file, text).unwrap();
        let mut sentinel =
            RedisServer::of("redis-server".into(), &[&file.display().to_string(), "--sentinel"], &[]);
        sentinel.folder = folder;
        sentinel
    }
}

fn spawn(program: &PathBuf, arguments: &[String], port: u16, folder: &TempDir) -> Child {
    let mut command = Command::new(program);
    let file = arguments.first().filter(|argument| argument.ends_with(".conf"));
    let (port, is_tls) = (port.to_string(), arguments.iter().any(|argument| argument == "--tls-port"));
    let ports: &[&str] = if is_tls { &["--port", "0", "--tls-port", &port] } else { &["--port", &port] };
    command.args(file).args(ports).args(["--bind", "127.0.0.1"]);
    command.args(["--dir", &folder.path().display().to_string()]);
    if file.is_none() {
        command.args(["--save", "", "--repl-diskless-sync-delay", "0"]);
    }
    let rest = arguments.iter().skip(file.iter().len() + if is_tls { 2 } else { 0 });
    command.args(rest);
    let log = File::create(folder.path().join("log")).unwrap();
    command.stdin(Stdio::null()).stdout(log).stderr(Stdio::null()).spawn().expect("redis-server runs")
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
