//! A load's outcome as JSON and as an HdrHistogram log.
use super::{Outcome, Plan};
use crate::result::Histogram;
use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{IntervalLogWriterBuilder, IntervalLogWriterError, Tag};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// What `--format json` prints.
#[derive(Debug, Serialize)]
pub(crate) struct Document<'a> {
    url: &'a str,
    threads: usize,
    connections: usize,
    streams: usize,
    offered_per_s: Option<f64>,
    warm_up_s: f64,
    measured_s: f64,
    steady: Option<bool>,
    void: Option<&'a str>,
    overloaded: bool,
    answers: u64,
    good: u64,
    bytes: u64,
    requests_per_s: f64,
    bytes_per_s: f64,
    statuses: &'a BTreeMap<u16, u64>,
    errors: &'a BTreeMap<String, u64>,
    connections_opened: Option<u64>,
    generator_cpu_us: u128,
    response: Times<'a>,
    service: Times<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte: Option<Times<'a>>,
    lateness: Times<'a>,
    connect: Times<'a>,
    series: &'a [u64],
}

/// A histogram and what most want to know of it, in microseconds; quantiles of too few samples are null.
#[derive(Debug, Serialize)]
struct Times<'a> {
    count: u64,
    mean_us: f64,
    deviation_us: f64,
    max_us: f64,
    p50_us: Option<f64>,
    p75_us: Option<f64>,
    p90_us: Option<f64>,
    p95_us: Option<f64>,
    p99_us: Option<f64>,
    p999_us: Option<f64>,
    histogram: &'a Histogram,
}

impl<'a> Document<'a> {
    pub(crate) fn new(url: &'a str, plan: &Plan, outcome: &'a Outcome) -> Document<'a> {
        let measured_s = outcome.measured.as_secs_f64();
        let per_second = |count: u64| if measured_s > 0.0 { count as f64 / measured_s } else { 0.0 };
        Document {
            url,
            threads: plan.threads.min(plan.connections),
            connections: plan.connections,
            streams: plan.protocol.streams(),
            offered_per_s: outcome.offered,
            warm_up_s: outcome.warm_up.as_secs_f64(),
            measured_s,
            steady: outcome.steady,
            void: outcome.void.as_deref(),
            overloaded: outcome.overloaded,
            answers: outcome.answers,
            good: outcome.good,
            bytes: outcome.bytes,
            requests_per_s: per_second(outcome.answers),
            bytes_per_s: per_second(outcome.bytes),
            statuses: &outcome.statuses,
            errors: &outcome.errors,
            connections_opened: outcome.connections_opened,
            generator_cpu_us: outcome.generator_cpu.as_micros(),
            response: Times::of(&outcome.latencies.response),
            service: Times::of(&outcome.latencies.service),
            first_byte: Some(&outcome.latencies.first_byte).filter(|them| !them.is_empty()).map(Times::of),
            lateness: Times::of(&outcome.lateness),
            connect: Times::of(&outcome.connect),
            series: &outcome.series,
        }
    }
}

impl<'a> Times<'a> {
    fn of(histogram: &'a Histogram) -> Times<'a> {
        let micros = |duration: Duration| duration.as_nanos() as f64 / 1e3;
        let quantile = |q: f64| histogram.quantile(q).map(micros);
        Times {
            count: histogram.count(),
            mean_us: micros(histogram.mean()),
            deviation_us: micros(histogram.deviation()),
            max_us: micros(histogram.max()),
            p50_us: quantile(0.5),
            p75_us: quantile(0.75),
            p90_us: quantile(0.9),
            p95_us: quantile(0.95),
            p99_us: quantile(0.99),
            p999_us: quantile(0.999),
            histogram,
        }
    }
}

/// Writes an HdrHistogram interval log with the response times, and the service times beside them.
pub(crate) fn write_log(out: &mut impl Write, outcome: &Outcome, ended: SystemTime) -> io::Result<()> {
    let began = ended.checked_sub(outcome.measured).unwrap_or(UNIX_EPOCH);
    let at = began.duration_since(UNIX_EPOCH).unwrap_or_default();
    writeln!(out, "#[Histogram log format version 1.3]")?;
    writeln!(out, "#[Nanoseconds; Interval_Max in milliseconds]")?;
    writeln!(out, "#[StartTime: {:.3} (seconds since epoch)]", at.as_secs_f64())?;
    writeln!(
        out,
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
    )?;
    let mut serializer = V2DeflateSerializer::new();
    let mut builder = IntervalLogWriterBuilder::new();
    let mut lines = Vec::new();
    let mut log = builder.with_max_value_divisor(1e6).begin_log_with(&mut lines, &mut serializer)?;
    let latencies = &outcome.latencies;
    for (tag, histogram) in [("response", &latencies.response), ("service", &latencies.service)] {
        log.write_histogram(histogram.inner(), at, outcome.measured, Tag::new(tag)).map_err(|error| {
            match error {
                IntervalLogWriterError::IoError(error) => error,
                IntervalLogWriterError::SerializeError(error) => io::Error::other(format!("{error:?}")),
            }
        })?;
    }
    out.write_all(&lines)
}
