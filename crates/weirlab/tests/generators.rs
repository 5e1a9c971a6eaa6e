//! Generators of other makers: real wrk, h2load and k6 on a server whose responses are known. k6 is in no package of Debian;
//! without it what needs it is said to be untested.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use crate::floor::wire::Server;
use serde_json::Value;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use weirlab::result::store;

/// The upstream of the laboratory: one in five of its answers is a 503.
fn upstream() -> Server {
    Server::start(&["upstream", "--body-bytes", "4", "--status", "200:80,503:20"])
}

fn weirlab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).stdin(Stdio::null()).args(arguments);
    command
}

fn load(upstream: &Server, arguments: &[&str]) -> Output {
    let url = format!("http://{}/", upstream.listen);
    let window = ["load", &url, "-c", "2", "-t", "1", "-d", "1s", "--format", "json"];
    weirlab(&window).args(arguments).output().unwrap()
}

fn outcome(upstream: &Server, arguments: &[&str]) -> Value {
    let output = load(upstream, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn number(outcome: &Value, name: &str) -> u64 {
    outcome[name].as_u64().unwrap_or_else(|| panic!("{name} in {outcome}"))
}

/// Whether refused answers are counted, and all answers are either right or refused; what the generator does not say is null.
fn check(outcome: &Value) {
    let refused = outcome["errors"]["status"].as_u64().unwrap_or(0);
    assert!(refused > 0 && number(outcome, "good") > refused, "{outcome}");
    assert_eq!(number(outcome, "good") + refused, number(outcome, "answers"), "{outcome}");
    assert!(outcome["steady"].is_null() && outcome["connections_opened"].is_null(), "{outcome}");
    assert!(outcome["series"].as_array().unwrap().is_empty(), "{outcome}");
    assert!(number(&outcome["service"], "count") > 0, "{outcome}");
}

/// The k6 that `WEIRLAB_K6` names, or that of the PATH.
fn k6() -> Option<PathBuf> {
    let named = std::env::var_os("WEIRLAB_K6").map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = named.or_else(|| {
        std::env::split_paths(&path).map(|folder| folder.join("k6")).find(|program| program.is_file())
    });
    if found.is_none() {
        eprintln!("k6 is not installed: load by k6 is not tested");
    }
    found
}

#[test]
fn wrk_loads_and_is_read() {
    let upstream = upstream();
    let outcome = outcome(&upstream, &["--generator", "wrk", "--path", "/one", "--path", "/two"]);
    check(&outcome);
    assert!(number(&outcome, "generator_cpu_us") > 0, "{outcome}");
    assert_eq!(outcome["response"]["count"], outcome["service"]["count"]);
}

#[test]
fn h2load_loads_over_both_protocols_and_at_a_rate() {
    let upstream = upstream();
    let closed = outcome(&upstream, &["--generator", "h2load"]);
    check(&closed);
    assert_eq!(closed["statuses"]["200"], closed["good"]);
    assert_eq!(closed["response"]["count"], closed["good"]);
    check(&outcome(&upstream, &["--generator", "h2load", "--protocol", "http2", "-m", "4"]));
    let rate = outcome(&upstream, &["--generator", "h2load", "-R", "50", "--arrivals", "constant"]);
    check(&rate);
    assert!(number(&rate, "answers") <= 60, "{rate}");
    // When each request was due, h2load does not say.
    assert_eq!(number(&rate["response"], "count"), 0, "{rate}");
}

#[test]
fn k6_loads_in_a_closed_loop_and_at_a_rate() {
    if k6().is_none() {
        return;
    }
    let upstream = upstream();
    check(&outcome(&upstream, &["--generator", "k6"]));
    let rate = outcome(&upstream, &["--generator", "k6", "-R", "50", "--arrivals", "constant"]);
    check(&rate);
    assert!(number(&rate, "answers") <= 60, "{rate}");
}

#[test]
fn a_script_of_k6_runs_unchanged_and_its_errors_have_a_place() {
    if k6().is_none() {
        return;
    }
    let upstream = upstream();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("suite.js");
    let script = |body: &str| {
        let text = format!("import http from 'k6/http';\nexport default function () {{\n  {body}\n}}\n");
        fs::write(&file, text).unwrap();
        ["--generator", "k6", "--script", file.to_str().unwrap()]
    };
    check(&outcome(&upstream, &script("http.get('http://kong.svc.cluster.local/json/valid');")));
    for (body, place, message) in [
        ("http.get('http://a/' + nothing.here);", ":3:26: ", "nothing is not defined"),
        ("http.get('http://a/';", ":3:23: ", "Unexpected token"),
        ("http.get('https://a/');", ":3: ", "--scheme https"),
        ("http.get('/json/valid');", ":1: ", "names no http://"),
    ] {
        let said = refusal(&load(&upstream, &script(body)));
        assert!(said.contains(&format!("suite.js{place}")) && said.contains(message), "{said}");
    }
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let upstream = upstream();
    let empty = tempfile::tempdir().unwrap();
    let url = format!("http://{}/", upstream.listen);
    let missing =
        weirlab(&["load", &url, "--generator", "h2load"]).env("PATH", empty.path()).output().unwrap();
    let said = refusal(&missing);
    assert!(
        said.contains("apt-get install nghttp2-client") && said.contains("WEIRLAB_H2LOAD=PATH"),
        "{said}"
    );
    for (arguments, reason) in [
        (&["--generator", "wrk", "-R", "10", "--arrivals", "constant"][..], "wrk cannot send a rate"),
        (&["--generator", "wrk", "--protocol", "http2"], "wrk cannot send HTTP/2"),
        (&["--generator", "h2load", "-R", "10"], "Poisson arrivals"),
        (&["--generator", "h2load", "--protocol", "grpc"], "calls of gRPC"),
        (&["--generator", "wrk", "--script", "x.js"], "--script is for k6"),
        (&["--generator", "wrk", "--first-byte"], "wrk cannot send requests and time the first byte"),
        (&["--protocol", "websocket", "--first-byte"], "have no time to a first byte"),
    ] {
        let said = refusal(&load(&upstream, arguments));
        assert!(said.contains(reason), "{arguments:?}: {said}");
    }
}

#[test]
fn a_run_puts_generators_side_by_side() {
    let out = tempfile::tempdir().unwrap();
    let arguments = [
        "run",
        "kong/plain-1",
        "--scheme",
        "http",
        "--targets",
        "nginx",
        "--generator",
        "weirlab,wrk",
        "--rounds",
        "1",
        "--duration",
        "1s",
        "--no-control",
    ];
    let output = weirlab(&arguments).arg("--out").arg(out.path()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(printed.contains("nginx by wrk"), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    let folder = fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    let run: Value = serde_json::from_slice(&fs::read(folder.join("data.json")).unwrap()).unwrap();
    let cells = run["cells"].as_array().unwrap();
    let of = |target: &str| &cells.iter().find(|cell| cell["target"] == target).unwrap()["blocks"][0];
    assert!(of("nginx")["steady"].is_boolean(), "{}", of("nginx"));
    let foreign = of("nginx by wrk");
    assert!(foreign["steady"].is_null() && number(foreign, "good") > 0, "{foreign}");
    assert!(foreign["target"]["cpu_us"].as_f64().unwrap() > 0.0, "{foreign}");
    assert!(run["manifest"]["machine"]["generator wrk"].as_str().unwrap().starts_with("wrk "), "{run}");
}

/// With a rate, wrk2 and the like know when a request was due and k6 does not: what both know is compared.
#[test]
fn generators_take_turns_at_one_rate() {
    let out = tempfile::tempdir().unwrap();
    let arguments = ["run", "kong/plain-1", "--scheme", "http", "--targets", "nginx", "--rate", "200"];
    let more = ["--generator", "weirlab,h2load", "--rounds", "2", "--duration", "1s", "--no-control"];
    let output = weirlab(&arguments).args(more).arg("--out").arg(out.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let folder = fs::read_dir(out.path()).unwrap().next().unwrap().unwrap().path();
    let run = store::read(&folder).unwrap();
    for block in run.cells.iter().flat_map(|cell| &cell.blocks) {
        assert_eq!(block.offered, Some(200.0));
        assert!((150..=220).contains(&block.answers), "{}", block.answers);
    }
    let order = |target: &str| {
        let cell = run.cells.iter().find(|cell| cell.target == target).unwrap();
        cell.blocks.iter().map(|block| block.sequence).collect::<Vec<_>>()
    };
    let (own, other) = (order("nginx"), order("nginx by h2load"));
    assert_eq!((own.len(), other.len()), (2, 2));
    assert!(
        own.iter().max() > other.iter().min() && other.iter().max() > own.iter().min(),
        "{own:?} {other:?}"
    );
    let said = refusal(&weirlab(&["run", "kong/plain-1", "--rate", "0"]).output().unwrap());
    assert!(said.contains("0: write requests per second, such as 2000"), "{said}");
}
