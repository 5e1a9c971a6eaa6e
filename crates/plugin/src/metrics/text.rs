//! Metrics as Prometheus reads them (exposition format 0.0.4).

use super::declaration::Kind;
use super::{Family, OTHER, Series};
use std::fmt::Write;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, PoisonError};

/// Appends a metric with all its series, in the order of their labels.
pub(super) fn write(family: &Family, out: &mut String) {
    let (name, kind) = (&family.declaration.name, family.declaration.kind.as_str());
    let help = family.declaration.help.replace('\\', "\\\\").replace('\n', "\\n");
    // Writing to a string cannot fail.
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}");
    for (values, series) in sorted_series(family) {
        let labels = family.declaration.labels.iter().zip(values);
        let labels: Vec<_> = labels.map(|(label, value)| format!("{label}={}", quoted(&value))).collect();
        let _ = write_series(family, &labels, &series, out);
    }
}

/// A copy of the list, because workers that make a series wait for as long as it is locked.
fn sorted_series(family: &Family) -> Vec<(Vec<String>, Arc<Series>)> {
    let series = family.series.read().unwrap_or_else(PoisonError::into_inner);
    let mut sorted: Vec<_> = series.iter().map(|(values, series)| (values.clone(), series.clone())).collect();
    drop(series);
    let others = vec![OTHER.to_owned(); family.declaration.labels.len()];
    sorted.extend(family.other.get().map(|other| (others, other.clone())));
    sorted.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
    sorted
}

fn write_series(family: &Family, labels: &[String], series: &Series, out: &mut String) -> std::fmt::Result {
    let name = &family.declaration.name;
    let value = f64::from_bits(series.value.load(Relaxed));
    if family.declaration.kind != Kind::Histogram {
        return writeln!(out, "{name}{} {value}", in_braces(labels));
    }
    let mut count = 0;
    let bounds = family.declaration.bounds.iter().map(f64::to_string).chain(["+Inf".to_owned()]);
    for (bound, bucket) in bounds.zip(&series.buckets) {
        count += bucket.load(Relaxed);
        let mut labels = labels.to_vec();
        labels.push(format!("le=\"{bound}\""));
        writeln!(out, "{name}_bucket{} {count}", in_braces(&labels))?;
    }
    let labels = in_braces(labels);
    writeln!(out, "{name}_sum{labels} {value}\n{name}_count{labels} {count}")
}

fn in_braces(labels: &[String]) -> String {
    if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) }
}

fn quoted(value: &str) -> String {
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}
