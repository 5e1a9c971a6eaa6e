//! A load's outcome as wrk prints it.
use super::{Outcome, Plan};
use crate::result::{Block, Case, Histogram, Latencies};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

/// The quantiles that wrk prints.
const QUANTILES: [f64; 4] = [0.5, 0.75, 0.9, 0.99];

/// What the text needs to know.
#[derive(Clone, Debug)]
pub struct Summary<'a> {
    /// What was asked.
    pub url: &'a str,
    /// Threads and connections, in words.
    pub load: String,
    /// Threads over which the rate is spread.
    pub threads: usize,
    /// The length of the measured window.
    pub measured: Duration,
    /// Answers, right or wrong.
    pub answers: u64,
    /// Bytes received.
    pub bytes: u64,
    /// Answers with a status of 400 or more.
    pub refusals: u64,
    /// What went wrong, by class.
    pub errors: &'a BTreeMap<String, u64>,
    /// Response and service times, which differ in an open loop.
    pub latencies: &'a Latencies,
    /// Answers in each tenth of a second.
    pub series: &'a [u64],
    /// Requests per second that were offered, in an open loop.
    pub offered: Option<f64>,
    /// Whether the rate of answers was steady; none if unknown.
    pub steady: Option<bool>,
    /// Why the sample says nothing, if so.
    pub void: Option<&'a str>,
}

impl<'a> Summary<'a> {
    /// Of a load.
    pub fn of(url: &'a str, plan: &Plan, outcome: &'a Outcome) -> Summary<'a> {
        let threads = plan.threads.min(plan.connections);
        Summary {
            url,
            load: format!(
                "{threads} threads and {} connections{}",
                plan.connections,
                plan.protocol.in_words()
            ),
            threads,
            measured: outcome.measured,
            answers: outcome.answers,
            bytes: outcome.bytes,
            refusals: outcome.statuses.range(400..).map(|(_, count)| count).sum(),
            errors: &outcome.errors,
            latencies: &outcome.latencies,
            series: whole_tenths(&outcome.series, outcome.measured),
            offered: outcome.offered,
            steady: outcome.steady,
            void: outcome.void.as_deref(),
        }
    }

    /// Of a block of a run; its rate is that of all threads together.
    pub fn of_block(case: &'a Case, block: &'a Block) -> Summary<'a> {
        // Statuses have three digits, so that text orders them as numbers.
        let refused = block.statuses.range("400".to_owned()..);
        let measured = Duration::from_secs_f64(block.measured_s.max(0.0));
        Summary {
            url: &case.name,
            load: case.load.clone(),
            threads: 1,
            measured,
            answers: block.answers,
            bytes: block.bytes,
            refusals: refused.map(|(_, count)| count).sum(),
            errors: &block.errors,
            latencies: &block.latencies,
            series: whole_tenths(&block.series, measured),
            offered: block.offered,
            steady: block.steady,
            void: block.void.as_deref(),
        }
    }
}

/// A series without the tenth of a second that the window cut short. Of a block in slices each entry is a rate, and all
/// are kept: there are more of them than tenths.
fn whole_tenths(series: &[u64], measured: Duration) -> &[u64] {
    let whole = (measured.as_millis() / 100) as usize;
    if series.len() == whole + 1 { &series[..whole] } else { series }
}

/// The outcome in wrk's layout, so that whatever reads wrk's output reads it. What wrk does not know has lines of its
/// own.
pub fn wrk(summary: &Summary<'_>) -> String {
    let mut text = String::new();
    // Writing to memory cannot fail.
    let _ = write_all(&mut text, summary);
    text
}

fn write_all(out: &mut String, summary: &Summary<'_>) -> std::fmt::Result {
    let seconds = summary.measured.as_secs_f64();
    writeln!(out, "Running {} test @ {}", scaled(seconds.round(), 60.0, &["s", "m", "h"], 0), summary.url)?;
    writeln!(out, "  {}", summary.load)?;
    if let Some(rate) = summary.offered {
        writeln!(out, "  {rate} requests per second offered")?;
    }
    writeln!(out, "  Thread Stats   Avg      Stdev     Max   +/- Stdev")?;
    latency_row(out, summary.latencies.shown())?;
    rate_row(out, summary)?;
    distributions(out, summary)?;
    let took = time(summary.measured);
    writeln!(out, "  {} requests in {took}, {}B read", summary.answers, binary(summary.bytes as f64))?;
    errors(out, summary)?;
    if summary.steady == Some(false) {
        writeln!(out, "  Not steady: the rate of answers drifted or scattered")?;
    }
    if let Some(why) = summary.void {
        writeln!(out, "  Void: {why}")?;
    }
    let per_second = |count: u64| if seconds > 0.0 { count as f64 / seconds } else { 0.0 };
    writeln!(out, "Requests/sec: {:>9.2}", per_second(summary.answers))?;
    writeln!(out, "Transfer/sec: {:>10}B", binary(per_second(summary.bytes)))
}

