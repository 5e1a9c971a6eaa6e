//! So many requests per window, which begins with its first request: counted in Redis for all nodes.

use super::breaker::Breaker;
use super::driver::{BATCH, UNDER_WAY};
use super::in_use::InUse;
use super::ledger::QUEUE;
use super::redis::{Redis, RedisStore};
use super::store::Unavailable;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use tokio::sync::{Semaphore, mpsc, oneshot};
use weir_plugin::{Background, BuildContext};

/// At most so many requests per window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Quota {
    pub(crate) count: u64,
    pub(crate) seconds: u64,
}

/// What a request met.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuotaUsage {
    pub(crate) admitted: bool,
    pub(crate) used: u64,
    pub(crate) milliseconds_left: u64,
}

/// What is to be taken. A key has one quota.
pub(super) struct QuotaTake {
    pub(super) key: Arc<str>,
    pub(super) wanted: u64,
    pub(super) quota: Quota,
}

/// What was taken.
#[derive(Debug, Clone, Copy)]
pub(super) struct QuotaTaken {
    pub(super) taken: u64,
    /// How many are, of the whole quota.
    pub(super) used: u64,
    pub(super) milliseconds_left: u64,
}

/// A request's question.
struct Ask {
    key: Arc<str>,
    quota: Quota,
    answer: oneshot::Sender<QuotaUsage>,
}

/// The quotas of one server, or of several that are one. The task ends when this is dropped.
pub(crate) struct Quotas {
    shared: Arc<Shared>,
    background: Arc<Background>,
    asks: OnceLock<mpsc::Sender<Ask>>,
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
            Ok(Self { shared, background: build.background(), asks: OnceLock::new() })
        })
    }

    /// Leaves a question, unless the store does not answer anyway.
    pub(crate) fn ask(&self, key: &str, quota: Quota) -> Result<oneshot::Receiver<QuotaUsage>, Unavailable> {
        if !self.shared.breaker.answers() {
            return Err(self.shared.breaker.refusal());
        }
        let (answer, receiver) = oneshot::channel();
        let sent = self.started().try_send(Ask { key: key.into(), quota, answer });
        sent.map_err(|_| Unavailable("too many requests wait".to_owned()))?;
        Ok(receiver)
    }

    fn started(&self) -> &mpsc::Sender<Ask> {
        self.asks.get_or_init(|| {
            let (sender, asks) = mpsc::channel(QUEUE);
            self.background.spawn(answer(self.shared.clone(), asks));
            sender
        })
    }
}

impl Drop for Quotas {
    fn drop(&mut self) {
        self.shared.breaker.close();
    }
}

/// Answers questions until nobody can ask any more.
async fn answer(shared: Arc<Shared>, mut asks: mpsc::Receiver<Ask>) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY));
    let mut waiting = Vec::with_capacity(BATCH);
    while asks.recv_many(&mut waiting, BATCH).await > 0 {
        let Ok(permit) = under_way.clone().acquire_owned().await else { return };
        let (takes, asks) = grouped(&mut waiting);
        let shared = shared.clone();
        tokio::spawn(async move {
            settle(&shared, &takes, asks).await;
            drop(permit);
        });
    }
}

/// Those who ask of the same key, together.
fn grouped(waiting: &mut Vec<Ask>) -> (Vec<QuotaTake>, Vec<Vec<Ask>>) {
    let mut groups: HashMap<Arc<str>, Vec<Ask>> = HashMap::new();
    for ask in waiting.drain(..) {
        groups.entry(ask.key.clone()).or_default().push(ask);
    }
    let take = |(key, asks): (Arc<str>, Vec<Ask>)| {
        let quota = asks.first().map(|ask| ask.quota)?;
        Some((QuotaTake { key, wanted: asks.len() as u64, quota }, asks))
    };
    groups.into_iter().filter_map(take).unzip()
}

/// Asks the store and tells those who wait. Who is told nothing goes on without.
async fn settle(shared: &Shared, takes: &[QuotaTake], asks: Vec<Vec<Ask>>) {
    if !shared.breaker.answers() {
        return;
    }
    match shared.store.take_of_quotas(takes).await {
        Ok(taken) => {
            for (taken, asks) in taken.into_iter().zip(asks) {
                if let Some(taken) = taken {
                    tell(taken, asks);
                }
            }
        }
        Err(error) => shared.breaker.fail(&error),
    }
}

/// The first who asked get what was taken.
fn tell(taken: QuotaTaken, asks: Vec<Ask>) {
    let mut left = taken.taken;
    for ask in asks {
        let admitted = left > 0;
        left -= u64::from(admitted);
        let (used, milliseconds_left) = (taken.used.saturating_sub(left), taken.milliseconds_left);
        let _ = ask.answer.send(QuotaUsage { admitted, used, milliseconds_left });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_who_asked_of_a_key_get_what_was_taken() {
        let quota = Quota { count: 10, seconds: 60 };
        let ask = |key: &str| {
            let (answer, receiver) = oneshot::channel();
            (Ask { key: key.into(), quota, answer }, receiver)
        };
        let (mut waiting, mut answers): (Vec<_>, Vec<_>) = ["a", "b", "a", "a"].map(ask).into_iter().unzip();
        let (takes, asks) = grouped(&mut waiting);
        assert!(waiting.is_empty());
        for (take, asks) in takes.iter().zip(asks) {
            assert_eq!(take.wanted, if &*take.key == "a" { 3 } else { 1 });
            if &*take.key == "a" {
                tell(QuotaTaken { taken: 2, used: 10, milliseconds_left: 5 }, asks);
            }
        }
        let told = answers.iter_mut().map(|answer| answer.try_recv().ok().map(|it| (it.admitted, it.used)));
        assert_eq!(told.collect::<Vec<_>>(), [Some((true, 9)), None, Some((true, 10)), Some((false, 10))]);
    }
}
