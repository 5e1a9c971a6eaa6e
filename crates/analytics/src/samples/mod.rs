//! Samples of requests: errors, slow ones, and others for those who watch.
use crate::aggregate::Outcome;
use foldhash::HashMap;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

mod excerpt;
mod gate;
mod recent;
mod sample;
pub use gate::{Gate, SampleSender, Sampling, WatchGuard};
pub use sample::{Failure, Hook, Phases, Reason, RequestTexts, Sample, SampleBuilder, Side};

use gate::Rates;
use recent::Recent;

/// Samples on their way from the workers.
const QUEUE_LEN: usize = 4_096;
/// Samples of a group of errors in an interval.
pub(crate) const ERRORS_PER_GROUP: usize = 16;
const ERROR_INTERVAL_MILLIS: u64 = 10 * 60 * 1_000;
/// Slow requests of a route in an interval.
const SLOWEST_PER_ROUTE: usize = 8;
const SLOW_INTERVAL_MILLIS: u64 = 60 * 1_000;
/// Groups and routes that are in an interval. Further ones are only among the recent samples.
const MAX_GROUPS: usize = 4_096;
/// What a sample costs beyond itself: its place in the tree and in its group.
const OVERHEAD: usize = 64;

/// Errors that belong together: the same route and outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Group {
    /// The route.
    pub route: u32,
    /// The status and the cause.
    pub outcome: Outcome,
}

impl Group {
    /// The group of a sample.
    pub fn of(sample: &Sample) -> Group {
        let record = &sample.record;
        Group { route: record.route, outcome: Outcome { status: record.status, cause: record.cause } }
    }
}

/// The samples of a group or a route in an interval.
#[derive(Debug, Default)]
struct Chosen {
    interval: u64,
    seen: u64,
    numbers: Vec<u64>,
}

impl Chosen {
    fn begin(&mut self, interval: u64) {
        if self.interval < interval {
            *self = Chosen { interval, seen: 0, numbers: Vec::new() };
        }
        self.seen += 1;
    }
}

/// All samples that are kept, within a budget of bytes. A quarter of it is for the most recent ones of any kind, the rest
/// for errors and slow requests, which stay longer.
#[derive(Debug)]
pub struct Samples {
    budget: usize,
    bytes: usize,
    first: u64,
    next: u64,
    kept: BTreeMap<u64, Arc<Sample>>,
    recent: Recent,
    errors: HashMap<Group, Chosen>,
    slowest: HashMap<u32, Chosen>,
    minute: u64,
    random: fastrand::Rng,
    rates: Arc<Rates>,
    sender: SyncSender<Sample>,
    arrivals: Receiver<Sample>,
}

impl Samples {
    /// No samples yet. Numbers begin with the time in microseconds, so that they do not return after a restart.
    pub(crate) fn new(budget: usize, now: u64) -> Samples {
        let (sender, arrivals) = sync_channel(QUEUE_LEN);
        let first = now * 1_000 + 1;
        Samples {
            budget: budget / 4 * 3,
            bytes: 0,
            first,
            next: first,
            kept: BTreeMap::new(),
            recent: Recent::new(budget / 4),
            errors: HashMap::default(),
            slowest: HashMap::default(),
            minute: 0,
            random: fastrand::Rng::with_seed(0),
            rates: Arc::new(Rates::new()),
            sender,
            arrivals,
        }
    }

    /// The way of samples from workers, which sample these requests from now on.
    pub fn sender(&self, sampling: Sampling) -> SampleSender {
        self.rates.set_sampling(sampling);
        SampleSender { rates: Arc::clone(&self.rates), queue: self.sender.clone() }
    }

    /// Has workers sample as many requests as they may, until the result is dropped; none if too many watch already.
    pub fn watch(&self) -> Option<WatchGuard> {
        Rates::watch(&self.rates)
    }

    /// Takes the samples that have arrived. `now` is in milliseconds since 1970.
    pub fn drain(&mut self, now: u64) {
        let minute = now / SLOW_INTERVAL_MILLIS;
        if self.minute != minute {
            self.minute = minute;
            self.rates.forget_slow();
        }
        while let Ok(sample) = self.arrivals.try_recv() {
            self.add(sample);
        }
    }

    /// Takes one sample.
    pub(crate) fn add(&mut self, mut sample: Sample) {
        sample.number = self.next;
        self.next += 1;
        let sample = Arc::new(sample);
        if self.choose(&sample) {
            self.bytes += sample.heap_bytes() + OVERHEAD;
            self.kept.insert(sample.number, Arc::clone(&sample));
        }
        self.recent.push(sample);
        while self.bytes > self.budget
            && let Some((_, sample)) = self.kept.pop_first()
        {
            self.bytes -= sample.heap_bytes() + OVERHEAD;
        }
    }

