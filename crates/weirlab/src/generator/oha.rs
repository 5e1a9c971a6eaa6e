//! oha: HTTP/1.1 and HTTP/2, a closed loop or a rate. It prints quantiles as JSON.
use super::process::Ended;
use super::{GeneratorError, Job, Kind, Reading, quantiles};
use crate::load::{ListedRequest, Pace, Protocol};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const URLS: &str = "urls";

/// What stands for a request that the end of the window cut off, which is no error.
const DEADLINE: &str = "aborted due to deadline";

pub(super) fn command(job: &Job<'_>, program: &Path) -> Result<Command, GeneratorError> {
    job.check(Kind::Oha, true)?;
    let plan = job.plan;
    let common = job.common(Kind::Oha)?;
    let mut command = Command::new(program);
    command.args(["--no-tui", "--output-format", "json", "--insecure", "--redirect", "0"]);
    command.args([
        "-z",
        &format!("{}ms", plan.duration.as_millis().max(1)),
        "-c",
        &plan.connections.to_string(),
    ]);
    command.args(["-t", &format!("{}ms", plan.timeout.as_millis()), "-m", &common.method]);
    match plan.protocol {
        Protocol::Http2 { streams } => command.args(["--http2", "-p", &streams.to_string()]),
        _ => command.args(["--http-version", "1.1"]),
    };
    if let Pace::Constant(rate) = plan.pace {
        // It takes whole numbers; --latency-correction counts from the scheduled instant.
        command.args(["-q", &format!("{rate:.0}"), "--latency-correction"]);
    }
    if !plan.keep_alive {
        command.arg("--disable-keepalive");
    }
    requests(job, common, &mut command).map_err(|error| GeneratorError::System(Kind::Oha.name(), error))?;
    command.env("TOKIO_WORKER_THREADS", plan.threads.to_string());
    Ok(command)
}

/// What it sends: options for headers and body, and the URL or a file of URLs.
fn requests(job: &Job<'_>, common: &ListedRequest, command: &mut Command) -> io::Result<()> {
    for (name, value) in &common.headers {
        command.args(["-H", &format!("{name}: {value}")]);
    }
    if !common.body.is_empty() {
        command.args(["-d", &common.body]);
    }
    if job.requests.len() == 1 {
        command.arg(job.url(&common.path));
    } else {
        let urls: Vec<String> = job.requests.iter().map(|request| job.url(&request.path)).collect();
        fs::write(job.folder.join(URLS), urls.join("\n"))?;
        command.args(["--urls-from-file", URLS]);
    }
    Ok(())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Printed {
    summary: Totals,
    /// A name such as `p99.9`, and seconds; null without an answer.
    latency_percentiles: BTreeMap<String, Option<f64>>,
    status_code_distribution: BTreeMap<u16, u64>,
    error_distribution: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Totals {
    total: f64,
    slowest: Option<f64>,
    total_data: u64,
}

pub(super) fn read(job: &Job<'_>, ended: &Ended) -> Result<Reading, GeneratorError> {
    let failed = |message| GeneratorError::Failed { name: Kind::Oha.name(), message };
    let printed: Printed = serde_json::from_str(&ended.stdout)
        .map_err(|error| failed(format!("{error}: {}", ended.last_words())))?;
    let mut reading = reading(printed, &job.requests[0].expect.status);
    if job.plan.pace == Pace::Closed {
        reading.service = reading.response.clone();
    }
    Ok(reading)
}

fn reading(printed: Printed, expected: &[u16]) -> Reading {
    let right = |status: &u16| match expected {
        [] => (200..400).contains(status),
        expected => expected.contains(status),
    };
    let statuses = printed.status_code_distribution;
    let answers: u64 = statuses.values().sum();
    let good = statuses.iter().filter(|(status, _)| right(status)).map(|(_, count)| count).sum();
    let broken = printed.error_distribution.iter().filter(|(what, _)| *what != DEADLINE);
    let broken: u64 = broken.map(|(_, count)| count).sum();
    let errors = [("status", answers - good), ("read", broken)].into_iter().filter(|(_, count)| *count > 0);
    let mut shares: Vec<(f64, Duration)> = printed.latency_percentiles.iter().filter_map(share).collect();
    shares.extend(printed.summary.slowest.map(|slowest| (1.0, Duration::from_secs_f64(slowest))));
    shares.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    Reading {
        measured: Duration::from_secs_f64(printed.summary.total),
        answers,
        good,
        bytes: printed.summary.total_data,
        errors: errors.map(|(class, count)| (class.to_owned(), count)).collect(),
        response: quantiles::histogram(&shares, answers),
        statuses,
        ..Reading::default()
    }
}

/// Such as 0.999 and its latency, of `p99.9`.
fn share((name, seconds): (&String, &Option<f64>)) -> Option<(f64, Duration)> {
    let percent: f64 = name.strip_prefix('p')?.parse().ok()?;
    Some((percent / 100.0, Duration::try_from_secs_f64((*seconds)?).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = r#"{
      "summary": {"successRate": 1.0, "total": 2.0, "slowest": 0.08, "fastest": 0.001, "average": 0.01,
        "requestsPerSec": 1000.0, "totalData": 20480, "sizePerRequest": 10, "sizePerSec": 10240.0},
      "latencyPercentiles": {"p10": 0.002, "p50": 0.01, "p90": 0.02, "p99": 0.04, "p99.9": 0.06, "p99.99": null},
      "statusCodeDistribution": {"200": 1990, "503": 10},
      "errorDistribution": {"aborted due to deadline": 4, "connection closed before message completed": 2}}"#;

    #[test]
    fn its_json_is_read() {
        let reading = reading(serde_json::from_str(PRINTED).unwrap(), &[]);
        assert_eq!((reading.answers, reading.good, reading.bytes), (2000, 1990, 20480));
        assert_eq!((reading.errors["status"], reading.errors["read"], reading.errors.len()), (10, 2, 2));
        assert_eq!(reading.response.quantile(0.5).unwrap().as_micros() / 100, 100);
        assert_eq!(reading.response.quantile(0.99).unwrap().as_micros() / 100, 400);
        assert_eq!((reading.response.count(), reading.measured.as_secs()), (2000, 2));
    }
}
