//! k6: a closed loop or a rate, over HTTP/1.1 and HTTP/2, from a script of ours or, unchanged, one of the user's.
use super::process::Ended;
use super::{GeneratorError, Job, Kind, Reading, Script, quantiles};
use crate::load::{ListedRequest, Pace, Protocol};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SUMMARY: &str = "summary.json";
/// Its exit code where the script's own thresholds were crossed, which is a result.
const THRESHOLDS: i32 = 99;
/// The quantiles that are asked for, in per cent, beyond each whole one from 1 to 99.
const TAIL: [f64; 3] = [99.5, 99.9, 99.99];

pub(super) fn command(job: &Job<'_>, program: &Path) -> Result<Command, GeneratorError> {
    job.check(Kind::K6, job.script.is_none())?;
    match job.plan.protocol {
        Protocol::Http2 { .. } if !job.plan.tls => job.refuse(Kind::K6, "HTTP/2 without TLS")?,
        Protocol::Http2 { streams } if streams > 1 => {
            job.refuse(Kind::K6, "several requests at once on a connection")?;
        }
        _ => {}
    }
    let mut command = Command::new(program);
    command.args(["run", "--quiet", "--no-color", "--address", "", "--insecure-skip-tls-verify"]);
    command.args(["--summary-export", SUMMARY, "--summary-trend-stats", &trend_stats()]);
    // It reports to its makers otherwise, and fetches extensions that a script names.
    command.env("K6_NO_USAGE_REPORT", "true").env("K6_AUTO_EXTENSION_RESOLUTION", "false");
    command.env("GOMAXPROCS", job.plan.cpus.len().max(job.plan.threads).to_string());
    if job.plan.protocol == Protocol::Http1 {
        // By itself it takes HTTP/2 where a server offers it.
        command.env("GODEBUG", "http2client=0");
    }
    match job.script {
        None => run_requests(job, &mut command)?,
        Some(script) => run_script(job, script, &mut command)?,
    }
    Ok(command)
}

fn system(error: io::Error) -> GeneratorError {
    GeneratorError::System(Kind::K6.name(), error)
}

/// Our own script, with the plan's requests beside it.
fn run_requests(job: &Job<'_>, command: &mut Command) -> Result<(), GeneratorError> {
    let request = |request: &ListedRequest| {
        json!({
            "method": request.method, "path": request.path, "body": request.body,
            "headers": request.headers.iter().cloned().collect::<BTreeMap<_, _>>(),
            "status": request.expect.status, "length": request.expect.body_length,
            "contains": request.expect.body_contains,
        })
    };
    let requests: Value = job.requests.iter().map(request).collect();
    fs::write(job.folder.join("requests.json"), requests.to_string()).map_err(system)?;
    fs::write(job.folder.join("options.json"), options(job).to_string()).map_err(system)?;
    fs::write(job.folder.join("script.js"), include_str!("k6.js")).map_err(system)?;
    command.env("WEIRLAB_TARGET", job.url("")).arg("script.js");
    Ok(())
}

/// A script of the user, with options that bring it to the target.
fn run_script(job: &Job<'_>, script: &Script, command: &mut Command) -> Result<(), GeneratorError> {
    let text = script.text()?;
    let config = config(job, script, &text)?.to_string();
    fs::write(job.folder.join("config.json"), config).map_err(system)?;
    let file = match script.text {
        None => std::path::absolute(&script.file).map_err(system)?,
        Some(_) => {
            let file = job.folder.join("script.js");
            fs::write(&file, text).map_err(system)?;
            file
        }
    };
    let (users, seconds) = (job.plan.connections.to_string(), format!("{}s", job.seconds()));
    command.envs(&script.environment).env("K6_VUS", users);
    // Kong's suite reads the second.
    command.env("K6_DURATION", &seconds).env("k6_DURATION", &seconds);
    command.args(["--config", "config.json"]).arg(file);
    Ok(())
}

