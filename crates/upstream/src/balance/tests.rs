use super::*;
use crate::endpoint::{EndpointIds, UpstreamProtocol};
use crate::health::{TargetMonitors, TargetStates, mark};
use crate::limit::{LimitPolicy, UpstreamLimits};
use crate::testing::{entity, id};
use serde_json::{Value, json};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use weir_model::Document;
use weir_model::entity::Protocol;

/// A configuration with this upstream and targets 10.0.0.1, 10.0.0.2 and so on, of these weights.
fn document(upstream: &Arc<Upstream>, weights: impl Iterator<Item = u16>) -> Document {
    let target = |(number, weight): (usize, u16)| {
        let (id, name) = (id(number as u128 + 2), format!("10.0.0.{}:80", number + 1));
        entity(json!({ "id": id, "upstream": { "id": upstream.id }, "target": name, "weight": weight }))
    };
    let targets = weights.enumerate().map(target).collect();
    Document { upstreams: vec![upstream.clone()], targets, ..Document::default() }
}

/// An upstream of targets 10.0.0.1, 10.0.0.2 and so on, of these weights.
struct Setting {
    upstream: Arc<Upstream>,
    state: Arc<TargetStates>,
    balancer: Balancer,
    chance: Cell<u64>,
}

impl Setting {
    fn new(upstream: Value, weights: &[u16]) -> Setting {
        let targets: Vec<_> = weights.iter().map(|weight| (*weight, 0)).collect();
        Setting::with_priorities(upstream, &targets)
    }

    /// The same, of targets of these weights and priorities.
    fn with_priorities(mut upstream: Value, targets: &[(u16, i32)]) -> Setting {
        upstream["id"] = json!(id(1));
        upstream["name"] = json!("orders.upstream");
        let (upstream, state) = (entity::<Upstream>(upstream), Arc::<TargetStates>::default());
        let (monitors, ids) = (TargetMonitors::new(&upstream, &state), EndpointIds::default());
        let endpoint = |(number, (weight, priority)): (usize, &(u16, i32))| {
            let host = format!("10.0.0.{}", number + 1);
            let mut endpoint =
                Endpoint::new(&ids, Protocol::Http, (&host, 80), None, None, UpstreamProtocol::Http1);
            endpoint.monitor = monitors.of(&format!("{host}:80"));
            BalancedEndpoint { endpoint, weight: *weight, priority: *priority }
        };
        let balanced = targets.iter().enumerate().map(endpoint).collect();
        let weights = targets.iter().map(|(weight, _)| *weight);
        state.keep_those_of(&document(&upstream, weights));
        let limit = LimitPolicy::of(&upstream.tags).map(|policy| UpstreamLimits::default().of("u", policy));
        let balancer =
            Balancer::new(&upstream, balanced, (Arc::new(Cursors::new(1)), &Rings::default()), limit);
        Setting { upstream, state, balancer, chance: Cell::new(1) }
    }

    fn pick(&self, tried: &[u32], hash: Option<u64>) -> Option<Pick<'_>> {
        let random = || {
            self.chance.set(self.chance.get().wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
            self.chance.get() >> 33
        };
        self.balancer.pick(&PickContext { worker: 0, tried, hash, random: &random })
    }

    fn mark(&self, number: usize, healthy: bool) {
        let target = format!("10.0.0.{number}:80");
        let address: SocketAddr = target.parse().unwrap();
        mark(&self.state, &self.upstream, (&target, &[address]), None, healthy);
    }

    /// How often each target is picked, counted from 1.
    fn counts<const N: usize>(&self, picks: usize) -> [usize; N] {
        let mut counts = [0; N];
        for _ in 0..picks {
            counts[number(&self.pick(&[], None).unwrap()) - 1] += 1;
        }
        counts
    }
}

fn number(pick: &Pick<'_>) -> usize {
    pick.endpoint.host.rsplit('.').next().unwrap().parse().unwrap()
}

fn passive() -> Value {
    json!({ "passive": { "unhealthy": { "tcp_failures": 1 } } })
}

#[test]
fn the_unhealthy_are_passed_over_and_their_turns_shared_out() {
    let setting = Setting::new(json!({ "healthchecks": passive() }), &[100, 100, 100, 0]);
    assert_eq!(setting.counts(30), [10, 10, 10, 0]);
    setting.mark(2, false);
    let [first, second, third, none] = setting.counts(3_000);
    assert_eq!((second, none), (0, 0));
    assert!(first > 1_300 && third > 1_300, "{first} and {third}");
    setting.mark(1, false);
    assert_eq!(setting.counts(30), [0, 0, 30, 0]);
    setting.mark(3, false);
    assert!(setting.pick(&[], None).is_none());
    setting.mark(2, true);
    assert_eq!(setting.counts(30), [0, 30, 0, 0]);
}

