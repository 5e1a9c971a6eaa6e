//! Figures that are not of requests under load, of real gateways: starts, reloads, the memory of idle connections.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use serde_json::Value;
use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;
use weirlab::analysis::Analysis;
use weirlab::report::text;
use weirlab::result::{Probe, Status};

const ROUTES: &str = "_format_version: \"3.0\"\nservices:\n- name: s\n  url: http://{{ upstream }}\n  routes:\n\
    {% for n in range(1, 31) %}\n  - {name: r{{ n }}, paths: [\"/r{{ n }}\"]}\n{% endfor %}\n";

/// A scenario that measures so, whose last route is to answer with this status.
fn scenario(measure: &str, status: u16, more: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let toml = format!(
        "title = \"of a test\"\nsource = \"this test\"\nmeasure = \"{measure}\"\n[load]\nconnections = 400\nthreads = 1\n\
         [[load.request]]\npath = \"/r30/x\"\nstatus = [200]\n[[parity]]\npath = \"/r30/x\"\nstatus = {status}\n{more}"
    );
    fs::write(folder.path().join("scenario.toml"), toml).unwrap();
    fs::write(folder.path().join("kong.yml"), ROUTES).unwrap();
    fs::write(folder.path().join("WHY.md"), "For a test.\n").unwrap();
    folder
}

fn weirlab(arguments: &[&str], scenario: &Path, out: &Path) -> Output {
    let weir = Path::new(env!("CARGO_BIN_EXE_weirlab")).with_file_name("weir");
    assert!(weir.exists(), "{} is missing: cargo build --package weir-gateway", weir.display());
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    command
        .arg(arguments[0])
        .arg(scenario)
        .args(&arguments[1..])
        .arg("--weir")
        .arg(weir)
        .arg("--out")
        .arg(out);
    command.stdin(Stdio::null()).output().expect("weirlab starts")
}

/// Runs two rounds of a scenario; what the run says, and its folder.
fn run(scenario: &Path, targets: &str, scheme: &str, out: &Path) -> (String, PathBuf) {
    ran(scenario, targets, scheme, out, 0)
}

fn ran(scenario: &Path, targets: &str, scheme: &str, out: &Path, code: i32) -> (String, PathBuf) {
    let arguments = ["run", "--targets", targets, "--scheme", scheme, "--rounds", "2", "--no-control"];
    let output = weirlab(&arguments, scenario, out);
    let printed = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert_eq!(output.status.code(), Some(code), "{printed}");
    let folder = fs::read_dir(out).unwrap().next().unwrap().unwrap().path();
    (printed, folder)
}

fn cells(folder: &Path) -> Vec<Value> {
    let data: Value = serde_json::from_str(&fs::read_to_string(folder.join("data.json")).unwrap()).unwrap();
    data["cells"].as_array().unwrap().clone()
}

/// The probes of a cell that was measured in both rounds.
fn probes(cell: &Value, name: &str, unit: &str) -> Vec<f64> {
    assert_eq!(cell["status"]["is"], "measured", "{cell}");
    let blocks = cell["blocks"].as_array().unwrap();
    assert_eq!(blocks.len(), 2, "{}", cell["target"]);
    let value = |block: &Value| {
        assert!(block["void"].is_null(), "{block}");
        assert_eq!((&block["probe"]["name"], &block["probe"]["unit"]), (&name.into(), &unit.into()));
        block["probe"]["value"].as_f64().unwrap()
    };
    blocks.iter().map(value).collect()
}

#[test]
fn a_start_is_timed_to_the_first_right_answer() {
    let (scenario, out) = (scenario("start", 200, ""), tempfile::tempdir().unwrap());
    let (printed, folder) = run(scenario.path(), "weir,nginx,direct", "https", out.path());
    let cells = cells(&folder);
    for cell in &cells[..2] {
        for value in probes(cell, "exec to first answer", "s") {
            assert!(value > 0.001 && value < 200.0, "{} took {value} s", cell["target"]);
        }
    }
    assert_eq!(cells[2]["status"]["is"], "skipped", "{}", cells[2]);
    assert!(printed.contains("exec to first answer: weir ") && printed.contains(", nginx "), "{printed}");
    let result = fs::read_to_string(folder.join("result.txt")).unwrap();
    assert!(result.contains("### Beside requests") && !result.contains("### Test Suite"), "{result}");
    let page = fs::read_to_string(folder.join("report.html")).unwrap();
    assert!(page.contains("<h1>Beside requests</h1>") && page.contains("exec to first answer"));
    assert!(!page.contains("no answer was right") && !page.contains("CPU per request, all cases"));
}

