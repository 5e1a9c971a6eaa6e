//! What is committed about the format of a run's data agrees with the code; folders of runs are written and read.

use crate::sample::golden::agrees;
use std::path::Path;
use weirlab::result::store::{self, RunFolder, StoreError};

#[test]
fn the_sample_is_up_to_date() {
    let text = serde_json::to_string(&crate::sample::plausible()).unwrap() + "\n";
    assert!(text.len() < 200_000, "{} bytes", text.len());
    agrees("tests/data/run/data.json", &text).unwrap();
}

#[test]
fn the_schema_is_up_to_date() {
    let schema = schemars::schema_for!(weirlab::result::Run);
    agrees(
        "../../docs/laboratory/data.schema.json",
        &(serde_json::to_string_pretty(&schema).unwrap() + "\n"),
    )
    .unwrap();
}

#[test]
fn a_run_is_read_from_its_folder_or_its_file() {
    let out = tempfile::tempdir().unwrap();
    let run = crate::sample::plausible();
    let folder = RunFolder::create(&out.path().join("not/yet/there"), &run.id).unwrap();
    folder.save(&run).unwrap();
    folder.save(&run).unwrap();
    let json = |path: &Path| serde_json::to_value(store::read(path).unwrap()).unwrap();
    let expected = serde_json::to_value(&run).unwrap();
    assert_eq!(json(folder.path()), expected);
    assert_eq!(json(&folder.path().join("data.json")), expected);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "a draft is left behind");
}

#[test]
fn histograms_survive_the_journey() {
    let run = crate::sample::plausible();
    let text = serde_json::to_string(&run).unwrap();
    let back: weirlab::result::Run = serde_json::from_str(&text).unwrap();
    assert_eq!(back.cells[0].blocks[0].latencies, run.cells[0].blocks[0].latencies);
}

#[test]
fn what_cannot_be_read_is_explained() {
    let out = tempfile::tempdir().unwrap();
    let message = |path: &Path| store::read(path).unwrap_err().to_string();
    assert!(message(&out.path().join("nowhere")).contains("there is no such run"));
    let file = out.path().join("data.json");
    std::fs::write(&file, "{\"schema\": 99}").unwrap();
    assert!(message(&file).contains("format 99, but this weirlab reads format 1"));
    std::fs::write(&file, "{\"schema\": 1}").unwrap();
    assert!(message(&file).contains("missing field `id`"), "{}", message(&file));
    std::fs::write(&file, "hello").unwrap();
    assert!(message(&file).contains("not the data of a run"));
}

/// `/dev/full` is a disk that is always full.
#[test]
fn a_full_disk_leaves_the_last_good_version() {
    let out = tempfile::tempdir().unwrap();
    let mut run = crate::sample::plausible();
    let folder = RunFolder::create(out.path(), "run").unwrap();
    folder.save(&run).unwrap();
    std::os::unix::fs::symlink("/dev/full", folder.path().join(".data.json.draft")).unwrap();
    run.interrupted = true;
    let error = folder.save(&run).unwrap_err();
    assert!(matches!(error, StoreError::Write(..)));
    assert!(error.to_string().contains("the disk is full; the last version saved is untouched"), "{error}");
    assert!(!store::read(folder.path()).unwrap().interrupted);
}

#[test]
fn two_runs_of_one_second_have_two_folders() {
    let out = tempfile::tempdir().unwrap();
    let names: Vec<String> = (0..3).map(|_| RunFolder::claim(out.path(), "run").unwrap().name()).collect();
    assert_eq!(names, ["run", "run-2", "run-3"]);
}
