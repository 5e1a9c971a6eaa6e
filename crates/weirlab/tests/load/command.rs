//! `weirlab load` as a user runs it.
use super::server::{Server, plain};
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::Duration;

fn load(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.arg("load").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn answering() -> (Server, String) {
    let server = Server::start(|_, writer| plain(writer, 200, "hello"));
    let url = format!("http://{}/", server.address);
    (server, url)
}

const SHORT: [&str; 6] = ["-d", "300ms", "--warm-up", "0", "-c", "2"];

fn output(arguments: &[&str], options: &[&str]) -> Output {
    load(arguments).args(SHORT).args(options).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn it_prints_as_wrk_does() {
    let (_server, url) = answering();
    let output = output(&[&url], &[]);
    let text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let begins = |start: &str| text.lines().any(|line| line.starts_with(start));
    assert!(begins(&format!("Running 0s test @ {url}")), "{text}");
    assert!(
        begins("  2 threads and 2 connections") && begins("    Latency ") && begins("     50% "),
        "{text}"
    );
    assert!(begins("Requests/sec: ") && begins("Transfer/sec: ") && !begins("  Socket errors"), "{text}");
}

#[test]
fn first_bytes_are_reported_if_they_are_asked_for() {
    let (_server, url) = answering();
    let line = "  Latency Distribution (to the first byte of the body, from the instant of sending)";
    let said = |options: &[&str]| text(&output(&[&url], options).stdout);
    assert!(said(&["--first-byte"]).contains(line) && !said(&[]).contains(line));
    let document: serde_json::Value =
        serde_json::from_str(&said(&["--first-byte", "--format", "json"])).unwrap();
    assert_eq!(document["first_byte"]["count"], document["good"]);
    let without: serde_json::Value = serde_json::from_str(&said(&["--format", "json"])).unwrap();
    assert_eq!(without.get("first_byte"), None);
}

#[test]
fn an_open_loop_prints_both_times() {
    let (_server, url) = answering();
    let output = output(&[&url], &["-R", "100", "--arrivals", "constant"]);
    let text = text(&output.stdout);
    assert!(text.contains("Distribution (response") && text.contains("Distribution (service"), "{text}");
    // 30 are enough for the median only.
    assert!(text.contains("     99%  n too small"), "{text}");
}

#[test]
fn json_holds_everything() {
    let (_server, url) = answering();
    let output = output(&[&url], &["--format", "json", "--expect-body", "hell"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["good"].as_u64().unwrap() > 10);
    assert_eq!(document["statuses"]["200"], document["answers"]);
    let histogram: weirlab::result::Histogram =
        serde_json::from_value(document["response"]["histogram"].clone()).unwrap();
    // One of either connection may be slower than all others when the window ends.
    let good = document["good"].as_u64().unwrap();
    assert!((good..=good + 2).contains(&histogram.count()));
}

#[test]
fn other_tools_read_the_log() {
    let (_server, url) = answering();
    let output = output(&[&url], &["--format", "hdr", "-R", "200"]);
    let entries: Vec<_> = IntervalLogIterator::new(&output.stdout).map(Result::unwrap).collect();
    let tags: Vec<_> = entries
        .iter()
        .filter_map(|entry| match entry {
            LogEntry::Interval(interval) => interval.tag().map(|tag| tag.as_str().to_owned()),
            _ => None,
        })
        .collect();
    assert_eq!(tags, ["response", "service"]);
    assert!(entries.iter().any(|entry| matches!(entry, LogEntry::StartTime(_))));
}

#[test]
fn options_make_the_requests() {
    let server = Server::start(|request, writer| {
        let right = request.line.starts_with("PUT /b/")
            && request.header("apikey") == Some("k")
            && request.body == format!("n={}", &request.path()[3..]);
        plain(writer, if right { 201 } else { 500 }, "")
    });
    let url = format!("http://{}/unused", server.address);
    let options = "--path /b/{n} --variable n=5..10 --method PUT --body n={n} --expect-status 201";
    let mut options: Vec<&str> = options.split(' ').collect();
    options.extend(["-H", "apikey: k", "--format", "json"]);
    let output = output(&[&url], &options);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(document["good"].as_u64().unwrap() > 10 && document["good"] == document["answers"], "{document}");
}

#[test]
fn what_is_wrong_is_said() {
    let check = |arguments: &[&str], code: i32, what: &str| {
        let output = output(arguments, &[]);
        let said = text(&output.stderr);
        assert!(output.status.code() == Some(code) && said.contains(what), "{:?} {said}", output.status);
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    check(&[&format!("http://{free}/")], 3, &format!("nothing listens at {free}"));
    check(&["http://nowhere.invalid/"], 3, "cannot be resolved");
    check(&["ftp://localhost/"], 3, "is not such a URL");
    check(&["http://localhost/", "--arrivals", "poisson"], 3, "--rate");
    let (_server, url) = answering();
    check(&[&format!("{url}{{x}}")], 3, "names {x}");
    let unanswered = Server::start(|_, writer| writer.write_all(b"what?\r\n"));
    check(&[&format!("http://{}/", unanswered.address)], 1, "");
}

#[test]
fn ctrl_c_prints_what_was_measured_so_far() {
    let (server, url) = answering();
    let child = load(&[&url, "-d", "60s", "--warm-up", "0"]).spawn().unwrap();
    while server.requests() < 100 {
        thread::sleep(Duration::from_millis(10));
    }
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let text = text(&output.stdout);
    assert_eq!(output.status.code(), Some(130), "{text}");
    assert!(text.contains("Requests/sec: "), "{text}");
}
