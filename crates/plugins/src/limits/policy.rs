//! Where counts are kept, and how a request comes by them.

use super::super::counters::Table;
use super::counter::{Counters, Limit, Usage, nothing};
use super::entry::Entry;
use super::in_use::InUse;
use super::ledger::{Ask, Ledger};
use super::redis::{Redis, RedisStore};
use super::store::{ClusterStore, Unavailable, Whose};
use super::window::{wall_clock, wall_clock_in_milliseconds};
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use weir_plugin::{BuildContext, FieldError, Fingerprint, Fingerprinter, Uuid};

/// The longest identifier that stores get as it is.
const LONGEST: usize = 256;

/// What a plugin's configuration says of where counts are kept.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Policy<'a> {
    pub(crate) name: &'a str,
    pub(crate) redis: &'a Redis,
    pub(crate) sync_rate: f64,
    pub(crate) window_type: &'a str,
}

impl Policy<'_> {
    /// The rules that span fields.
    pub(crate) fn violations(&self) -> Vec<FieldError> {
        let mut found = Vec::new();
        if self.name == "redis" {
            found.extend(self.redis.missing());
        }
        let exact = self.sync_rate == -1.0;
        if self.name != "redis" && !exact {
            let message = "only `policy: redis` has it; leave it out, or set -1";
            found.push(FieldError::new("sync_rate", message));
        } else if !exact && !(0.02..=86_400.0).contains(&self.sync_rate) {
            let message = "expected a number of seconds from 0.02 to 86400, or -1 to count exactly";
            found.push(FieldError::new("sync_rate", message));
        }
        found
    }

    fn slides(&self) -> bool {
        self.window_type == "sliding"
    }

    /// How long what was counted may stay untold; none where every request asks.
    fn interval(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.sync_rate).ok()
    }
}

/// What requests are counted by.
#[derive(Clone, Copy)]
pub(crate) enum Identifier<'a> {
    Id(Uuid),
    Address(IpAddr),
    /// Whatever a client sent.
    Sent(&'a [u8]),
}

impl Identifier<'_> {
    pub(crate) fn fingerprint(&self, key: &Fingerprinter) -> Fingerprint {
        match self {
            Self::Id(id) => key.of(id.as_bytes()),
            Self::Address(IpAddr::V4(address)) => key.of(&address.octets()),
            Self::Address(IpAddr::V6(address)) => key.of(&address.octets()),
            Self::Sent(bytes) => key.of(bytes),
        }
    }

    /// As stores get it. What is long or no text is named by its hash, for keys of a store have bounds.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Id(id) => id.to_string(),
            Self::Address(address) => address.to_string(),
            Self::Sent(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if text.len() <= LONGEST && !text.contains('\0') => text.to_owned(),
                _ => format!("sha256-{}", BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes))),
            },
        }
    }
}

/// How one plugin counts.
pub(crate) struct Limiter {
    counting: Counting,
    slides: bool,
    /// Begins the fingerprints of this plugin's identifiers.
    pub(crate) key: Fingerprinter,
    route: Uuid,
    service: Uuid,
}

enum Counting {
    /// In memory, in the simplest way.
    Fixed(Arc<Table<Counters>>),
    /// In memory, with the last windows.
    Sliding(Arc<Table<Entry>>),
    /// In memory; others are told and heard of from time to time.
    Told(Arc<Ledger>),
    /// By asking.
    Asked(Arc<Ledger>),
}

/// What became of a reservation.
pub(crate) enum Reserved {
    Now(Usage),
    Later(Asked),
}

/// A question that was asked, and what this node would say itself.
pub(crate) struct Asked {
    answer: Result<oneshot::Receiver<Usage>, Unavailable>,
    entry: Arc<Entry>,
    limits: Arc<[Limit]>,
    ledger: Arc<Ledger>,
    slides: bool,
}

impl Asked {
    /// Waits for the answer; none if there is none.
    pub(crate) async fn answered(&mut self) -> Option<Usage> {
        self.answer.as_mut().ok()?.await.ok()
    }

    /// Whether there is nothing to wait for.
    pub(crate) fn is_in_vain(&self) -> bool {
        self.answer.is_err()
    }

    /// Counts on this node; the store is told when it answers again.
    pub(crate) fn reserve_here(&self) -> Usage {
        let usage = self.entry.reserve(&self.limits, self.slides);
        if usage.admitted {
            self.ledger.mark(&self.entry, self.slides);
        }
        usage
    }
}

impl Limiter {
    /// For the plugin that is being built.
    pub(crate) fn new(policy: Policy<'_>, build: &BuildContext<'_>) -> Result<Self, String> {
        let slides = policy.slides();
        let counting = match policy.name {
            "redis" => {
                let ledger = ledger_of_redis(&policy, build)?;
                if policy.interval().is_some() { Counting::Told(ledger) } else { Counting::Asked(ledger) }
            }
            "cluster" => Counting::Asked(ledger_of_cluster(build)?),
            _ if slides => Counting::Sliding(build.retained.get()),
            _ => Counting::Fixed(build.retained.get()),
        };
        let (route, service) = (build.entity.route, build.entity.service);
        let key = match &counting {
            Counting::Fixed(table) => table.key.clone(),
            Counting::Sliding(table) => table.key.clone(),
            Counting::Told(ledger) | Counting::Asked(ledger) => ledger.table.key.clone(),
        };
        let bytes = |id: Option<Uuid>| id.map(|id| id.into_bytes()).unwrap_or_default();
        Ok(Self {
            counting,
            slides,
            key: key.with(&bytes(route)).with(&bytes(service)),
            route: route.unwrap_or_default(),
            service: service.unwrap_or_default(),
        })
    }

