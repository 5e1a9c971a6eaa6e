//! h2load: HTTP/1.1 and HTTP/2, a closed loop or a rate. It writes a line for each answer.
use super::process::Ended;
use super::{GeneratorError, Job, Kind, Reading};
use crate::load::{ListedRequest, Pace, Protocol};
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const LOG: &str = "log";
const PATHS: &str = "paths";

pub(super) fn command(job: &Job<'_>, program: &Path) -> Result<Command, GeneratorError> {
    job.check(Kind::H2load, true)?;
    let plan = job.plan;
    let common = job.common(Kind::H2load)?;
    if !plan.keep_alive {
        job.refuse(Kind::H2load, "each request over a connection of its own")?;
    }
    let mut command = Command::new(program);
    let threads = plan.threads.min(plan.connections).to_string();
    command.args(["-D", &job.seconds().to_string(), "-c", &plan.connections.to_string(), "-t", &threads]);
    command.args(["-m", &plan.protocol.streams().to_string(), "--log-file", LOG]);
    if plan.protocol == Protocol::Http1 {
        command.arg("--h1");
    }
    if let Pace::Constant(rate) = plan.pace {
        command.args(["--rps", &format!("{}", rate / plan.connections as f64)]);
    }
    requests(job, common, &mut command)
        .map_err(|error| GeneratorError::System(Kind::H2load.name(), error))?;
    Ok(command)
}

/// What it sends: options for headers, method and body, and the URL or a file of URLs.
fn requests(job: &Job<'_>, common: &ListedRequest, command: &mut Command) -> io::Result<()> {
    for (name, value) in &common.headers {
        command.args(["-H", &format!("{name}: {value}")]);
    }
    if !common.body.is_empty() {
        fs::write(job.folder.join("body"), &common.body)?;
        command.args(["-d", "body"]);
    }
    let usual = if common.body.is_empty() { "GET" } else { "POST" };
    if common.method != usual {
        command.args(["-H", &format!(":method: {}", common.method)]);
    }
    if job.requests.len() == 1 {
        command.arg(job.url(&common.path));
    } else {
        let urls: Vec<String> = job.requests.iter().map(|request| job.url(&request.path)).collect();
        fs::write(job.folder.join(PATHS), urls.join("\n"))?;
        command.args(["-i", PATHS]);
    }
    Ok(())
}

pub(super) fn read(job: &Job<'_>, ended: &Ended) -> Result<Reading, GeneratorError> {
    let failed = |message| GeneratorError::Failed { name: Kind::H2load.name(), message };
    let log = fs::read_to_string(job.folder.join(LOG)).map_err(|_| failed(ended.last_words()))?;
    let expected = &job.requests[0].expect.status;
    let mut reading = parse(&log, expected).ok_or_else(|| failed(ended.last_words()))?;
    reading.measured = finished(&ended.stdout).ok_or_else(|| failed(ended.last_words()))?;
    reading.bytes = traffic(&ended.stdout).unwrap_or(0);
    (reading.response, reading.service) = job.both(reading.service);
    Ok(reading)
}

/// Lines of three numbers: when a request was sent and how long it took, in microseconds, with the status between them,
/// which is -1 without an answer.
fn parse(log: &str, expected: &[u16]) -> Option<Reading> {
    let mut reading = Reading::default();
    for line in log.lines() {
        let mut fields = line.split('\t');
        let _sent: u64 = fields.next()?.parse().ok()?;
        let status: i32 = fields.next()?.parse().ok()?;
        let took: u64 = fields.next()?.parse().ok()?;
        let Ok(status) = u16::try_from(status) else {
            *reading.errors.entry("closed".to_owned()).or_default() += 1;
            continue;
        };
        reading.answers += 1;
        *reading.statuses.entry(status).or_default() += 1;
        let good =
            if expected.is_empty() { (200..400).contains(&status) } else { expected.contains(&status) };
        if good {
            reading.good += 1;
            reading.service.record(Duration::from_micros(took));
        } else {
            *reading.errors.entry("status".to_owned()).or_default() += 1;
        }
    }
    (reading != Reading::default()).then_some(reading)
}

/// Such as `finished in 1.00s, 20.00 req/s, 1.43KB/s`.
fn finished(text: &str) -> Option<Duration> {
    let line = text.lines().find_map(|line| line.strip_prefix("finished in "))?;
    let took = line.split(',').next()?;
    let (number, unit) = took.split_at(took.find(|c: char| c.is_ascii_alphabetic())?);
    let seconds = match unit {
        "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        _ => return None,
    };
    Duration::try_from_secs_f64(number.parse::<f64>().ok()? * seconds).ok()
}

/// Such as `traffic: 63.38KB (64905) total, 2.83KB (2896) headers …`.
fn traffic(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("traffic: "))?;
    line.split_once('(')?.1.split_once(')')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_h2load_wrote_is_read() {
        let reading = parse(include_str!("samples/h2load.log"), &[]).unwrap();
        assert_eq!((reading.answers, reading.good, reading.service.count()), (20, 14, 14));
        assert_eq!((reading.statuses[&200], reading.statuses[&503], reading.errors["status"]), (14, 6, 6));
        let printed = include_str!("samples/h2load.txt");
        assert_eq!((finished(printed), traffic(printed)), (Some(Duration::from_secs(1)), Some(1462)));
        assert_eq!(finished("finished in 512.50ms, 1 req/s"), Some(Duration::from_micros(512_500)));
    }

    #[test]
    fn each_line_of_the_log_counts() {
        let reading =
            parse("1000000\t200\t500\n1000200\t404\t300\n1000100\t200\t700\n1000900\t-1\t5\n", &[]).unwrap();
        assert_eq!((reading.answers, reading.good, reading.service.count()), (3, 2, 2));
        assert_eq!((reading.statuses[&200], reading.statuses[&404]), (2, 1));
        assert_eq!((reading.errors["status"], reading.errors["closed"]), (1, 1));
        assert!(parse("", &[]).is_none() && parse("x\ty\tz\n", &[]).is_none());
        assert_eq!(parse("1\t404\t5\n", &[404]).unwrap().good, 1);
    }
}
