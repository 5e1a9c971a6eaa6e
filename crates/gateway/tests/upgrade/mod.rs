//! `weir upgrade` and SIGUSR2: a new process takes the place of the old one, and no client notices.
mod connections;
mod interrupted;
mod load;
mod state;
mod supervised;

use crate::harness::{Builder, Gateway, Upstream, curl, eventually, one_route, weir};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

pub(crate) const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A gateway whose process is replaced, perhaps several times. Ends with all its processes.
pub(crate) struct Node {
    pub(crate) gateway: Gateway,
}

impl Node {
    pub(crate) fn start(builder: Builder) -> Node {
        Node { gateway: builder.start() }
    }

    /// The process that the pid file names.
    pub(crate) fn pid(&self) -> u32 {
        let pid = fs::read_to_string(self.gateway.prefix().join("weir.pid")).unwrap();
        pid.lines().next().unwrap().parse().unwrap()
    }

    /// Upgrades by the command, with further arguments.
    pub(crate) fn try_upgrade(&self, arguments: &[&str]) -> Output {
        weir().arg("upgrade").args(arguments).arg("--prefix").arg(self.gateway.prefix()).output().unwrap()
    }

    /// The same, which must succeed.
    #[track_caller]
    pub(crate) fn upgrade(&self) {
        let before = self.pid();
        let output = self.try_upgrade(&[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}\n{}", self.gateway.log());
        assert_ne!(self.pid(), before);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains(&format!("process {} serves", self.pid())), "{said}");
    }