    /// Takes one of every limit, or of none.
    pub(crate) fn reserve(
        &self,
        whose: Fingerprint,
        identifier: Identifier<'_>,
        limits: &Arc<[Limit]>,
    ) -> Reserved {
        let slides = self.slides;
        match &self.counting {
            Counting::Fixed(table) => Reserved::Now(table.with(whose, wall_clock, |counters| {
                let usage = counters.reserve(limits, wall_clock, nothing);
                (usage.now, usage)
            })),
            Counting::Sliding(table) => Reserved::Now(table.with(whose, wall_clock, |entry| {
                let usage = entry.reserve(limits, slides);
                (usage.now, usage)
            })),
            Counting::Told(ledger) => Reserved::Now(ledger.table.with(whose, wall_clock, |entry| {
                entry.whose(|| self.name(identifier, None));
                let usage = entry.reserve(limits, slides);
                if usage.admitted {
                    ledger.mark(entry, slides);
                }
                (usage.now, usage)
            })),
            Counting::Asked(ledger) => {
                Reserved::Later(self.ask(ledger, (whose, identifier, None), limits, true))
            }
        }
    }

    /// Has the store asked for the counts, where every request asks; what it says is known when that is answered.
    pub(crate) fn refresh(
        &self,
        whose: Fingerprint,
        identifier: Identifier<'_>,
        name: &str,
        limits: &Arc<[Limit]>,
    ) -> Option<Asked> {
        let Counting::Asked(ledger) = &self.counting else { return None };
        Some(self.ask(ledger, (whose, identifier, Some(name)), limits, false))
    }

    fn ask(
        &self,
        ledger: &Arc<Ledger>,
        (whose, identifier, name): (Fingerprint, Identifier<'_>, Option<&str>),
        limits: &Arc<[Limit]>,
        takes: bool,
    ) -> Asked {
        let (slides, now) = (self.slides, wall_clock_in_milliseconds());
        let entry = ledger.table.with(whose, wall_clock, |entry| (now / 1_000, entry.clone()));
        entry.whose(|| self.name(identifier, name));
        let answer = ledger.ask(|answer| Ask {
            entry: entry.clone(),
            limits: limits.clone(),
            slides,
            takes,
            now,
            answer,
        });
        Asked { answer, entry, limits: limits.clone(), ledger: ledger.clone(), slides }
    }

    /// What this node knows of what is used.
    pub(crate) fn usage(&self, whose: Fingerprint, limits: &[Limit]) -> Usage {
        let known = |entry: &Arc<Entry>| {
            let usage = entry.usage(limits, self.slides);
            (usage.now, usage)
        };
        match &self.counting {
            Counting::Fixed(table) => table.with(whose, wall_clock, |counters| {
                let now = wall_clock();
                (now, counters.usage(limits, now, nothing))
            }),
            Counting::Sliding(table) => table.with(whose, wall_clock, known),
            Counting::Told(ledger) | Counting::Asked(ledger) => ledger.table.with(whose, wall_clock, known),
        }
    }

    /// Counts so many, whatever the limits.
    pub(crate) fn add(
        &self,
        whose: Fingerprint,
        identifier: Identifier<'_>,
        name: &str,
        limits: &[Limit],
        amount: u64,
    ) {
        let count = |entry: &Arc<Entry>| {
            limits.iter().for_each(|limit| entry.add(limit.period, amount));
            (wall_clock(), ())
        };
        match &self.counting {
            Counting::Fixed(table) => table.with(whose, wall_clock, |counters| {
                let now = wall_clock();
                (now, limits.iter().for_each(|limit| counters.add(limit.period, amount, now)))
            }),
            Counting::Sliding(table) => table.with(whose, wall_clock, count),
            Counting::Told(ledger) | Counting::Asked(ledger) => {
                ledger.table.with(whose, wall_clock, |entry| {
                    entry.whose(|| self.name(identifier, Some(name)));
                    let counted = count(entry);
                    ledger.mark(entry, self.slides);
                    counted
                })
            }
        }
    }

    fn name(&self, identifier: Identifier<'_>, name: Option<&str>) -> Whose {
        Whose {
            route: self.route,
            service: self.service,
            identifier: identifier.text().into(),
            of_responses: name.map(Into::into),
        }
    }
}

/// Plugins that name the same store share a ledger.
type Ledgers = InUse<Key, Ledger>;

#[derive(PartialEq)]
enum Key {
    Redis(Box<Redis>, Option<Duration>),
    Cluster,
}

/// Counts in Redis.
fn ledger_of_redis(policy: &Policy<'_>, build: &BuildContext<'_>) -> Result<Arc<Ledger>, String> {
    let key = Key::Redis(Box::new(policy.redis.clone()), policy.interval());
    build.retained.get::<Ledgers>().of(key, || {
        let store = RedisStore::new(policy.redis.clone(), build)?;
        Ok(Ledger::new(Arc::new(store), policy.interval().unwrap_or_default(), build.background()))
    })
}

/// Counts in the database of the nodes.
fn ledger_of_cluster(build: &BuildContext<'_>) -> Result<Arc<Ledger>, String> {
    build.retained.get::<Ledgers>().of(Key::Cluster, || {
        let store = ClusterStore::of(build.retained).ok_or_else(|| {
            "config.policy: policy cluster counts in the PostgreSQL database that nodes share, and this node has none: start \
             it with database=postgres, or set `policy: redis`, or `policy: local`, which counts on each node \
             by itself"
                .to_owned()
        })?;
        Ok(Ledger::new(store, Duration::ZERO, build.background()))
    })
}
