//! The numbers behind the metrics: each worker counts in series of its own, and a scrape adds them up.
//!
//! A series has one writer, the worker that made it, which loads and stores without a lock. It sends a share of each
//! new series to the collector through a channel; from then on only the collector's side is locked.

use super::Prometheus;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use weir_plugin::{Count, Document, Plugin, Source, Uuid, entity};

/// The key of a series. Names are looked up at a scrape, so renaming an entity resets nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) service: Option<Uuid>,
    pub(super) route: Uuid,
    pub(super) consumer: Option<Uuid>,
}

/// The counts of one worker for one key.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) key: Key,
    pub(super) requests: Statuses,
    pub(super) ingress: Count,
    pub(super) egress: Count,
    latencies: OnceLock<Box<Latencies>>,
    /// The collector has dropped the series; the worker must make another.
    retired: AtomicBool,
}

impl Series {
    pub(super) fn new(key: Key) -> Self {
        Self {
            key,
            requests: Statuses::default(),
            ingress: Count::default(),
            egress: Count::default(),
            latencies: OnceLock::new(),
            retired: AtomicBool::new(false),
        }
    }

    pub(super) fn latencies(&self) -> &Latencies {
        self.latencies.get_or_init(Box::default)
    }

    pub(super) fn recorded_latencies(&self) -> Option<&Latencies> {
        self.latencies.get().map(|latencies| &**latencies)
    }
}

/// Requests by status and by source: few per series, found by a linear search.
#[derive(Debug, Default)]
pub(super) struct Statuses {
    slots: [Status; 4],
    more: OnceLock<Box<Statuses>>,
}

#[derive(Debug, Default)]
struct Status {
    /// Twice the status, plus one if the gateway made the response; 0 while the slot is free.
    tag: AtomicU64,
    count: Count,
}

impl Statuses {
    pub(super) fn add(&self, status: u16, source: Source) {
        self.add_many(status, source, 1);
    }

    pub(super) fn add_many(&self, status: u16, source: Source, count: u64) {
        let tag = u64::from(status) << 1 | u64::from(source == Source::Kong);
        match self
            .slots
            .iter()
            .find(|slot| matches!(slot.tag.load(Relaxed), 0) || slot.tag.load(Relaxed) == tag)
        {
            None => self.more.get_or_init(Box::default).add_many(status, source, count),
            Some(slot) => {
                slot.count.add(count);
                slot.tag.store(tag, Relaxed);
            }
        }
    }

    /// Calls `each` with each status, its source and its count.
    pub(super) fn for_each(&self, mut each: impl FnMut(u16, Source, u64)) {
        let mut statuses = Some(self);
        while let Some(current) = statuses {
            for slot in current.slots.iter().filter(|slot| slot.tag.load(Relaxed) > 0) {
                let source = if slot.tag.load(Relaxed) & 1 == 1 { Source::Kong } else { Source::Service };
                each((slot.tag.load(Relaxed) >> 1) as u16, source, slot.count.get());
            }
            statuses = current.more.get().map(|more| &**more);
        }
    }
}

/// The histograms of a series, in microseconds.
#[derive(Debug, Default)]
pub(super) struct Latencies {
    pub(super) kong: Histogram,
    pub(super) upstream: Histogram,
    pub(super) request: Histogram,
    pub(super) fine_gateway: Histogram,
    pub(super) fine_upstream: Histogram,
    pub(super) fine_total: Histogram,
}

impl Latencies {
    /// The histograms, in an order that does not change.
    pub(super) fn all(&self) -> [&Histogram; 6] {
        let Self { kong, upstream, request, fine_gateway, fine_upstream, fine_total } = self;
        [kong, upstream, request, fine_gateway, fine_upstream, fine_total]
    }
}

/// The number of observations in each bucket; the last is unbounded.
#[derive(Debug, Default)]
pub(super) struct Histogram {
    buckets: [Count; MAX_BOUNDS + 1],
    sum: Count,
}

/// The most bounds of any histogram.
pub(super) const MAX_BOUNDS: usize = 17;

impl Histogram {
    pub(super) fn observe(&self, bounds: &[u64], microseconds: u64) {
        let bucket = bounds.partition_point(|bound| *bound < microseconds);
        self.buckets[bucket].add(1);
        self.sum.add(microseconds);
    }

    /// The buckets, then the sum, for a process that replaces this one.
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.buckets.iter().chain([&self.sum]).map(Count::get).collect()
    }

    /// Adds those of another process.
    pub(super) fn restore(&self, numbers: &[u64]) {
        self.buckets.iter().chain([&self.sum]).zip(numbers).for_each(|(count, number)| count.add(*number));
    }

    pub(super) fn add_to(&self, total: &mut Summed) {
        for (sum, bucket) in total.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
        total.sum += self.sum.get();
    }
}

/// A histogram over all workers.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Summed {
    pub(super) buckets: [u64; MAX_BOUNDS + 1],
    pub(super) sum: u64,
}

/// All series of this node.
pub(super) struct Registry {
    /// Separates the registries of one process.
    number: u64,
    announce: Sender<Arc<Series>>,
    collector: Mutex<Collector>,
}