#[test]
fn tries_take_other_targets() {
    for upstream in [
        json!({}),
        json!({ "algorithm": "least-connections" }),
        json!({ "algorithm": "latency" }),
        json!({ "algorithm": "consistent-hashing", "hash_on": "ip" }),
    ] {
        let setting = Setting::new(upstream, &[100, 1, 65_535]);
        let mut tried = Vec::new();
        while let Some(pick) = setting.pick(&tried, Some(7)) {
            assert!(!tried.contains(&pick.endpoint.id));
            tried.push(pick.endpoint.id);
        }
        assert_eq!(tried.len(), 3);
    }
}

/// Otherwise, of two targets that take turns, the one that fails would be asked first by every request.
#[test]
fn retries_take_no_turns() {
    for upstream in [json!({}), json!({ "algorithm": "least-connections" })] {
        let setting = Setting::new(upstream, &[100, 100]);
        let firsts = (0..10).map(|_| {
            let first = setting.pick(&[], None).unwrap();
            let second = setting.pick(&[first.endpoint.id], None).unwrap();
            assert_ne!(first.endpoint.id, second.endpoint.id);
            number(&first)
        });
        assert_eq!(firsts.filter(|first| *first == 1).count(), 5);
    }
}

/// An upstream for each algorithm, with passive health checks.
fn algorithms() -> [Value; 4] {
    ["round-robin", "least-connections", "latency", "consistent-hashing"].map(|algorithm| {
        let mut upstream = json!({ "algorithm": algorithm, "healthchecks": passive() });
        if algorithm == "consistent-hashing" {
            upstream["hash_on"] = json!("ip");
        }
        upstream
    })
}

#[test]
fn lower_priorities_are_for_when_no_higher_one_is_available() {
    for upstream in algorithms() {
        // 10.0.0.3 has no weight, so that its priority counts for nothing.
        let setting = Setting::with_priorities(upstream, &[(100, -1), (100, 5), (0, 9), (100, 5), (100, -1)]);
        let seen = || {
            let picks = (0..200).filter_map(|hash| setting.pick(&[], Some(hash)));
            picks.map(|pick| number(&pick)).collect::<BTreeSet<_>>()
        };
        let among = |numbers: &[usize]| seen() == numbers.iter().copied().collect();
        assert!(among(&[2, 4]), "{:?}", seen());
        setting.mark(4, false);
        assert!(among(&[2]), "{:?}", seen());
        setting.mark(2, false);
        assert!(among(&[1, 5]), "{:?}", seen());
        setting.mark(1, false);
        assert!(among(&[5]), "{:?}", seen());
        setting.mark(5, false);
        assert!(among(&[]), "{:?}", seen());
        setting.mark(4, true);
        assert!(among(&[4]), "{:?}", seen());
    }
}

#[test]
fn retries_move_on_to_the_next_priority() {
    for upstream in algorithms() {
        let setting = Setting::with_priorities(upstream, &[(1, 0), (1, 1), (1, 0), (1, 1)]);
        let mut tried = Vec::new();
        let mut order = Vec::new();
        while let Some(pick) = setting.pick(&tried, Some(7)) {
            order.push(number(&pick));
            tried.push(pick.endpoint.id);
        }
        order[..2].sort_unstable();
        order[2..].sort_unstable();
        assert_eq!(order, [2, 4, 1, 3]);
    }
}

/// Were a turn taken for each priority, two targets of the second one would not alternate.
#[test]
fn a_request_takes_one_turn_for_all_priorities() {
    let upstream = json!({ "healthchecks": passive() });
    let setting = Setting::with_priorities(upstream, &[(1, 1), (1, 0), (1, 0)]);
    setting.mark(1, false);
    assert_eq!(setting.counts(30), [0, 15, 15]);
}

#[test]
fn too_little_weight_is_none() {
    let upstream = |threshold| {
        let mut checks = passive();
        checks["threshold"] = json!(threshold);
        json!({ "healthchecks": checks })
    };
    for (threshold, is_enough) in [(0, true), (29, true), (30, false), (70, false)] {
        let setting = Setting::new(upstream(threshold), &[70, 30]);
        setting.mark(1, false);
        assert_eq!(setting.pick(&[], None).is_some(), is_enough, "{threshold}");
    }
}

#[test]
fn requests_go_where_the_fewest_are_under_way() {
    let setting = Setting::new(json!({ "algorithm": "least-connections" }), &[300, 100]);
    let busy: Vec<_> = (0..40).map(|_| setting.pick(&[], None).unwrap()).collect();
    assert_eq!(busy.iter().filter(|pick| number(pick) == 1).count(), 30);
    drop(busy);
    let held = setting.pick(&[], None).unwrap();
    assert_eq!(number(&held), 1, "the greater weight has room for more");
    let of_second: Vec<_> = (0..2).map(|_| setting.pick(&[], None).unwrap()).map(|p| number(&p)).collect();
    assert_eq!(of_second, [1, 1]);
}

