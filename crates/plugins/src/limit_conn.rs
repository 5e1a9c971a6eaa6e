//! Limits how many requests are served at once. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: limit-conn
//!     route: reports
//!     config:
//!       conn: 5
//!       burst: 2
//!       default_conn_delay: 0.1
//!       key: remote_addr
//! ```
//!
//! `conn` requests are served at once. Up to `burst` more are delayed before: by `default_conn_delay` seconds, or, unless
//! `only_use_default_delay` is set, by a running average of how long requests took; others are refused. `key` says what
//! requests are counted by, as in [limit-count](limit-count.md). Counts belong to the scope of the plugin, and survive
//! reloads.
//!
//! ## Policies
//!
//! With `policy: local` each node counts by itself. With `redis` or `redis-cluster` all nodes count together in Redis or
//! Valkey, as [limit-count](limit-count.md#policies) does: a request waits for one reply of the server, and reports its
//! end without waiting. A key in Redis is `limit-conn:ROUTE:SERVICE:CONSUMER:key:VALUE`, the set of the requests in flight;
//! it ends in `address:ADDRESS` if the client's address counts. A request that takes longer than `key_ttl` is not counted
//! any more. If the Redis user is restricted by ACLs, it needs `EVAL`, `EVALSHA`, `SCRIPT LOAD`, `TIME`, `ZADD`, `ZCARD`,
//! `ZREM`, `ZREMRANGEBYSCORE` and `EXPIRE` on the keys `limit-conn:*`, and `INCRBY` and `EXPIRE` on `ratelimit:probe`. While
//! the server is unavailable, requests are answered 500; with `allow_degradation` this node counts them. APISIX lets all
//! of them pass.
//!
//! ## Responses
//!
//! A refused request is answered with `rejected_code` and, if there is a `rejected_msg`, the body `{"error_msg":"…"}`.

mod shared;

use crate::limits::Counts;
use crate::shared::counters::{Counter, Recent, Table};
use crate::shared::limits_of_apisix::{rejection, scope, wall_clock};
use crate::shared::request_key::Key;
use shared::{Admission, Shared, SharedGuard};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::thread::LocalKey;
use std::time::{Duration, Instant};
use weir_plugin::{
    BuildContext, Exchange, FieldError, FieldWarning, Fingerprinter, Flow, Hooks, Json, LocalResponse,
    Phases, Plugin, Record, Resume,
};

/// The limit, and what requests are counted by.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// How many requests are served at once.
    #[field(between = [1, 1_000_000_000])]
    pub conn: u32,
    /// How many more are delayed, not refused.
    #[field(between = [0, 1_000_000_000])]
    pub burst: u32,
    /// How many seconds these are delayed.
    #[field(gt = 0)]
    pub default_conn_delay: f64,
    /// Delays by that alone, however long requests take.
    #[field(default = false)]
    pub only_use_default_delay: bool,
    /// What requests are counted by.
    pub key: String,
    /// Whether `key` is the name of a variable, or a text that contains variables.
    #[field(default = "var", one_of = ["var", "var_combination"])]
    pub key_type: String,
    /// The status of refusals.
    #[field(default = 503, between = [200, 599])]
    pub rejected_code: u16,
    /// The message of refusals.
    pub rejected_msg: Option<String>,
    /// With Redis: after how many seconds a request whose end was never reported, such as that of a node that crashed, is
    /// no longer counted.
    #[field(default = 3600, between = [1, 2147483646])]
    pub key_ttl: u32,
    /// Where counts are kept.
    #[field(flatten)]
    pub counts: Counts,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let error = Key::read(&config.key_type, &config.key).err();
    error.map(|message| FieldError::new("key", message)).into_iter().collect()
}

/// One configured instance.
pub(super) struct LimitConn(Arc<Instance>);

struct Instance {
    config: Config,
    key: Key,
    /// Fingerprints of this scope's keys, and of addresses if the key has no value.
    keys: Fingerprinter,
    addresses: Fingerprinter,
    table: Arc<Table<InFlight>>,
    /// The store in which all nodes count together.
    shared: Option<Shared>,
    /// How long a request is delayed: the bits of an f64, in seconds.
    delay: AtomicU64,
    rejected: LocalResponse,
}

impl Plugin for LimitConn {
    const NAME: &'static str = "limit-conn";
    const PRIORITY: i32 = 1003;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        Counts::ignored_fields(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let table = build.retained.get::<Table<InFlight>>();
        let scope = scope(&table.key, build.entity);
        let is_shared = config.counts.are_shared();
        Ok(Self(Arc::new(Instance {
            shared: if is_shared { Some(Shared::new(&config, build)?) } else { None },
            key: Key::read(&config.key_type, &config.key)?,
            keys: scope.clone().with(b"key"),
            addresses: scope.with(b"address"),
            table,
            delay: AtomicU64::new(config.default_conn_delay.to_bits()),
            rejected: rejection(config.rejected_code, config.rejected_msg.as_deref()),
            config,
        })))
    }
}

