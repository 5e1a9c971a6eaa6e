//! Samples of requests: errors, slow ones, and one in N of the others for those who watch.
use crate::aggregate::Outcome;
use foldhash::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

mod gate;
mod sample;
mod tail;
pub use gate::{Gate, Rates};
pub use sample::{MAX_TEXT_LEN, Reason, Sample, SampleBuilder};
pub use tail::{Tail, TailSubscription};

/// Samples of a group of errors in an interval.
const ERRORS_PER_GROUP: usize = 16;
const ERROR_INTERVAL_MILLIS: u64 = 10 * 60 * 1_000;
/// Slow requests of a route in an interval.
const SLOWEST_PER_ROUTE: usize = 8;
const SLOW_INTERVAL_MILLIS: u64 = 60 * 1_000;
/// Groups and routes that are in an interval. Errors of further ones are kept like samples by chance.
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
        if self.interval != interval {
            *self = Chosen { interval, seen: 0, numbers: Vec::new() };
        }
        self.seen += 1;
    }
}

/// All samples that are kept, in the order of their arrival, within a budget of bytes.
#[derive(Debug)]
pub struct Samples {
    budget: usize,
    bytes: usize,
    next: u64,
    samples: BTreeMap<u64, Arc<Sample>>,
    errors: HashMap<Group, Chosen>,
    slowest: HashMap<u32, Chosen>,
    random: fastrand::Rng,
    /// Those who watch samples arrive.
    pub tail: Tail,
}

impl Samples {
    pub(crate) fn new(budget: usize) -> Samples {
        Samples {
            budget,
            bytes: 0,
            next: 1,
            samples: BTreeMap::new(),
            errors: HashMap::default(),
            slowest: HashMap::default(),
            random: fastrand::Rng::with_seed(0),
            tail: Tail::default(),
        }
    }

    /// Gives a sample to those who watch, and keeps it if its group has a place for it.
    pub fn add(&mut self, mut sample: Sample) {
        sample.number = self.next;
        self.next += 1;
        let sample = Arc::new(sample);
        self.tail.send(&sample);
        if self.choose(&sample) {
            self.bytes += sample.heap_bytes() + OVERHEAD;
            self.samples.insert(sample.number, sample);
        }
        while self.bytes > self.budget
            && let Some((_, sample)) = self.samples.pop_first()
        {
            self.bytes -= sample.heap_bytes() + OVERHEAD;
        }
    }

    fn choose(&mut self, sample: &Sample) -> bool {
        match sample.reason {
            Reason::Error => self.choose_error(sample),
            Reason::Slow => self.choose_slow(sample),
            Reason::Chance => true,
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
            return true;
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

    /// The slowest requests of a route in a minute.
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
        if chosen.numbers.len() < SLOWEST_PER_ROUTE {
            chosen.numbers.push(sample.number);
            return true;
        }
        let total = |number: u64| self.samples.get(&number).map(|sample| sample.record.total.0);
        let Some(quickest) = chosen.numbers.iter_mut().min_by_key(|number| total(**number)) else {
            return false;
        };
        if total(*quickest) >= Some(sample.record.total.0) {
            return false;
        }
        let replaced = std::mem::replace(quickest, sample.number);
        self.remove(replaced);
        true
    }

    fn remove(&mut self, number: u64) {
        if let Some(sample) = self.samples.remove(&number) {
            self.bytes -= sample.heap_bytes() + OVERHEAD;
        }
    }

    /// Samples, newest first, that arrived before a number.
    pub fn before(&self, number: u64) -> impl Iterator<Item = &Arc<Sample>> {
        self.samples.range(..number).rev().map(|(_, sample)| sample)
    }

    /// One sample.
    pub fn get(&self, number: u64) -> Option<&Arc<Sample>> {
        self.samples.get(&number)
    }

    /// The number of samples.
    pub fn len(&self) -> usize {
        self.samples.len()
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty()
    }

    /// The memory of all samples, in bytes.
    pub fn bytes(&self) -> usize {
        let chosen = |chosen: &Chosen| size_of::<(Group, Chosen)>() + chosen.numbers.capacity() * 8;
        let errors: usize = self.errors.values().map(chosen).sum();
        let slowest: usize = self.slowest.values().map(chosen).sum();
        self.bytes + errors + slowest
    }
}

#[cfg(test)]
mod tests;