struct Collector {
    announced: Receiver<Arc<Series>>,
    known: Vec<Known>,
}

impl Collector {
    fn take_announced(&mut self) {
        let announced = self.announced.try_iter().map(|series| Known { series, was_missing: false });
        self.known.extend(announced);
    }
}

struct Known {
    series: Arc<Series>,
    /// The last scrape did not find its route, service or consumer.
    was_missing: bool,
}

impl Default for Registry {
    fn default() -> Self {
        static REGISTRIES: AtomicU64 = AtomicU64::new(0);
        let (announce, announced) = channel();
        let collector = Mutex::new(Collector { announced, known: Vec::new() });
        Self { number: REGISTRIES.fetch_add(1, Relaxed), announce, collector }
    }
}

/// The series of sessions. They are counted like requests and exported under other names.
#[derive(Default)]
pub(super) struct Sessions(pub(super) Registry);

type OwnSeries = HashMap<(u64, Key), Arc<Series>, foldhash::fast::RandomState>;

thread_local! {
    static OWN: RefCell<OwnSeries> = RefCell::default();
}

impl Registry {
    /// Calls `use_it` with this worker's series for the key.
    pub(super) fn with<T>(&self, key: Key, use_it: impl FnOnce(&Series) -> T) -> T {
        OWN.with_borrow_mut(|own| {
            if let Some(series) = own.get(&(self.number, key)).filter(|series| !series.retired.load(Relaxed))
            {
                return use_it(series);
            }
            own.retain(|_, series| !series.retired.load(Relaxed));
            let series = Arc::new(Series::new(key));
            // The collector is dropped together with this end of the channel, so it still exists.
            let _ = self.announce.send(series.clone());
            let result = use_it(&series);
            own.insert((self.number, key), series);
            result
        })
    }

    /// Adds a series that no worker counts in.
    pub(super) fn add(&self, series: Arc<Series>) {
        // As above.
        let _ = self.announce.send(series);
    }

    /// All series, whatever they count.
    pub(super) fn all(&self) -> Vec<Arc<Series>> {
        let mut collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner);
        collector.take_announced();
        collector.known.iter().map(|known| known.series.clone()).collect()
    }

    /// The series of entities that exist, as long as a configuration of the plugin is enabled. Series that were missing at
    /// the last scrape, too, are dropped.
    pub(super) fn collect(&self, document: &Document) -> Vec<Arc<Series>> {
        let (live, is_enabled) = (Live::of(document), configurations(document).any(|plugin| plugin.enabled));
        let mut collector = self.collector.lock().unwrap_or_else(PoisonError::into_inner);
        collector.take_announced();
        collector.known.retain_mut(|known| {
            let missing = !is_enabled || !live.has(&known.series.key);
            let given_up = missing && std::mem::replace(&mut known.was_missing, missing);
            known.was_missing = missing;
            known.series.retired.store(given_up, Relaxed);
            !given_up
        });
        let present = collector.known.iter().filter(|known| !known.was_missing);
        present.map(|known| known.series.clone()).collect()
    }
}

/// The configurations of this plugin.
pub(super) fn configurations(document: &Document) -> impl Iterator<Item = &Arc<entity::Plugin>> {
    document.plugins.iter().filter(|plugin| plugin.name == Prometheus::NAME)
}

/// The entities of a document that keys name.
struct Live {
    routes: HashSet<(Option<Uuid>, Uuid)>,
    consumers: HashSet<Uuid>,
}

impl Live {
    fn of(document: &Document) -> Self {
        Self {
            routes: document.routes.iter().map(|route| (route.service, route.id)).collect(),
            consumers: document.consumers.iter().map(|consumer| consumer.id).collect(),
        }
    }

    fn has(&self, key: &Key) -> bool {
        self.routes.contains(&(key.service, key.route))
            && key.consumer.is_none_or(|consumer| self.consumers.contains(&consumer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn statuses_are_counted_apart_however_many_there_are() {
        let statuses = Statuses::default();
        for round in 0..3 {
            for status in 200..230 {
                statuses.add(status, Source::Service);
                if round == 0 {
                    statuses.add(status, Source::Kong);
                }
            }
        }
        let mut found = Vec::new();
        statuses.for_each(|status, source, count| found.push((status, source == Source::Kong, count)));
        found.sort_unstable();
        let expected: Vec<_> =
            (200..230).flat_map(|status| [(status, false, 3), (status, true, 1)]).collect();
        assert_eq!(found, expected);
    }

    proptest! {
        #[test]
        fn observations_lie_in_the_first_bucket_that_holds_them(values in prop::collection::vec(0u64..50, 0..20)) {
            let bounds = [5, 10, 20];
            let (histogram, mut summed) = (Histogram::default(), Summed::default());
            values.iter().for_each(|value| histogram.observe(&bounds, *value));
            histogram.add_to(&mut summed);
            let within = |low, high| values.iter().filter(|value| (low..=high).contains(*value)).count() as u64;
            prop_assert_eq!(&summed.buckets[..4], &[within(0, 5), within(6, 10), within(11, 20), within(21, 50)]);
            prop_assert_eq!(summed.sum, values.iter().sum::<u64>());
        }
    }
}
