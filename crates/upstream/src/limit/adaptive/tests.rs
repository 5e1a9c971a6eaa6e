//! The limit before simulated upstreams, under a simulated clock.

use super::*;
use proptest::prelude::*;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// An upstream that serves so many requests at a time; others wait in it.
struct Simulation {
    servers: usize,
    service: f64,
    /// The time that a request takes, as a share of `service`, from a number between 0 and 1.
    spread: fn(f64) -> f64,
    adaptive: Adaptive,
    random: u64,
    now: f64,
    /// When each server is done with its request, and when that request came.
    busy: BinaryHeap<Reverse<(u64, u64)>>,
    queue: VecDeque<u64>,
    next: f64,
}

/// Between half and one and a half.
fn uniform(random: f64) -> f64 {
    0.5 + random
}

/// Most are short, some many times as long.
fn exponential(random: f64) -> f64 {
    -random.ln()
}

/// What came of the requests of a phase.
#[derive(Debug, Default)]
struct Seen {
    arrived: f64,
    served: f64,
    latencies: Vec<f64>,
}

impl Seen {
    fn quantile(&mut self, quantile: f64) -> f64 {
        self.latencies.sort_by(f64::total_cmp);
        self.latencies[(self.latencies.len() as f64 * quantile) as usize]
    }
}

impl Simulation {
    fn new(servers: usize, service: f64, seed: u64) -> Simulation {
        let (busy, queue) = (BinaryHeap::new(), VecDeque::new());
        Simulation {
            servers,
            service,
            spread: uniform,
            adaptive: Adaptive::new(),
            random: seed,
            now: 0.0,
            busy,
            queue,
            next: 0.0,
        }
    }

    /// Requests a second that it can serve.
    fn capacity(&self) -> f64 {
        self.servers as f64 / self.service
    }

    fn random(&mut self) -> f64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.random >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn serve(&mut self, came: u64) {
        let done = self.now + self.service * (self.spread)(self.random());
        self.busy.push(Reverse(((done * 1e9) as u64, came)));
    }

    fn arrive(&mut self, seen: &mut Seen) {
        seen.arrived += 1.0;
        let in_flight = self.busy.len() + self.queue.len();
        if in_flight >= self.adaptive.limit() {
            self.adaptive.saw(in_flight);
            return;
        }
        self.adaptive.saw(in_flight + 1);
        let came = (self.now * 1e9) as u64;
        if self.busy.len() < self.servers { self.serve(came) } else { self.queue.push_back(came) }
    }

    fn finish(&mut self, came: u64, seen: &mut Seen) {
        let latency = self.now - came as f64 / 1e9;
        seen.served += 1.0;
        seen.latencies.push(latency);
        self.adaptive.saw(self.busy.len() + self.queue.len() + 1);
        self.adaptive.record(Duration::from_secs_f64(latency.max(0.0)), Duration::from_secs_f64(self.now));
        if let Some(came) = self.queue.pop_front() {
            self.serve(came);
        }
    }

    /// Offers so many requests a second, at random, for so many seconds.
    fn run(&mut self, rate: f64, seconds: f64) -> Seen {
        let (mut seen, end) = (Seen::default(), self.now + seconds);
        self.next = self.now;
        loop {
            let done = self.busy.peek().map_or(f64::INFINITY, |Reverse((done, _))| *done as f64 / 1e9);
            self.now = done.min(self.next);
            if self.now > end {
                self.now = end;
                return seen;
            }
            if done <= self.next {
                let came = self.busy.pop().map_or(0, |Reverse((_, came))| came);
                self.finish(came, &mut seen);
            } else {
                self.arrive(&mut seen);
                self.next = self.now - self.random().ln() / rate;
            }
        }
    }
}

