//! The action for pull requests: its steps run here, with programs that stand in for the laboratory and for GitHub's.
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, serde_json::Value>,
    runs: Runs,
}

#[derive(Deserialize)]
struct Runs {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    name: String,
    #[serde(rename = "if")]
    condition: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    run: String,
}

fn action() -> Action {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.github/actions/weirlab-gate/action.yml");
    serde_saphyr::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn program(folder: &Path, name: &str, script: &str) {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Runs a step as GitHub does, with values in the place of its expressions.
fn step(folder: &Path, name: &str, values: &[(&str, &str)]) -> Output {
    let action = action();
    let step = action.runs.steps.iter().find(|step| step.name == name).unwrap();
    for name in step.env.keys() {
        assert!(values.iter().any(|(known, _)| known == name), "{name} has no value here");
    }
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", &step.run]).current_dir(folder);
    command.env("PATH", path).envs(values.iter().copied());
    for file in ["GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY"] {
        command.env(file, folder.join(file));
    }
    command.output().unwrap()
}

fn measured(code: u8) -> (tempfile::TempDir, Output) {
    let folder = tempfile::tempdir().unwrap();
    program(folder.path(), "lab", &format!("echo \"| table of $* |\"; exit {code}"));
    let values = [
        ("BASE", "git:main"),
        ("HEAD", "git:HEAD"),
        ("SCENARIO", "kong/plain-1"),
        ("EFFECT", "5%"),
        ("WEIRLAB", "./lab"),
    ];
    let output = step(folder.path(), "Measure", &values);
    (folder, output)
}

#[test]
fn every_exit_code_of_the_gate_has_its_verdict() {
    for (code, verdict, judged) in [(0, "pass", 0), (1, "regression", 1), (2, "cannot tell", 0)] {
        let (folder, output) = measured(code);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let said = fs::read_to_string(folder.path().join("GITHUB_OUTPUT")).unwrap();
        assert_eq!(said, format!("verdict={verdict}\n"));
        let summary = fs::read_to_string(folder.path().join("GITHUB_STEP_SUMMARY")).unwrap();
        let table =
            "| table of gate git:main git:HEAD --scenario kong/plain-1 --effect 5% --format markdown |";
        assert_eq!(summary, format!("## weirlab gate: {verdict}\n\n{table}\n"));
        let judge = step(folder.path(), "Judge", &[("VERDICT", verdict)]);
        assert_eq!(judge.status.code(), Some(judged));
    }
}

#[test]
fn a_gate_that_fails_is_no_verdict() {
    let (folder, output) = measured(3);
    assert_eq!(output.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&output.stderr).contains("exit code 3"));
    assert!(!folder.path().join("GITHUB_OUTPUT").exists());
}

#[test]
fn wrong_arguments_are_no_verdict() {
    let lab = || Command::new(env!("CARGO_BIN_EXE_weirlab"));
    let refused = lab().args(["gate", "a", "b", "--effect", "200%"]).output().unwrap();
    let why = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(3) && why.contains("--effect"), "{:?}: {why}", refused.status);
    assert_eq!(lab().args(["gate", "a"]).output().unwrap().status.code(), Some(3));
    assert_eq!(lab().args(["gate", "--help"]).output().unwrap().status.code(), Some(0));
}

#[test]
fn the_comment_has_the_table() {
    let url = "https://github.test/o/r/pull/7#issuecomment-42";
    let calls = [
        ("", "pr comment 7 --repo o/r --body-file weirlab-comment.md\n"),
        (url, "api --silent --method PATCH repos/o/r/issues/comments/42 --field body=@weirlab-comment.md\n"),
    ];
    for (own, expected) in calls {
        let (folder, _) = measured(0);
        program(
            folder.path(),
            "gh",
            &format!("[ \"$2\" = view ] && exec echo '{own}'; echo \"$@\" > called"),
        );
        let values = [("GH_TOKEN", "t"), ("PULL_REQUEST", "7"), ("REPOSITORY", "o/r")];
        let output = step(folder.path(), "Comment", &values);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::read_to_string(folder.path().join("called")).unwrap(), expected);
        let comment = fs::read_to_string(folder.path().join("weirlab-comment.md")).unwrap();
        assert!(comment.starts_with("## weirlab gate: pass\n\n| table"), "{comment}");
        assert!(comment.ends_with("\n<!-- weirlab-gate -->\n"), "{comment}");
    }
}

#[test]
fn a_regression_is_commented_and_a_pull_request_from_a_fork_is_not() {
    let steps = action().runs.steps;
    assert_eq!(
        steps.iter().map(|step| step.name.as_str()).collect::<Vec<_>>(),
        ["Measure", "Judge", "Comment"]
    );
    let condition = steps[2].condition.as_deref().unwrap();
    assert!(condition.starts_with("!cancelled() && "), "{condition}");
    let own = "github.event.pull_request.head.repo.full_name == github.repository";
    assert!(condition.contains(own), "{condition}");
}

#[test]
fn the_documented_workflow_gives_the_action_inputs_that_it_has() {
    let document = include_str!("../../../docs/laboratory/gate.md");
    let workflow = document.split("```yaml").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let workflow: serde_json::Value = serde_saphyr::from_str(workflow).unwrap();
    let steps = workflow["jobs"]["gate"]["steps"].as_array().unwrap();
    let uses = steps.iter().find(|step| step["uses"] == "./.github/actions/weirlab-gate").unwrap();
    let known = action().inputs;
    for name in uses["with"].as_object().unwrap().keys() {
        assert!(known.contains_key(name), "the action has no input {name}");
    }
}
