//! What carries questions and news to a store, on the plugins' thread.

use super::counter::{Limit, Usage};
use super::entry::bounds;
use super::ledger::{Ask, Changed, Shared};
use super::store::{Add, Bound, Take, Taken, Unavailable, Whose};
use super::window::{Period, wall_clock};
use std::collections::HashSet;
use std::collections::hash_map::{Entry as Slot, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Release;
use tokio::sync::{Semaphore, mpsc};

/// Questions, and entries of which there is news, that are carried at a time.
pub(super) const BATCH: usize = 1024;
/// Batches of questions that are under way at a time.
pub(super) const UNDER_WAY: usize = 4;

/// Answers questions until nobody can ask any more.
pub(super) async fn answer(shared: Arc<Shared>, mut asks: mpsc::Receiver<Ask>) {
    let under_way = Arc::new(Semaphore::new(UNDER_WAY));
    let mut waiting = Vec::with_capacity(BATCH);
    loop {
        if waiting.is_empty() && asks.recv_many(&mut waiting, BATCH).await == 0 {
            return;
        }
        let Ok(permit) = under_way.clone().acquire_owned().await else { return };
        let groups = grouped(&mut waiting);
        let shared = shared.clone();
        tokio::spawn(async move {
            settle(&shared, groups).await;
            drop(permit);
        });
    }
}

/// Questions that have one answer.
struct Group {
    take: Take,
    limits: Arc<[Limit]>,
    slides: bool,
    second: u64,
    asks: Vec<Ask>,
}

impl Group {
    fn of(ask: Ask, whose: Arc<Whose>) -> Self {
        let bounds = bounds(&ask.limits, ask.now, ask.slides);
        let take = Take { whose, wanted: u64::from(ask.takes), bounds };
        Self {
            take,
            limits: ask.limits.clone(),
            slides: ask.slides,
            second: ask.now / 1_000,
            asks: vec![ask],
        }
    }

    fn has_room_for(&self, ask: &Ask) -> bool {
        Arc::ptr_eq(&self.limits, &ask.limits) && self.slides == ask.slides && self.second == ask.now / 1_000
    }

    fn join(&mut self, ask: Ask) {
        self.take.wanted += u64::from(ask.takes);
        self.asks.push(ask);
    }
}

/// The questions that can be asked together; the others go on waiting. A store is asked of nothing twice at a time.
fn grouped(waiting: &mut Vec<Ask>) -> Vec<Group> {
    let mut groups: HashMap<Arc<Whose>, Group> = HashMap::new();
    let mut later = Vec::new();
    for ask in waiting.drain(..) {
        let Some(whose) = ask.entry.named() else { continue };
        match groups.entry(whose.clone()) {
            Slot::Vacant(slot) => drop(slot.insert(Group::of(ask, whose))),
            Slot::Occupied(mut slot) if slot.get().has_room_for(&ask) => slot.get_mut().join(ask),
            Slot::Occupied(_) => later.push(ask),
        }
    }
    *waiting = later;
    groups.into_values().collect()
}

/// Asks the store and tells those who wait. Who is told nothing goes on by what is known.
async fn settle(shared: &Arc<Shared>, groups: Vec<Group>) {
    // After an outage the store must know what was counted here meanwhile, because its answer would leave that out.
    if shared.breaker.answers() && shared.has_news() {
        tell_news(shared).await;
    }
    if !shared.breaker.answers() {
        return;
    }
    let (takes, groups): (Vec<_>, Vec<_>) =
        groups.into_iter().map(|group| (group.take, (group.limits, group.asks))).unzip();
    match shared.breaker.store.take(&takes).await {
        Ok(taken) => {
            for ((take, taken), (limits, asks)) in takes.iter().zip(taken).zip(groups) {
                if let Some(taken) = taken {
                    tell_those_who_asked(take, &taken, &limits, asks);
                }
            }
        }
        Err(error) => shared.breaker.fail(&error),
    }
}

/// The first who asked get what was taken.
fn tell_those_who_asked(take: &Take, taken: &Taken, limits: &[Limit], asks: Vec<Ask>) {
    let mut left = taken.taken;
    for ask in asks {
        ask.entry.learn(take, taken);
        let admitted = !ask.takes || left > 0;
        left -= u64::from(ask.takes && admitted);
        // What those behind it have taken is not its own.
        let behind = if ask.takes { left } else { 0 };
        let mut usage = Usage { admitted, now: ask.now / 1_000, wait: 0, used: [0; Period::ALL.len()] };
        for (bound, (count, carried)) in take.bounds.iter().zip(&taken.counts) {
            usage.used[bound.window.period as usize] = count.saturating_add(*carried).saturating_sub(behind);
        }
        if !admitted {
            usage.wait = wait(take, taken, limits);
        }
        let _ = ask.answer.send(usage);
    }
}

/// Where windows slide, how long those who were refused have to wait.
fn wait(take: &Take, taken: &Taken, limits: &[Limit]) -> u32 {
    let counts = take.bounds.iter().zip(&taken.counts).zip(limits);
    let spent =
        counts.filter(|((bound, (count, carried)), _)| count.saturating_add(*carried) >= bound.admits);
    let wait = |((bound, (count, carried)), limit): ((&Bound, &(u64, u64)), &Limit)| {
        let (_, slide) = bound.before?;
        // Of the window before no more is known than what it still adds.
        let previous = u128::from(*carried) * u128::from(slide.length) / u128::from(slide.left.max(1));
        Some(slide.wait(limit, *count, u64::try_from(previous).unwrap_or(u64::MAX)))
    };
    spent.filter_map(wait).max().unwrap_or(0)
}

/// Tells the store what is counted here, until nobody counts any more.
pub(super) async fn tell(shared: Arc<Shared>) {
    while !shared.breaker.is_closed() {
        shared.breaker.news.notified().await;
        tokio::select! {
            () = tokio::time::sleep(shared.interval) => {}
            () = shared.background.ending() => {}
        }
        match shared.breaker.answers() {
            true => tell_news(&shared).await,
            false => shared.told_but(std::iter::empty()),
        }
    }
}

async fn tell_news(shared: &Arc<Shared>) {
    let _turn = shared.telling.lock().await;
    let mut news = shared.take_news().into_iter();
    loop {
        let batch: Vec<_> = news.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            return shared.told_but(std::iter::empty());
        }
        if let Err(error) = tell_of(shared, &batch).await {
            shared.breaker.fail(&error);
            // They are told when the store answers again.
            return shared.told_but(batch.into_iter().chain(news));
        }
    }
}

