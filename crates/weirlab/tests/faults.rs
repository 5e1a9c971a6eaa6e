//! The quick fault scenarios before real gateways, by their counts: no test here asserts a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// Clippy allows `unwrap` in a file without a test only there.
#[cfg(test)]
mod catalogue_bench;

use catalogue_bench::{program, root, target, weir};
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use weirlab::faults::{Act, Behaviour, During, Gateway, Options, Outcome, Scenario, find, markdown, run};

/// On a machine that is busy, a request that is not lost may take this long.
const HANG_TIMEOUT: Duration = Duration::from_secs(90);

fn options() -> Options {
    Options { weirlab: PathBuf::from(env!("CARGO_BIN_EXE_weirlab")), patience: HANG_TIMEOUT, during: None }
}

fn gateway(name: &str) -> Option<Gateway> {
    let target = target(name);
    let program = program(&target)?;
    Some(Gateway::of(&target, Some(&program)).unwrap().expect("it has a faults.toml"))
}

fn outcome(scenario: &Scenario, gateway: &Gateway) -> Outcome {
    let folder = tempfile::tempdir().unwrap();
    run(scenario, gateway, &options(), folder.path())
        .unwrap_or_else(|error| panic!("{}: {error}", scenario.name))
}

fn scenario(name: &str) -> Scenario {
    find(&[name.to_owned()], &root()).unwrap().remove(0)
}

#[test]
fn every_scenario_can_be_read() {
    let scenarios = find(&[], &root()).unwrap();
    assert!(scenarios.len() > 30);
    assert!(scenarios.iter().filter(|scenario| scenario.quick).count() > 10);
}

#[test]
fn weir_keeps_its_promises_in_quick_scenarios() {
    let Some(weir) = gateway("weir") else { return };
    let quick = find(&[], &root()).unwrap().into_iter().filter(|scenario| scenario.quick);
    let outcomes: Vec<Outcome> = quick.map(|scenario| outcome(&scenario, &weir)).collect();
    let broken: Vec<&Outcome> = outcomes.iter().filter(|outcome| !outcome.holds()).collect();
    assert!(broken.is_empty(), "{}\n{broken:#?}", markdown(&outcomes));
}

#[test]
fn a_gateway_that_cannot_reload_or_be_replaced_lacks_that() {
    // What it runs does not matter here.
    let envoy = Gateway::of(&target("envoy"), Some("/bin/true".as_ref())).unwrap().unwrap();
    let (reloads, kills) = (scenario("gateway-reloaded"), scenario("upstream-killed"));
    assert_eq!(envoy.lacks(&reloads, None).as_deref(), Some("has no reload here"));
    assert_eq!(envoy.lacks(&kills, None), None);
    assert_eq!(envoy.lacks(&kills, Some(During::Reload)).as_deref(), Some("has no reload here"));
    assert_eq!(envoy.lacks(&kills, Some(During::Upgrade)).as_deref(), Some("has no upgrade here"));
}

#[test]
fn the_clock_of_nginx_moves_though_it_clears_its_environment() {
    let Some(nginx) = gateway("nginx") else { return };
    let outcome = outcome(&scenario("clock-jumps"), &nginx);
    assert!(outcome.recovered && outcome.wrong == 0, "{outcome:#?}");
}

#[test]
fn a_clock_that_cannot_be_moved_is_reported() {
    let target = target("nginx");
    let Some(nginx) = program(&target) else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("nginx");
    let text = format!("#!/bin/sh\nunset LD_PRELOAD\nexec {} \"$@\"\n", nginx.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let nginx = Gateway::of(&target, Some(&script)).unwrap().unwrap();
    let error = run(&scenario("clock-jumps"), &nginx, &options(), &folder.path().join("run")).unwrap_err();
    let said = error.to_string();
    assert!(said.contains("the clock of this target cannot be moved: a step to 3600 s was made"), "{said}");
}

/// What is lost is counted: here those of nginx.
#[test]
fn losses_are_counted() {
    let Some(nginx) = gateway("nginx") else { return };
    let mut scenario = scenario("reset-in-body");
    // Both servers cut responses short, so that every request is lost meanwhile.
    let other = scenario.steps.iter().map(|step| {
        let mut step = step.clone();
        if let Act::Behave(number, _) = &mut step.act {
            *number = 1;
        }
        step
    });
    let other: Vec<_> = other.collect();
    scenario.steps = scenario.steps.iter().cloned().zip(other).flat_map(|(one, two)| [one, two]).collect();
    assert_eq!(
        scenario.steps.iter().filter(|step| step.act == Act::Behave(1, Behaviour::ResetInBody)).count(),
        1
    );
    let outcome = outcome(&scenario, &nginx);
    assert_eq!((outcome.wrong, outcome.duplicated, outcome.hung), (0, 0, 0), "{outcome:#?}");
    assert!(outcome.lost >= 300, "{outcome:#?}");
    assert_eq!(outcome.right + outcome.lost, outcome.sent);
    assert!(outcome.recovered);
}

/// How long the laboratory waits for what cannot come.
const SHORT_TIMEOUT: Duration = Duration::from_secs(5);

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// A catalogue with Weir, but for a text of one of its files, and a scenario.
fn catalogue(file: &str, from: &str, to: &str, scenario: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for below in ["targets/weir".to_owned(), format!("scenarios/faults/{scenario}")] {
        copy(&root().join(&below), &folder.path().join(&below));
    }
    let file = folder.path().join("targets/weir").join(file);
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains(from), "{from}");
    std::fs::write(&file, text.replace(from, to)).unwrap();
    folder
}

