//! What a load has counted so far, for others to read while it runs. Each thread writes counters of its own, with plain
//! loads and stores, so that reading them costs the load nothing.
use super::counters::{CLASSES, Class};
use crate::result::Histogram;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

/// The upper bounds of the buckets of durations, in nanoseconds: from 33 µs to 12.9 s, two for each doubling.
pub const BOUNDS: [u64; 38] = bounds();

const fn bounds() -> [u64; 38] {
    let mut bounds = [0; 38];
    let mut index = 0;
    while index < bounds.len() {
        let power = 1 << (15 + index / 2);
        bounds[index] = if index % 2 == 0 { power } else { power + power / 2 };
        index += 1;
    }
    bounds
}

/// Durations by bucket; the last bucket has those above all bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Durations {
    /// How many are in each bucket.
    pub buckets: [u64; BOUNDS.len() + 1],
    /// The sum of all, in nanoseconds.
    pub nanoseconds: u64,
}

impl Default for Durations {
    fn default() -> Durations {
        Durations { buckets: [0; BOUNDS.len() + 1], nanoseconds: 0 }
    }
}

impl Durations {
    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Adds all of another's.
    pub fn add(&mut self, other: &Durations) {
        self.buckets.iter_mut().zip(other.buckets).for_each(|(sum, count)| *sum += count);
        self.nanoseconds += other.nanoseconds;
    }
}

impl From<&Histogram> for Durations {
    fn from(histogram: &Histogram) -> Durations {
        let mut durations = Durations::default();
        for value in histogram.inner().iter_recorded() {
            let count = value.count_since_last_iteration();
            durations.buckets[bucket_of(value.value_iterated_to())] += count;
            durations.nanoseconds += value.value_iterated_to() * count;
        }
        durations
    }
}

fn bucket_of(nanoseconds: u64) -> usize {
    BOUNDS.partition_point(|bound| *bound < nanoseconds)
}

/// The counters of a load in progress, within its measured window.
#[derive(Debug)]
pub struct LiveCounters {
    threads: Vec<ThreadCounters>,
}

/// What the counters are at a moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveSnapshot {
    /// Responses, right or wrong.
    pub answers: u64,
    /// How long right responses took.
    pub durations: Durations,
    /// What went wrong, by class.
    pub errors: BTreeMap<String, u64>,
}

impl LiveSnapshot {
    /// Adds all of another's.
    pub fn add(&mut self, other: &LiveSnapshot) {
        self.answers += other.answers;
        self.durations.add(&other.durations);
        for (class, count) in &other.errors {
            *self.errors.entry(class.clone()).or_default() += count;
        }
    }
}

/// Of one thread: on cache lines of its own.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct ThreadCounters {
    answers: AtomicU64,
    nanoseconds: AtomicU64,
    buckets: [AtomicU64; BOUNDS.len() + 1],
    errors: [AtomicU64; CLASSES.len()],
}

impl LiveCounters {
    /// For a load of so many threads.
    #[must_use]
    pub fn new(threads: usize) -> LiveCounters {
        let counters = || ThreadCounters {
            answers: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        LiveCounters { threads: (0..threads.max(1)).map(|_| counters()).collect() }
    }

    /// Those of a thread.
    pub(super) fn thread(&self, index: usize) -> Option<&ThreadCounters> {
        self.threads.get(index)
    }

    /// What all threads have counted so far.
    #[must_use]
    pub fn snapshot(&self) -> LiveSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let mut snapshot = LiveSnapshot::default();
        for thread in &self.threads {
            let errors = CLASSES.iter().zip(&thread.errors).map(|(class, count)| (*class, read(count)));
            snapshot.add(&LiveSnapshot {
                answers: read(&thread.answers),
                durations: Durations {
                    buckets: std::array::from_fn(|bucket| read(&thread.buckets[bucket])),
                    nanoseconds: read(&thread.nanoseconds),
                },
                errors: errors
                    .filter(|(_, count)| *count > 0)
                    .map(|(class, count)| (class.to_owned(), count))
                    .collect(),
            });
        }
        snapshot
    }
}

impl ThreadCounters {
    /// Counts a response.
    pub(super) fn answer(&self) {
        add(&self.answers, 1);
    }

    /// Counts how long a right response took.
    pub(super) fn duration(&self, nanoseconds: u64) {
        add(&self.buckets[bucket_of(nanoseconds)], 1);
        add(&self.nanoseconds, nanoseconds);
    }

    /// Counts an error.
    pub(super) fn error(&self, class: Class) {
        add(&self.errors[class as usize], 1);
    }
}

/// One thread alone writes a counter, so no instruction has to lock it.
fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_bucket_has_what_is_at_most_its_bound() {
        assert!(BOUNDS.is_sorted() && BOUNDS[0] == 32_768 && BOUNDS[1] == 49_152);
        assert_eq!(bucket_of(32_768), 0);
        assert_eq!(bucket_of(32_769), 1);
        assert_eq!(bucket_of(u64::MAX), BOUNDS.len());
    }

    #[test]
    fn a_histogram_and_live_counters_agree() {
        let live = LiveCounters::new(2);
        let mut histogram = Histogram::default();
        for (thread, micros) in [(0, 20), (1, 40), (0, 1_000), (1, 20_000_000)] {
            let duration = Duration::from_micros(micros);
            histogram.record(duration);
            live.thread(thread).unwrap().duration(duration.as_nanos() as u64);
        }
        assert_eq!(Durations::from(&histogram).buckets, live.snapshot().durations.buckets);
        assert_eq!(live.snapshot().durations.count(), 4);
    }
}
