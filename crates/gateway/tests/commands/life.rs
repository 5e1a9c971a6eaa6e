//! `kong start`, `stop`, `restart`, `reload`, `quit`, `health` and `prepare`.
use super::{EMPTY, Kong};
use crate::harness::{Upstream, eventually, one_route};
use rustix::process::{Signal, kill_process};
use std::fs;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc;

#[test]
fn a_node_starts_reloads_restarts_and_quits_with_kongs_words() {
    let kong = Kong::declared(EMPTY);
    let prefix = kong.prefix();
    kong.run(&["kong", "health"]).expect(1, "", &format!("Error: no such prefix: {prefix}"));
    kong.run(&["kong", "start"]).expect(0, "Kong started\n", "");
    assert_eq!(kong.status("proxy.sock", "/"), 404);
    let healthy = format!("weir........running\n\nKong is healthy at {prefix}\n");
    kong.run(&["kong", "health"]).expect(0, &healthy, "");
    kong.run(&["kong", "health", "-p", &prefix]).expect(0, &healthy, "");
    kong.run(&["kong", "start"]).expect(1, "", &format!("Error: Kong is already running in {prefix}"));
    kong.run(&["kong", "reload"]).expect(0, "Kong reloaded\n", "");
    let before = kong.pid().expect("the pid file names the process");
    kong.run(&["kong", "restart"]).expect(0, "Kong started\n", "");
    assert_ne!(kong.pid(), Some(before));
    assert_eq!(kong.status("proxy.sock", "/"), 404);
    kong.run(&["kong", "quit", "-t", "5"]).expect(0, "Kong stopped (gracefully)\n", "");
    let stopped = "weir........not running\n\n";
    kong.run(&["kong", "health"]).expect(1, stopped, &format!("Error: Kong is not running at {prefix}"));
    for command in ["stop", "quit", "reload"] {
        let done = kong.run(&["kong", command]);
        done.expect(1, "", &format!("Error: Kong is not running in {prefix}"));
        assert!(done.stderr.contains(&format!("nginx not running in prefix: {prefix}")), "{}", done.stderr);
    }
    kong.run(&["kong", "restart"]).expect(0, "Kong started\n", "");
    kong.run(&["kong", "stop"]).expect(0, "Kong stopped\n", "");
}

#[test]
fn weir_has_the_same_commands_in_its_own_name() {
    let kong = Kong::declared(EMPTY);
    kong.run(&["weir", "start", "-v"]).expect(0, "Weir started\n", "preparing ");
    let healthy = format!("weir........running\n\nWeir is healthy at {}\n", kong.prefix());
    kong.run(&["weir", "health"]).expect(0, &healthy, "");
    kong.run(&["weir", "stop"]).expect(0, "Weir stopped\n", "");
    kong.run(&["weir", "stop"]).expect(1, "", "no node runs at ");
}

/// As a package manager does that leads `kong` to the next version.
#[test]
fn a_node_in_the_background_is_upgraded_to_what_its_link_leads_to() {
    // Beside the program, because hard links do not leave a file system.
    let weir = Path::new(env!("CARGO_BIN_EXE_weir"));
    let folder = tempfile::tempdir_in(weir.parent().unwrap()).unwrap();
    let next = folder.path().canonicalize().unwrap().join("weir");
    fs::hard_link(weir, &next).unwrap();
    let kong = Kong::declared(EMPTY);
    kong.run(&["sh", "-c", "kong start"]).expect(0, "Kong started\n", "");
    let running = || fs::read_link(format!("/proc/{}/exe", kong.pid().unwrap().as_raw_nonzero())).unwrap();
    assert_ne!(running(), next);
    fs::remove_file(kong.path("bin/kong")).unwrap();
    symlink(&next, kong.path("bin/kong")).unwrap();
    let done = kong.run(&["weir", "upgrade"]);
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert_eq!(running(), next);
    assert_eq!(kong.status("proxy.sock", "/"), 404);
}

#[test]
fn the_background_keeps_nothing_of_the_terminal_and_logs_in_the_prefix() {
    let kong = Kong::declared(EMPTY);
    // `output` reads to the end of both streams, which a node that held them would keep open.
    kong.run(&["kong", "start"]).expect(0, "Kong started\n", "");
    let pid = kong.pid().unwrap();
    kill_process(pid, Signal::HUP).unwrap();
    let log = kong.path("prefix/logs/error.log");
    eventually("the reload is logged", || fs::read_to_string(&log).is_ok_and(|log| log.contains("reloaded")));
}

