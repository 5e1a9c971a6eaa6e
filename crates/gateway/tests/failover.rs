//! A primary of PostgreSQL that is gone, and a standby that takes over.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, PostgresServer, Upstream, eventually};
use rustix::process::Signal;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// The settings of a node that uses whichever of these servers accepts writes.
pub(crate) fn settings(ports: &[u16]) -> Vec<(String, String)> {
    let mut settings = PostgresServer::settings(ports[0], "public");
    settings.retain(|(name, _)| name != "pg_port");
    let list = |items: Vec<String>| items.join(", ");
    let hosts = list(ports.iter().map(|_| "127.0.0.1".to_owned()).collect());
    let ports = list(ports.iter().map(u16::to_string).collect());
    // A busy machine takes longer than the default to answer.
    let patient = ("pg_timeout", "30000".to_owned());
    let servers = [("pg_host", hosts), ("pg_port", ports), patient];
    settings.extend(servers.map(|(name, value)| (name.to_owned(), value)));
    settings
}

/// A primary with a standby; each commit waits until the standby has it.
fn synchronous() -> (PostgresServer, PostgresServer) {
    let primary = PostgresServer::start();
    let standby = primary.standby();
    PostgresServer::execute(primary.port, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    PostgresServer::execute(primary.port, "SELECT pg_reload_conf()");
    eventually("the standby is synchronous", || {
        let standbys = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        PostgresServer::select(primary.port, standbys) == "1"
    });
    (primary, standby)
}

/// Waits until a standby has everything that its primary has committed.
pub(crate) fn caught_up(primary: &PostgresServer, standby: &PostgresServer) {
    let newest = PostgresServer::select(primary.port, "SELECT pg_current_wal_lsn()");
    let replayed = format!("SELECT pg_last_wal_replay_lsn() >= '{newest}'");
    eventually("the standby catches up", || PostgresServer::select(standby.port, &replayed) == "t");
}

/// Makes a path lead to an upstream; the status of the write that failed, or of the last.
pub(crate) fn route(node: &Gateway, name: &str, upstream: &Upstream) -> u16 {
    let url = format!("{{\"url\": \"http://{}\"}}", upstream.address);
    let service = node.ask_admin("PUT", &format!("/services/{name}"), &url).status;
    let route = format!("{{\"paths\": [\"/{name}\"], \"service\": {{\"name\": \"{name}\"}}}}");
    if service == 200 { node.ask_admin("PUT", &format!("/routes/{name}"), &route).status } else { service }
}

/// Ends loops, also if a test fails.
pub(crate) struct End<'a>(pub(crate) &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes services until the end; returns the names of those that were acknowledged.
fn write_until(ended: &AtomicBool, node: &Gateway, name: &str) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if ended.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("{name}-{number}");
        let answer = node.ask_admin("PUT", &format!("/services/{name}"), "{\"host\": \"a\"}");
        match answer.status {
            200 => acknowledged.push(name),
            500 => assert!(
                answer.text().contains("not known whether the change was stored"),
                "{}",
                answer.text()
            ),
            status => assert_eq!(status, 503, "{}", answer.text()),
        }
    }
    acknowledged
}

#[test]
fn a_promoted_standby_takes_over_and_no_request_and_no_acknowledged_write_is_lost() {
    let (mut primary, mut standby) = synchronous();
    let upstream = Upstream::answering(HELLO);
    // The standby first, so that it has to be passed over.
    let nodes: [Gateway; 2] = Gateway::sharing_by(&settings(&[standby.port, primary.port]));
    assert_eq!(route(&nodes[0], "before", &upstream), 200);
    nodes.iter().for_each(|node| eventually("it is served", || node.get("/before").status == 200));
    let (ended, served) = (AtomicBool::new(false), AtomicUsize::new(0));
    let acknowledged = thread::scope(|scope| {
        let end = End(&ended);
        for node in &nodes {
            scope.spawn(|| {
                while !ended.load(Ordering::SeqCst) {
                    assert_eq!(node.get("/before").status, 200);
                    served.fetch_add(1, Ordering::SeqCst);
                }
            });
        }
        let writers = [("a", &nodes[0]), ("b", &nodes[1])];
        let writers = writers.map(|(name, node)| scope.spawn(|| write_until(&ended, node, name)));
        let written = || PostgresServer::select(primary.port, "SELECT revision > 50 FROM weir_meta") == "t";
        eventually("writes are acknowledged", written);
        primary.crash();
        refuses_and_says_why(&nodes, [standby.port, primary.port]);
        standby.promote();
        eventually("writes are accepted again", || route(&nodes[1], "after", &upstream) == 200);
        eventually("the other node serves them", || nodes[0].get("/after").status == 200);
        let enough = served.load(Ordering::SeqCst) + 10;
        eventually("requests are served all the while", || served.load(Ordering::SeqCst) > enough);
        drop(end);
        writers.map(|writer| writer.join().unwrap()).concat()
    });
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());
    for node in &nodes {
        eventually("it has every acknowledged write", || {
            acknowledged.iter().all(|name| node.admin(&format!("/services/{name}")).status == 200)
        });
    }
    let found = |node: &Gateway| node.log().contains("another server than before");
    assert!(nodes.iter().any(found), "the first that comes to the new server says so");
}

