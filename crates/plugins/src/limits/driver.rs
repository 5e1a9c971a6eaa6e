//! Tasks on the plugins' thread that send queries and counts to a store, in batches.

use super::counter::{Limit, Usage};
use super::entry::bounds;
use super::shared_counters::{Changed, Query, Shared};
use super::store::{Add, Bound, CounterKey, Take, Taken, Unavailable};
use super::window::{Period, wall_clock};
use std::collections::HashSet;
use std::collections::hash_map::{Entry as Slot, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use tokio::sync::{Semaphore, mpsc};

/// How many queries, or changed entries, are sent together.
pub(super) const BATCH: usize = 1024;
/// How many batches of queries are in flight at a time.
pub(super) const MAX_IN_FLIGHT: usize = 4;

/// Answers queries until no request can send any more.
pub(super) async fn answer(shared: Arc<Shared>, mut queries: mpsc::Receiver<Query>) {
    let in_flight = Arc::new(Semaphore::new(MAX_IN_FLIGHT));
    let mut waiting = Vec::with_capacity(BATCH);
    loop {
        if waiting.is_empty() && queries.recv_many(&mut waiting, BATCH).await == 0 {
            return;
        }
        let Ok(permit) = in_flight.clone().acquire_owned().await else { return };
        let groups = grouped(&mut waiting);
        let shared = shared.clone();
        tokio::spawn(async move {
            settle(&shared, groups).await;
            drop(permit);
        });
    }
}

/// Queries that share one reply.
struct Group {
    take: Take,
    limits: Arc<[Limit]>,
    slides: bool,
    second: u64,
    queries: Vec<Query>,
}

impl Group {
    fn of(query: Query, key: Arc<CounterKey>) -> Self {
        let bounds = bounds(&query.limits, query.now, query.slides);
        let take = Take { key, wanted: u64::from(query.takes), bounds };
        Self {
            take,
            limits: query.limits.clone(),
            slides: query.slides,
            second: query.now / 1_000,
            queries: vec![query],
        }
    }

    fn has_room_for(&self, query: &Query) -> bool {
        Arc::ptr_eq(&self.limits, &query.limits)
            && self.slides == query.slides
            && self.second == query.now / 1_000
    }

    fn join(&mut self, query: Query) {
        self.take.wanted += u64::from(query.takes);
        self.queries.push(query);
    }
}

/// The queries that can be sent now; the others go on waiting. No key is in two batches at a time.
fn grouped(waiting: &mut Vec<Query>) -> Vec<Group> {
    let mut groups: HashMap<Arc<CounterKey>, Group> = HashMap::new();
    let mut later = Vec::new();
    for query in waiting.drain(..) {
        let Some(key) = query.entry.key() else { continue };
        match groups.entry(key.clone()) {
            Slot::Vacant(slot) => drop(slot.insert(Group::of(query, key))),
            Slot::Occupied(mut slot) if slot.get().has_room_for(&query) => slot.get_mut().join(query),
            Slot::Occupied(_) => later.push(query),
        }
    }
    *waiting = later;
    groups.into_values().collect()
}

/// Queries the store and answers the requests that wait. Requests without an answer go on with what this node knows.
async fn settle(shared: &Arc<Shared>, groups: Vec<Group>) {
    // After an outage the store first needs what was counted here meanwhile, because its answer would leave that out.
    if shared.breaker.answers() && shared.has_changes() {
        report_changes(shared).await;
    }
    if !shared.breaker.answers() {
        return;
    }
    let (takes, groups): (Vec<_>, Vec<_>) =
        groups.into_iter().map(|group| (group.take, (group.limits, group.queries))).unzip();
    match shared.breaker.store.take(&takes).await {
        Ok(taken) => {
            for ((take, taken), (limits, queries)) in takes.iter().zip(taken).zip(groups) {
                if let Some(taken) = taken {
                    reply(take, &taken, &limits, queries);
                }
            }
        }
        Err(error) => shared.breaker.fail(&error),
    }
}

/// The first queries get what was taken.
fn reply(take: &Take, taken: &Taken, limits: &[Limit], queries: Vec<Query>) {
    let mut left = taken.taken;
    for query in queries {
        query.entry.learn(take, taken);
        let admitted = !query.takes || left > 0;
        left -= u64::from(query.takes && admitted);
        // What later queries have taken does not count for this one.
        let behind = if query.takes { left } else { 0 };
        let mut usage = Usage { admitted, now: query.now / 1_000, wait: 0, used: [0; Period::ALL.len()] };
        for (bound, (count, carried)) in take.bounds.iter().zip(&taken.counts) {
            usage.used[bound.window.period as usize] = count.saturating_add(*carried).saturating_sub(behind);
        }
        if !admitted {
            usage.wait = wait(take, taken, limits);
        }
        let _ = query.answer.send(usage);
    }
}

/// With sliding windows, how long refused requests must wait.
fn wait(take: &Take, taken: &Taken, limits: &[Limit]) -> u32 {
    let counts = take.bounds.iter().zip(&taken.counts).zip(limits);
    let spent =
        counts.filter(|((bound, (count, carried)), _)| count.saturating_add(*carried) >= bound.admits);
    let wait = |((bound, (count, carried)), limit): ((&Bound, &(u64, u64)), &Limit)| {
        let (_, slide) = bound.before?;
        // Of the previous window only the part that still counts is known.
        let previous = u128::from(*carried) * u128::from(slide.length) / u128::from(slide.left.max(1));
        Some(slide.wait(limit, *count, u64::try_from(previous).unwrap_or(u64::MAX)))
    };
    spent.filter_map(wait).max().unwrap_or(0)
}

/// Reports the counts of this node to the store, until no request counts any more.
pub(super) async fn report(shared: Arc<Shared>) {
    while !shared.breaker.is_closed() {
        shared.breaker.wake.notified().await;
        tokio::select! {
            () = tokio::time::sleep(shared.interval) => {}
            () = shared.background.ending() => {}
        }
        match shared.breaker.answers() {
            true => report_changes(&shared).await,
            false => shared.reported_except(std::iter::empty()),
        }
    }
}

async fn report_changes(shared: &Arc<Shared>) {
    let _turn = shared.reporting.lock().await;
    let mut changes = shared.take_changes().into_iter();
    loop {
        let batch: Vec<_> = changes.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return shared.reported_except(std::iter::empty());
        }
        if let Err(error) = report_batch(shared, &batch).await {
            shared.breaker.fail(&error);
            // The rest is reported when the store answers again.
            return shared.reported_except(batch.into_iter().chain(changes));
        }
    }
}

