//! Nodes that the system lets start no more threads, as where `pids.max` of their container is reached.
use crate::fleet::{control_plane, data_plane, is_ready, lasting_address, route, shared};
use crate::harness::{Builder, Gateway, LimitedUser, PostgresServer, Upstream, eventually, weir};
use rustix::process::Signal;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tempfile::TempDir;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// A user of nodes, and the program that runs these.
struct Limits {
    user: LimitedUser,
    program: PathBuf,
    folder: TempDir,
}

impl Limits {
    fn new() -> Limits {
        let (user, folder) = (LimitedUser::new(), tempfile::tempdir().unwrap());
        Limits { program: user.weir(folder.path(), None), user, folder }
    }

    fn start(&self, builder: Builder) -> Gateway {
        builder.binary(self.program.clone()).start()
    }

    /// From now on the node starts no thread, and has none that merely waits for work for a while.
    fn reach(&self, node: &Gateway) {
        self.user.limit(node.pid(), 1);
        let threads = format!("/proc/{}/task", node.pid());
        eventually("threads without work have ended", || {
            let names = fs::read_dir(&threads).unwrap().flatten();
            let mut names = names.filter_map(|thread| fs::read_to_string(thread.path().join("comm")).ok());
            !names.any(|name| name.starts_with("tokio-"))
        });
    }
}

#[test]
fn a_fleet_goes_on() {
    let (limits, identity, upstream) = (Limits::new(), shared(), Upstream::answering(OK));
    let (listen, prefix) = (lasting_address(), limits.folder.path().join("control").display().to_string());
    let start =
        || limits.start(control_plane(&identity).set("prefix", &prefix).set("cluster_listen", &listen));
    let mut control = start();
    let by_name = format!("localhost:{}", control.cluster().port());
    let data = limits.start(data_plane(&identity, &control).set("cluster_control_plane", &by_name));
    assert_eq!(route(&control, "before", &upstream, "?wait=all,60000"), 200);
    limits.reach(&control);
    limits.reach(&data);
    assert_eq!(route(&control, "since", &upstream, "?wait=all,60000"), 200);
    assert_eq!(data.get("/since").status, 200);
    control.signal(Signal::KILL);
    control.exit();
    control = start();
    assert_eq!(route(&control, "last", &upstream, ""), 200);
    eventually("it is connected again", || data.get("/last").status == 200);
    assert!(is_ready(&data));
}

#[test]
fn a_database_that_comes_back_is_found_by_its_name() {
    let (limits, mut server) = (Limits::new(), PostgresServer::start());
    let mut settings = PostgresServer::settings(server.port, "found");
    settings.push(("pg_host".to_owned(), "localhost".to_owned()));
    let given = settings.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]);
    assert!(weir().args(["migrations", "bootstrap"]).args(given).status().unwrap().success());
    let node = settings.iter().fold(Gateway::empty(), |builder, (key, value)| builder.set(key, value));
    let node = limits.start(node);
    limits.reach(&node);
    let write = || node.ask_admin("PUT", "/consumers/a", "{}").status;
    assert_eq!(write(), 200);
    server.kill();
    assert_eq!(write(), 503);
    server.restart();
    eventually("it writes again", || write() == 200);
}

#[test]
fn a_plugin_that_is_added_logs() {
    let (limits, upstream) = (Limits::new(), Upstream::answering(OK));
    let node = limits.start(Gateway::empty());
    limits.reach(&node);
    assert_eq!(route(&node, "logged", &upstream, ""), 200);
    let file = limits.folder.path().join("log");
    let plugin = format!("{{\"name\": \"file-log\", \"config\": {{\"path\": \"{}\"}}}}", file.display());
    assert_eq!(node.ask_admin("POST", "/plugins", &plugin).status, 201);
    eventually("a line is written", || {
        node.get("/logged");
        fs::read_to_string(&file).is_ok_and(|text| text.ends_with("}\n"))
    });
}

#[test]
fn a_node_that_ends_waits_for_what_plugins_deliver() {
    let limits = Limits::new();
    let (upstream, attempts) = (Upstream::answering(OK), Arc::new(AtomicUsize::new(0)));
    let counted = attempts.clone();
    // Takes an entry at the eighth attempt after the first was counted, which is once the node ends.
    let log = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            let number = counted.load(Ordering::SeqCst);
            counted.store(number + usize::from(number > 0), Ordering::SeqCst);
            peer.send(if number > 7 { OK } else { "HTTP/1.1 500 Not now\r\nContent-Length: 0\r\n\r\n" });
        }
    });
    let mut node = limits.start(Gateway::empty());
    let plugin =
        format!("{{\"name\": \"http-log\", \"config\": {{\"http_endpoint\": \"http://{}\"}}}}", log.address);
    assert_eq!(route(&node, "logged", &upstream, ""), 200);
    assert_eq!(node.ask_admin("POST", "/plugins", &plugin).status, 201);
    eventually("an entry is refused", || {
        node.get("/logged");
        node.log().contains("it is retried")
    });
    limits.reach(&node);
    node.signal(Signal::TERM);
    eventually("it ends", || node.log().contains("draining"));
    attempts.store(1, Ordering::SeqCst);
    assert_eq!(node.exit().code(), Some(0));
    assert!(!node.log().contains("entries are lost"), "{}", node.log());
}

#[test]
fn a_start_in_the_background_says_which_limit_to_raise() {
    let limits = Limits::new();
    let program = limits.user.weir(limits.folder.path(), Some(1));
    let prefix = limits.folder.path().join("prefix");
    let mut start = Command::new(program);
    let output =
        start.arg("start").arg("--set").arg(format!("prefix={}", prefix.display())).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("raise the limit"), "{said}");
}