#[test]
fn a_reload_is_timed_where_the_target_says_that_it_is_in_force() {
    let (scenario, out) = (scenario("reload", 200, ""), tempfile::tempdir().unwrap());
    let (_, folder) = run(scenario.path(), "nginx,weir", "http", out.path());
    let cells = cells(&folder);
    for value in probes(&cells[1], "reload until active", "s") {
        assert!(value > 0.0 && value < 200.0, "{value}");
    }
    assert_eq!(cells[0]["status"]["is"], "skipped");
    assert!(cells[0]["status"]["why"].as_str().unwrap().contains("does not say when"), "{}", cells[0]);
    let log = fs::read_dir(folder.join("logs")).unwrap().next().unwrap().unwrap().path().join("weir.log");
    let log = fs::read_to_string(log).unwrap();
    let hashes: HashSet<&str> = log
        .lines()
        .filter(|line| line.contains("reloaded"))
        .filter_map(|line| line.split("hash").nth(1))
        .collect();
    // What was reloaded had really changed, each time otherwise.
    assert_eq!(hashes.len(), 2, "{log}");
}

#[test]
fn idle_connections_take_memory_and_more_over_tls() {
    let (scenario, out) = (scenario("idle-connections", 200, ""), tempfile::tempdir().unwrap());
    let (printed, folder) = run(scenario.path(), "nginx,weir", "both", out.path());
    let cells = cells(&folder);
    let mean = |cell: &Value| probes(cell, "memory per idle connection", "KiB").iter().sum::<f64>() / 2.0;
    let [nginx_tls, weir_tls, nginx, weir] = [0, 1, 2, 3].map(|index| mean(&cells[index]));
    assert!(nginx > 0.1 && weir > 0.1 && nginx_tls < 500.0 && weir_tls < 500.0, "{printed}");
    assert!(nginx_tls > nginx && weir_tls > weir, "{printed}");
    assert_eq!(cells[0]["blocks"][0]["good"], 400);
}

#[test]
fn a_target_that_answers_otherwise_is_not_probed() {
    let (scenario, out) = (scenario("idle-connections", 404, ""), tempfile::tempdir().unwrap());
    // Nothing was measured.
    let (_, folder) = ran(scenario.path(), "nginx", "http", out.path(), 3);
    assert_eq!(cells(&folder)[0]["status"]["is"], "different");
}

#[test]
fn what_does_not_go_together_is_refused() {
    let out = tempfile::tempdir().unwrap();
    let said = |command: &str, scenario: TempDir| {
        let arguments: &[&str] = if command == "capacity" {
            &["capacity", "--scheme", "http", "--slo", "p99=5ms"]
        } else {
            &["run", "--scheme", "http"]
        };
        let output = weirlab(arguments, scenario.path(), out.path());
        assert_eq!(output.status.code(), Some(3));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let action = "[[action]]\nname = \"r\"\nevery = \"1s\"\nreload = true\n";
    assert!(said("run", scenario("start", 200, action)).contains("has actions, which happen under load"));
    let instances = "[gateway]\ninstances = 2\n";
    assert!(said("run", scenario("reload", 200, instances)).contains("set instances to 1"));
    assert!(said("run", scenario("stat", 200, "")).contains("unknown variant `stat`"));
    assert!(said("capacity", scenario("start", 200, "")).contains("is not measured under load"));
}

#[test]
fn probes_stand_beside_requests_and_not_among_them() {
    let (load, start) =
        (crate::sample::case("kong/plain-1", "http"), crate::sample::case("weir/start", "http"));
    let seconds = [0.030, 0.032, 0.031, 0.050, 0.029, 0.031];
    let mut probed = crate::sample::cell(&start, "weir", 6, |_| 0.0);
    for (block, value) in probed.blocks.iter_mut().zip(seconds) {
        let (name, unit) = ("exec to first answer".to_owned(), "s".to_owned());
        block.probe = Some(Probe { name, value, unit });
    }
    probed.blocks[5].void = Some("disturbed".to_owned());
    let skipped = crate::sample::without_blocks(&start, "direct", Status::Skipped("no process".to_owned()));
    let run = crate::sample::run(
        vec![load.clone(), start],
        vec![crate::sample::cell(&load, "weir", 3, |_| 13.0), probed, skipped],
    );
    let analysis = Analysis::of(&run);
    assert_eq!(analysis.cases.len(), 1, "only what was measured under load");
    let [weir, direct] = analysis.probes[0].cells.as_slice() else { unreachable!("two cells") };
    let value = weir.value.unwrap();
    assert!(
        value.value > 0.029 && value.value < 0.036 && value.low < 0.031 && value.high > 0.031,
        "{value:?}"
    );
    assert_eq!((weir.worst, weir.blocks), (Some(0.050), 5));
    assert!(direct.value.is_none());
    let text = text::result(&run, &analysis);
    let row = text.lines().find(|line| line.starts_with("| direct")).unwrap();
    assert!(row.contains("skipped"), "{row}");
    assert!(
        text::answer(&run, &analysis).contains("weir/start http, exec to first answer: weir 0.03"),
        "{text}"
    );
}
