//! One block as wrk would print it.
use crate::result::{Block, Case, Histogram};
use crate::stats;
use std::fmt::{self, Write};
use std::time::Duration;

/// The text of a block, each line ended.
pub(super) fn block(case: &Case, block: &Block) -> String {
    let mut text = String::new();
    // A String takes whatever is written to it.
    let _ = write_block(&mut text, case, block);
    text
}

fn write_block(out: &mut String, case: &Case, block: &Block) -> fmt::Result {
    writeln!(out, "Running {:.0}s test @ {}", block.measured_s.max(1.0), case.name)?;
    writeln!(out, "  {}", case.load)?;
    writeln!(out, "  Thread Stats   Avg      Stdev     Max   +/- Stdev")?;
    write_latency(out, &block.latencies.response)?;
    write_rates(out, &block.series)?;
    write_distribution(out, &block.latencies.response)?;
    let bytes = size(block.bytes as f64);
    writeln!(out, "  {} requests in {:.2}s, {bytes} read", block.answers, block.measured_s)?;
    for (class, count) in &block.errors {
        writeln!(out, "  Errors: {class} {count}")?;
    }
    if let Some(offered) = block.offered {
        writeln!(out, "Offered/sec: {offered:12.2}")?;
    }
    writeln!(out, "Requests/sec: {:11.2}", block.good as f64 / block.measured_s)?;
    writeln!(out, "Transfer/sec: {:>12}", size(block.bytes as f64 / block.measured_s))?;
    writeln!(out, "CPU/request: {:>13}", time(block.target.cpu_us / block.good.max(1) as f64 * 1e-6))
}

fn write_latency(out: &mut String, latencies: &Histogram) -> fmt::Result {
    let (mean, deviation) = (latencies.mean(), latencies.deviation());
    let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    let near =
        latencies.inner().count_between(nanos(mean.saturating_sub(deviation)), nanos(mean + deviation));
    let share = near as f64 / latencies.count().max(1) as f64;
    let of = |duration: Duration| time(duration.as_secs_f64());
    write_row(out, "Latency", [of(mean), of(deviation), of(latencies.max())], share)
}

/// Answers per second, from those in each tenth of a second.
fn write_rates(out: &mut String, series: &[u64]) -> fmt::Result {
    let rates: Vec<f64> = series.iter().map(|answers| *answers as f64 * 10.0).collect();
    let Some(mean) = stats::mean(&rates) else { return Ok(()) };
    let squares: Vec<f64> = rates.iter().map(|rate| (rate - mean).powi(2)).collect();
    let deviation = stats::mean(&squares).unwrap_or(0.0).sqrt();
    let near = rates.iter().filter(|rate| (**rate - mean).abs() <= deviation).count();
    let highest = rates.iter().copied().fold(0.0, f64::max);
    let share = near as f64 / rates.len() as f64;
    write_row(out, "Req/Sec", [thousands(mean), thousands(deviation), thousands(highest)], share)
}

fn write_row(
    out: &mut String,
    name: &str,
    [mean, deviation, longest]: [String; 3],
    share: f64,
) -> fmt::Result {
    writeln!(out, "    {name} {mean:>10} {deviation:>9} {longest:>8} {:>8.2}%", share * 100.0)
}

fn write_distribution(out: &mut String, latencies: &Histogram) -> fmt::Result {
    writeln!(out, "  Latency Distribution")?;
    for percent in [50.0, 75.0, 90.0, 99.0, 99.9] {
        if let Some(duration) = latencies.quantile(percent / 100.0) {
            writeln!(out, "{:>7} {:>9}", format!("{percent}%"), time(duration.as_secs_f64()))?;
        }
    }
    Ok(())
}

/// Such as `318.00us`, `3.53ms` or `1.20s`.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.2}us", s * 1e6),
        s if s < 1.0 => format!("{:.2}ms", s * 1e3),
        s => format!("{s:.2}s"),
    }
}

/// Such as `228.96MB`, of 1024 each.
fn size(bytes: f64) -> String {
    scaled(bytes, 1024.0, ["B", "KB", "MB", "GB"])
}

/// Such as `6.42k`.
fn thousands(number: f64) -> String {
    scaled(number, 1000.0, ["", "k", "M", "G"])
}

fn scaled(mut number: f64, step: f64, units: [&str; 4]) -> String {
    let mut index = 0;
    while number >= step && index + 1 < units.len() {
        number /= step;
        index += 1;
    }
    format!("{number:.2}{}", units[index])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        assert_eq!(time(0.000_318), "318.00us");
        assert_eq!(time(0.00353), "3.53ms");
        assert_eq!(time(1.2), "1.20s");
        assert_eq!(size(512.0), "512.00B");
        assert_eq!(size(228.96 * 1024.0 * 1024.0), "228.96MB");
        assert_eq!(thousands(6420.0), "6.42k");
    }
}
