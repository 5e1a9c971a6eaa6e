//! Metrics that plugins count, which `/metrics` shows beside those of the node. They outlive configurations.

use crate::build::BuildContext;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

/// How many series one metric has at most. What there is no room for is counted in one series whose labels are all `other`:
/// labels that clients choose must not take all memory.
const MAX_SERIES: usize = 10_000;

/// What a metric says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// The metrics of a node's plugins.
#[derive(Default)]
pub struct Metrics(Mutex<BTreeMap<String, Arc<Family>>>);

struct Family {
    help: String,
    kind: Kind,
    labels: Vec<String>,
    bounds: Vec<f64>,
    series: RwLock<BTreeMap<Vec<String>, Arc<Series>>>,
    is_full: AtomicBool,
}

struct Series {
    /// A number, as its bits.
    value: AtomicU64,
    /// Of a histogram, how many were in each bucket; the last has no bound.
    buckets: Vec<AtomicU64>,
}

/// A metric of a plugin: one number for each combination of the values of its labels. Clones are the same.
#[derive(Clone)]
pub struct Metric {
    name: String,
    family: Arc<Family>,
}

/// The number of one combination of labels. Keep it where the labels are known: to look it up takes a lock.
#[derive(Clone)]
pub struct Sample {
    family: Arc<Family>,
    series: Arc<Series>,
}

impl BuildContext<'_> {
    /// A number that only grows. The name ends in `_total`; a metric of the same name and labels is the same metric.
    pub fn counter(&self, name: &str, help: &str, labels: &[&str]) -> Result<Metric, String> {
        self.retained.get::<Metrics>().metric(name, Kind::Counter, help, labels, &[])
    }

    /// A number that goes up and down.
    pub fn gauge(&self, name: &str, help: &str, labels: &[&str]) -> Result<Metric, String> {
        self.retained.get::<Metrics>().metric(name, Kind::Gauge, help, labels, &[])
    }

    /// How often a value was up to each of these bounds, which grow.
    pub fn histogram(
        &self,
        name: &str,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Result<Metric, String> {
        self.retained.get::<Metrics>().metric(name, Kind::Histogram, help, labels, bounds)
    }
}

impl Metrics {
    fn metric(
        &self,
        name: &str,
        kind: Kind,
        help: &str,
        labels: &[&str],
        bounds: &[f64],
    ) -> Result<Metric, String> {
        for word in labels.iter().chain([&name]) {
            if !is_name(word) {
                return Err(format!("`{word}` is no name of a metric or label: use letters, digits and `_`"));
            }
        }
        let mut families = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let made = || {
            let labels = labels.iter().map(|label| (*label).to_owned()).collect();
            let (series, is_full) = (RwLock::default(), AtomicBool::new(false));
            Arc::new(Family { help: help.into(), kind, labels, bounds: bounds.into(), series, is_full })
        };
        let family = families.entry(name.to_owned()).or_insert_with(made).clone();
        if family.kind != kind || family.labels != labels || family.bounds != bounds {
            return Err(format!(
                "the metric {name} exists with another kind, other labels or bounds: rename one"
            ));
        }
        Ok(Metric { name: name.to_owned(), family })
    }

    /// Appends them as text, as Prometheus reads it.
    pub fn write(&self, out: &mut String) {
        let families = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (name, family) in &families {
            // Writing to a string cannot fail.
            let _ = family.write(name, out);
        }
    }
}

