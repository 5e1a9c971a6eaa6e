//! Limits the rate of requests with a leaky bucket. Like APISIX's plugin of this name, and nginx's `limit_req`.
//!
//! ```yaml
//! plugins:
//!   - name: limit-req
//!     route: search
//!     config:
//!       rate: 10
//!       burst: 20
//!       key: remote_addr
//! ```
//!
//! `rate` requests per second pass at once. Up to `burst` more are delayed so that they keep to the rate, or with
//! `nodelay` pass at once, too; others are refused. `key` says what requests are counted by, as in
//! [limit-count](limit-count.md). Counts belong to the scope of the plugin; they survive reloads, and start again when
//! `rate` or `burst` changes.
//!
//! ## Policies
//!
//! With `policy: local` each node counts by itself. With `redis` or `redis-cluster` all nodes count together in Redis or
//! Valkey, as [limit-count](limit-count.md#policies) does: a request waits for one reply of the server. Time is the
//! server's. A key in Redis is `limit-req:ROUTE:SERVICE:CONSUMER:RATE:BURST:key:VALUE`; it ends in `address:ADDRESS` if
//! the client's address counts, and lasts until the bucket is empty, a year at most. If the Redis user is restricted by
//! ACLs, it needs `EVAL`, `EVALSHA`, `SCRIPT LOAD`, `TIME`, `HMGET`, `HMSET` and `PEXPIRE` on the keys `limit-req:*`, and
//! `INCRBY` and `EXPIRE` on `ratelimit:probe`. While the server is unavailable, requests are answered 500; with
//! `allow_degradation` this node counts them. APISIX lets all of them pass.
//!
//! ## Responses
//!
//! A refused request is answered with `rejected_code` and, if there is a `rejected_msg`, the body `{"error_msg":"…"}`.

mod shared;

use crate::limits::Counts;
use crate::shared::counters::{Counter, Recent, Table};
use crate::shared::limits_of_apisix::{rejection, scope, wall_clock};
use crate::shared::request_key::Key;
use shared::{Shared, excess};
use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::LocalKey;
use std::time::Duration;
use weir_plugin::{
    BuildContext, Exchange, FieldError, FieldWarning, Fingerprinter, Flow, Handover, Hooks, Json,
    LocalResponse, Phases, Plugin, Record, Resume,
};

/// The rate, and what requests are counted by.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// Requests per second.
    #[field(gt = 0)]
    pub rate: f64,
    /// How many more are delayed, not refused.
    #[field(between = [0, 1_000_000_000])]
    pub burst: f64,
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
    /// Lets the requests of `burst` pass at once.
    #[field(default = false)]
    pub nodelay: bool,
    /// Where counts are kept.
    #[field(flatten)]
    pub counts: Counts,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let error = Key::read(&config.key_type, &config.key).err();
    error.map(|message| FieldError::new("key", message)).into_iter().collect()
}

/// One configured instance.
pub(super) struct LimitReq(Arc<Instance>);

struct Instance {
    rate: f64,
    burst: f64,
    nodelay: bool,
    key: Key,
    /// Fingerprints of this scope's keys, and of addresses if the key has no value.
    keys: Fingerprinter,
    addresses: Fingerprinter,
    table: Arc<Table<Bucket>>,
    /// The store in which all nodes count together.
    shared: Option<Shared>,
    rejected: LocalResponse,
}

impl Plugin for LimitReq {
    const NAME: &'static str = "limit-req";
    const PRIORITY: i32 = 1001;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    const HANDOVERS: &'static [Handover] = &[Table::<Bucket>::handover("limit-req")];
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        Counts::ignored_fields(config)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let table = build.retained.get::<Table<Bucket>>();
        let limit = [config.rate.to_be_bytes(), config.burst.to_be_bytes()].concat();
        let scope = scope(&table.key, build.entity).with(&limit);
        let is_shared = config.counts.are_shared();
        Ok(Self(Arc::new(Instance {
            shared: if is_shared { Some(Shared::new(&config, build)?) } else { None },
            rate: config.rate,
            burst: config.burst,
            nodelay: config.nodelay,
            key: Key::read(&config.key_type, &config.key)?,
            keys: scope.clone().with(b"key"),
            addresses: scope.with(b"address"),
            table,
            rejected: rejection(config.rejected_code, config.rejected_msg.as_deref()),
        })))
    }
}

