//! The policies: where counts are kept, and how requests use them.

use super::counter::{Counters, Limit, Usage, nothing};
use super::entry::Entry;
use super::in_use::InUse;
use super::redis::{Redis, RedisStore};
use super::shared_counters::{Query, SharedCounters};
use super::store::{ClusterStore, CounterKey, Unavailable};
use super::window::{wall_clock, wall_clock_in_milliseconds};
use crate::shared::counters::Table;
use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use sha2::{Digest, Sha256};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;
use weir_plugin::{BuildContext, FieldError, Fingerprint, Fingerprinter, Handover, Uuid};

/// The longest identifier that stores get unhashed.
const MAX_IDENTIFIER_LEN: usize = 256;

/// The policy in a plugin's configuration.
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
            found.extend(self.redis.missing("policy: redis"));
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

    /// How long counts may stay unreported; none if every request queries the store.
    fn interval(&self) -> Option<Duration> {
        Duration::try_from_secs_f64(self.sync_rate).ok()
    }
}

/// The identifier that requests are counted by.
#[derive(Clone, Copy)]
pub(crate) enum Identifier<'a> {
    Id(Uuid),
    Address(IpAddr),
    /// A value that the client sent.
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

    /// The identifier for stores. Long ones and those that are not UTF-8 are hashed, because keys of a store are
    /// bounded.
    pub(crate) fn text(&self) -> String {
        match self {
            Self::Id(id) => id.to_string(),
            Self::Address(address) => address.to_string(),
            Self::Sent(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) if text.len() <= MAX_IDENTIFIER_LEN && !text.contains('\0') => text.to_owned(),
                _ => format!("sha256-{}", BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(bytes))),
            },
        }
    }
}

/// How one plugin counts.
pub(crate) struct Limiter {
    counting: Counting,
    slides: bool,
    /// The base of the fingerprints of this plugin's identifiers.
    pub(crate) key: Fingerprinter,
    route: Uuid,
    service: Uuid,
}

enum Counting {
    /// In memory, fixed windows.
    Fixed(Arc<Table<Counters>>),
    /// In memory, sliding windows.
    Sliding(Arc<Table<Entry>>),
    /// In memory, synchronized with the store at intervals.
    Synced(Arc<SharedCounters>),
    /// In the store: every request waits for it.
    Exact(Arc<SharedCounters>),
}

/// The outcome of a reservation.
pub(crate) enum Reserved {
    Now(Usage),
    Later(SentQuery),
}

/// A query to the store, and what this node needs to decide without it.
pub(crate) struct SentQuery {
    answer: Result<oneshot::Receiver<Usage>, Unavailable>,
    entry: Arc<Entry>,
    limits: Arc<[Limit]>,
    counters: Arc<SharedCounters>,
    slides: bool,
}

impl SentQuery {
    /// Waits for the reply; none if there is none.
    pub(crate) async fn answered(&mut self) -> Option<Usage> {
        self.answer.as_mut().ok()?.await.ok()
    }

    /// Whether there is no reply to wait for.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.answer.is_err()
    }

    /// Counts on this node; the count is reported when the store answers again.
    pub(crate) fn reserve_here(&self) -> Usage {
        let usage = self.entry.reserve(&self.limits, self.slides);
        if usage.admitted {
            self.counters.mark(&self.entry, self.slides);
        }
        usage
    }
}

/// The counts that are kept on the node, for a process that replaces this one.
pub(crate) const HANDOVERS: &[Handover] =
    &[Table::<Counters>::handover("limits"), Table::<Entry>::handover("sliding limits")];