fn latency_row(out: &mut String, histogram: &Histogram) -> std::fmt::Result {
    let (mean, deviation) = (histogram.mean(), histogram.deviation());
    let (low, high) = (mean.saturating_sub(deviation), mean + deviation);
    let inside = histogram.inner().count_between(low.as_nanos() as u64, high.as_nanos() as u64);
    let share = 100.0 * inside as f64 / histogram.count().max(1) as f64;
    row(out, "Latency", [time(mean), time(deviation), time(histogram.max())], share)
}

/// Requests per second and thread, over tenths of a second.
fn rate_row(out: &mut String, summary: &Summary<'_>) -> std::fmt::Result {
    if summary.series.is_empty() {
        return writeln!(out, "    Req/Sec   over time not known");
    }
    let threads = summary.threads.max(1) as f64;
    let rates: Vec<f64> = summary.series.iter().map(|n| *n as f64 * 10.0 / threads).collect();
    let n = rates.len().max(1) as f64;
    let mean = rates.iter().sum::<f64>() / n;
    let squares: f64 = rates.iter().map(|rate| (rate - mean).powi(2)).sum();
    let deviation = (squares / (n - 1.0).max(1.0)).sqrt();
    let inside = rates.iter().filter(|rate| (*rate - mean).abs() <= deviation).count();
    let max = rates.iter().copied().fold(0.0, f64::max);
    row(out, "Req/Sec", [metric(mean), metric(deviation), metric(max)], 100.0 * inside as f64 / n)
}

fn row(out: &mut String, name: &str, [mean, deviation, max]: [String; 3], share: f64) -> std::fmt::Result {
    let (mean, deviation, max) = (padded(&mean, 8), padded(&deviation, 10), padded(&max, 9));
    writeln!(out, "    {name:<10}{mean}{deviation}{max}{share:>8.2}%")
}

/// In an open loop those of both clocks, unless the generator knows one of them alone. Then that of first bytes, where it
/// was asked for.
fn distributions(out: &mut String, summary: &Summary<'_>) -> std::fmt::Result {
    let Latencies { response, service, first_byte } = summary.latencies;
    if summary.offered.is_none() {
        distribution(out, "", response)?;
    } else {
        if response.count() > 0 || service.count() == 0 {
            distribution(out, " (response, from the scheduled instant)", response)?;
        }
        if service.count() > 0 || response.count() == 0 {
            distribution(out, " (service, from the instant of sending)", service)?;
        }
    }
    match first_byte.is_empty() {
        true => Ok(()),
        false => {
            distribution(out, " (to the first byte of the body, from the instant of sending)", first_byte)
        }
    }
}

fn distribution(out: &mut String, what: &str, histogram: &Histogram) -> std::fmt::Result {
    writeln!(out, "  Latency Distribution{what}")?;
    for q in QUANTILES {
        let value = histogram.quantile(q).map(time);
        let value = value.map_or_else(|| "  n too small".to_owned(), |value| padded(&value, 10));
        writeln!(out, "{:>7.0}%{value}", q * 100.0)?;
    }
    Ok(())
}

/// wrk knows four classes of socket errors; the others are counted to the one they are nearest to, and named.
fn errors(out: &mut String, summary: &Summary<'_>) -> std::fmt::Result {
    let count = |classes: &[&str]| classes.iter().filter_map(|class| summary.errors.get(*class)).sum::<u64>();
    let connect = count(&["connect", "tls"]);
    let read = count(&["read", "closed", "malformed"]);
    let (write, timeout) = (count(&["write"]), count(&["timeout", "stuck"]));
    if connect + read + write + timeout > 0 {
        writeln!(out, "  Socket errors: connect {connect}, read {read}, write {write}, timeout {timeout}")?;
    }
    if summary.refusals > 0 {
        writeln!(out, "  Non-2xx or 3xx responses: {}", summary.refusals)?;
    }
    if !summary.errors.is_empty() {
        let all: Vec<String> = summary.errors.iter().map(|(class, n)| format!("{class} {n}")).collect();
        writeln!(out, "  Errors by class: {}", all.join(", "))?;
    }
    Ok(())
}