#[test]
fn requests_go_where_answers_are_fast() {
    let setting = Setting::new(json!({ "algorithm": "latency" }), &[100, 100]);
    for (endpoint, milliseconds) in setting.balancer.endpoints.iter().zip([500, 5]) {
        let state = &endpoint.monitor.as_ref().unwrap().state;
        state.latency.add(std::time::Duration::from_millis(milliseconds));
    }
    assert_eq!(setting.counts(20), [0, 20]);
}

#[test]
fn what_hashes_alike_stays_together_and_what_has_no_hash_takes_turns() {
    let upstream = json!({ "algorithm": "consistent-hashing", "hash_on": "ip", "healthchecks": passive() });
    let setting = Setting::new(upstream, &[100, 100, 100]);
    assert_eq!(setting.counts(30), [10, 10, 10]);
    let all = || (0..300).map(|hash| number(&setting.pick(&[], Some(hash)).unwrap())).collect::<Vec<_>>();
    let before = all();
    assert_eq!(before, all());
    setting.mark(3, false);
    let after = all();
    assert!(after.iter().all(|number| *number != 3));
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || *before == 3));
    setting.mark(3, true);
    assert_eq!(before, all());
}

#[test]
fn a_target_with_as_many_requests_as_it_may_have_gets_no_more() {
    for algorithm in ["round-robin", "least-connections", "latency", "consistent-hashing"] {
        let fields = json!({ "algorithm": algorithm, "hash_on": if algorithm == "consistent-hashing" { "ip" } else { "none" },
            "tags": ["weir-target-max-requests:3"],
            "healthchecks": { "active": { "healthy": { "interval": 1000 } } } });
        let setting = Setting::new(fields, &[100, 1]);
        let hash = (algorithm == "consistent-hashing").then_some(7);
        let mut held: Vec<Pick<'_>> = std::iter::from_fn(|| setting.pick(&[], hash)).collect();
        assert_eq!(held.len(), 6, "{algorithm}");
        assert!(setting.balancer.is_saturated());
        let freed = held.pop().map(|pick| pick.endpoint.id);
        assert_eq!(setting.pick(&[], hash).map(|pick| pick.endpoint.id), freed, "{algorithm}");
        setting.mark(1, false);
        setting.mark(2, false);
        assert!(!setting.balancer.is_saturated(), "they are down, rather than full");
    }
}

#[test]
fn an_ejected_target_gets_nothing_while_others_are_available() {
    for algorithm in ["round-robin", "least-connections", "latency"] {
        let fields = json!({ "algorithm": algorithm, "tags": ["weir-eject-errors:2"] });
        let setting = Setting::new(fields, &[100, 100]);
        let fail = |number: usize| {
            let endpoint = &setting.balancer.endpoints[number - 1];
            let address = Some(SocketAddr::new(endpoint.ip.unwrap(), 80));
            (0..2).for_each(|_| endpoint.record_outcome(address, crate::health::Outcome::Status(503)));
        };
        fail(1);
        assert_eq!(setting.counts(50), [0, 50], "{algorithm}");
        fail(2);
        assert_eq!(setting.counts(50), [0, 50], "the last one is not ejected: {algorithm}");
        setting.mark(2, false);
        assert!(setting.pick(&[], None).is_some() || !setting.balancer.endpoints[1].is_down(), "{algorithm}");
    }
}

#[test]
fn a_target_that_returns_gets_its_share_little_by_little() {
    let checks = json!({ "active": { "healthy": { "interval": 1000 } } });
    let setting =
        Setting::new(json!({ "tags": ["weir-slow-start:86400"], "healthchecks": checks }), &[100, 100]);
    assert_eq!(setting.counts(1000), [500, 500]);
    setting.mark(1, false);
    setting.mark(1, true);
    let [returned, other] = setting.counts(1000);
    assert!((20..150).contains(&returned) && other == 1000 - returned, "{returned} of a tenth of a half");
    setting.mark(2, false);
    assert_eq!(setting.counts(10), [10, 0], "alone, it gets all");
}

#[test]
fn targets_of_a_configuration_that_is_refused_are_none_to_fall_back_to() {
    let upstream = json!({ "tags": ["weir-eject-errors:1", "weir-eject-max-share:50"] });
    let setting = Setting::new(upstream, &[1, 1]);
    let refused = TargetMonitors::new(&setting.upstream, &setting.state);
    (3..9).for_each(|number| drop(refused.of(&format!("10.0.0.{number}:80"))));
    for endpoint in &setting.balancer.endpoints {
        let address = format!("{}:80", endpoint.host).parse().unwrap();
        endpoint.record_outcome(Some(address), crate::health::Outcome::TcpFailure);
    }
    let ejected = |target| crate::health::ejections(&setting.state, "orders.upstream", target).0;
    let ejected = ["10.0.0.1:80", "10.0.0.2:80"].map(ejected);
    assert_eq!(ejected.iter().filter(|is_ejected| **is_ejected).count(), 1);
}
