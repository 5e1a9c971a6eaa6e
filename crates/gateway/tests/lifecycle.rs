//! A node from its start to its end: the start line, reloads, drains, and who may take its folder.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, PATIENCE, Peer, Upstream, eventually, one_route, weir};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::mpsc;

const EMPTY: &str = "_format_version: \"3.0\"\n";
const BAD: &str = "services: []\n";

#[test]
fn the_start_line_names_the_real_ports() {
    let gateway = Gateway::start(EMPTY);
    for address in [gateway.proxy(), gateway.proxy_ssl(), gateway.admin_addresses()[0]] {
        assert_ne!(address.port(), 0);
        TcpStream::connect(address).unwrap();
    }
    assert_eq!(gateway.status("/status/ready").json(), serde_json::json!({"message": "ready"}));
    assert_eq!(gateway.get("/").status, 404);
}

#[test]
fn the_folder_is_the_nodes_own() {
    let mut gateway = Gateway::start(EMPTY);
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(gateway.prefix().join("weir.sock")), 0o600);
    assert_eq!(
        fs::read_to_string(gateway.prefix().join("weir.pid")).unwrap().trim(),
        gateway.pid().to_string()
    );
    let second = weir()
        .args(["run", "--set", "proxy_listen=127.0.0.1:0", "--config"])
        .arg(gateway.file())
        .arg("--prefix")
        .arg(gateway.prefix())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8(second.stderr).unwrap();
    assert!(said.contains(&format!("process {}", gateway.pid())) && said.contains("--prefix"), "{said}");
    assert_eq!(gateway.status("/status/ready").status, 200);
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().success());
    for name in ["weir.pid", "weir.sock"] {
        assert!(!gateway.prefix().join(name).exists(), "{name} is left behind");
    }
}

#[test]
fn a_signal_stops_a_node_that_has_not_started() {
    let database = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("pg_port={}", database.local_addr().unwrap().port());
    let folder = tempfile::tempdir().unwrap();
    let mut command = weir();
    command.args(["run", "--prefix"]).arg(folder.path());
    for off in ["admin_listen", "admin_gui_listen", "status_listen"] {
        command.args(["--set", &format!("{off}=off")]);
    }
    for setting in ["database=postgres", "pg_host=127.0.0.1", &port, "pg_timeout=60000"] {
        command.args(["--set", setting]);
    }
    let node = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // It waits for an answer, which never comes.
    let _connection = database.accept().unwrap();
    kill_process(Pid::from_child(&node), Signal::TERM).unwrap();
    let output = node.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("a signal stopped the node before it had started"), "{said}");
    for name in ["weir.pid", "weir.sock"] {
        assert!(!folder.path().join(name).exists(), "{name} is left behind");
    }
}

#[test]
fn a_killed_node_is_no_obstacle() {
    let mut gateway = Gateway::start(EMPTY);
    gateway.signal(Signal::KILL);
    gateway.exit();
    assert!(gateway.prefix().join("weir.sock").exists());
    let again = Gateway::builder(EMPTY).set("prefix", &gateway.prefix().display().to_string()).start();
    assert_eq!(gateway.command("reload").status.code(), Some(0));
    drop(again);
}

#[test]
fn reload_takes_a_good_file_and_names_its_hash() {
    let gateway = Gateway::start(EMPTY);
    let hash = || gateway.status("/status").json()["configuration_hash"].as_str().unwrap().to_owned();
    let before = hash();
    let output = gateway.reload(&format!("{EMPTY}consumers: []\n"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_ne!(hash(), before);
    assert!(String::from_utf8(output.stdout).unwrap().contains(&hash()));
}

#[test]
fn a_reload_leaves_connections_and_requests_in_flight_alone() {
    let (gateway, mut client, answer, _upstream) = with_request_in_flight("1s");
    let get = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let other = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother");
    let mut idle = gateway.connect();
    assert_eq!(idle.send("GET /absent HTTP/1.1\r\nHost: localhost\r\n\r\n").response().status, 404);
    assert_eq!(gateway.reload(&one_route(other.address)).status.code(), Some(0));
    assert_eq!(idle.send(get).response().text(), "other");
    answer.send(()).unwrap();
    assert_eq!(client.response().text(), "done", "what was in force when it began still serves it");
    assert_eq!(client.send(get).response().text(), "other");
}

#[test]
fn reload_refuses_a_bad_file_and_keeps_the_good_one() {
    let gateway = Gateway::start(EMPTY);
    let hash = || gateway.status("/status").json()["configuration_hash"].clone();
    let before = hash();
    let output = gateway.reload(BAD);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains(&format!("{}:1:1: ", gateway.file().display())) && said.contains("_format_version"),
        "{said}"
    );
    assert_eq!(hash(), before);
    assert_eq!(gateway.status("/status/ready").status, 200);
}

#[test]
fn sighup_reloads_and_logs_how_it_went() {
    let gateway = Gateway::start(EMPTY);
    gateway.signal(Signal::HUP);
    eventually("the reload is logged", || gateway.log().contains("INFO reloaded configuration_hash="));
    fs::write(gateway.file(), BAD).unwrap();
    gateway.signal(Signal::HUP);
    eventually("the refusal is logged", || gateway.log().contains("reload refused"));
    assert!(gateway.log().contains("kong.yml:1:1: "), "{}", gateway.log());
}

#[test]
fn reload_without_a_node_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let output = weir().arg("reload").arg("--prefix").arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("no node runs"));
}

