//! What is cached and for how long, in memory.

use super::config::Config;
use super::freshness::{StaleUse, Term};
use super::in_flight::Joined;
use super::key::Scope;
use super::store::Cache;
use super::stored::{Stored, Subject};
use crate::PLUGINS;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use weir_plugin::testing::Gateway;
use weir_plugin::{Bytes, Exchange, Headers, Record};

fn stored(since: Instant, seconds: u64, body: usize) -> Stored {
    let lifetime = Duration::from_secs(seconds);
    Stored {
        key: "key".into(),
        subject: Arc::new(Subject::default()),
        status: 200,
        headers: Arc::new(Headers::new()),
        body: Bytes::from(vec![b'x'; body]),
        since,
        timestamp: 0,
        term: Term {
            lifetime,
            overdue: Duration::ZERO,
            stored_for: Some(lifetime),
            age_before: 0,
            stale: StaleUse::default(),
        },
        vary: Vec::new(),
        is_for_all: false,
        is_gone: AtomicBool::new(false),
        is_used: AtomicBool::new(false),
    }
}

fn find(cache: &Cache, fingerprint: u128, exchange: &Exchange, now: Instant) -> bool {
    cache.find(fingerprint, exchange, now).is_some()
}

#[test]
fn responses_leave_after_their_time_and_when_another_comes() {
    let (cache, exchange, now) =
        (Cache::default(), Gateway::new(PLUGINS).exchange("GET /\nX-A: 1"), Instant::now());
    cache.insert(1, Arc::new(stored(now, 60, 5)));
    assert!(find(&cache, 1, &exchange, now) && !find(&cache, 2, &exchange, now));
    assert!(!find(&cache, 1, &exchange, now + Duration::from_secs(60)));
    let first = cache.find(1, &exchange, now).unwrap();
    cache.insert(1, Arc::new(stored(now, 60, 7)));
    assert_eq!(cache.find(1, &exchange, now).unwrap().body.len(), 7, "not even what was at hand");
    assert_eq!(first.body.len(), 5);
    let varied = |value: &[u8]| {
        Arc::new(Stored { vary: vec![("x-b".into(), vec![value.to_vec()])], ..stored(now, 60, 1) })
    };
    cache.insert(3, varied(b"1"));
    cache.insert(3, varied(b"2"));
    assert!(!find(&cache, 3, &exchange, now));
    assert!(find(&cache, 3, &Gateway::new(PLUGINS).exchange("GET /\nx-b: 2"), now));
}

#[test]
fn memory_is_bounded_and_what_is_used_stays() {
    const SIZE: usize = 1024 * 1024;
    let (cache, exchange, now) = (Cache::of(SIZE), Gateway::new(PLUGINS).exchange("GET /"), Instant::now());
    let spread = |i: u128| i << 64 | i;
    for i in 1..=4_000 {
        cache.insert(spread(i), Arc::new(stored(now, 60, 4096)));
        assert!(find(&cache, spread(1), &exchange, now), "{i}");
        assert!(cache.bytes() <= SIZE, "{}", cache.bytes());
    }
    assert!((100..300).contains(&(1..=4_000).filter(|i| find(&cache, spread(*i), &exchange, now)).count()));
    let large = Stored { is_used: AtomicBool::new(true), ..stored(now, 60, SIZE / 2) };
    cache.insert(spread(4_001), Arc::new(large));
    assert!(find(&cache, spread(4_001), &exchange, now), "what is added does not go first");
    let cache = Arc::new(cache);
    for i in 10_000..20_000 {
        if let Joined::Leads(lead) = cache.join(spread(i), now) {
            lead.uncacheable();
        }
        assert!(cache.bytes() <= SIZE, "{}", cache.bytes());
    }
    assert!(
        matches!(cache.join(spread(19_999), now), Joined::Alone),
        "no request waits for an uncacheable one"
    );
    let leads = cache.join(spread(20_000), now);
    assert!(matches!(cache.join(spread(20_000), now), Joined::Follows(_)));
    drop(leads);
    assert!(matches!(cache.join(spread(20_000), now), Joined::Leads(_)));
    let many = |i: u8| Arc::new(Stored { vary: vec![("x-b".into(), vec![vec![i]])], ..stored(now, 60, 1) });
    (0..100).for_each(|i| cache.insert(spread(5_000), many(i)));
    let of = |i: u8| Gateway::new(PLUGINS).exchange(&format!("GET /\nx-b: {}", char::from(i)));
    let is_there = |i: u8| find(&cache, spread(5_000), &of(i), now);
    assert!(is_there(b'c') && !is_there(b'A'), "16 variants at most");
}

#[test]
fn no_request_keeps_the_others_waiting_for_ever() {
    let (cache, now) = (Arc::new(Cache::default()), Instant::now());
    let slow = cache.join(1, now);
    assert!(matches!(cache.join(1, now + Duration::from_secs(4)), Joined::Follows(_)));
    let next = cache.join(1, now + Duration::from_secs(5));
    assert!(matches!((&slow, &next), (Joined::Leads(_), Joined::Leads(_))));
    drop(slow);
    assert!(matches!(cache.join(1, now + Duration::from_secs(6)), Joined::Follows(_)), "the next one leads");
    drop(next);
    assert!(matches!(cache.join(1, now + Duration::from_secs(6)), Joined::Leads(_)));
}

#[test]
fn the_parts_of_a_key_do_not_run_into_each_other() {
    let config =
        Config::from_value(&json!({ "strategy": "memory", "vary_headers": ["X-A", "X-B"] })).unwrap();
    let key =
        |request: &str| super::key::parts(&config, &Gateway::new(PLUGINS).exchange(request), Scope::Same);
    let requests = [
        "GET /",
        "GET /a",
        "HEAD /",
        "GET /?a",
        "GET /?a=",
        "GET /?a=1",
        "GET /?a=1&b=2",
        "GET /?a=1%26b=2",
        "GET /?a=1&a=2",
        "GET /?a=2&a=1",
        "GET /\nX-A: 1",
        "GET /\nX-B: 1",
        "GET /\nX-A: 1\nX-A: 2",
        "GET /\nX-A: 1\nX-B: 2",
        "GET /\nX-A: 1, 2",
        "GET /\nAuthorization: a",
        "GET /\nX-Forwarded-Proto: https",
    ];
    for (at, one) in requests.iter().enumerate() {
        assert_eq!(key(one), key(one));
        for other in &requests[at + 1..] {
            assert_ne!(key(one), key(other), "{one:?} {other:?}");
        }
    }
    let described = |by: &[&[u8]]| {
        let mut exchange = Gateway::new(PLUGINS).exchange("GET /");
        by.iter().for_each(|by| exchange.describe_caller(by));
        super::key::parts(&config, &exchange, Scope::Same)
    };
    assert_ne!(described(&[b"ab", b"c"]), described(&[b"a", b"bc"]));
}

#[test]
fn requests_that_plugins_send_elsewhere_have_keys_of_their_own() {
    let gateway = Gateway::new(PLUGINS);
    let config = Config::from_value(&json!({ "strategy": "memory" })).unwrap();
    let mut keys = std::collections::HashSet::new();
    for at in 0..4 {
        let mut exchange = gateway.exchange("GET /");
        match at {
            0 => {}
            1 => exchange.set_target("a.test", 1).unwrap(),
            2 => exchange.set_target("a.test", 2).unwrap(),
            _ => exchange.set_upstream_tls(true),
        }
        keys.insert(super::key::parts(&config, &exchange, Scope::Same));
    }
    assert_eq!(keys.len(), 4);
}