impl Hooks for LimitReq {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        match &self.0.shared {
            None => self.0.pour_here(exchange),
            Some(shared) => self.0.pour_there(shared, exchange),
        }
    }
}

impl Instance {
    fn pour_here(&self, exchange: &Exchange) -> Flow {
        let whose = self.key.of(exchange, &self.keys, &self.addresses);
        let seconds = || wall_clock() / 1_000;
        let excess =
            self.table.with(whose, seconds, |bucket| bucket.pour(self.rate, self.burst, wall_clock()));
        self.decide(excess)
    }

    /// Decides when the server has replied, or else as the configuration says.
    fn pour_there(self: &Arc<Self>, shared: &Shared, exchange: &Exchange) -> Flow {
        let sent = shared.pour(exchange, self.key.value(exchange));
        let Ok(reply) = sent else { return self.decide_alone(exchange) };
        let instance = self.clone();
        Flow::Wait(Box::pin(async move {
            let reply = reply.await.ok();
            let resume: Resume = Box::new(move |exchange| match reply {
                Some(reply) => instance.decide(excess(&reply.numbers)),
                None => instance.decide_alone(exchange),
            });
            resume
        }))
    }

    fn decide(&self, excess: Option<f64>) -> Flow {
        match excess {
            None => Flow::Respond(self.rejected.clone()),
            Some(excess) if self.nodelay || excess / self.rate < 0.001 => Flow::Continue,
            Some(excess) => {
                let delay = Duration::try_from_secs_f64(excess / self.rate).unwrap_or(Duration::MAX);
                Flow::Wait(Box::pin(async move {
                    tokio::time::sleep(delay).await;
                    Box::new(|_: &mut Exchange| Flow::Continue) as Resume
                }))
            }
        }
    }

    fn decide_alone(&self, exchange: &Exchange) -> Flow {
        match self.shared.as_ref().is_some_and(|shared| shared.allow_degradation) {
            true => self.pour_here(exchange),
            false => Flow::Respond(LocalResponse::raw(500, None, "")),
        }
    }
}

/// The bucket of one key. Its numbers change together, so they are behind a lock, which is held only briefly.
#[derive(Debug, Default)]
struct Bucket(Mutex<Level>);

#[derive(Debug, Default)]
struct Level {
    /// By how many requests the rate is exceeded.
    excess: f64,
    /// When it was, in milliseconds since 1970; 0 for never.
    at: u64,
    /// When the bucket will be empty.
    empty: u64,
}

impl Bucket {
    /// Adds a request at this time: by how many requests the rate is exceeded; none if that is more than `burst`. Also
    /// returns the second.
    fn pour(&self, rate: f64, burst: f64, now: u64) -> (u64, Option<f64>) {
        let mut level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let excess = match level.at {
            0 => 0.0,
            at => (level.excess - rate * now.abs_diff(at) as f64 / 1_000.0 + 1.0).max(0.0),
        };
        if excess > burst {
            return (now / 1_000, None);
        }
        let empty = now.saturating_add(((excess + 1.0) / rate * 1_000.0).ceil() as u64);
        *level = Level { excess, at: now, empty };
        (now / 1_000, Some(excess))
    }
}

thread_local! {
    static OWN: RefCell<Recent<Bucket>> = const { RefCell::new(Recent::new()) };
}

impl Counter for Bucket {
    type Time = u64;

    fn time(seconds: u64) -> u64 {
        seconds * 1_000
    }

    fn is_over(&self, now: &u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).empty <= *now
    }

    const NUMBERS: usize = 3;

    fn numbers(&self) -> Vec<u64> {
        let level = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        vec![level.excess.to_bits(), level.at, level.empty]
    }

    fn restore(&self, numbers: &[u64]) {
        if let [excess, at, empty] = *numbers {
            let level = Level { excess: f64::from_bits(excess), at, empty };
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = level;
        }
    }

    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        &OWN
    }
}

#[cfg(test)]
mod tests {
    use super::Bucket;

    #[test]
    fn a_bucket_leaks_at_the_rate() {
        let bucket = Bucket::default();
        let pour = |now: u64| bucket.pour(2.0, 1.0, 1_000_000 + now).1;
        assert_eq!(pour(0), Some(0.0));
        assert_eq!(pour(0), Some(1.0), "it is delayed");
        assert_eq!(pour(0), None, "the burst is over");
        assert_eq!(pour(250), None);
        assert_eq!(pour(500), Some(1.0), "one has leaked");
        assert_eq!(pour(5_000), Some(0.0));
    }
}