    fn choose(&mut self, sample: &Sample) -> bool {
        match sample.reason {
            Reason::Error => self.choose_error(sample),
            Reason::Slow => self.choose_slow(sample),
            Reason::Chance => false,
        }
    }

    /// Each error of a group in ten minutes has the same chance to be among the sixteen.
    fn choose_error(&mut self, sample: &Sample) -> bool {
        let interval = sample.at / ERROR_INTERVAL_MILLIS;
        if self.errors.len() >= MAX_GROUPS {
            self.errors.retain(|_, chosen| chosen.interval == interval);
        }
        let group = Group::of(sample);
        if self.errors.len() >= MAX_GROUPS && !self.errors.contains_key(&group) {
            return false;
        }
        let chosen = self.errors.entry(group).or_default();
        chosen.begin(interval);
        if chosen.numbers.len() < ERRORS_PER_GROUP {
            chosen.numbers.push(sample.number);
            return true;
        }
        let place = self.random.u64(..chosen.seen) as usize;
        let Some(number) = chosen.numbers.get_mut(place) else { return false };
        let replaced = std::mem::replace(number, sample.number);
        self.remove(replaced);
        true
    }

    /// The slowest requests of a route in a minute. Once there are eight, workers sample only slower ones.
    fn choose_slow(&mut self, sample: &Sample) -> bool {
        let interval = sample.at / SLOW_INTERVAL_MILLIS;
        if self.slowest.len() >= MAX_GROUPS {
            self.slowest.retain(|_, chosen| chosen.interval == interval);
        }
        let route = sample.record.route;
        if self.slowest.len() >= MAX_GROUPS && !self.slowest.contains_key(&route) {
            return false;
        }
        let chosen = self.slowest.entry(route).or_default();
        chosen.begin(interval);
        let total = |number: u64| match number == sample.number {
            true => Some(sample.record.total),
            false => self.kept.get(&number).map(|sample| sample.record.total),
        };
        chosen.numbers.push(sample.number);
        chosen.numbers.sort_by_key(|number| Reverse(total(*number)));
        let removed = (chosen.numbers.len() > SLOWEST_PER_ROUTE).then(|| chosen.numbers.pop()).flatten();
        if chosen.numbers.len() == SLOWEST_PER_ROUTE
            && let Some(quickest) = chosen.numbers.last().and_then(|number| total(*number))
        {
            self.rates.set_slow(route, quickest);
        }
        removed.inspect(|number| self.remove(*number)) != Some(sample.number)
    }

    fn remove(&mut self, number: u64) {
        if let Some(sample) = self.kept.remove(&number) {
            self.bytes -= sample.heap_bytes() + OVERHEAD;
        }
    }

    /// Samples, newest first, that arrived before a number.
    pub fn before(&self, number: u64) -> impl Iterator<Item = &Arc<Sample>> {
        let mut kept = self.kept.range(..number).rev().map(|(_, sample)| sample).peekable();
        let mut recent = self.recent.before(number).peekable();
        std::iter::from_fn(move || {
            let (older, newer) = (kept.peek().map(|it| it.number), recent.peek().map(|it| it.number));
            if older == newer {
                kept.next();
            }
            if older > newer { kept.next() } else { recent.next() }
        })
    }

    /// All samples that arrived after a number, oldest first, as far back as they are known.
    pub fn after(&self, number: u64) -> impl Iterator<Item = &Arc<Sample>> {
        self.recent.since(number.saturating_add(1))
    }

    /// The number of the first sample since the start.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// The number of the last sample.
    pub fn newest(&self) -> u64 {
        self.next - 1
    }

    /// One sample.
    pub fn get(&self, number: u64) -> Option<&Arc<Sample>> {
        self.kept.get(&number).or_else(|| self.recent.get(number))
    }

    /// How many requests were not sampled because of a limit.
    pub fn skipped(&self) -> u64 {
        self.rates.skipped()
    }

    /// The memory of all samples, in bytes.
    pub fn bytes(&self) -> usize {
        let chosen = |chosen: &Chosen| size_of::<(Group, Chosen)>() + chosen.numbers.capacity() * 8;
        let errors: usize = self.errors.values().map(chosen).sum();
        let slowest: usize = self.slowest.values().map(chosen).sum();
        self.bytes + self.recent.bytes() + errors + slowest
    }
}

#[cfg(test)]
mod tests;