#[test]
fn the_log_of_the_background_is_opened_anew_also_after_an_upgrade() {
    let kong = Kong::declared(EMPTY);
    kong.run(&["kong", "start"]).expect(0, "Kong started\n", "");
    let log = kong.path("prefix/logs/error.log");
    eventually("standard error goes there", || log.exists());
    for _ in 0..2 {
        fs::rename(&log, log.with_extension("1")).unwrap();
        kill_process(kong.pid().unwrap(), Signal::USR1).unwrap();
        let reopened = || fs::read_to_string(&log).is_ok_and(|log| log.contains("standard error reopened"));
        eventually("standard error is reopened", reopened);
        let done = kong.run(&["weir", "upgrade"]);
        assert_eq!(done.code, Some(0), "{}", done.stderr);
    }
}

#[test]
fn what_keeps_a_node_from_starting_is_said_at_once() {
    let kong = Kong::declared("services: 7\n");
    kong.run(&["kong", "start"]).expect(1, "", "kong.yml:1:1: ");
    let kong = Kong::declared(EMPTY).with("KONG_LOG_LEVEL", "loud");
    kong.run(&["kong", "start"]).expect(1, "", "Error: environment variable KONG_LOG_LEVEL: ");
    let kong = Kong::declared(EMPTY);
    for command in ["start", "restart", "reload", "prepare"] {
        let done = kong.run(&["kong", command, "--nginx-conf", "nginx.template"]);
        done.expect(1, "", "Error: --nginx-conf: there is no nginx here");
    }
    kong.run(&["kong", "fly"]).expect(1, "", "kong");
    kong.run(&["weir", "fly"]).expect(2, "", "weir");
}

#[test]
fn a_node_is_not_stopped_for_a_configuration_with_which_it_would_not_start() {
    let kong = Kong::declared(EMPTY);
    kong.run(&["kong", "start"]).expect(0, "Kong started\n", "");
    let before = kong.pid();
    fs::write(kong.path("kong.yml"), "services: 7\n").unwrap();
    let done = kong.run(&["kong", "restart"]);
    done.expect(1, "", "kong.yml:1:1: ");
    assert!(done.stderr.contains("Kong was not restarted and goes on as it was"), "{}", done.stderr);
    assert_eq!((kong.pid(), kong.status("proxy.sock", "/")), (before, 404));
    fs::write(kong.path("kong.yml"), EMPTY).unwrap();
    kong.run(&["kong", "restart"]).expect(0, "Kong started\n", "");
    assert_ne!(kong.pid(), before);
    kong.run(&["kong", "stop"]).expect(0, "Kong stopped\n", "");
}

#[test]
fn without_nginx_daemon_start_stays_in_the_foreground() {
    let entrypoint = ["docker-entrypoint.sh", "kong", "start"];
    for (daemon, words) in [("off", &entrypoint[1..]), ("", &entrypoint)] {
        let kong = Kong::declared(EMPTY).with("KONG_NGINX_DAEMON", daemon);
        let node = kong.serve(words);
        assert_eq!(kong.status("proxy.sock", "/"), 404);
        assert_eq!(node.stop(), (Some(0), String::new()));
    }
}

#[test]
fn what_a_killed_node_left_behind_is_removed_with_a_warning() {
    let kong = Kong::declared(EMPTY);
    kong.run(&["kong", "prepare"]).expect(0, "", "");
    assert!(kong.path("prefix/logs").is_dir());
    drop(UnixListener::bind(kong.path("prefix/worker_events.sock")).unwrap());
    let done = kong.run(&["kong", "start", "-p", &kong.prefix()]);
    done.expect(0, "Kong started\n", "found dangling unix sockets in the prefix directory");
    assert!(done.stderr.contains("worker_events.sock"), "{}", done.stderr);
    assert!(!kong.path("prefix/worker_events.sock").exists());
}

#[test]
fn quit_ends_what_takes_longer_than_its_timeout() {
    let (asked, was_asked) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        peer.request();
        let _ = asked.send(());
        peer.request();
    });
    let kong = Kong::declared(&one_route(upstream.address));
    kong.run(&["kong", "start"]).expect(0, "Kong started\n", "");
    let mut client = UnixStream::connect(kong.path("proxy.sock")).unwrap();
    client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    was_asked.recv_timeout(crate::harness::PATIENCE).expect("the request reaches the upstream");
    let done = kong.run(&["kong", "quit", "--timeout", "0.2", "--wait", "0.1"]);
    done.expect(0, "Timeout, Kong stopped forcefully\n", "");
}