impl Script {
    /// What is in the file.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn text(&self) -> Result<String, GeneratorError> {
        let read = || fs::read_to_string(&self.file);
        self.text.clone().map_or_else(read, Ok).map_err(|error| {
            let place = self.file.display().to_string();
            GeneratorError::Script { place, message: format!("the script cannot be read: {error}") }
        })
    }
}

fn trend_stats() -> String {
    let percents = (1..100).map(f64::from).chain(TAIL);
    let names: Vec<String> = percents.map(|percent| format!("p({percent})")).collect();
    format!("avg,max,count,{}", names.join(","))
}

/// The options of our own script.
fn options(job: &Job<'_>) -> Value {
    let plan = job.plan;
    let (duration, users) = (format!("{}ms", plan.duration.as_millis().max(1)), plan.connections);
    let stop = format!("{}ms", plan.timeout.as_millis());
    let scenario = match plan.pace {
        Pace::Closed => {
            json!({"executor": "constant-vus", "vus": users, "duration": duration, "gracefulStop": stop})
        }
        // It takes whole numbers alone.
        Pace::Constant(rate) | Pace::Poisson(rate) => json!({
            "executor": "constant-arrival-rate", "rate": (rate * 1000.0).round() as u64, "timeUnit": "1000s",
            "duration": duration, "preAllocatedVUs": users, "maxVUs": users, "gracefulStop": stop,
        }),
    };
    let bodies = job.requests.iter().any(|request| request.expect.body_contains.is_some());
    let lengths = job.requests.iter().any(|request| request.expect.body_length.is_some());
    json!({
        "options": {
            "scenarios": {"load": scenario}, "noConnectionReuse": !plan.keep_alive,
            "discardResponseBodies": !bodies && !lengths,
        },
        "responseType": if bodies { "text" } else { "binary" }, "timeout": stop,
    })
}

/// The options that bring a script to the target: each host that it names is the target's address.
fn config(job: &Job<'_>, script: &Script, text: &str) -> Result<Value, GeneratorError> {
    let hosts = hosts(text);
    let wrong = |(line, message): (usize, String)| GeneratorError::Script {
        place: format!("{}:{line}", script.file.display()),
        message,
    };
    let spoken = if job.plan.tls { "https" } else { "http" };
    if let Some((line, scheme, _)) = hosts.iter().find(|(_, scheme, _)| *scheme != spoken) {
        let message = format!("the script asks for {scheme}; run the case with --scheme {scheme}");
        return Err(wrong((*line, message)));
    }
    let names: BTreeSet<&str> = hosts.iter().map(|(_, _, host)| *host).collect();
    if names.is_empty() {
        let message =
            "the script names no http:// or https:// URL, so that it cannot be brought to the target";
        return Err(wrong((1, message.to_owned())));
    }
    let address = job.plan.addresses[0].to_string();
    let all: BTreeMap<&str, &str> = names.into_iter().map(|name| (name, address.as_str())).collect();
    Ok(json!({"hosts": all}))
}

/// The lines, schemes and hosts of the URLs in a script, without their ports.
fn hosts(text: &str) -> Vec<(usize, &'static str, &str)> {
    let mut found = Vec::new();
    for (line, text) in (1..).zip(text.lines()).filter(|(_, text)| !text.trim_start().starts_with("//")) {
        for scheme in ["http", "https"] {
            let begins = text
                .match_indices(scheme)
                .filter_map(|(at, _)| text[at + scheme.len()..].strip_prefix("://"));
            let host = |rest: &'_ str| rest.find(|c: char| !c.is_ascii_alphanumeric() && !"-._".contains(c));
            let hosts = begins.map(|rest| &rest[..host(rest).unwrap_or(rest.len())]);
            found.extend(hosts.filter(|host| !host.is_empty()).map(|host| (line, scheme, host)));
        }
    }
    found
}