#[test]
fn sigusr1_opens_the_access_log_anew() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let gateway = Gateway::builder(EMPTY).set("proxy_access_log", &path.display().to_string()).start();
    let holds = |path, line| fs::read_to_string(path).is_ok_and(|log| log.contains(line));
    gateway.get("/before");
    eventually("the first line is written", || holds(&path, "GET /before "));
    fs::rename(&path, &moved).unwrap();
    gateway.signal(Signal::USR1);
    eventually("the file is there again", || path.exists());
    gateway.get("/after");
    eventually("the second line is written", || holds(&path, "GET /after "));
    assert!(!holds(&moved, "GET /after "));
}

#[test]
fn sigusr1_opens_the_logs_of_the_node_and_its_admin_api_anew() {
    let folder = tempfile::tempdir().unwrap();
    let [admin, node] = ["admin.log", "node.log"].map(|name| folder.path().join(name));
    let builder = Gateway::builder(EMPTY).set("admin_access_log", &admin.display().to_string());
    let gateway = builder.set("proxy_error_log", &node.display().to_string()).start();
    for path in [&admin, &node] {
        fs::rename(path, path.with_extension("1")).unwrap();
    }
    gateway.signal(Signal::USR1);
    let holds = |path, line| fs::read_to_string(path).is_ok_and(|log| log.contains(line));
    eventually("both are there again", || holds(&node, "admin_access_log reopened") && admin.exists());
    gateway.admin("/services");
    eventually("the line is in the new file", || holds(&admin, "GET /services "));
}

#[test]
fn a_process_that_drains_opens_the_access_log_anew_too() {
    let folder = tempfile::tempdir().unwrap();
    let (path, moved) = (folder.path().join("access.log"), folder.path().join("access.log.1"));
    let (upstream, asked) = Upstream::holding("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let log = path.display().to_string();
    let builder = Gateway::builder(&one_route(upstream.address)).set("proxy_access_log", &log);
    let mut gateway = builder.set("drain_timeout", "1h").start();
    let mut peer = gateway.connect();
    peer.send("GET /late HTTP/1.1\r\nHost: a\r\n\r\n");
    let answer = asked.recv().unwrap();
    gateway.signal(Signal::TERM);
    eventually("it drains", || gateway.log().contains("draining timeout_s"));
    fs::rename(&path, &moved).unwrap();
    gateway.signal(Signal::USR1);
    eventually("the file is there again", || path.exists());
    answer.send(()).unwrap();
    assert_eq!(peer.response().status, 200);
    assert_eq!(gateway.exit().code(), Some(0));
    assert!(fs::read_to_string(&path).unwrap().contains("GET /late "));
}

/// A gateway with a request in flight: the upstream answers when told to.
fn with_request_in_flight(drain_timeout: &str) -> (Gateway, Peer, mpsc::Sender<()>, Upstream) {
    let (asked, was_asked) = mpsc::channel();
    let (answer, may_answer) = mpsc::channel::<()>();
    let may_answer = std::sync::Mutex::new(may_answer);
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            let _ = asked.send(());
            let _ = may_answer.lock().unwrap().recv();
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
        }
    });
    let gateway = Gateway::builder(&one_route(upstream.address).replace("[/]", "[/slow]"))
        .set("drain_timeout", drain_timeout)
        .start();
    let mut client = gateway.connect();
    client.send("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n");
    was_asked.recv_timeout(PATIENCE).expect("the request reaches the upstream");
    (gateway, client, answer, upstream)
}

#[test]
fn a_drain_lets_requests_in_flight_finish() {
    for signal in [Signal::TERM, Signal::QUIT, Signal::INT] {
        let (mut gateway, mut client, answer, _upstream) = with_request_in_flight("20s");
        let mut idle = gateway.connect();
        gateway.signal(signal);
        eventually("the node is not ready", || gateway.status("/status/ready").status == 503);
        eventually("no connection is taken", || TcpStream::connect(gateway.proxy()).is_err());
        assert!(idle.is_closed());
        answer.send(()).unwrap();
        let response = client.response();
        assert_eq!((response.status, response.text()), (200, "done"));
        assert_eq!(gateway.exit().code(), Some(0));
        assert!(!gateway.prefix().join("weir.sock").exists());
    }
}

#[test]
fn quit_drains_and_waits() {
    let (mut gateway, mut client, answer, _upstream) = with_request_in_flight("20s");
    let mut quit = weir().arg("quit").arg("--prefix").arg(gateway.prefix()).spawn().unwrap();
    eventually("the node is not ready", || gateway.status("/status/ready").status == 503);
    assert!(quit.try_wait().unwrap().is_none(), "a request is in flight");
    answer.send(()).unwrap();
    assert_eq!(client.response().text(), "done");
    assert_eq!(quit.wait().unwrap().code(), Some(0));
    assert_eq!(gateway.exit().code(), Some(0));
}

#[test]
fn the_drain_timeout_ends_what_does_not_end_by_itself() {
    let (mut gateway, mut client, _answer, _upstream) = with_request_in_flight("100ms");
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().code(), Some(0));
    assert!(client.is_closed());
    assert!(gateway.log().contains("drain_timeout"), "{}", gateway.log());
}

#[test]
fn a_second_signal_stops_at_once() {
    let (mut gateway, mut client, _answer, _upstream) = with_request_in_flight("1h");
    gateway.signal(Signal::TERM);
    eventually("the node drains", || gateway.status("/status/ready").status == 503);
    gateway.signal(Signal::TERM);
    assert_eq!(gateway.exit().code(), Some(1));
    assert!(client.is_closed());
}

#[test]
fn reload_and_quit_take_no_settings_that_they_would_not_put_in_force() {
    for (command, option) in [("reload", "--config"), ("reload", "--set"), ("quit", "--set")] {
        let output = weir().args([command, option, "workers=2"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(String::from_utf8(output.stderr).unwrap().contains(option));
    }
}
