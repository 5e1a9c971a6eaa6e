//! What becomes of limits while the server dies, hangs and comes back.
use super::{HELLO, left, nodes};
use crate::harness::{Gateway, Message, PATIENCE, RedisServer, Upstream, eventually};
use rustix::process::Signal;
use serde_json::json;
use std::time::Instant;

fn node(server: &RedisServer, upstream: &Upstream, fault_tolerant: bool, sync_rate: f64) -> Gateway {
    let redis = json!({ "host": "127.0.0.1", "port": server.port, "timeout": 5000 });
    let config = json!({
        "policy": "redis", "year": 100, "fault_tolerant": fault_tolerant, "sync_rate": sync_rate, "redis": redis,
    });
    let [node] = nodes(upstream, &config);
    node
}

/// As many requests, one after another: they would take longer than anybody waits if each waited for the server.
fn many(node: &Gateway, count: usize) -> Vec<Message> {
    let began = Instant::now();
    let answered = (0..count).map(|_| node.get("/")).collect();
    assert!(began.elapsed() < PATIENCE, "requests wait for a server that does not answer");
    answered
}

/// Counts on a server that goes away and comes back, and returns what it has counted then.
fn counted_over(away: impl Fn(&mut RedisServer), back: impl Fn(&mut RedisServer), expected: &[u64]) {
    let (mut server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let node = node(&server, &upstream, true, -1.0);
    assert_eq!(left(&node.get("/")), 99);
    let [key] = &*server.keys() else { panic!("{:?}", server.keys()) };
    away(&mut server);
    let known = many(&node, 39);
    assert!(known.iter().all(|response| response.status == 200));
    assert_eq!(known.iter().map(left).collect::<Vec<_>>(), (60..99).rev().collect::<Vec<_>>());
    back(&mut server);
    eventually("it is told", || expected.contains(&server.number(key)));
    eventually("the log tells of the end", || node.log().contains("answers again"));
    assert_eq!(
        node.log().matches("until it answers, this node counts by itself").count(),
        1,
        "{}",
        node.log()
    );
    let count = server.number(key);
    assert_eq!(left(&node.get("/")), 99 - count, "it is asked again");
}

#[test]
fn a_server_that_hangs_is_told_of_what_was_counted_meanwhile() {
    // The one question that it got before it was left alone may be answered in the end.
    let away = |server: &mut RedisServer| server.signal(Signal::STOP);
    counted_over(away, |server| server.signal(Signal::CONT), &[40, 41]);
}

#[test]
fn a_server_that_died_is_told_of_what_was_counted_meanwhile() {
    // It has forgotten what it knew.
    counted_over(RedisServer::kill, RedisServer::restart, &[39]);
}

#[test]
fn limits_are_kept_while_the_server_is_away() {
    let (mut server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let node = node(&server, &upstream, true, -1.0);
    assert_eq!(many(&node, 30).last().map(left), Some(70));
    server.kill();
    let statuses: Vec<_> = many(&node, 75).iter().map(|response| response.status).collect();
    assert_eq!(statuses, [vec![200; 70], vec![429; 5]].concat());
}

#[test]
fn who_is_not_to_tolerate_faults_refuses() {
    let (mut server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let node = node(&server, &upstream, false, -1.0);
    assert_eq!(left(&node.get("/")), 99);
    server.signal(Signal::STOP);
    for response in many(&node, 40) {
        assert_eq!(response.status, 500);
        assert!(response.text().contains("An unexpected error occurred"), "{}", response.text());
        assert_eq!(response.header("x-ratelimit-limit-year"), None);
    }
    server.signal(Signal::CONT);
    eventually("it is asked again", || node.get("/").status == 200);
    server.kill();
    assert_eq!(many(&node, 40).iter().filter(|response| response.status == 500).count(), 40);
    server.restart();
    eventually("it is asked again", || node.get("/").status == 200);
}

#[test]
fn who_exchanges_counts_never_waits() {
    let (server, upstream) = (RedisServer::start(), Upstream::answering(HELLO));
    let node = node(&server, &upstream, false, 0.02);
    server.signal(Signal::STOP);
    assert_eq!(many(&node, 40).iter().map(left).min(), Some(60));
    server.signal(Signal::CONT);
    eventually("it is told", || server.keys().first().is_some_and(|key| server.number(key) == 40));
}

/// A server that answers and yet does nothing is away all the same.
#[test]
fn a_server_that_answers_and_refuses_to_count_is_left_alone_until_it_counts() {
    let server = RedisServer::with(&["--user", "weir", "on", ">do-not-tell", "~*", "+@all"], &[]);
    let upstream = Upstream::answering(HELLO);
    let redis = json!({
        "host": "127.0.0.1", "port": server.port, "timeout": 1000, "username": "weir", "password": "do-not-tell",
    });
    let [node] = nodes(&upstream, &json!({ "policy": "redis", "year": 100, "redis": redis }));
    assert_eq!(left(&node.get("/")), 99);
    let [key] = &*server.keys() else { panic!("{:?}", server.keys()) };
    server.ask(&["acl", "setuser", "weir", "-eval", "-evalsha"]);
    assert_eq!(many(&node, 5).iter().map(left).min(), Some(94));
    let probes = || {
        let said = server.ask(&["info", "commandstats"]);
        let eval = said.lines().find(|line| line.starts_with("cmdstat_eval:")).unwrap_or_default().to_owned();
        let rejected =
            eval.split("rejected_calls=").nth(1).and_then(|rest| rest.split(',').next()?.parse().ok());
        rejected.unwrap_or(0)
    };
    eventually("it is tried several times", || probes() >= 3);
    assert_eq!(many(&node, 4).iter().map(left).min(), Some(90));
    assert!(!node.log().contains("answers again"), "{}", node.log());
    assert_eq!(node.log().matches("this node counts by itself").count(), 1, "{}", node.log());
    server.ask(&["acl", "setuser", "weir", "+@all"]);
    eventually("the log tells of the end", || node.log().contains("answers again"));
    eventually("it is told", || server.number(key) == 10);
    assert_eq!(left(&node.get("/")), 89);
    assert_eq!(server.number(key), 11);
}