fn is_name(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

impl Metric {
    /// The number for these values of the labels, in the order of the labels. Missing values are empty.
    pub fn with(&self, values: &[&str]) -> Sample {
        let known = self.family.series.read().unwrap_or_else(PoisonError::into_inner);
        let key = |index: usize| values.get(index).copied().unwrap_or_default().to_owned();
        let key: Vec<String> = (0..self.family.labels.len()).map(key).collect();
        if let Some(series) = known.get(&key) {
            return Sample { family: self.family.clone(), series: series.clone() };
        }
        drop(known);
        Sample { family: self.family.clone(), series: self.make(key) }
    }

    fn make(&self, mut key: Vec<String>) -> Arc<Series> {
        let family = &*self.family;
        let mut series = family.series.write().unwrap_or_else(PoisonError::into_inner);
        if series.len() >= MAX_SERIES && !series.contains_key(&key) {
            if !family.is_full.swap(true, Relaxed) {
                tracing::warn!(
                    metric = self.name,
                    "a plugin's metric has {MAX_SERIES} series, and counts others together: use labels with fewer values"
                );
            }
            key = vec!["other".to_owned(); key.len()];
        }
        let made = || {
            let buckets = if family.kind == Kind::Histogram { family.bounds.len() + 1 } else { 0 };
            let buckets = (0..buckets).map(|_| AtomicU64::new(0)).collect();
            Arc::new(Series { value: AtomicU64::new(0f64.to_bits()), buckets })
        };
        series.entry(key).or_insert_with(made).clone()
    }
}

impl Sample {
    /// Adds to the number; of a histogram, observes the value.
    pub fn add(&self, more: f64) {
        let added = |bits: u64| Some((f64::from_bits(bits) + more).to_bits());
        let _ = self.series.value.fetch_update(Relaxed, Relaxed, added);
        let bucket = self.family.bounds.partition_point(|bound| *bound < more);
        if let Some(bucket) = self.series.buckets.get(bucket) {
            bucket.fetch_add(1, Relaxed);
        }
    }

    /// Sets the number of a gauge.
    pub fn set(&self, value: f64) {
        if self.family.kind == Kind::Gauge {
            self.series.value.store(value.to_bits(), Relaxed);
        }
    }

    /// The number; of a histogram, the sum.
    pub fn get(&self) -> f64 {
        f64::from_bits(self.series.value.load(Relaxed))
    }
}

impl Family {
    fn write(&self, name: &str, out: &mut String) -> std::fmt::Result {
        let kind = match self.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        writeln!(out, "# HELP {name} {}\n# TYPE {name} {kind}", self.help.replace('\n', " "))?;
        for (values, series) in &*self.series.read().unwrap_or_else(PoisonError::into_inner) {
            let labels: Vec<String> = self
                .labels
                .iter()
                .zip(values)
                .map(|(label, value)| format!("{label}={}", quoted(value)))
                .collect();
            let value = f64::from_bits(series.value.load(Relaxed));
            if self.kind == Kind::Histogram {
                self.write_histogram(name, &labels, (series, value), out)?;
            } else {
                writeln!(out, "{name}{} {value}", in_braces(&labels))?;
            }
        }
        Ok(())
    }

    fn write_histogram(
        &self,
        name: &str,
        labels: &[String],
        (series, sum): (&Series, f64),
        out: &mut String,
    ) -> std::fmt::Result {
        let mut count = 0;
        let bounds = self.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
        for (bound, bucket) in bounds.zip(&series.buckets) {
            count += bucket.load(Relaxed);
            let mut labels = labels.to_vec();
            labels.push(format!("le=\"{bound}\""));
            writeln!(out, "{name}_bucket{} {count}", in_braces(&labels))?;
        }
        let labels = in_braces(labels);
        writeln!(out, "{name}_sum{labels} {sum}\n{name}_count{labels} {count}")
    }
}

fn in_braces(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_shown_as_prometheus_reads_them() {
        let metrics = Metrics::default();
        let asked = metrics.metric("asked_total", Kind::Counter, "Questions", &["of"], &[]).unwrap();
        asked.with(&["a \"b\""]).add(2.0);
        asked.with(&["a \"b\""]).add(1.0);
        let open = metrics.metric("open", Kind::Gauge, "Open now", &[], &[]).unwrap().with(&[]);
        open.set(5.0);
        open.add(-1.5);
        assert_eq!(open.get(), 3.5);
        let took = metrics.metric("took", Kind::Histogram, "Seconds", &[], &[0.1, 1.0]).unwrap().with(&[]);
        [0.05, 0.1, 0.5, 3.0].into_iter().for_each(|seconds| took.add(seconds));
        let mut text = String::new();
        metrics.write(&mut text);
        let expected = "# HELP asked_total Questions\n# TYPE asked_total counter\nasked_total{of=\"a \\\"b\\\"\"} 3\n\
            # HELP open Open now\n# TYPE open gauge\nopen 3.5\n\
            # HELP took Seconds\n# TYPE took histogram\ntook_bucket{le=\"0.1\"} 2\ntook_bucket{le=\"1\"} 3\n\
            took_bucket{le=\"+Inf\"} 4\ntook_sum 3.65\ntook_count 4\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_name_is_one_metric_and_series_have_an_end() {
        let metrics = Metrics::default();
        let make = |kind, labels: &[&str]| metrics.metric("n", kind, "", labels, &[]);
        let first = make(Kind::Counter, &["a"]).unwrap();
        first.with(&["x"]).add(1.0);
        assert_eq!(make(Kind::Counter, &["a"]).unwrap().with(&["x"]).get(), 1.0);
        assert!(make(Kind::Gauge, &["a"]).is_err() && make(Kind::Counter, &[]).is_err());
        assert!(metrics.metric("a-b", Kind::Counter, "", &[], &[]).is_err());
        (0..MAX_SERIES + 5).for_each(|n| first.with(&[&n.to_string()]).add(1.0));
        assert_eq!(first.with(&["other"]).get(), 6.0);
    }
}