impl Limiter {
    /// For the plugin that is being built.
    pub(crate) fn new(policy: Policy<'_>, build: &BuildContext<'_>) -> Result<Self, String> {
        let slides = policy.slides();
        let counting = match policy.name {
            "redis" => {
                let counters = counters_in_redis(&policy, build)?;
                if policy.interval().is_some() {
                    Counting::Synced(counters)
                } else {
                    Counting::Exact(counters)
                }
            }
            "cluster" => Counting::Exact(counters_in_cluster(build)?),
            _ if slides => Counting::Sliding(build.retained.get()),
            _ => Counting::Fixed(build.retained.get()),
        };
        let (route, service) = (build.entity.route, build.entity.service);
        let key = match &counting {
            Counting::Fixed(table) => table.key.clone(),
            Counting::Sliding(table) => table.key.clone(),
            Counting::Synced(counters) | Counting::Exact(counters) => counters.table.key.clone(),
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
        fingerprint: Fingerprint,
        identifier: Identifier<'_>,
        limits: &Arc<[Limit]>,
    ) -> Reserved {
        let slides = self.slides;
        match &self.counting {
            Counting::Fixed(table) => Reserved::Now(table.with(fingerprint, wall_clock, |counters| {
                let usage = counters.reserve(limits, wall_clock, nothing);
                (usage.now, usage)
            })),
            Counting::Sliding(table) => Reserved::Now(table.with(fingerprint, wall_clock, |entry| {
                let usage = entry.reserve(limits, slides);
                (usage.now, usage)
            })),
            Counting::Synced(counters) => {
                Reserved::Now(counters.table.with(fingerprint, wall_clock, |entry| {
                    entry.key_or_insert(|| self.name(identifier, None));
                    let usage = entry.reserve(limits, slides);
                    if usage.admitted {
                        counters.mark(entry, slides);
                    }
                    (usage.now, usage)
                }))
            }
            Counting::Exact(counters) => {
                Reserved::Later(self.query(counters, (fingerprint, identifier, None), limits, true))
            }
        }
    }

    /// Queries the counts, if every request queries the store.
    pub(crate) fn refresh(
        &self,
        fingerprint: Fingerprint,
        identifier: Identifier<'_>,
        name: &str,
        limits: &Arc<[Limit]>,
    ) -> Option<SentQuery> {
        let Counting::Exact(counters) = &self.counting else { return None };
        Some(self.query(counters, (fingerprint, identifier, Some(name)), limits, false))
    }

    fn query(
        &self,
        counters: &Arc<SharedCounters>,
        (fingerprint, identifier, name): (Fingerprint, Identifier<'_>, Option<&str>),
        limits: &Arc<[Limit]>,
        takes: bool,
    ) -> SentQuery {
        let (slides, now) = (self.slides, wall_clock_in_milliseconds());
        let entry = counters.table.with(fingerprint, wall_clock, |entry| (now / 1_000, entry.clone()));
        entry.key_or_insert(|| self.name(identifier, name));
        let answer = counters.query(|answer| Query {
            entry: entry.clone(),
            limits: limits.clone(),
            slides,
            takes,
            now,
            answer,
        });
        SentQuery { answer, entry, limits: limits.clone(), counters: counters.clone(), slides }
    }

    /// The usage that this node knows of.
    pub(crate) fn usage(&self, fingerprint: Fingerprint, limits: &[Limit]) -> Usage {
        let known = |entry: &Arc<Entry>| {
            let usage = entry.usage(limits, self.slides);
            (usage.now, usage)
        };
        match &self.counting {
            Counting::Fixed(table) => table.with(fingerprint, wall_clock, |counters| {
                let now = wall_clock();
                (now, counters.usage(limits, now, nothing))
            }),
            Counting::Sliding(table) => table.with(fingerprint, wall_clock, known),
            Counting::Synced(counters) | Counting::Exact(counters) => {
                counters.table.with(fingerprint, wall_clock, known)
            }
        }
    }

    /// Adds an amount, whatever the limits.
    pub(crate) fn add(
        &self,
        fingerprint: Fingerprint,
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
            Counting::Fixed(table) => table.with(fingerprint, wall_clock, |counters| {
                let now = wall_clock();
                (now, limits.iter().for_each(|limit| counters.add(limit.period, amount, now)))
            }),
            Counting::Sliding(table) => table.with(fingerprint, wall_clock, count),
            Counting::Synced(counters) | Counting::Exact(counters) => {
                counters.table.with(fingerprint, wall_clock, |entry| {
                    entry.key_or_insert(|| self.name(identifier, Some(name)));
                    let counted = count(entry);
                    counters.mark(entry, self.slides);
                    counted
                })
            }
        }
    }

    fn name(&self, identifier: Identifier<'_>, name: Option<&str>) -> CounterKey {
        CounterKey {
            route: self.route,
            service: self.service,
            identifier: identifier.text().into(),
            of_responses: name.map(Into::into),
        }
    }
}

/// Plugins that name the same store share its counters.
type SharedCountersInUse = InUse<Key, SharedCounters>;

#[derive(PartialEq)]
enum Key {
    Redis(Box<Redis>, Option<Duration>),
    Cluster,
}

/// Counts in Redis.
fn counters_in_redis(policy: &Policy<'_>, build: &BuildContext<'_>) -> Result<Arc<SharedCounters>, String> {
    let key = Key::Redis(Box::new(policy.redis.clone()), policy.interval());
    build.retained.get::<SharedCountersInUse>().of(key, || {
        let store = RedisStore::new(policy.redis.clone(), build)?;
        Ok(SharedCounters::new(Arc::new(store), policy.interval().unwrap_or_default(), build.background()))
    })
}

/// Counts in the database of the nodes.
fn counters_in_cluster(build: &BuildContext<'_>) -> Result<Arc<SharedCounters>, String> {
    build.retained.get::<SharedCountersInUse>().of(Key::Cluster, || {
        let store = ClusterStore::of(build.retained).ok_or_else(|| {
            "config.policy: policy cluster counts in the PostgreSQL database that nodes share, and this node has none: start \
             it with database=postgres, or set `policy: redis`, or `policy: local`, which counts on each node \
             by itself"
                .to_owned()
        })?;
        Ok(SharedCounters::new(store, Duration::ZERO, build.background()))
    })
}