/// Right-aligned, so that numbers stand below each other whether or not two letters of a unit follow.
fn padded(value: &str, width: usize) -> String {
    let letters = value.chars().rev().take(2).take_while(char::is_ascii_alphabetic).count();
    format!("{value:>width$}{:gap$}", "", width = width - 2 + letters, gap = 2 - letters)
}

fn time(duration: Duration) -> String {
    match duration.as_secs_f64() {
        seconds if seconds < 0.85 => scaled(seconds * 1e6, 1000.0, &["us", "ms", "s"], 2),
        seconds => scaled(seconds, 60.0, &["s", "m", "h"], 2),
    }
}

fn metric(value: f64) -> String {
    scaled(value, 1000.0, &["", "k", "M", "G", "T"], 2)
}

fn binary(value: f64) -> String {
    scaled(value, 1024.0, &["", "K", "M", "G", "T", "P"], 2)
}

/// A number in the largest unit of which it is at least 0.85, as wrk chooses.
fn scaled(mut value: f64, scale: f64, units: &[&str], digits: usize) -> String {
    let mut unit = 0;
    while value >= 0.85 * scale && unit + 1 < units.len() {
        value /= scale;
        unit += 1;
    }
    format!("{value:.digits$}{}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary<'a>(
        latencies: &'a Latencies,
        errors: &'a BTreeMap<String, u64>,
        series: &'a [u64],
    ) -> Summary<'a> {
        Summary {
            url: "http://127.0.0.1:8000/",
            load: "2 threads and 10 connections".to_owned(),
            threads: 2,
            measured: Duration::from_secs(1),
            answers: 2000,
            bytes: 3 << 20,
            refusals: 5,
            errors,
            latencies,
            series,
            offered: None,
            steady: Some(true),
            void: None,
        }
    }

    fn same(count: u64) -> Histogram {
        let mut histogram = Histogram::default();
        histogram.record_many(Duration::from_micros(250), count);
        histogram
    }

    #[test]
    fn a_clock_that_the_generator_does_not_know_is_left_out() {
        let (latencies, errors) =
            (Latencies { service: same(2000), ..Latencies::default() }, BTreeMap::new());
        let text = wrk(&Summary { offered: Some(2000.0), ..summary(&latencies, &errors, &[]) });
        assert!(text.contains("    Latency   250.05us") && text.contains("(service,"), "{text}");
        assert!(text.contains("over time not known") && !text.contains("(response,"), "{text}");
    }

    #[test]
    fn the_layout_is_that_of_wrk() {
        let latencies = Latencies { response: same(2000), ..Latencies::default() };
        let errors = BTreeMap::from([("status".to_owned(), 5), ("closed".to_owned(), 2)]);
        let text = wrk(&summary(&latencies, &errors, &[200; 10]));
        let expected = "\
Running 1s test @ http://127.0.0.1:8000/
  2 threads and 10 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   250.05us    0.00us 250.11us  100.00%
    Req/Sec     1.00k     0.00     1.00k   100.00%
  Latency Distribution
     50%  250.11us
     75%  250.11us
     90%  250.11us
     99%  250.11us
  2000 requests in 1.00s, 3.00MB read
  Socket errors: connect 0, read 2, write 0, timeout 0
  Non-2xx or 3xx responses: 5
  Errors by class: closed 2, status 5
Requests/sec:   2000.00
Transfer/sec:      3.00MB
";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_quantile_of_too_few_is_not_printed() {
        let latencies = Latencies { response: same(150), ..Latencies::default() };
        let text = wrk(&summary(&latencies, &BTreeMap::new(), &[]));
        assert!(text.contains("     90%  25") && text.contains("     99%  n too small\n"), "{text}");
    }

    #[test]
    fn a_tenth_that_was_cut_short_is_no_rate() {
        let measured = Duration::from_millis(250);
        assert_eq!(whole_tenths(&[100, 100, 40], measured), [100, 100]);
        assert_eq!(whole_tenths(&[100; 10], measured), [100; 10]);
    }

    #[test]
    fn units_are_chosen_as_wrk_does() {
        assert_eq!(time(Duration::from_micros(849)), "849.00us");
        assert_eq!(time(Duration::from_micros(890)), "0.89ms");
        assert_eq!(time(Duration::from_secs(30)), "30.00s");
        assert_eq!(time(Duration::from_secs(120)), "2.00m");
        assert_eq!(metric(748.0), "748.00");
        assert_eq!(metric(56_200.0), "56.20k");
        assert_eq!(binary(1.5 * 1024.0 * 1024.0), "1.50M");
        assert_eq!(padded("1.50k", 8), "  1.50k ");
    }
}
