#![allow(clippy::print_stdout)]
//! Benchmarks what analytics cost a request: nanoseconds to record one on a worker, and to aggregate it later.
//! `cargo bench -p weir-analytics --bench record`.
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};
use weir_analytics::bucket::Bucket;
use weir_analytics::cause::Cause;
use weir_analytics::entities::{Entities, Kind};
use weir_analytics::record::{ByteCount, Protocol, Record, Tick, Traits};
use weir_analytics::ring::Producer;
use weir_analytics::store::{Budget, Store};

/// The quickest of these rounds counts: other processes can only slow one down.
const ROUNDS: u64 = 40;
/// Records in a round: less than a ring has, so that none is dropped.
const RECORDS: usize = 50_000;
const START: u64 = 1_790_000_000_000;

/// What a worker knows of a request when it ends.
struct Request {
    route: u32,
    consumer: u32,
    nanos: [u64; 3],
}

/// Requests of `routes` routes, a few of which are much busier, with log-normal latencies.
fn requests(routes: usize) -> Vec<Request> {
    let mut random = fastrand::Rng::with_seed(1);
    let request = |_| {
        let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
        let waited = (1e6 * (0.7 * normal).exp()) as u64;
        let route = (routes as f64).powf(random.f64()) as u32;
        Request { route, consumer: random.u32(..200), nanos: [waited + 30_000, 30_000, waited] }
    };
    (0..RECORDS).map(request).collect()
}

fn push(worker: &Producer, request: &Request, at: u64) {
    let [total, gateway, waited] = request.nanos.map(Bucket::of_nanos);
    worker.push(&Record {
        route: request.route,
        upstream: request.route,
        consumer: request.consumer,
        time: Tick::at(at),
        status: 200,
        traits: Traits::new(Protocol::Http1).reused(true),
        cause: Cause::Response,
        total,
        gateway,
        waited,
        bytes_in: ByteCount::new(120),
        bytes_out: ByteCount::new(request.nanos[0] & 0xffff),
    });
}

fn main() {
    for routes in [1, 100, 1_000] {
        let entities = Arc::new(Entities::default());
        for n in 0..=routes {
            let service = entities.intern(Kind::Service, &format!("service-{}", n / 10));
            entities.intern_route(&format!("route-{n}"), service);
        }
        let mut store = Store::new(entities, Budget::default(), START);
        let worker = store.add_worker();
        let requests = requests(routes);
        let (mut record, mut aggregate) = (Duration::MAX, Duration::MAX);
        for round in 0..ROUNDS {
            // 50,000 requests a second.
            let now = START + round * 1_000;
            let begin = Instant::now();
            requests.iter().for_each(|request| push(black_box(&worker), black_box(request), now));
            record = record.min(begin.elapsed());
            let begin = Instant::now();
            store.drain(now + 1_100);
            aggregate = aggregate.min(begin.elapsed());
        }
        assert_eq!(store.dropped(), 0, "the figures would be of records that were dropped");
        let each = |time: Duration| time.as_secs_f64() * 1e9 / RECORDS as f64;
        println!(
            "{routes:>5} routes: {:>5.1} ns to record, {:>5.1} ns to aggregate",
            each(record),
            each(aggregate)
        );
    }
}