async fn report_batch(shared: &Shared, batch: &[Changed]) -> Result<(), Unavailable> {
    let (now, mut adds, mut entries): (_, Vec<Add>, Vec<_>) = (wall_clock(), Vec::new(), Vec::new());
    let mut known = HashSet::new();
    for (entry, slides) in batch {
        entry.changed.store(false, Release);
        for add in entry.unreported(now, *slides) {
            // Two entries may have one key; the second is reported later.
            if known.insert((add.key.clone(), add.window.period, add.window.starts)) {
                entries.push(entry);
                adds.push(add);
            }
        }
    }
    if adds.is_empty() {
        return Ok(());
    }
    let counts = shared.breaker.store.add(&adds).await?;
    for ((add, entry), count) in adds.iter().zip(entries).zip(counts) {
        if let Some(count) = count {
            entry.record_report(add, count);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::*;
    use tokio::sync::oneshot;

    type Sent = (Query, oneshot::Receiver<Usage>);

    /// A query, so many seconds after noon.
    fn query(entry: &Arc<Entry>, limits: &Arc<[Limit]>, second: u64) -> Sent {
        let (answer, receiver) = oneshot::channel();
        let (entry, limits) = (entry.clone(), limits.clone());
        let now = 1_706_702_400_000 + second * 1_000;
        (Query { entry, limits, slides: false, takes: true, now, answer }, receiver)
    }

    fn entry(name: &str) -> Arc<Entry> {
        let (entry, identifier) = (Arc::<Entry>::default(), name.into());
        entry.key_or_insert(|| CounterKey {
            route: Default::default(),
            service: Default::default(),
            identifier,
            of_responses: None,
        });
        entry
    }

    #[test]
    fn the_first_queries_get_what_was_taken() {
        let (entry, limits): (_, Arc<[Limit]>) = (entry("a"), [Limit::new(Period::Minute, 10.0)].into());
        let (mut queries, answers): (Vec<_>, Vec<_>) = (0..5).map(|_| query(&entry, &limits, 0)).unzip();
        let [group] = <[Group; 1]>::try_from(grouped(&mut queries)).ok().unwrap();
        assert_eq!(group.take.wanted, 5);
        let taken = Taken { taken: 3, counts: vec![(10, 0)] };
        reply(&group.take, &taken, &limits, group.queries);
        let replies = answers.into_iter().map(|mut answer| {
            let usage = answer.try_recv().unwrap();
            (usage.admitted, usage.used[Period::Minute as usize])
        });
        let expected = [(true, 8), (true, 9), (true, 10), (false, 10), (false, 10)];
        assert_eq!(replies.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn no_key_is_queried_twice_at_a_time() {
        let limits: Arc<[Limit]> = [Limit::new(Period::Minute, 10.0)].into();
        let others: Arc<[Limit]> = [Limit::new(Period::Minute, 20.0)].into();
        // Two entries with one key, as if one was evicted while it was in use.
        let (one, same, another) = (entry("a"), entry("a"), entry("b"));
        let mut waiting: Vec<_> = [
            query(&one, &limits, 0),
            query(&same, &limits, 0),
            query(&another, &limits, 0),
            query(&one, &others, 0),
            query(&one, &limits, 1),
        ]
        .map(|(query, _)| query)
        .into();
        let mut sizes: Vec<_> = grouped(&mut waiting).iter().map(|group| group.queries.len()).collect();
        sizes.sort_unstable();
        assert_eq!((sizes, waiting.len()), (vec![1, 2], 2));
    }
}