pub(super) fn read(job: &Job<'_>, ended: &Ended) -> Result<Reading, GeneratorError> {
    let failed = |message| GeneratorError::Failed { name: Kind::K6.name(), message };
    if let Some(error) = script_error(&ended.stderr) {
        return Err(match job.script {
            Some(script) => error.in_script(script),
            None => failed(error.message),
        });
    }
    let text = fs::read_to_string(job.folder.join(SUMMARY)).map_err(|_| failed(ended.last_words()))?;
    if !ended.status.success() && ended.status.code() != Some(THRESHOLDS) {
        return Err(failed(ended.last_words()));
    }
    let summary: Value =
        serde_json::from_str(&text).map_err(|error| failed(format!("its summary: {error}")))?;
    let mut reading = reading(&summary["metrics"])
        .ok_or_else(|| failed("it sent no request; does the script call http?".to_owned()))?;
    (reading.response, reading.service) = job.both(reading.service);
    Ok(reading)
}

fn reading(metrics: &Value) -> Option<Reading> {
    let number = |metric: &str, value: &str| metrics[metric][value].as_f64();
    let count = |metric: &str, value: &str| number(metric, value).unwrap_or(0.0) as u64;
    let (requests, rate) = (number("http_reqs", "count")?, number("http_reqs", "rate")?);
    let unanswered = count("weirlab_unanswered", "count");
    let timeouts = count("weirlab_timeouts", "count");
    // Of a user's script the checks are all that is known; in ours, status and body are counted by themselves.
    let refused = count("http_req_failed", "passes").saturating_sub(unanswered);
    let wrong = count("checks", "fails").saturating_sub(refused + unanswered);
    let errors =
        [("status", refused), ("body", wrong), ("timeout", timeouts), ("read", unanswered - timeouts)];
    let answers = (requests as u64).saturating_sub(unanswered);
    let trend = &metrics["http_req_duration"];
    let percents = (1..100).map(f64::from).chain(TAIL);
    let mut shares: Vec<(f64, Duration)> = percents
        .filter_map(|percent| Some((percent / 100.0, millis(&trend[format!("p({percent})")])?)))
        .collect();
    shares.extend(millis(&trend["max"]).map(|max| (1.0, max)));
    Some(Reading {
        measured: Duration::try_from_secs_f64(requests / rate).ok()?,
        answers,
        good: answers.saturating_sub(refused + wrong),
        bytes: count("data_received", "count"),
        errors: errors.into_iter().filter(|(_, n)| *n > 0).map(|(class, n)| (class.to_owned(), n)).collect(),
        service: quantiles::histogram(&shares, trend["count"].as_u64().unwrap_or(answers)),
        ..Reading::default()
    })
}

fn millis(value: &Value) -> Option<Duration> {
    Duration::try_from_secs_f64(value.as_f64()? / 1e3).ok()
}

/// What k6 says of a script that is wrong.
#[derive(Debug, PartialEq)]
struct ScriptError {
    /// Line and column, where it says them.
    place: String,
    message: String,
}

impl ScriptError {
    fn in_script(self, script: &Script) -> GeneratorError {
        let place = format!("{}{}", script.file.display(), self.place);
        let message = format!(
            "{}; correct the script and try it with: k6 inspect {}",
            self.message,
            script.file.display()
        );
        GeneratorError::Script { place, message }
    }
}

/// The first error of k6's log that names a place in a script.
fn script_error(stderr: &str) -> Option<ScriptError> {
    let line = stderr.lines().find(|line| line.contains("level=error") && line.contains("file://"))?;
    let quoted = line.split_once("msg=")?.1;
    let text = serde_json::Deserializer::from_str(quoted).into_iter::<String>().next()?.ok()?;
    if let Some((_, syntax)) = text.rsplit_once(": Line ") {
        let (place, message) = syntax.split_once(' ')?;
        return Some(ScriptError { place: format!(":{place}"), message: message.to_owned() });
    }
    // Of a script that cannot begin, the reason comes after the name of the file.
    let reason = text.rsplit_once("': ").map_or(&*text, |(_, reason)| reason);
    let message = reason.lines().next().unwrap_or(reason).trim().to_owned();
    Some(ScriptError { place: frame(&text).unwrap_or_default(), message })
}

