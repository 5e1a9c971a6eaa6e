//! Many routes and consumers for hours of simulated time: memory stays within its budget and stops growing.
use std::collections::HashSet;
use std::sync::Arc;
use weir_analytics::bucket::Bucket;
use weir_analytics::cause::Cause;
use weir_analytics::entities::{Entities, Entity, Kind, NONE, OTHERS};
use weir_analytics::record::{ByteCount, Protocol, Record, Tick, Traits};
use weir_analytics::store::{Budget, Store};

const START: u64 = 1_790_000_000_000;
/// The addresses of upstreams.
const ADDRESSES: u32 = 64;

/// How often requests are of which route.
#[derive(Clone, Copy)]
enum Spread {
    Even,
    /// Of the first one most often.
    Logarithmic,
}

struct Soak {
    routes: u32,
    spread: Spread,
    consumers: u32,
    /// Requests in a second, on average.
    rate: u64,
    /// Every so many seconds there is one that has requests.
    every: u64,
    seconds: u64,
    budget: Budget,
}

impl Soak {
    /// A store that knows the names of all entities.
    fn store(&self) -> Store {
        let entities = Arc::new(Entities::default());
        for n in 0..self.routes {
            let service = entities.intern(Kind::Service, &format!("service-{}", n / 10));
            entities.intern_route(&format!("route-{n}"), service);
        }
        for n in 0..ADDRESSES {
            entities.intern(Kind::Upstream, &format!("address-{n}"));
        }
        for n in 0..self.consumers {
            entities.intern(Kind::Consumer, &format!("consumer-{n}"));
        }
        Store::new(entities, self.budget, START)
    }

    /// Runs the load. Returns the most memory in the third quarter of the time and in the fourth.
    fn run(&self, store: &mut Store) -> (usize, usize) {
        let worker = store.add_worker();
        let mut random = fastrand::Rng::with_seed(1);
        let mut most = [0; 4];
        for second in (0..self.seconds).step_by(self.every as usize) {
            let now = START + second * 1_000;
            (0..self.rate * self.every).for_each(|_| worker.push(&self.record(&mut random, now)));
            store.drain(now + 900);
            let bytes = store.usage().total();
            assert!(bytes <= self.budget.memory, "{bytes} bytes after {second} s");
            let quarter = &mut most[(second * 4 / self.seconds) as usize];
            *quarter = bytes.max(*quarter);
        }
        store.drain(START + self.seconds * 1_000 + 20_000);
        self.check_sums(store);
        (most[2], most[3])
    }

    fn record(&self, random: &mut fastrand::Rng, now: u64) -> Record {
        let route = match self.spread {
            Spread::Even => random.u32(1..=self.routes),
            Spread::Logarithmic => f64::from(self.routes).powf(random.f64()) as u32,
        };
        let waited = Bucket::of_nanos((1e5 * 1e4f64.powf(random.f64())) as u64);
        Record {
            route,
            upstream: 1 + route % ADDRESSES,
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
        let anonymous = view.slots.iter().filter_map(|slot| slot.get(Entity::new(Kind::Consumer, NONE)));
        let of_consumers = sent - anonymous.map(|aggregate| aggregate.requests()).sum::<u64>();
        for (kind, sent) in [(Kind::Route, sent), (Kind::Consumer, sent), (Kind::Pair, of_consumers)] {
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
    let budget = Budget { memory: 7 << 20, samples: 256 << 10 };
    let soak = Soak {
        routes: 500,
        spread: Spread::Logarithmic,
        consumers: 5_000,
        rate: 100,
        every: 1,
        seconds: 1_500,
        budget,
    };
    is_flat(soak.run(&mut soak.store()));
}

/// What memory holds depends on how many entities have requests in an interval, and not on how many requests they have or how
/// many intervals are empty. So one second of every five minutes stands for these: its 600 requests are of about 560 routes,
/// those of an hour of nearly all.
#[test]
fn a_day_and_an_hour_of_4096_routes_in_the_default_budget() {
    let soak = Soak {
        routes: 4_096,
        spread: Spread::Even,
        consumers: 1_000,
        rate: 2,
        every: 300,
        seconds: 25 * 3_600,
        budget: Budget::default(),
    };
    let mut store = soak.store();
    soak.run(&mut store);
    let from = START / 1_000;
    let view = store.view(from, from + soak.seconds, 60, None);
    assert_eq!((view.width, view.slots.len()), (60, 300), "all minutes are kept");
    let routes = || view.slots.iter().flat_map(|slot| slot.of_kind(Kind::Route)).map(|(route, _)| route.id);
    assert_eq!(routes().collect::<HashSet<_>>().len(), 4_096);
    assert!(routes().all(|route| route != OTHERS));
}

#[test]
#[ignore = "takes minutes"]
fn eight_hours_of_many_routes_and_consumers() {
    let soak = Soak {
        routes: 10_000,
        spread: Spread::Logarithmic,
        consumers: 100_000,
        rate: 500,
        every: 1,
        seconds: 8 * 3_600,
        budget: Budget::default(),
    };
    is_flat(soak.run(&mut soak.store()));
}