    /// The reason that an upgrade is refused for.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let before = self.pid();
        let output = self.try_upgrade(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(self.pid(), before);
        String::from_utf8(output.stderr).unwrap()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let pid = fs::read_to_string(self.gateway.prefix().join("weir.pid")).unwrap_or_default();
        if let Some(pid) = pid.trim().parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Whether a process runs.
pub(crate) fn runs(pid: u32) -> bool {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // One that has ended stays until its parent has asked for its status.
    !state.is_empty() && !state.contains(") Z ")
}

#[test]
fn every_listener_goes_on_under_a_new_process() {
    let upstream = Upstream::answering(OK);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("proxy.sock");
    let listen = format!("127.0.0.1:0, 127.0.0.1:0 ssl http2, 127.0.0.1:0 quic, unix:{}", socket.display());
    let stream = format!(
        "{}- {{name: raw, url: \"tcp://{1}\", routes: [{{name: raw, protocols: [tcp], sources: [{{ip: 127.0.0.1}}]}}]}}\n",
        one_route(upstream.address),
        upstream.address
    );
    let builder = Gateway::builder(&stream).set("proxy_listen", &listen).set("stream_listen", "127.0.0.1:0");
    let mut node = Node::start(builder);
    let answers = |gateway: &Gateway| {
        let over_tls = format!("https://{}/", gateway.proxy_ssl());
        let unix = socket.display().to_string();
        assert_eq!(gateway.get("/").text(), "hi");
        assert_eq!(curl(&["-sk", "--http2", &over_tls]), "hi");
        assert_eq!(curl(&["-s", "--unix-socket", &unix, "http://localhost/"]), "hi");
        assert_eq!(crate::http3::client::Client::connect(gateway.proxy_quic()).get("/").text(), "hi");
        let mut raw = crate::harness::Peer::connect(gateway.stream(0));
        assert_eq!(raw.send("GET / HTTP/1.1\r\n\r\n").response().text(), "hi");
        assert_eq!(gateway.status("/status/ready").status, 200);
        assert_eq!(gateway.admin("/services/raw").status, 200);
    };
    answers(&node.gateway);
    let mut pids = vec![node.pid()];
    for _ in 0..2 {
        node.upgrade();
        answers(&node.gateway);
        pids.push(node.pid());
    }
    assert_eq!(node.gateway.exit().code(), Some(0), "the first process ends once its connections have");
    eventually("the second process ends", || !runs(pids[1]));
    answers(&node.gateway);
    assert_eq!(node.gateway.command("reload").status.code(), Some(0));
    assert_eq!(node.gateway.command("quit").status.code(), Some(0));
    eventually("the last process ends", || !runs(pids[2]));
    assert!(!socket.exists() && !node.gateway.prefix().join("weir.sock").exists());
}

#[test]
fn what_does_not_start_changes_nothing() {
    let upstream = Upstream::answering(OK);
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("proxy.sock");
    let status = folder.path().join("status.sock");
    let builder = Gateway::builder(&one_route(upstream.address))
        .set("proxy_listen", &format!("127.0.0.1:0, 127.0.0.1:0 ssl, unix:{}", socket.display()))
        .set("status_listen", &format!("127.0.0.1:0, unix:{}", status.display()));
    let node = Node::start(builder);
    let good = fs::read_to_string(node.gateway.file()).unwrap();
    fs::write(node.gateway.file(), "_format_version: \"3.0\"\nservices: [{name: s}]\n").unwrap();
    let said = node.refused(&[]);
    assert!(said.contains("did not start") && said.contains("kong.yml:2:"), "{said}");
    fs::write(node.gateway.file(), good).unwrap();
    let said = node.refused(&["--program", "/bin/false"]);
    assert!(said.contains("ended before it was ready (exit status: 1)"), "{said}");
    let said = node.refused(&["--program", &of_another_machine(folder.path())]);
    assert!(said.contains("install the program for this kind of machine"), "{said}");
    let said = node.refused(&["--program", "/dev/null"]);
    assert!(said.contains("cannot run /dev/null: Permission denied"), "{said}");
    let said = node.refused(&["--program", "/nonexistent/weir"]);
    assert!(said.contains("cannot run /nonexistent/weir"), "{said}");
    let said = node.refused(&["--program", &program(folder.path(), "exec sleep 1000"), "--timeout", "0.2"]);
    assert!(said.contains("was not ready within 0.2 s"), "{said}");
    assert_eq!(node.gateway.get("/").text(), "hi");
    assert_eq!(node.gateway.status("/status/ready").status, 200);
    let unix = socket.display().to_string();
    assert_eq!(curl(&["-s", "--unix-socket", &unix, "http://localhost/"]), "hi");
    // The process that found a mistake in the configuration had this socket already.
    let unix = status.display().to_string();
    assert!(curl(&["-s", "--unix-socket", &unix, "http://localhost/status/ready"]).contains("ready"));
    assert_eq!(node.gateway.command("reload").status.code(), Some(0));
    node.upgrade();
    assert_eq!(node.gateway.get("/").text(), "hi");
}

/// A program of the shell.
pub(crate) fn program(folder: &Path, text: &str) -> String {
    let program = folder.join("program");
    fs::write(&program, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

/// The beginning of a program for a processor that does not exist.
fn of_another_machine(folder: &Path) -> String {
    let mut head = fs::read(env!("CARGO_BIN_EXE_weir")).unwrap()[..4096].to_vec();
    // `e_machine` of ELF.
    head[18..20].copy_from_slice(&[0xff, 0xfe]);
    let program = folder.join("other");
    fs::write(&program, head).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    program.display().to_string()
}

#[test]
fn sigusr2_upgrades_with_the_settings_and_the_configuration_of_now() {
    let upstream = Upstream::answering(OK);
    let node = Node::start(Gateway::builder("_format_version: \"3.0\"\n"));
    let before = node.pid();
    assert_eq!(node.gateway.get("/").status, 404);
    fs::write(node.gateway.file(), one_route(upstream.address)).unwrap();
    node.gateway.signal(Signal::USR2);
    eventually("another process serves", || node.pid() != before);
    // Until it has heard of that, the old one accepts connections too.
    eventually("the old process ends", || !runs(before));
    assert_eq!(node.gateway.get("/").text(), "hi");
}

#[test]
fn a_signal_to_all_processes_of_a_node_ends_them() {
    let (upstream, asked) = Upstream::holding(OK);
    let builder = Gateway::builder(&one_route(upstream.address)).set("drain_timeout", "1h");
    let mut node = Node::start(builder);
    let mut client = node.gateway.connect();
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let go = asked.recv().unwrap();
    node.upgrade();
    // As systemd does when a service stops: to the process that drains already as well.
    node.gateway.signal(Signal::TERM);
    kill_process(Pid::from_raw(node.pid().try_into().unwrap()).unwrap(), Signal::TERM).unwrap();
    let pid = node.pid();
    eventually("the new process ends", || !runs(pid));
    go.send(()).unwrap();
    assert_eq!(client.response().text(), "hi", "one signal does not cut off what drains already");
    assert_eq!(node.gateway.exit().code(), Some(0));
}