/// Line and column of the innermost frame, such as `:3:26` of `at default (file:///suite.js:3:26(4))`.
fn frame(text: &str) -> Option<String> {
    let (_, at) = text.split_once("(file://").or_else(|| text.split_once("at file://"))?;
    let (_, numbers) = at.split_once(':')?;
    let place: String = numbers.chars().take_while(|c| c.is_ascii_digit() || *c == ':').collect();
    Some(format!(":{place}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_with_their_lines() {
        let text = "// see https://k6.io/docs\nconst url = `https://kong.svc.local/${n}route`;\nhttp.get('http://a:81/x')";
        assert_eq!(hosts(text), [(2, "https", "kong.svc.local"), (3, "http", "a")]);
    }

    #[test]
    fn a_summary_is_read() {
        let metrics = json!({
            "http_reqs": {"count": 1000, "rate": 500.0},
            "http_req_failed": {"passes": 10, "fails": 990, "value": 0.01},
            "checks": {"passes": 988, "fails": 12},
            "data_received": {"count": 4096, "rate": 1.0},
            "weirlab_unanswered": {"count": 3, "rate": 1.5}, "weirlab_timeouts": {"count": 1, "rate": 0.5},
            "http_req_duration": {"p(50)": 2.0, "p(90)": 4.0, "p(99)": 8.0, "max": 16.0, "count": 1000},
        });
        let reading = reading(&metrics).unwrap();
        assert_eq!((reading.answers, reading.good, reading.measured.as_secs()), (997, 988, 2));
        let errors: Vec<(&str, u64)> = reading.errors.iter().map(|(class, n)| (class.as_str(), *n)).collect();
        assert_eq!(errors, [("body", 2), ("read", 2), ("status", 7), ("timeout", 1)]);
        assert_eq!(reading.service.quantile(0.9).unwrap().as_micros() / 100, 40);
        assert!(super::reading(&json!({})).is_none());
    }

    #[test]
    fn the_summary_that_k6_wrote_is_read() {
        let summary: Value = serde_json::from_str(include_str!("samples/k6.json")).unwrap();
        let reading = super::reading(&summary["metrics"]).unwrap();
        assert_eq!(
            (reading.answers, reading.good, reading.errors["status"], reading.bytes),
            (51, 39, 12, 3672)
        );
        assert_eq!((reading.measured.as_millis(), reading.service.count()), (1001, 51));
        let p50 = summary["metrics"]["http_req_duration"]["p(50)"].as_f64().unwrap();
        let got = reading.service.quantile(0.5).unwrap().as_secs_f64() * 1e3;
        assert!((got - p50).abs() < 0.01 * p50, "{got} {p50}");
    }

    #[test]
    fn errors_that_k6_printed_have_place_and_reason() {
        let error = |text| script_error(text).map(|error| (error.place, error.message)).unwrap();
        let place = |place: &str, message: &str| (place.to_owned(), message.to_owned());
        let run = error(include_str!("samples/k6-run.txt"));
        assert_eq!(run, place(":3:26", "ReferenceError: nothing is not defined"));
        let syntax = error(include_str!("samples/k6-syntax.txt"));
        assert_eq!(syntax, place(":3:23", "Unexpected token ;"));
        let (nowhere, reason) = error(include_str!("samples/k6-import.txt"));
        assert!(
            nowhere.is_empty() && reason.starts_with("unknown modules [\"k6/htp\"] were tried"),
            "{reason}"
        );
        assert_eq!(script_error("level=warning msg=\"at file:///x.js:1:1\""), None);
    }
}
