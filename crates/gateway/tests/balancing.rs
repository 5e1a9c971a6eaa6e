//! Which target a request goes to, by the algorithm of its upstream.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Message, PATIENCE, Upstream, closed_port, document};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

/// Upstreams that answer with their number.
fn upstreams(count: usize) -> Vec<Upstream> {
    let answer =
        |number| format!("HTTP/1.1 200 OK\r\nSet-Cookie: own=1\r\nContent-Length: 1\r\n\r\n{number}");
    (0..count).map(|number| Upstream::answering(&answer(number))).collect()
}

/// An upstream entity of these targets behind the routes `/` and `/users/NUMBER/…`.
fn configuration(targets: &[&Upstream], fields: &str) -> String {
    let targets: String =
        targets.iter().map(|target| format!("{{target: \"{}\"}},", target.address)).collect();
    let service = "- {name: s, host: some, routes: [{name: r, paths: [/, '~/users/(?<user>[0-9]+)/']}]}\n";
    document(
        &[service.to_owned()],
        &format!(
            "upstreams:\n- {{name: some, targets: [{targets}], {fields}}}\n\
             consumers:\n- {{username: alice, keyauth_credentials: [{{key: alice}}]}}\n\
             - {{username: bob, keyauth_credentials: [{{key: bob}}]}}\n\
             plugins:\n- {{name: key-auth, config: {{anonymous: alice}}}}\n"
        ),
    )
}

/// A path, and more lines of the head.
type Asked = (String, String);
type Ask = fn(usize) -> Asked;

/// Which target answers each number.
fn where_all_go(gateway: &Gateway, ask: impl Fn(usize) -> Asked, count: usize) -> BTreeMap<usize, String> {
    let answer = |number| {
        let (path, headers) = ask(number);
        let answer = gateway.get_with(&path, &headers);
        assert_eq!(answer.status, 200);
        (number, answer.text().to_owned())
    };
    (0..count).map(answer).collect()
}

#[test]
fn what_hashes_alike_goes_to_one_target_and_only_the_share_of_one_that_leaves_moves() {
    let all = upstreams(4);
    let all: Vec<&Upstream> = all.iter().collect();
    let cases: [(&str, Ask); 5] = [
        ("hash_on: header, hash_on_header: x-user", |n| ("/".into(), format!("X-User: {n}\r\n"))),
        ("hash_on: cookie, hash_on_cookie: sid", |n| ("/".into(), format!("Cookie: a=b; sid={n}; c=d\r\n"))),
        ("hash_on: path", |n| (format!("/{n}"), String::new())),
        ("hash_on: query_arg, hash_on_query_arg: q", |n| (format!("/?a={n}&q=b&q={n}"), String::new())),
        ("hash_on: uri_capture, hash_on_uri_capture: user", |n| (format!("/users/{n}/{n}"), String::new())),
    ];
    let gateway = Gateway::start(&configuration(&all, "algorithm: round-robin"));
    for (fields, ask) in cases {
        let put = |targets: &[&Upstream]| {
            let output = gateway.reload(&configuration(targets, fields));
            assert_eq!(output.status.code(), Some(0), "{output:?}");
        };
        put(&all);
        let before = where_all_go(&gateway, ask, 60);
        assert_eq!(before, where_all_go(&gateway, ask, 60), "{fields}");
        let mut shares = HashMap::new();
        before.values().for_each(|target| *shares.entry(target.clone()).or_insert(0) += 1);
        assert_eq!(shares.len(), 4, "{fields}: {shares:?}");
        put(&all[..3]);
        let after = where_all_go(&gateway, ask, 60);
        for (number, target) in &before {
            let now = &after[number];
            assert!(now == target || target == "3", "{fields}: {number} moved from {target} to {now}");
            assert_ne!(now, "3");
        }
    }
}

#[test]
fn arguments_hash_alike_in_any_order_and_encoding() {
    let all = upstreams(8);
    let fields = "hash_on: query_arg, hash_on_query_arg: q";
    let gateway = Gateway::start(&configuration(&all.iter().collect::<Vec<_>>(), fields));
    for number in 0..20 {
        let answer = |query: String| gateway.get(&format!("/?{query}")).text().to_owned();
        assert_eq!(answer(format!("q=a{number}&q=b")), answer(format!("q=b&x=1&%71=%61{number}")));
    }
}

#[test]
fn consumers_stay_and_what_they_lack_is_made_up_for() {
    let all = upstreams(4);
    let all: Vec<&Upstream> = all.iter().collect();
    let gateway = Gateway::start(&configuration(&all, "hash_on: consumer"));
    for key in ["alice", "bob"] {
        let answers = where_all_go(&gateway, |_| ("/".into(), format!("apikey: {key}\r\n")), 10);
        assert!(answers.values().all(|answer| *answer == answers[&0]), "{answers:?}");
    }
    let fallback = "hash_on: header, hash_on_header: x-user, hash_fallback: ip";
    assert_eq!(gateway.reload(&configuration(&all, fallback)).status.code(), Some(0));
    let answers = where_all_go(&gateway, |_| ("/".into(), String::new()), 10);
    assert!(answers.values().all(|answer| *answer == answers[&0]), "{answers:?}");
    // Without anything to hash, targets take turns.
    let none = "hash_on: header, hash_on_header: x-user";
    assert_eq!(gateway.reload(&configuration(&all, none)).status.code(), Some(0));
    let answers = where_all_go(&gateway, |_| ("/".into(), String::new()), 4);
    let mut targets: Vec<&String> = answers.values().collect();
    targets.sort();
    assert_eq!(targets, ["0", "1", "2", "3"]);
}

