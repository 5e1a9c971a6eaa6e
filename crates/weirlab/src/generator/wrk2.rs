//! wrk2: a constant rate over HTTP/1.1, with response times from the scheduled instant. It prints them as a spectrum of
//! quantiles, and leaves the ten seconds of its calibration out of it.
use super::process::Ended;
use super::{GeneratorError, Job, Kind, Reading, wrk};
use crate::load::{Pace, Protocol};
use crate::result::Histogram;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The calibration, and as much again that is measured.
const SHORTEST: Duration = Duration::from_secs(20);

pub(super) fn command(job: &Job<'_>, program: &Path) -> Result<Command, GeneratorError> {
    job.check(Kind::Wrk2, true)?;
    job.expects_success(Kind::Wrk2)?;
    let Pace::Constant(rate) = job.plan.pace else {
        return Err(GeneratorError::Unsupported {
            name: Kind::Wrk2.name(),
            what: "requests without a rate".to_owned(),
        });
    };
    if job.plan.protocol != Protocol::Http1 {
        job.refuse(Kind::Wrk2, "HTTP/2")?;
    }
    if job.plan.duration < SHORTEST {
        job.refuse(
            Kind::Wrk2,
            "a window of less than 20 s, because it calibrates for 10 s (--duration 20s is one)",
        )?;
    }
    let mut command = wrk::arguments(job, program, Kind::Wrk2, "")?;
    command.args(["-R", &format!("{rate:.0}")]);
    Ok(command)
}

pub(super) fn read(_: &Job<'_>, ended: &Ended) -> Result<Reading, GeneratorError> {
    let failed = || GeneratorError::Failed { name: Kind::Wrk2.name(), message: ended.last_words() };
    parse(&ended.stdout).ok_or_else(failed)
}

fn parse(text: &str) -> Option<Reading> {
    let mut reading = Reading { response: spectrum(text), ..Reading::default() };
    let totals = text.lines().find(|line| line.contains(" requests in "))?;
    reading.answers = totals.split_whitespace().next()?.parse().ok()?;
    let rate: f64 = text.lines().find_map(|line| line.strip_prefix("Requests/sec:"))?.trim().parse().ok()?;
    reading.measured = Duration::try_from_secs_f64(reading.answers as f64 / rate).ok()?;
    for line in text.lines().map(str::trim) {
        if let Some(refused) = line.strip_prefix("Non-2xx or 3xx responses: ") {
            reading.errors.insert("status".to_owned(), refused.parse().ok()?);
        } else if let Some(classes) = line.strip_prefix("Socket errors: ") {
            for (class, count) in classes.split(", ").filter_map(|one| one.split_once(' ')) {
                let count: u64 = count.parse().ok()?;
                if count > 0 {
                    reading.errors.insert(class.to_owned(), count);
                }
            }
        }
    }
    let refused = reading.errors.get("status").copied().unwrap_or(0);
    reading.good = reading.answers.saturating_sub(refused);
    Some(reading)
}

/// The rows of the spectrum: a value in milliseconds, its share, and how many were at most that.
fn spectrum(text: &str) -> Histogram {
    let mut histogram = Histogram::default();
    let mut before = 0;
    for line in text.lines().skip_while(|line| !line.contains("Detailed Percentile spectrum")) {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [value, _, total, _] = fields[..] else { continue };
        if let (Ok(ms), Ok(total)) = (value.parse::<f64>(), total.parse::<u64>()) {
            histogram.record_many(Duration::from_secs_f64(ms / 1e3), total.saturating_sub(before));
            before = total;
        }
    }
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRINTED: &str = "\
Running 30s test @ http://127.0.0.1:8000/
  2 threads and 10 connections
  Detailed Percentile spectrum:
       Value   Percentile   TotalCount 1/(1-Percentile)

       0.500     0.000000          100         1.00
       1.000     0.500000          500         2.00
       2.000     1.000000         1000          inf
#[Mean    =        1.200, StdDeviation   =        0.400]
  3000 requests in 30.00s, 1.00MB read
  Socket errors: connect 0, read 3, write 0, timeout 0
  Non-2xx or 3xx responses: 5
Requests/sec:    100.00
Transfer/sec:     33.00KB
";

    #[test]
    fn its_spectrum_is_a_histogram() {
        let reading = parse(PRINTED).unwrap();
        assert_eq!((reading.answers, reading.good, reading.measured.as_secs()), (3000, 2995, 30));
        assert_eq!((reading.errors["read"], reading.errors["status"], reading.errors.len()), (3, 5, 2));
        assert_eq!((reading.response.count(), reading.response.max().as_micros()), (1000, 2000));
        assert_eq!(reading.response.quantile(0.5).unwrap().as_micros() / 10, 100);
        assert!(parse("unable to connect").is_none());
    }
}