/// What nodes answer while no server accepts writes.
fn refuses_and_says_why(nodes: &[Gateway], [standby, primary]: [u16; 2]) {
    for node in nodes {
        let refused = || node.ask_admin("PUT", "/services/refused", "{\"host\": \"a\"}");
        eventually("no server is left", || refused().status == 503);
        let said = refused().json()["message"].as_str().unwrap().to_owned();
        assert!(said.contains("no server accepts writes"), "{said}");
        assert!(said.contains(&format!("127.0.0.1:{standby}: it is read-only, as a standby is")), "{said}");
        assert!(
            said.contains(&format!("127.0.0.1:{primary}: ")) && said.contains("promote a standby"),
            "{said}"
        );
        assert_eq!(node.ask_admin("GET", "/services/before", "").status, 200, "reads are answered");
        assert_eq!(node.status("/status").json()["database"]["reachable"], false);
        assert_eq!(node.status("/status/ready").status, 200, "it still serves");
    }
}

#[test]
fn what_a_promoted_standby_lacks_is_on_no_node_afterwards() {
    let mut primary = PostgresServer::start();
    let mut standby = primary.standby();
    let upstream = Upstream::answering(HELLO);
    let [one, other] = Gateway::sharing_by(&settings(&[primary.port, standby.port]));
    assert_eq!(route(&one, "kept", &upstream), 200);
    caught_up(&primary, &standby);
    standby.stop();
    assert_eq!(route(&one, "lost", &upstream), 200);
    for node in [&one, &other] {
        eventually("it serves both", || ["/kept", "/lost"].iter().all(|path| node.get(path).status == 200));
    }
    // One does not look until the new server has as many commits as the old one had.
    one.signal(Signal::STOP);
    primary.crash();
    standby.restart();
    standby.promote();
    eventually("writes are accepted again", || route(&other, "new", &upstream) == 200);
    one.signal(Signal::CONT);
    for node in [&one, &other] {
        let statuses = || ["/kept", "/new", "/lost"].map(|path| node.get(path).status);
        eventually("it has what the new server has", || statuses() == [200, 200, 404]);
        assert_eq!(node.admin("/services/lost").status, 404);
    }
    assert_eq!(route(&one, "later", &upstream), 200);
    eventually("they hear of each other as before", || other.get("/later").status == 200);
}

#[test]
fn a_server_that_never_answers_keeps_no_node_from_the_next() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = [silent.local_addr().unwrap().port(), PostgresServer::shared_port()];
    let mut settings = settings(&ports);
    settings.retain(|(name, _)| name != "pg_schema");
    settings.push(("pg_schema".to_owned(), "silent".to_owned()));
    let [one, other] = Gateway::sharing_by(&settings);
    assert_eq!(one.ask_admin("PUT", "/services/a", "{\"host\": \"a\"}").status, 200);
    eventually("the other hears of it", || other.admin("/services/a").status == 200);
}

#[test]
fn ports_that_do_not_match_the_hosts_are_named() {
    let mut settings = settings(&[1, 2]);
    settings.retain(|(name, _)| name != "pg_port");
    settings.push(("pg_port".to_owned(), "1,2,3".to_owned()));
    let node = settings.iter().fold(Gateway::empty(), |node, (name, value)| node.set(name, value));
    let (_, said) = node.fail();
    assert!(said.contains("3 ports for 2 hosts: write one port for all hosts, or one for each"), "{said}");
}