#[test]
fn a_client_without_the_cookie_gets_one() {
    let all = upstreams(8);
    let fields = "hash_on: cookie, hash_on_cookie: sid, hash_on_cookie_path: /shop";
    let gateway = Gateway::start(&configuration(&all.iter().collect::<Vec<_>>(), fields));
    let cookies = |answer: &Message| -> Vec<String> {
        answer.head.all("Set-Cookie").into_iter().map(str::to_owned).collect()
    };
    for _ in 0..10 {
        let first = gateway.get("/");
        let set = cookies(&first);
        assert_eq!(set[0], "own=1");
        let (value, rest) = set[1].split_once(';').unwrap();
        assert_eq!(rest, " Path=/shop; SameSite=Lax; HttpOnly");
        assert_eq!(value.len(), "sid=".len() + 36, "{value}");
        let next = gateway.get_with("/", &format!("Cookie: {value}\r\n"));
        assert_eq!((next.text(), cookies(&next).len()), (first.text(), 1));
    }
}

/// An upstream that says when it is asked, and answers when it is told to.
fn held(number: usize, asked: mpsc::Sender<usize>) -> (Upstream, mpsc::Sender<()>) {
    let (answer, may_answer) = mpsc::channel();
    let (asked, may_answer) = (Mutex::new(asked), Mutex::new(may_answer));
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            asked.lock().unwrap().send(number).unwrap();
            let _ = may_answer.lock().unwrap().recv();
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n{number}"));
        }
    });
    (upstream, answer)
}

#[test]
fn requests_go_where_the_fewest_are_under_way_on_all_workers() {
    let (asked, was_asked) = mpsc::channel();
    let all = [held(0, asked.clone()), held(1, asked)];
    let targets = [&all[0].0, &all[1].0];
    let gateway = Gateway::builder(&configuration(&targets, "algorithm: least-connections"))
        .set("workers", "2")
        .start();
    // Connections go to the workers in turn.
    let mut clients: Vec<_> = (0..2).map(|_| gateway.connect()).collect();
    let mut ask = |client: usize| {
        clients[client].send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        was_asked.recv_timeout(PATIENCE).unwrap()
    };
    let busy = ask(0);
    let free = ask(1);
    assert_ne!(busy, free);
    for _ in 0..5 {
        all[free].1.send(()).unwrap();
        assert_eq!(clients[1].response().text(), free.to_string());
        clients[1].send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(was_asked.recv_timeout(PATIENCE).unwrap(), free, "the other one is still busy");
    }
    all[free].1.send(()).unwrap();
    all[busy].1.send(()).unwrap();
    assert_eq!(clients[0].response().text(), busy.to_string());
}

#[test]
fn requests_go_where_answers_are_fast() {
    let slow = Upstream::start(|mut peer, _| {
        while peer.request().is_some() {
            std::thread::park_timeout(Duration::from_millis(200));
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nslow");
        }
    });
    let fast = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfast");
    let gateway = Gateway::start(&configuration(&[&slow, &fast], "algorithm: latency"));
    // At first nothing is known, and chance decides.
    (0..20).for_each(|_| assert_eq!(gateway.get("/").status, 200));
    let answers: Vec<String> = (0..20).map(|_| gateway.get("/").text().to_owned()).collect();
    assert!(answers.iter().all(|answer| answer == "fast"), "{answers:?}");
}

#[test]
fn a_lower_priority_takes_over_while_no_higher_one_is_available() {
    let all = upstreams(3);
    for fields in
        ["", "algorithm: least-connections", "algorithm: latency", "hash_on: query_arg, hash_on_query_arg: q"]
    {
        let targets = all.iter().zip([-1, 5, 0]).map(|(upstream, priority)| (upstream.address, priority));
        let targets: String = [(closed_port(), 9)]
            .into_iter()
            .chain(targets)
            .map(|(at, priority)| format!("{{target: \"{at}\", priority: {priority}}},"))
            .collect();
        let checks = "healthchecks: {passive: {unhealthy: {tcp_failures: 1}}}";
        let gateway = Gateway::start(&document(
            &["- {name: s, host: some, routes: [{name: r, paths: [/]}]}\n".to_owned()],
            &format!("upstreams:\n- {{name: some, targets: [{targets}], {checks}, {fields}}}\n"),
        ));
        let answers =
            || (0..10).map(|n| gateway.get(&format!("/?q={n}")).text().to_owned()).collect::<Vec<_>>();
        let mark = |number: usize, health: &str| {
            let path = format!("/upstreams/some/targets/{}/{health}", all[number].address);
            assert_eq!(gateway.ask_admin("PUT", &path, "").status, 204);
        };
        assert_eq!(answers(), ["1"; 10], "{fields}: a retry asks the next priority, not a later one");
        mark(1, "unhealthy");
        assert_eq!(answers(), ["2"; 10], "{fields}");
        mark(2, "unhealthy");
        assert_eq!(answers(), ["0"; 10], "{fields}");
        mark(1, "healthy");
        assert_eq!(answers(), ["1"; 10], "{fields}");
    }
}