async fn tell_of(shared: &Shared, batch: &[Changed]) -> Result<(), Unavailable> {
    let (now, mut adds, mut whose): (_, Vec<Add>, Vec<_>) = (wall_clock(), Vec::new(), Vec::new());
    let mut known = HashSet::new();
    for (entry, slides) in batch {
        entry.changed.store(false, Release);
        for add in entry.untold(now, *slides) {
            // Two entries may go by one name; the second is told of later.
            if known.insert((add.whose.clone(), add.window.period, add.window.starts)) {
                whose.push(entry);
                adds.push(add);
            }
        }
    }
    if adds.is_empty() {
        return Ok(());
    }
    let counts = shared.breaker.store.add(&adds).await?;
    for ((add, entry), count) in adds.iter().zip(whose).zip(counts) {
        if let Some(count) = count {
            entry.tell(add, count);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::entry::Entry;
    use super::*;
    use tokio::sync::oneshot;

    type Question = (Ask, oneshot::Receiver<Usage>);

    /// Somebody's question, one of so many seconds after noon.
    fn question(entry: &Arc<Entry>, limits: &Arc<[Limit]>, second: u64) -> Question {
        let (answer, receiver) = oneshot::channel();
        let (entry, limits) = (entry.clone(), limits.clone());
        let now = 1_706_702_400_000 + second * 1_000;
        (Ask { entry, limits, slides: false, takes: true, now, answer }, receiver)
    }

    fn entry(name: &str) -> Arc<Entry> {
        let (entry, identifier) = (Arc::<Entry>::default(), name.into());
        entry.whose(|| Whose {
            route: Default::default(),
            service: Default::default(),
            identifier,
            of_responses: None,
        });
        entry
    }

    #[test]
    fn the_first_who_asked_get_what_was_taken() {
        let (entry, limits): (_, Arc<[Limit]>) = (entry("a"), [Limit::new(Period::Minute, 10.0)].into());
        let (mut asks, answers): (Vec<_>, Vec<_>) = (0..5).map(|_| question(&entry, &limits, 0)).unzip();
        let [group] = <[Group; 1]>::try_from(grouped(&mut asks)).ok().unwrap();
        assert_eq!(group.take.wanted, 5);
        let taken = Taken { taken: 3, counts: vec![(10, 0)] };
        tell_those_who_asked(&group.take, &taken, &limits, group.asks);
        let told = answers.into_iter().map(|mut answer| {
            let usage = answer.try_recv().unwrap();
            (usage.admitted, usage.used[Period::Minute as usize])
        });
        let expected = [(true, 8), (true, 9), (true, 10), (false, 10), (false, 10)];
        assert_eq!(told.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_store_is_asked_of_nothing_twice_at_a_time() {
        let limits: Arc<[Limit]> = [Limit::new(Period::Minute, 10.0)].into();
        let others: Arc<[Limit]> = [Limit::new(Period::Minute, 20.0)].into();
        // Two entries by one name, as one is forgotten while it is in use.
        let (one, same, another) = (entry("a"), entry("a"), entry("b"));
        let mut waiting: Vec<_> = [
            question(&one, &limits, 0),
            question(&same, &limits, 0),
            question(&another, &limits, 0),
            question(&one, &others, 0),
            question(&one, &limits, 1),
        ]
        .map(|(ask, _)| ask)
        .into();
        let mut sizes: Vec<_> = grouped(&mut waiting).iter().map(|group| group.asks.len()).collect();
        sizes.sort_unstable();
        assert_eq!((sizes, waiting.len()), (vec![1, 2], 2));
    }
}
