//! Metrics that plugins count, which `/metrics` shows beside those of the node. They survive reloads.

mod declaration;
#[cfg(test)]
mod tests;
mod text;

use crate::build::BuildContext;
use crate::retained::Retained;
use declaration::{Declaration, Kind};
use indexmap::{Equivalent, IndexMap};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};

/// How many series one metric has at most. All others are counted in one series whose labels are all [`OTHER`], because
/// labels that clients choose must not take all memory.
const MAX_SERIES: usize = 10_000;
/// How many bytes the labels of a series have at most; longer ones are counted with the others.
const MAX_LABELS_LEN: usize = 1024;
/// The value of each label of the series that counts what has no series of its own.
const OTHER: &str = "other";

/// The metrics of a node's plugins.
#[derive(Default)]
pub struct Metrics(Mutex<BTreeMap<String, Arc<Family>>>);

struct Family {
    declaration: Declaration,
    series: RwLock<IndexMap<Vec<String>, Arc<Series>, foldhash::fast::RandomState>>,
    /// Counts what has no series of its own.
    other: OnceLock<Arc<Series>>,
    is_full: AtomicBool,
}

struct Series {
    /// A number, as its bits.
    value: AtomicU64,
    /// Of a histogram, how many values each bucket has; the last one has no bound.
    buckets: Vec<AtomicU64>,
}

/// A metric of a plugin: one number for each combination of the values of its labels. Clones are the same.
#[derive(Clone)]
pub struct Metric {
    family: Arc<Family>,
}

/// The number of one combination of labels. Keep it where the labels are known, because looking it up takes a shared lock.
#[derive(Clone)]
pub struct Sample {
    family: Arc<Family>,
    series: Arc<Series>,
}

impl Retained {
    /// A number that goes up, as [`BuildContext::counter`] has it, but of the node rather than of a plugin: its name may begin as
    /// those of the gateway do.
    ///
    /// # Errors
    /// As there.
    pub fn node_counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<Metric, String> {
        self.get::<Metrics>().metric(Declaration::of_node(Kind::Counter, name, help, labels, &[])?)
    }
}

impl BuildContext<'_> {
    /// A number that only grows. Its name ends in `_total` by convention. The same name and labels are the same metric.
    ///
    /// # Errors
    /// A name or a label that Prometheus does not allow, or that is taken.
    pub fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<Metric, String> {
        self.retained.get::<Metrics>().metric(Declaration::new(Kind::Counter, name, help, labels, &[])?)
    }

    /// A number that goes up and down.
    ///
    /// # Errors
    /// As for a [`counter`](Self::counter).
    pub fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<Metric, String> {
        self.retained.get::<Metrics>().metric(Declaration::new(Kind::Gauge, name, help, labels, &[])?)
    }

    /// How many values were up to each of these bounds, which grow.
    ///
    /// # Errors
    /// As for a [`counter`](Self::counter), or bounds that do not grow.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Result<Metric, String> {
        self.retained.get::<Metrics>().metric(Declaration::new(Kind::Histogram, name, help, labels, bounds)?)
    }
}

impl Metrics {
    fn metric(&self, declaration: Declaration) -> Result<Metric, String> {
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let name = &declaration.name;
        if let Some(known) = families.get(name) {
            return match known.declaration.is_same(&declaration) {
                true => Ok(Metric { family: known.clone() }),
                false => Err(format!(
                    "the metric {name} exists with another kind, other labels or bounds: rename one"
                )),
            };
        }
        if let Some(other) = families.values().find(|other| other.declaration.overlaps(&declaration)) {
            let other = &other.declaration.name;
            return Err(format!("the metrics {name} and {other} have samples of the same name: rename one"));
        }
        let name = name.clone();
        let family = Arc::new(Family::new(declaration));
        families.insert(name, family.clone());
        Ok(Metric { family })
    }

    /// Appends them as text, as Prometheus reads it.
    pub fn write(&self, out: &mut String) {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        families.values().for_each(|family| text::write(family, out));
    }
}

impl Family {
    fn new(declaration: Declaration) -> Self {
        let (series, other, is_full) = (RwLock::default(), OnceLock::new(), AtomicBool::new(false));
        Self { declaration, series, other, is_full }
    }

    /// The series of these values of all labels. No lock is exclusive but where a series is made.
    fn series(&self, values: &[&str]) -> Arc<Series> {
        let known = self.series.read().unwrap_or_else(PoisonError::into_inner).get(&Values(values)).cloned();
        known.unwrap_or_else(|| self.make(values))
    }

    fn make(&self, values: &[&str]) -> Arc<Series> {
        let is_other = !values.is_empty() && values.iter().all(|value| *value == OTHER);
        let is_too_long = values.iter().map(|value| value.len()).sum::<usize>() > MAX_LABELS_LEN;
        if is_other || is_too_long || self.is_full.load(Relaxed) {
            return self.other();
        }
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        if series.len() < MAX_SERIES || series.contains_key(&Values(values)) {
            let key = values.iter().map(|value| (*value).to_owned()).collect();
            return series.entry(key).or_insert_with(|| self.new_series()).clone();
        }
        drop(series);
        if !self.is_full.swap(true, Relaxed) {
            tracing::warn!(
                metric = self.declaration.name,
                "a plugin's metric has {MAX_SERIES} series, and counts all others as `{OTHER}`: use labels with fewer values"
            );
        }
        self.other()
    }

    fn other(&self) -> Arc<Series> {
        self.other.get_or_init(|| self.new_series()).clone()
    }

    fn new_series(&self) -> Arc<Series> {
        let Declaration { kind, bounds, .. } = &self.declaration;
        let buckets = if *kind == Kind::Histogram { bounds.len() + 1 } else { 0 };
        let buckets = (0..buckets).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Series { value: AtomicU64::new(0f64.to_bits()), buckets })
    }
}

/// The values of a series' labels, as they are looked up.
struct Values<'v>(&'v [&'v str]);

impl Hash for Values<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Equivalent<Vec<String>> for Values<'_> {
    fn equivalent(&self, key: &Vec<String>) -> bool {
        self.0 == key.as_slice()
    }
}

impl Metric {
    /// The number for these values of the labels, in the order of the labels. Missing values are empty.
    pub fn with(&self, values: &[&str]) -> Sample {
        let labels = self.family.declaration.labels.len();
        if values.len() == labels {
            return Sample { family: self.family.clone(), series: self.family.series(values) };
        }
        let mut values = values.to_vec();
        values.resize(labels, "");
        Sample { family: self.family.clone(), series: self.family.series(&values) }
    }
}

impl Sample {
    /// Adds to the number; of a histogram, observes the value. What is not finite is ignored, and so is what is negative
    /// for a counter.
    pub fn add(&self, more: f64) {
        let Declaration { kind, bounds, .. } = &self.family.declaration;
        if !more.is_finite() || *kind == Kind::Counter && more < 0.0 {
            return;
        }
        let added = |bits: u64| Some((f64::from_bits(bits) + more).to_bits());
        let _ = self.series.value.fetch_update(Relaxed, Relaxed, added);
        let bucket = bounds.partition_point(|bound| *bound < more);
        if let Some(bucket) = self.series.buckets.get(bucket) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// Sets the number of a gauge. What is not finite is ignored.
    pub fn set(&self, value: f64) {
        if self.family.declaration.kind == Kind::Gauge && value.is_finite() {
            self.series.value.store(value.to_bits(), Relaxed);
        }
    }

    /// The number; of a histogram, the sum.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.series.value.load(Relaxed))
    }
}