impl Hooks for LimitConn {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::LOG
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        match &self.0.shared {
            None => self.0.enter_here(exchange),
            Some(shared) => self.0.enter_there(shared, exchange),
        }
    }

    fn log(&self, exchange: &mut Exchange) {
        let since = if let Some(guard) = exchange.extensions.get::<InFlightGuard>() {
            guard.leave();
            guard.since
        } else if let Some((since, guard)) = exchange.extensions.get::<(Instant, SharedGuard)>() {
            guard.leave();
            *since
        } else {
            return;
        };
        self.0.learn(since.elapsed().as_secs_f64());
    }
}

impl Instance {
    fn enter_here(&self, exchange: &mut Exchange) -> Flow {
        let whose = self.key.of(exchange, &self.keys, &self.addresses);
        let seconds = || wall_clock() / 1_000;
        let counter = self.table.with(whose, seconds, |counter| (seconds(), counter.clone()));
        let (guard, number) = InFlightGuard::enter(counter);
        if number > self.config.conn + self.config.burst {
            return Flow::Respond(self.rejected.clone());
        }
        exchange.extensions.insert(guard);
        self.delay(number)
    }

    /// Decides when the server has replied, or else as the configuration says.
    fn enter_there(self: &Arc<Self>, shared: &Shared, exchange: &mut Exchange) -> Flow {
        let sent = shared.enter(exchange, self.key.value(exchange));
        let Ok(entering) = sent else { return self.decide_alone(exchange) };
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let entered = entering.entered().await;
            let resume: Resume = Box::new(move |exchange| match entered {
                Some(Admission::Admitted(number, guard)) => {
                    exchange.extensions.insert((Instant::now(), guard));
                    instance.delay(number)
                }
                Some(Admission::Refused) => Flow::Respond(instance.rejected.clone()),
                None => instance.decide_alone(exchange),
            });
            resume
        }))
    }

    fn decide_alone(&self, exchange: &mut Exchange) -> Flow {
        match self.shared.as_ref().is_some_and(|shared| shared.allow_degradation) {
            true => self.enter_here(exchange),
            false => Flow::Respond(LocalResponse::raw(500, None, "")),
        }
    }

    /// Delays the request of this number, if it is one of the burst.
    fn delay(&self, number: u32) -> Flow {
        if number <= self.config.conn {
            return Flow::Continue;
        }
        let times = (number - 1) / self.config.conn;
        let seconds = f64::from_bits(self.delay.load(Relaxed)) * f64::from(times);
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        Flow::Wait(Box::pin(async move {
            tokio::time::sleep(delay).await;
            Box::new(|_: &mut Exchange| Flow::Continue) as Resume
        }))
    }

    /// Adds how long a request took to the average.
    fn learn(&self, seconds: f64) {
        if !self.config.only_use_default_delay {
            let average = f64::midpoint(f64::from_bits(self.delay.load(Relaxed)), seconds);
            self.delay.store(average.to_bits(), Relaxed);
        }
    }
}

/// How many requests of one key are served now.
#[derive(Debug, Default)]
struct InFlight(AtomicU32);

/// One of these requests. It is counted until it is over, also if the client leaves.
struct InFlightGuard {
    counter: Arc<InFlight>,
    since: Instant,
    has_left: std::cell::Cell<bool>,
}

impl InFlightGuard {
    /// Counts a request; how many there are with it.
    fn enter(counter: Arc<InFlight>) -> (Self, u32) {
        let number = counter.0.fetch_add(1, Relaxed) + 1;
        (Self { counter, since: Instant::now(), has_left: std::cell::Cell::new(false) }, number)
    }

    fn leave(&self) {
        if !self.has_left.replace(true) {
            self.counter.0.fetch_sub(1, Relaxed);
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.leave();
    }
}

thread_local! {
    static OWN: RefCell<Recent<InFlight>> = const { RefCell::new(Recent::new()) };
}

impl Counter for InFlight {
    type Time = ();

    fn time(_: u64) {}

    fn is_over(&self, (): &()) -> bool {
        self.0.load(Relaxed) == 0
    }

    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        &OWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_until_they_are_over() {
        let counter = Arc::new(InFlight::default());
        let (first, one) = InFlightGuard::enter(counter.clone());
        let (second, two) = InFlightGuard::enter(counter.clone());
        assert_eq!((one, two), (1, 2));
        first.leave();
        drop(first);
        drop(second);
        assert!(counter.is_over(&()));
    }
}