/// A few requests of a scenario without its fault, before Weir but for a text of one of its files.
fn calm_outcome(name: &str, change: (&str, &str, &str), patience: Duration) -> Outcome {
    let mut scenario = scenario(name);
    scenario.steps.clear();
    scenario.load.requests = 100;
    changed_outcome(&scenario, change, patience)
}

/// A scenario before Weir but for a text of one of its files.
fn changed_outcome(scenario: &Scenario, (file, from, to): (&str, &str, &str), patience: Duration) -> Outcome {
    let catalogue = catalogue(file, from, to, &scenario.name);
    let target = weirlab::target::find(&["weir".to_owned()], catalogue.path()).unwrap().remove(0);
    let gateway = Gateway::of(&target, Some(&weir())).unwrap().unwrap();
    let options = Options { patience, ..options() };
    run(scenario, &gateway, &options, &catalogue.path().join("run")).unwrap_or_else(|error| panic!("{error}"))
}

const SAME: (&str, &str, &str) = ("faults.toml", "", "");

#[test]
fn redis_has_to_get_counts() {
    let outcome = calm_outcome("redis-slow", SAME, HANG_TIMEOUT);
    assert!(outcome.holds() && outcome.counted == Some(true), "{outcome:#?}");
    let without_plugin = ("faults.yml.j2", "{% if redis %}", "{% if redis and false %}");
    let outcome = calm_outcome("redis-slow", without_plugin, SHORT_TIMEOUT);
    assert_eq!(
        (outcome.holds(), outcome.counted, outcome.unexcused),
        (false, Some(false), 0),
        "{outcome:#?}"
    );
}

#[test]
fn a_fault_that_nothing_has_met_is_not_run() {
    let without_plugin = ("faults.yml.j2", "{% if redis %}", "{% if redis and false %}");
    let outcome = changed_outcome(&scenario("redis-slow"), without_plugin, SHORT_TIMEOUT);
    let why = "no answer of the store came late";
    assert_eq!(outcome.inactive, [why], "{outcome:#?}");
    assert!(!outcome.holds());
    assert!(markdown(&[outcome]).contains(&format!("not run: {why}")));
}

#[test]
fn writes_have_to_be_acknowledged_and_kept() {
    let name = "database-killed-under-writes";
    let outcome = calm_outcome(name, SAME, HANG_TIMEOUT);
    let writes = outcome.writes.unwrap();
    assert!(outcome.holds() && writes.afterwards > 0, "{outcome:#?}");
    let off = ("faults.toml", "admin_listen={{ admin.address }}", "admin_listen=off");
    let outcome = calm_outcome(name, off, SHORT_TIMEOUT);
    assert_eq!((outcome.holds(), outcome.writes.unwrap().acknowledged), (false, 0), "{outcome:#?}");
    // Each start begins with what was imported alone.
    let forgetful =
        ("faults.toml", "[ -e imported ] || \"$binary\" config", "rm -rf \"$prefix\"; \"$binary\" config");
    let outcome = calm_outcome(name, forgetful, HANG_TIMEOUT);
    let writes = outcome.writes.unwrap();
    assert!(writes.lost > 0 && writes.lost == writes.acknowledged && !outcome.holds(), "{outcome:#?}");
}

fn weirlab(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    command.arg("faults").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn a_weir_that_was_asked_for_and_did_not_run_is_a_failure() {
    let catalogue = catalogue("faults.toml", "", "", "garbage");
    let path = catalogue.path().to_str().unwrap();
    for targets in [&["--targets", "weir"][..], &[]] {
        let mut command = weirlab(&["--catalogue", path]);
        let output = command.args(targets).env("PATH", "").env_remove("WEIRLAB_WEIR").output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains("no scenario was run before weir"), "{said}");
    }
}

#[test]
fn an_interrupted_run_is_a_failure() {
    let weir = weir();
    let arguments = ["garbage", "slow-head", "--targets", "weir", "--weir", weir.to_str().unwrap()];
    let mut laboratory = weirlab(&arguments).stdout(Stdio::null()).spawn().unwrap();
    let mut said = BufReader::new(laboratory.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.by_ref().any(|line| line.starts_with("garbage before weir: ")));
    let signal = Command::new("kill").args(["-TERM", &laboratory.id().to_string()]).status();
    assert!(signal.unwrap().success());
    assert!(said.any(|line| line.starts_with("interrupted: ")));
    assert_eq!(laboratory.wait().unwrap().code(), Some(1));
}
