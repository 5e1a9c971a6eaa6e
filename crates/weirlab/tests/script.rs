//! The library as scripts use it, with the real gateway: the example is the sample of Kong's performance framework.
use super::session::{processes_of, weir};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use weirlab::script::{Configuration, Gateway, Lab, Load, ScriptError, Setup, Upstream, combine_results};

const REPOSITORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// The example, which `cargo test` builds beside the laboratory.
fn example() -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_weirlab")).with_file_name("examples/single_route");
    assert!(program.exists(), "{} is missing: cargo build --package weirlab --examples", program.display());
    Command::new(program)
}

/// Where the example finds targets, and the gateway as `./weir`.
fn folder() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["scenarios", "targets"] {
        symlink(Path::new(REPOSITORY).canonicalize().unwrap().join(name), folder.path().join(name)).unwrap();
    }
    symlink(weir(), folder.path().join("weir")).unwrap();
    folder
}

fn lab() -> Lab {
    Setup::new().catalogue(REPOSITORY).version(weir().to_str().unwrap()).begin().unwrap()
}

/// Every line of the text that begins so.
fn lines<'a>(text: &'a str, beginning: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.starts_with(beginning)).collect()
}

#[test]
fn the_example_prints_and_leaves_what_the_sample_of_kong_does() {
    let folder = folder();
    let mut command = example();
    command.current_dir(folder.path()).arg("./weir").env("PERF_TEST_LOAD_DURATION", "0.3");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));

    assert_eq!(printed.lines().next(), Some("### Test Suite: ./weir #simple #no_plugins #single_route"));
    let runs = lines(&printed, "### Result for ./weir (run ");
    assert_eq!(runs, [1, 2, 3].map(|run| format!("### Result for ./weir (run {run}):")), "{printed}");
    for beginning in ["Running ", "  5 threads and 1000 connections", "  Thread Stats   Avg", "    Latency "]
    {
        assert_eq!(lines(&printed, beginning).len(), 3, "{beginning}: {printed}");
    }
    for beginning in
        ["    Req/Sec ", "  Latency Distribution", "     99%", "Requests/sec: ", "Transfer/sec: "]
    {
        assert_eq!(lines(&printed, beginning).len(), 3, "{beginning}: {printed}");
    }
    let (_, combined) = printed.split_once("### Combined result for ./weir:\n").unwrap();
    let starts: Vec<bool> = ["RPS     Avg: ", "Latency Avg: ", "   P90 (ms): ", "   P99 (ms): "]
        .iter()
        .zip(combined.lines())
        .map(|(beginning, line)| line.starts_with(beginning))
        .collect();
    assert_eq!(starts, [true; 4], "{combined}");
    assert!(!printed.contains("Non-2xx"), "{printed}");

    let output = folder.path().join("output");
    assert!(fs::read_to_string(output.join(".#weir-single_route.log")).unwrap().contains("weir"));
    assert!(
        fs::read_to_string(output.join("single_route.rps.svg")).unwrap().contains("./weir #single_route")
    );
    assert_eq!(fs::read_to_string(output.join("result.txt")).unwrap(), printed);
    let data: Value =
        serde_json::from_str(&fs::read_to_string(output.join("single_route.data.json")).unwrap()).unwrap();
    assert_eq!(data["data"][0]["rpss"].as_array().unwrap().len(), 3, "{data}");
}

#[test]
fn a_result_knows_what_the_gateway_used_and_what_went_wrong() {
    let lab = lab();
    let upstream = lab.start_upstream(Upstream::new().status(503).body("away")).unwrap();
    let mut configuration = Configuration::new();
    let service = configuration.insert("services", json!({ "url": upstream.url("") }));
    configuration.insert("routes", json!({ "paths": ["/"], "service": service }));
    let gateway = lab.start_gateway(Gateway::new(configuration).connections(4)).unwrap();
    let load = || Load::new("/").connections(4).threads(1).duration(Duration::from_millis(500));

    let refused = lab.start_load(&gateway, load()).unwrap().wait_result().unwrap();
    assert!(refused.outcome().statuses[&503] > 0 && refused.outcome().good == 0, "{refused}");
    assert_eq!(refused.cpu_per_request(), None);
    assert!(refused.usage().unwrap().cpu_us > 0.0 && refused.to_string().contains("Non-2xx"), "{refused}");
    let direct = lab.start_load_on_upstream(&upstream, load()).unwrap().wait_result().unwrap();
    assert!(direct.usage().is_none() && direct.requests_per_second() > 0.0, "{direct}");
    assert!(matches!(combine_results(&[]), Err(ScriptError::NoResults)));
    assert_eq!(combine_results(&[refused, direct]).unwrap().rates().len(), 2);
    assert!(gateway.admin_url().unwrap().starts_with("http://127.0.0.1:"));
}

#[test]
fn a_load_that_is_dropped_ends() {
    let lab = lab();
    let upstream = lab.start_upstream(Upstream::new()).unwrap();
    let load = Load::new("/").connections(1).threads(1).duration(Duration::from_secs(3600));
    drop(lab.start_load_on_upstream(&upstream, load).unwrap());
}

#[test]
fn an_interrupted_script_ends_what_it_started() {
    let folder = folder();
    let mut command = example();
    command.current_dir(folder.path()).arg("./weir").env("PERF_TEST_LOAD_DURATION", "3600");
    let mut script =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let begun = Instant::now();
    let started = loop {
        let started = processes_of(script.id());
        if !started.is_empty() {
            break started;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no gateway was started");
        thread::sleep(Duration::from_millis(20));
    };
    let pid = rustix::process::Pid::from_child(&script);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(script.wait().unwrap().code(), Some(1), "the error of the script's main function");
    for stat in started {
        let gateway = stat.split_whitespace().next().unwrap();
        let command = fs::read_to_string(format!("/proc/{gateway}/cmdline")).unwrap_or_default();
        assert!(!command.contains("weir"), "{command} is left behind");
    }
}

#[test]
fn mistakes_say_what_to_do() {
    let unknown = Setup::new().catalogue(REPOSITORY).target("ngynx").begin().err().unwrap();
    assert!(unknown.to_string().contains("nginx"), "{unknown}");
    let missing = Setup::new().catalogue(REPOSITORY).version("./no-such-weir").begin().err().unwrap();
    assert!(missing.to_string().contains("./no-such-weir cannot be used"), "{missing}");
    let lab = lab();
    let mut configuration = Configuration::new();
    configuration.insert("routes", json!({ "paths": ["no-slash"] }));
    let refused = lab.start_gateway(Gateway::new(configuration)).err().unwrap();
    assert!(matches!(refused, ScriptError::Gateway(_)) && refused.to_string().contains("paths"), "{refused}");
}
