//! The costs that a real gateway reports for the chain of any declarative file.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const CHAIN: &str = "_format_version: '3.0'
services:
- url: https://orders.internal/v1
  routes: [{name: orders, paths: [/orders], hosts: [shop.test]}]
plugins:
- name: key-auth
- {name: request-transformer, config: {add: {headers: ['x-a:{{ b }}']}}}
- {name: correlation-id, config: {echo_downstream: true}}
- {name: file-log, config: {path: /dev/null}}
consumers: [{username: alice, keyauth_credentials: [{key: k}]}]
";

fn waterfall(out: &Path, more: &[&str]) -> Output {
    waterfall_of(CHAIN, out, more)
}

fn waterfall_of(chain: &str, out: &Path, more: &[&str]) -> Output {
    let file = out.join("shop.yml");
    fs::write(&file, chain).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.current_dir(crate::catalogue_bench::root()).stdin(Stdio::null());
    command.args(["waterfall", "--request", "GET /orders/7", "-H", "Host: shop.test", "--duration", "2s"]);
    command
        .arg("--config")
        .arg(&file)
        .arg("--weir")
        .arg(crate::catalogue_bench::weir())
        .arg("--out")
        .arg(out.join("runs"));
    command.args(more).output().expect("weirlab starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn each_plugin_of_a_chain_is_shown_in_its_order_and_the_rest_is_the_engine() {
    let out = tempfile::tempdir().unwrap();
    let output = waterfall(out.path(), &["-H", "apikey: k"]);
    let printed = text(&output.stdout);
    assert!(output.status.success(), "{printed}{}", text(&output.stderr));
    let run = fs::read_dir(out.path().join("runs")).unwrap().next().unwrap().unwrap().path();
    let data: Value = serde_json::from_str(&fs::read_to_string(run.join("data.json")).unwrap()).unwrap();
    let chain = &data["chains"][0];
    assert_eq!((&chain["target"], &chain["route"]), (&"weir".into(), &"orders".into()));
    assert!(chain["requests"].as_u64().unwrap() > 0 && chain["cpu_us"].as_f64().unwrap() > 0.0, "{chain}");
    let parts: Vec<(&str, &str)> = chain["parts"].as_array().unwrap().iter().map(part).collect();
    let expected = [
        ("access", "correlation-id"),
        ("access", "key-auth"),
        ("access", "request-transformer"),
        ("upstream", "upstream"),
        ("response", "correlation-id"),
        ("log", "file-log"),
    ];
    // Hooks are timed by the wall clock: on a machine that is busy otherwise they may sum to more than the CPU time, and then
    // nothing is left for the engine.
    let hooks =
        chain["parts"].as_array().unwrap().iter().filter(|it| !["upstream", "engine"].contains(&part(it).0));
    let is_crowded =
        hooks.map(|it| it["mean_us"].as_f64().unwrap()).sum::<f64>() > chain["cpu_us"].as_f64().unwrap();
    let engine = (!is_crowded).then_some(("engine", "the gateway itself"));
    assert_eq!(parts, expected.into_iter().chain(engine).collect::<Vec<_>>());
    assert!(printed.contains("request-transformer") && (is_crowded || printed.contains("█")), "{printed}");
    let result = fs::read_to_string(run.join("result.txt")).unwrap();
    // Where the machine is busy, that is said first.
    assert!(result.contains("### What each plugin costs\nweir, "), "{result}");
    assert!(result.contains("file-log") && !result.contains("no run counts"), "{result}");
    let page = fs::read_to_string(run.join("report.html")).unwrap();
    assert!(page.contains("What each plugin costs") && page.contains("request-transformer, access"));
}

/// All files in a folder and those in it, with what they hold.
fn contents(folder: &Path) -> Vec<(PathBuf, String)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let content = |path: PathBuf| match path.is_dir() {
        true => contents(&path),
        false => vec![(path.clone(), text(&fs::read(&path).unwrap()))],
    };
    entries.flat_map(content).collect()
}

#[test]
fn the_run_keeps_no_secret_of_the_file_or_the_request() {
    let out = tempfile::tempdir().unwrap();
    let secret = "s3cret-of-alice";
    let chain = CHAIN.replace("key: k}", &format!("key: {secret}}}"));
    let output = waterfall_of(&chain, out.path(), &["-H", &format!("apikey: {secret}")]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let run = fs::read_dir(out.path().join("runs")).unwrap().next().unwrap().unwrap().path();
    let contents = contents(&run);
    for (path, content) in &contents {
        assert!(!content.contains(secret), "{} has the secret", path.display());
    }
    assert!(contents.iter().any(|(path, _)| path.ends_with("started.json")), "{contents:?}");
    let data: Value = serde_json::from_str(&fs::read_to_string(run.join("data.json")).unwrap()).unwrap();
    assert_eq!(data["manifest"]["configurations"].as_object().unwrap().len(), 1);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    let refused = command.arg("reproduce").arg(&run).output().unwrap();
    let why = text(&refused.stderr);
    assert!(!refused.status.success() && why.contains("may hold secrets"), "{why}");
}

fn part(part: &Value) -> (&str, &str) {
    (part["phase"].as_str().unwrap(), part["name"].as_str().unwrap())
}

#[test]
fn what_cannot_be_shown_is_refused_with_the_reason() {
    let out = tempfile::tempdir().unwrap();
    let refused = waterfall(out.path(), &[]);
    assert!(!refused.status.success());
    assert!(text(&refused.stderr).contains("401"), "who is not let in: {}", text(&refused.stderr));
    assert!(text(&refused.stderr).contains("give the credential"), "{}", text(&refused.stderr));
    let refused = waterfall(out.path(), &["--targets", "nginx"]);
    assert!(text(&refused.stderr).contains("nginx does not report"), "{}", text(&refused.stderr));
    let refused = waterfall(out.path(), &["-H", "apikey: k", "--route", "none"]);
    assert!(text(&refused.stderr).contains("a route called none"), "{}", text(&refused.stderr));
}

#[test]
fn answers_other_than_expected_are_reported_with_a_hint() {
    let out = tempfile::tempdir().unwrap();
    let limited = CHAIN.replace(
        "- {name: correlation-id, config: {echo_downstream: true}}",
        "- {name: rate-limiting, config: {hour: 20}}",
    );
    let failed = waterfall_of(&limited, out.path(), &["-H", "apikey: k"]);
    let printed = text(&failed.stderr);
    assert!(!failed.status.success());
    for part in ["429 (", " times)", "expected was 200", "raise its limit"] {
        assert!(printed.contains(part), "{part}: {printed}");
    }
}