#[test]
fn at_three_times_the_capacity_goodput_stays_and_nothing_waits_long() {
    for servers in [2, 10, 50] {
        let mut upstream = Simulation::new(servers, 0.01, 7);
        let capacity = upstream.capacity();
        upstream.run(capacity * 0.8, 10.0);
        let mut calm = upstream.run(capacity * 0.8, 30.0);
        upstream.run(capacity * 3.0, 10.0);
        let mut flood = upstream.run(capacity * 3.0, 70.0);
        let goodput = flood.served / 70.0 / capacity;
        let [before, then] = [calm.quantile(0.99), flood.quantile(0.99)];
        assert!(goodput >= 0.9, "{servers}: {goodput} of the capacity");
        assert!(calm.served >= calm.arrived * 0.99, "{servers}: sheds of what it can serve: {calm:?}");
        assert!(then <= before * 2.0 || servers < 10, "{servers}: {then} s instead of {before} s");
        assert!(then <= 0.01 * 5.0, "{servers}: {then} s");
    }
}

#[test]
fn goodput_stays_over_short_overloads_between_calm_times() {
    let mut upstream = Simulation::new(10, 0.05, 11);
    let capacity = upstream.capacity();
    let mut served = 0.0;
    for _ in 0..10 {
        upstream.run(capacity * 0.8, 10.0);
        // Those that wait at first, until the limit has found its place, are served as well.
        served += upstream.run(capacity * 3.0, 5.0).served;
    }
    let goodput = served / 50.0 / capacity;
    assert!(goodput >= 0.95, "{goodput} of the capacity");
}

#[test]
fn goodput_stays_where_an_overload_is_the_first_that_is_seen() {
    for (servers, service) in [(2, 0.01), (4, 0.02), (10, 0.05), (64, 0.05)] {
        let goodput = (0..20).map(|seed| {
            let mut upstream = Simulation::new(servers, service, seed);
            let capacity = upstream.capacity();
            upstream.run(capacity * 3.0, 4.0).served / 4.0 / capacity
        });
        let goodput = goodput.sum::<f64>() / 20.0;
        assert!(goodput >= 0.88, "{servers}: {goodput} of the capacity");
    }
}

#[test]
fn goodput_stays_where_some_requests_take_many_times_as_long_as_others() {
    for servers in [10, 20, 64, 200] {
        let mut upstream = Simulation::new(servers, 0.05, 5);
        upstream.spread = exponential;
        let capacity = upstream.capacity();
        upstream.run(capacity * 3.0, 5.0);
        let mut seen = upstream.run(capacity * 3.0, 55.0);
        let goodput = seen.served / 55.0 / capacity;
        assert!(goodput >= 0.9, "{servers}: {goodput} of the capacity");
        assert!(seen.quantile(0.5) <= 0.05 * 2.5, "{servers}: {} s", seen.quantile(0.5));
    }
}

#[test]
fn an_upstream_that_becomes_slower_or_faster_is_followed() {
    let mut upstream = Simulation::new(20, 0.01, 3);
    for service in [0.01, 0.03, 0.005, 0.1, 0.01] {
        upstream.service = service;
        let capacity = upstream.capacity();
        upstream.run(capacity * 2.0, 20.0 + service * 200.0);
        let mut seen = upstream.run(capacity * 2.0, 20.0);
        let goodput = seen.served / 20.0 / capacity;
        assert!(goodput >= 0.85, "{service}: {goodput} of the capacity");
        assert!(seen.quantile(0.5) <= service * 2.5, "{service}: {} s", seen.quantile(0.5));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    #[test]
    fn whatever_is_offered_what_can_be_served_is(
        servers in 4usize..50, millis in 10u32..200, load in 0.1f64..6.0, seed: u64,
    ) {
        let mut upstream = Simulation::new(servers, f64::from(millis) / 1e3, seed);
        let (capacity, service) = (upstream.capacity(), upstream.service);
        let warm_up = 10.0 + service * 100.0;
        upstream.run(capacity * load, warm_up);
        let length = (3_000.0 / capacity).max(10.0 * service).max(5.0);
        let mut seen = upstream.run(capacity * load, length);
        let possible = seen.arrived.min(capacity * length);
        prop_assert!(seen.served >= possible * 0.85, "{} of {possible}", seen.served);
        prop_assert!(seen.quantile(0.5) <= service * 3.0, "{} s", seen.quantile(0.5));
        prop_assert!((1..=100_000).contains(&upstream.adaptive.limit()));
    }
}
