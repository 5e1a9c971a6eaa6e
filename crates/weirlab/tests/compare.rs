//! `weirlab compare` on runs whose truth is known.

use crate::sample::{case, cell, run};
use std::path::Path;
use std::process::Command;
use weirlab::compare::{Comparison, Direction};
use weirlab::result::Run;
use weirlab::result::store::RunFolder;

/// A run in which `weir` costs `weir` µs and nginx 20 µs, all times the machine's slowness, with a little noise.
fn with(weir: f64, machine: f64, id: &str) -> Run {
    let plain = case("kong/plain-1", "http");
    let noise = |round: u32, salt: u32| 1.0 + 0.002 * f64::from((round * 7 + salt * 5) % 11) - 0.01;
    let cells = vec![
        cell(&plain, "weir", 10, |round| weir * machine * noise(round, 1)),
        cell(&plain, "weir (again)", 10, |round| weir * machine * noise(round, 2)),
        cell(&plain, "nginx", 10, |round| 20.0 * machine * noise(round, 3)),
    ];
    let mut run = run(vec![plain], cells);
    run.id = id.to_owned();
    if let Some(target) = run.manifest.targets.get_mut("weir") {
        target.sha256 = id.repeat(8);
    }
    run
}

fn change(comparison: &Comparison, target: &str) -> Option<(f64, Direction, Vec<String>)> {
    let cell = comparison.cells.iter().find(|cell| cell.target == target)?;
    let change = cell.change.as_ref()?;
    Some((change.ratio.value, change.verdict, change.through.clone()))
}

#[test]
fn a_slower_machine_is_not_a_slower_gateway() {
    let comparison = Comparison::of(&with(13.0, 1.0, "a"), &with(13.0, 1.4, "b"));
    let (ratio, verdict, through) = change(&comparison, "weir").unwrap();
    assert!((ratio - 1.0).abs() < 0.01, "{ratio}");
    assert_eq!((verdict, through), (Direction::CannotTell, vec!["nginx".to_owned()]));
}

#[test]
fn a_slower_gateway_is_found_on_a_slower_machine() {
    let comparison = Comparison::of(&with(13.0, 1.0, "a"), &with(14.3, 1.4, "b"));
    let (ratio, verdict, _) = change(&comparison, "weir").unwrap();
    assert!((ratio - 1.1).abs() < 0.01, "{ratio}");
    assert_eq!(verdict, Direction::More);
    // Nothing that stayed the same is left to relate nginx to: its own costs, and a larger floor.
    let (ratio, verdict, through) = change(&comparison, "nginx").unwrap();
    assert!((ratio - 1.4).abs() < 0.02, "{ratio}");
    assert_eq!((verdict, through.len()), (Direction::More, 0));
}

#[test]
fn what_only_one_run_has_is_named() {
    let mut new = with(13.0, 1.0, "b");
    new.cells.retain(|cell| cell.target != "nginx");
    let comparison = Comparison::of(&with(13.0, 1.0, "a"), &new);
    assert_eq!(comparison.only_old, ["kong/plain-1 http / nginx"]);
    assert!(comparison.only_new.is_empty());
    assert_eq!(change(&comparison, "weir").unwrap().2.len(), 0);
}

fn weirlab(arguments: &[&Path], format: &str) -> std::io::Result<(Option<i32>, String, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirlab"));
    let output = command.arg("compare").args(arguments).args(["--format", format]).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

#[test]
fn the_command_writes_text_markdown_and_json() {
    let out = tempfile::tempdir().unwrap();
    let mut new = with(14.3, 1.0, "b");
    new.manifest.kernel = "6.13.0".to_owned();
    let folders = [with(13.0, 1.0, "a"), new].map(|run| {
        let folder = RunFolder::create(out.path(), &run.id).unwrap();
        folder.save(&run).unwrap();
        folder.path().to_owned()
    });
    let runs: Vec<&Path> = folders.iter().map(|path| path.as_path()).collect();
    let (code, text, _) = weirlab(&runs, "text").unwrap();
    assert_eq!(code, Some(0));
    for expected in ["b against a", "not interleaved", "1.10 (1.", "nginx", "| kernel", "6.13.0", "more"] {
        assert!(text.contains(expected), "{expected} is missing:\n{text}");
    }
    assert!(weirlab(&runs, "md").unwrap().1.starts_with("## b against a"));
    let json: serde_json::Value = serde_json::from_str(&weirlab(&runs, "json").unwrap().1).unwrap();
    assert_eq!(json["cells"][0]["change"]["verdict"], "more");
    let (code, _, error) = weirlab(&[runs[0], &out.path().join("nowhere")], "text").unwrap();
    assert_eq!(code, Some(3));
    assert!(error.contains("there is no such run"), "{error}");
}
