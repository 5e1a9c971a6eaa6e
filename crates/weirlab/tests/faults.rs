//! The quick fault scenarios before real gateways, by their counts: no test here asserts a time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

// Clippy allows `unwrap` in a file without a test only there.
#[cfg(test)]
mod catalogue_bench;

use catalogue_bench::{program, root, target};
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
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
