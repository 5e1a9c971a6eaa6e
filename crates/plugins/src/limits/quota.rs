//! Quotas per window, which begins with its first request: counted in Redis for all nodes.

use super::breaker::Breaker;
use super::driver::{BATCH, MAX_IN_FLIGHT};
use super::in_use::InUse;
use super::redis::{Redis, RedisStore};
use super::shared_counters::QUEUE;
use super::store::Unavailable;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::{Semaphore, mpsc, oneshot};
use weir_plugin::{Background, BuildContext};

/// The number of requests per window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) count: u64,
    pub(crate) seconds: u64,
}

/// The outcome of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaUsage {
    pub(crate) admitted: bool,
    pub(crate) used: u64,
    pub(crate) milliseconds_left: u64,
}

/// What to take. A key has one quota.
pub(super) struct QuotaTake {
    pub(super) key: Arc<str>,
    pub(super) wanted: u64,
    pub(super) quota: Quota,
}

/// What was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaTaken {
    pub(super) taken: u64,
    /// How many of the quota are used.
    pub(super) used: u64,
    pub(super) milliseconds_left: u64,
}

/// A request's query.
struct Query {
    key: Arc<str>,
    quota: Quota,
    answer: oneshot::Sender<QuotaUsage>,
}

/// The quotas of one server, or of one cluster. The task ends when this is dropped.
pub(crate) struct Quotas {
    shared: Arc<Shared>,
    background: Arc<Background>,
    queries: OnceLock<mpsc::Sender<Query>>,
}

struct Shared {
    store: Arc<RedisStore>,
    breaker: Arc<Breaker>,
}

impl Quotas {
    /// Plugins that name the same servers share a connection.
    pub(crate) fn of(redis: &Redis, build: &BuildContext<'_>) -> Result<Arc<Self>, String> {
        build.retained.get::<InUse<Redis, Quotas>>().of(redis.clone(), || {
            let store = Arc::new(RedisStore::new(redis.clone(), build)?);
            let shared = Arc::new(Shared { breaker: Arc::new(Breaker::new(store.clone())), store });
            Ok(Self { shared, background: build.background(), queries: OnceLock::new() })
        })
    }

    /// Queues a query, unless the store is known not to answer.
    pub(crate) fn query(
        &self,
        key: &str,
        quota: Quota,
    ) -> Result<oneshot::Receiver<QuotaUsage>, Unavailable> {
        if !self.shared.breaker.answers() {
            return Err(self.shared.breaker.refusal());
        }
        let (answer, receiver) = oneshot::channel();
        let sent = self.started().try_send(Query { key: key.into(), quota, answer });
        sent.map_err(|_| Unavailable("too many requests wait".to_owned()))?;
        Ok(receiver)
    }

    fn started(&self) -> &mpsc::Sender<Query> {
        self.queries.get_or_init(|| {
            let (sender, queries) = mpsc::channel(QUEUE);
            self.background.spawn(answer(self.shared.clone(), queries));
            sender
        })
    }
}

impl Drop for Quotas {
    fn drop(&mut self) {
        self.shared.breaker.close();
    }
}

/// Answers queries until no request can send any more.
async fn answer(shared: Arc<Shared>, mut queries: mpsc::Receiver<Query>) {
    let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    let mut waiting = Vec::with_capacity(BATCH);
    while queries.recv_many(&mut waiting, BATCH).await > 0 {
        let Ok(permit) = in_flight.clone().acquire_owned().await else { return };
        let (takes, queries) = grouped(&mut waiting);
        let shared = shared.clone();
        tokio::spawn(async move {
            settle(&shared, &takes, queries).await;
            drop(permit);
        });
    }
}

/// Groups queries by key.
fn grouped(waiting: &mut Vec<Query>) -> (Vec<QuotaTake>, Vec<Vec<Query>>) {
    let mut groups: HashMap<Arc<str>, Vec<Query>> = HashMap::new();
    for query in waiting.drain(..) {
        groups.entry(query.key.clone()).or_default().push(query);
    }
    let take = |(key, queries): (Arc<str>, Vec<Query>)| {
        let quota = queries.first().map(|query| query.quota)?;
        Some((QuotaTake { key, wanted: queries.len() as u64, quota }, queries))
    };
    groups.into_iter().filter_map(take).unzip()
}

/// Queries the store and answers the requests that wait. Requests without an answer go on without it.
async fn settle(shared: &Shared, takes: &[QuotaTake], queries: Vec<Vec<Query>>) {
    if !shared.breaker.answers() {
        return;
    }
    match shared.store.take_of_quotas(takes).await {
        Ok(taken) => {
            for (taken, queries) in taken.into_iter().zip(queries) {
                if let Some(taken) = taken {
                    reply(taken, queries);
                }
            }
        }
        Err(error) => shared.breaker.fail(&error),
    }
}

/// The first queries get what was taken.
fn reply(taken: QuotaTaken, queries: Vec<Query>) {
    let mut left = taken.taken;
    for query in queries {
        let admitted = left > 0;
        left -= u64::from(admitted);
        let (used, milliseconds_left) = (taken.used.saturating_sub(left), taken.milliseconds_left);
        let _ = query.answer.send(QuotaUsage { admitted, used, milliseconds_left });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_queries_of_a_key_get_what_was_taken() {
        let quota = Quota { count: 10, seconds: 60 };
        let query = |key: &str| {
            let (answer, receiver) = oneshot::channel();
            (Query { key: key.into(), quota, answer }, receiver)
        };
        let (mut waiting, mut answers): (Vec<_>, Vec<_>) =
            ["a", "b", "a", "a"].map(query).into_iter().unzip();
        let (takes, queries) = grouped(&mut waiting);
        assert!(waiting.is_empty());
        for (take, queries) in takes.iter().zip(queries) {
            assert_eq!(take.wanted, if &*take.key == "a" { 3 } else { 1 });
            if &*take.key == "a" {
                reply(QuotaTaken { taken: 2, used: 10, milliseconds_left: 5 }, queries);
            }
        }
        let replies =
            answers.iter_mut().map(|answer| answer.try_recv().ok().map(|it| (it.admitted, it.used)));
        assert_eq!(replies.collect::<Vec<_>>(), [Some((true, 9)), None, Some((true, 10)), Some((false, 10))]);
    }
}
