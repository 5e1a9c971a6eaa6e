//! wrk: a closed loop over HTTP/1.1. A script of ours makes it write every latency that it counted.
use super::process::Ended;
use super::{GeneratorError, Job, Kind, Reading, lua};
use crate::load::Protocol;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const RESULT: &str = "result";

/// Writes totals, errors, and each latency in microseconds with how often it came.
const DONE: &str = "\
function done(summary, latency)
  local file = io.open('result', 'w')
  file:write(string.format('duration %d\\nrequests %d\\nbytes %d\\n', summary.duration, summary.requests, summary.bytes))
  for name, count in pairs(summary.errors) do file:write(string.format('error-%s %d\\n', name, count)) end
  for n = 1, #latency do
    local value, count = latency(n)
    file:write(string.format('%d %d\\n', value, count))
  end
  file:close()
end
";

pub(super) fn command(job: &Job<'_>, program: &Path) -> Result<Command, GeneratorError> {
    job.check(Kind::Wrk, false)?;
    job.expects_success(Kind::Wrk)?;
    if job.plan.protocol != Protocol::Http1 {
        job.refuse(Kind::Wrk, "HTTP/2")?;
    }
    arguments(job, program, Kind::Wrk, DONE)
}

/// What wrk and wrk2 have in common.
pub(super) fn arguments(
    job: &Job<'_>,
    program: &Path,
    kind: Kind,
    done: &str,
) -> Result<Command, GeneratorError> {
    let plan = job.plan;
    let script = format!("{}{done}", lua::requests(job));
    fs::write(job.folder.join("script.lua"), script)
        .map_err(|error| GeneratorError::System(kind.name(), error))?;
    let timeout = plan.timeout.as_secs_f64().ceil() as u64;
    let mut command = Command::new(program);
    command.args([
        "-t",
        &plan.threads.min(plan.connections).to_string(),
        "-c",
        &plan.connections.to_string(),
    ]);
    command.args(["-d", &job.seconds().to_string(), "--timeout", &timeout.max(1).to_string()]);
    command.args(["--latency", "-s", "script.lua", &job.url(&job.requests[0].path)]);
    Ok(command)
}

pub(super) fn read(job: &Job<'_>, ended: &Ended) -> Result<Reading, GeneratorError> {
    let failed = |message| GeneratorError::Failed { name: Kind::Wrk.name(), message };
    let text = fs::read_to_string(job.folder.join(RESULT)).map_err(|_| failed(ended.last_words()))?;
    let mut reading =
        parse(&text).ok_or_else(|| failed(format!("its result cannot be read: {text:.200}")))?;
    (reading.response, reading.service) = job.both(reading.service);
    Ok(reading)
}

fn parse(text: &str) -> Option<Reading> {
    let mut reading = Reading::default();
    let mut refused = 0;
    for line in text.lines() {
        let (name, value) = line.split_once(' ')?;
        let count: u64 = value.parse().ok()?;
        match name.strip_prefix("error-") {
            Some("status") => refused = count,
            Some(class) if count > 0 => drop(reading.errors.insert(class.to_owned(), count)),
            Some(_) => {}
            None => match name {
                "duration" => reading.measured = Duration::from_micros(count),
                "requests" => reading.answers = count,
                "bytes" => reading.bytes = count,
                micros => reading.service.record_many(Duration::from_micros(micros.parse().ok()?), count),
            },
        }
    }
    if refused > 0 {
        reading.errors.insert("status".to_owned(), refused);
    }
    reading.good = reading.answers.saturating_sub(refused);
    (!reading.measured.is_zero()).then_some(reading)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_wrote_is_read() {
        let reading = parse(include_str!("samples/wrk.txt")).unwrap();
        assert_eq!((reading.answers, reading.good, reading.bytes), (18, 16, 1258));
        assert_eq!(reading.service.count(), 18);
        assert_eq!(reading.service.max().as_micros() / 1000, 100);
    }

    #[test]
    fn a_result_has_every_latency() {
        let text = "duration 2000000\nrequests 10\nbytes 1000\nerror-status 1\nerror-read 0\nerror-timeout 2\n100 9\n400 1\n";
        let reading = parse(text).unwrap();
        assert_eq!((reading.answers, reading.good, reading.bytes), (10, 9, 1000));
        assert_eq!(
            reading.errors.iter().map(|(class, n)| (class.as_str(), *n)).collect::<Vec<_>>(),
            [("status", 1), ("timeout", 2)]
        );
        assert_eq!(reading.service.count(), 10);
        assert_eq!(reading.service.max().as_micros(), 400);
        assert!(parse("duration x\n").is_none() && parse("").is_none());
    }
}
