//! Many routes and consumers for hours of simulated time: memory stays within its budget and stops growing.
use std::sync::Arc;
use weir_analytics::bucket::Bucket;
use weir_analytics::cause::Cause;
use weir_analytics::entities::{Entities, Entity, Kind};
use weir_analytics::record::{ByteCount, Protocol, Record, Tick, Traits};
use weir_analytics::store::{Budget, Store};

const START: u64 = 1_790_000_000_000;

struct Soak {
    routes: u32,
    consumers: u32,
    /// Requests in a second.
    rate: u64,
    seconds: u64,
    budget: Budget,
}

impl Soak {
    /// Runs the load. Returns the most memory in the third quarter of the time and in the fourth.
    fn run(&self) -> (usize, usize) {
        let entities = Arc::new(Entities::default());
        for n in 0..self.routes {
            entities.intern_route(&format!("route-{n}"), 1 + n / 10);
        }
        for n in 0..self.consumers {
            entities.intern(Kind::Consumer, &format!("consumer-{n}"));
        }
        let mut store = Store::new(Arc::clone(&entities), self.budget, START);
        let worker = store.add_worker();
        let mut random = fastrand::Rng::with_seed(1);
        let mut most = [0; 4];
        for second in 0..self.seconds {
            let now = START + second * 1_000;
            (0..self.rate).for_each(|_| worker.push(&self.record(&mut random, now)));
            store.drain(now + 900);
            let bytes = store.usage().total();
            assert!(bytes <= self.budget.memory, "{bytes} bytes after {second} s");
            let quarter = &mut most[(second * 4 / self.seconds) as usize];
            *quarter = bytes.max(*quarter);
        }
        store.drain(START + self.seconds * 1_000 + 20_000);
        self.check_sums(&store);
        (most[2], most[3])
    }

    fn record(&self, random: &mut fastrand::Rng, now: u64) -> Record {
        let route = f64::from(self.routes).powf(random.f64()) as u32;
        let waited = Bucket::of_nanos((1e5 * 1e4f64.powf(random.f64())) as u64);
        Record {
            route,
            upstream: route,
            consumer: random.u32(..=self.consumers),
            time: Tick::at(now),
            status: if random.u8(..) == 0 { 503 } else { 200 },
            traits: Traits::new(Protocol::Http2),
            cause: Cause::Response,
            total: waited,
            gateway: Bucket::of_nanos(20_000 + random.u64(..20_000)),
            waited,
            bytes_in: ByteCount::new(100),
            bytes_out: ByteCount::new(1_000),
        }
    }

    fn check_sums(&self, store: &Store) {
        let sent = self.rate * self.seconds;
        let view = store.view(0, u64::MAX, 86_400, None);
        let node = view.slots.iter().filter_map(|slot| slot.get(Entity::NODE));
        assert_eq!(node.map(|aggregate| aggregate.requests()).sum::<u64>(), sent);
        for kind in [Kind::Route, Kind::Consumer] {
            let of_kind = view.slots.iter().flat_map(|slot| slot.of_kind(kind));
            assert_eq!(of_kind.map(|(_, aggregate)| aggregate.requests()).sum::<u64>(), sent, "{kind:?}");
            let most = view.slots.iter().map(|slot| slot.of_kind(kind).count()).max().unwrap_or(0);
            assert!(most <= kind.limit() + 2, "{most} of {kind:?} in a slot");
        }
    }
}

#[track_caller]
fn is_flat((third, fourth): (usize, usize)) {
    assert!(fourth as f64 <= third as f64 * 1.02, "{third} bytes grew to {fourth}");
}

#[test]
fn half_an_hour_in_a_small_budget() {
    let budget = Budget { memory: 5 << 20, samples: 256 << 10 };
    is_flat(Soak { routes: 500, consumers: 5_000, rate: 100, seconds: 1_500, budget }.run());
}

#[test]
#[ignore = "takes minutes"]
fn eight_hours_of_many_routes_and_consumers() {
    let budget = Budget::default();
    is_flat(Soak { routes: 10_000, consumers: 100_000, rate: 500, seconds: 8 * 3_600, budget }.run());
}
