//! Many connections: spread over the workers, cheap while idle, and taken again once there are descriptors for them.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, LimitedUser, Peer, Upstream, eventually, one_route};
use crate::upgrade::program;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit, setrlimit};
use std::collections::HashMap;
use std::net::TcpStream;
use std::process::Command;

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

fn allow_descriptors(wanted: u64) {
    let limit = getrlimit(Resource::Nofile);
    let current = limit.current.unwrap_or(u64::MAX);
    assert!(
        limit.maximum.unwrap_or(u64::MAX) >= wanted,
        "this test opens {wanted} files: raise `ulimit -Hn`"
    );
    if current < wanted {
        setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), ..limit }).unwrap();
    }
}

fn get(client: &mut Peer) -> u16 {
    client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response().status
}

fn resident(gateway: &Gateway) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", gateway.pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

/// Each worker has its own connections to the upstream, and for one request at a time needs only one: which of them
/// carries a client's request tells which worker has the client.
#[test]
fn connections_are_spread_evenly_over_the_workers() {
    const WORKERS: usize = 4;
    const EACH: usize = 6;
    let upstream = Upstream::start(|mut peer, number| {
        while peer.request().is_some() {
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{number}",
                number.to_string().len()
            ));
        }
    });
    let gateway = Gateway::builder(&one_route(upstream.address)).set("workers", &WORKERS.to_string()).start();
    let active =
        || gateway.status("/status").json()["server"]["connections_active"].as_u64().unwrap() as usize;
    let mut clients: Vec<_> = (0..WORKERS * EACH).map(|_| gateway.connect()).collect();
    for round in 0..2 {
        eventually("all are accepted", || active() == clients.len());
        let mut of_worker: HashMap<String, usize> = HashMap::new();
        for client in &mut clients {
            let response = client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").response();
            *of_worker.entry(response.text().to_owned()).or_default() += 1;
        }
        assert_eq!(of_worker.len(), WORKERS, "{of_worker:?}");
        assert!(of_worker.values().all(|count| *count <= EACH + 1), "round {round}: {of_worker:?}");
        // Others come in place of half of them.
        clients.truncate(clients.len() / 2);
        eventually("half have left", || active() == clients.len());
        clients.extend((0..WORKERS * EACH / 2).map(|_| gateway.connect()));
    }
}

#[test]
fn two_thousand_idle_connections_cost_little() {
    const MANY: usize = 2000;
    allow_descriptors(4 * MANY as u64);
    let upstream = Upstream::answering(OK);
    let gateway = Gateway::start(&one_route(upstream.address));
    let mut warm: Vec<_> = (0..100).map(|_| gateway.connect()).collect();
    warm.iter_mut().for_each(|client| assert_eq!(get(client), 200));
    let before = resident(&gateway);
    let mut clients: Vec<_> = (0..MANY).map(|_| gateway.connect()).collect();
    clients.iter_mut().for_each(|client| assert_eq!(get(client), 200));
    let each = resident(&gateway).saturating_sub(before) / MANY as u64;
    assert!(each < 8 * 1024, "{each} bytes for an idle connection");
    clients.iter_mut().for_each(|client| assert_eq!(get(client), 200, "still served after its idle time"));
}

#[test]
fn connections_are_taken_again_once_descriptors_are_free() {
    let upstream = Upstream::answering(OK);
    let gateway = Gateway::start(&one_route(upstream.address));
    let limit = 100;
    let status = Command::new("prlimit")
        .args(["--pid", &gateway.pid().to_string(), &format!("--nofile={limit}:{limit}")])
        .status()
        .expect("prlimit runs");
    assert!(status.success());
    let mut first = gateway.connect();
    assert_eq!(get(&mut first), 200);
    let crowd: Vec<_> = (0..2 * limit).filter_map(|_| TcpStream::connect(gateway.proxy()).ok()).collect();
    eventually("the process runs out of descriptors", || gateway.log().contains("cannot accept connections"));
    assert_eq!(get(&mut first), 200, "open connections are served all the while");
    drop(crowd);
    assert_eq!(get(&mut gateway.connect()), 200);
}

#[test]
fn who_is_connected_is_served_however_many_more_come() {
    let upstream = Upstream::answering(OK);
    let limit = 200;
    let gateway = Gateway::builder(&one_route(upstream.address)).open_files(limit).start();
    let mut first: Vec<_> = (0..20).map(|_| gateway.connect()).collect();
    let crowd: Vec<_> = (0..2 * limit).filter_map(|_| TcpStream::connect(gateway.proxy()).ok()).collect();
    eventually("no more are taken", || gateway.log().contains("connections are open"));
    // All at once, so that each needs a connection of its own to the upstream.
    for client in &mut first {
        client.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    }
    first.iter_mut().for_each(|client| assert_eq!(client.response().status, 200));
    drop(crowd);
    assert_eq!(get(&mut gateway.connect()), 200);
}

#[test]
fn a_shortage_of_descriptors_makes_no_target_unhealthy() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nhi");
    let checks = "{passive: {unhealthy: {tcp_failures: 1}}}";
    let gateway = Gateway::start(&format!(
        "_format_version: \"3.0\"\nservices: [{{name: a, host: orders, retries: 0, routes: [{{name: a, paths: [/]}}]}}]\n\
         upstreams: [{{name: orders, healthchecks: {checks}, targets: [{{target: \"{}\"}}]}}]\n",
        upstream.address
    ));
    let mut client = gateway.connect();
    assert_eq!(get(&mut client), 200);
    let limit_open_files = |current| {
        let limit = Rlimit { current: Some(current), maximum: getrlimit(Resource::Nofile).maximum };
        prlimit(Pid::from_raw(gateway.pid().try_into().unwrap()), Resource::Nofile, limit).unwrap();
    };
    limit_open_files(3);
    for _ in 0..3 {
        assert_eq!(get(&mut client), 502);
    }
    limit_open_files(1000);
    assert_eq!(get(&mut client), 200);
}

#[test]
fn open_files_beyond_the_hard_limit_are_as_many_as_that_allows() {
    let (folder, user) = (tempfile::tempdir().unwrap(), LimitedUser::new());
    let weir = env!("CARGO_BIN_EXE_weir");
    let limited = format!("exec prlimit --nofile=500:1000 {} {weir} \"$@\"", user.command());
    let program = program(folder.path(), &limited);
    let builder = Gateway::builder("_format_version: \"3.0\"\n").binary(program.into());
    let gateway = builder.set("worker_rlimit_nofile", "5000").start();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", gateway.pid())).unwrap();
    let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
    let numbers: Vec<&str> = line.split_whitespace().skip(3).take(2).collect();
    assert_eq!(numbers, ["1000", "1000"]);
    let log = gateway.log();
    assert!(log.contains("could not be set to worker_rlimit_nofile"), "{log}");
}
