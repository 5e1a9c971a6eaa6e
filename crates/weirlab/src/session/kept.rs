//! What a run keeps of its configuration, in `configurations/` of its folder: the scenarios and targets that it was made
//! from, so that it can be made again from there alone, and what each target was given and how it was started.
use super::assignment::Assignment;
use super::setup::file_name;
use super::target_runner::RunningTarget;
use crate::manifest;
use crate::result::{Run, TargetManifest};
use crate::scenario::CasePlan;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The folder of all this within the folder of a run.
pub const CONFIGURATIONS: &str = "configurations";

/// How a target was started in front of a case.
#[derive(Serialize)]
struct Started<'a> {
    command: Vec<String>,
    environment: &'a BTreeMap<String, String>,
    workers: usize,
    #[serde(flatten)]
    target: Option<&'a TargetManifest>,
}

/// Copies scenarios, targets and suites as a catalogue, before anything is measured. Private scenarios are left out.
///
/// # Errors
/// When one cannot be copied.
pub(super) fn keep_catalogue(folder: &Path, assignment: &Assignment) -> io::Result<()> {
    let kept = folder.join(CONFIGURATIONS);
    for case in assignment.entries.iter().map(|entry| &entry.case) {
        let Some(scenario) = case.config.path.parent().filter(|_| !case.config.private) else { continue };
        copy_folder(scenario, &kept.join("scenarios").join(&case.case.scenario))?;
    }
    for contender in &assignment.contenders {
        copy_folder(&contender.target.folder, &kept.join("targets").join(&contender.target.name))?;
    }
    let suites = assignment.catalogue.join("suites");
    if suites.is_dir() {
        copy_folder(&suites, &kept.join("suites"))?;
    }
    Ok(())
}

/// The files of a folder, and those of the folders in it. A folder that was copied before stays as it was then.
fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        return Ok(());
    }
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let place = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &place)?;
        } else {
            fs::copy(entry.path(), place)?;
        }
    }
    Ok(())
}

/// Keeps the declarative file of a case, unless it is private, and its hash in the run. The upstream's ports, which differ
/// from run to run, are not in there.
pub(super) fn note_configuration(run: &mut Run, folder: &Path, cell: usize, case: &CasePlan) {
    let cell = &run.cells[cell];
    let ports =
        (1..=case.upstream.listeners.max(1)).map(|port| SocketAddr::from(([127, 0, 0, 1], port as u16)));
    let Ok(document) = case.document(&ports.collect::<Vec<_>>()) else { return };
    if !case.config.private {
        let path = document_path(folder, &cell.case);
        // The hash is what counts; a copy that cannot be kept is no reason to end a measurement.
        let _ = path.parent().map(fs::create_dir_all).and_then(|_| fs::write(&path, &document.text).ok());
    }
    let hash = manifest::sha256_of_text(&document.text);
    run.manifest.configurations.insert(format!("{} / {}", cell.case, cell.target), hash);
}

/// Where the declarative file of a case is kept.
fn document_path(folder: &Path, case: &str) -> PathBuf {
    // A case's name may have a dot.
    folder.join(CONFIGURATIONS).join(format!("{}.yml", file_name(case)))
}

/// The reason why a target did not start, with the scenario's own declarative file in the place of those that it was given,
/// whose folders do not stay. The run keeps one of them, because its lines are what the reason is about.
pub(super) fn with_own_file(
    run: &Run,
    folder: &Path,
    cell: usize,
    case: &CasePlan,
    rendered: &[PathBuf],
    why: String,
) -> String {
    let named = rendered.iter().find(|file| why.contains(&*file.to_string_lossy()));
    let Some(named) = named else { return why };
    let kept = document_path(folder, &run.cells[cell].case);
    let copied = || {
        fs::create_dir_all(kept.parent()?).ok()?;
        fs::copy(named, &kept).ok()
    };
    let own = manifest::shortened(&case.config.path.to_string_lossy());
    let own = match (!case.config.private).then(copied).flatten() {
        Some(_) => format!("{own} (rendered: {})", kept.display()),
        None => own,
    };
    rendered.iter().fold(why, |why, file| why.replace(&*file.to_string_lossy(), &own))
}

/// Keeps what a target was given, unless the case is private, and how it was started, the first time that it is.
///
/// # Errors
/// When it cannot be written.
pub(super) fn keep_rendered(
    run: &Run,
    folder: &Path,
    cell: usize,
    case: &CasePlan,
    open: &RunningTarget,
) -> io::Result<()> {
    let cell = &run.cells[cell];
    let place = place(folder, &cell.case, &cell.target);
    if place.exists() {
        return Ok(());
    }
    fs::create_dir_all(&place)?;
    for (path, text) in open.launch.configuration().filter(|_| !case.config.private) {
        let copy = place.join(path);
        copy.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(copy, text)?;
    }
    let started = Started {
        command: open.launch.command.iter().map(|word| manifest::shortened(word)).collect(),
        environment: &open.launch.environment,
        workers: open.workers,
        target: run.manifest.targets.get(&cell.target),
    };
    fs::write(place.join("started.json"), serde_json::to_string_pretty(&started)? + "\n")
}

fn place(folder: &Path, case: &str, target: &str) -> PathBuf {
    folder.join(CONFIGURATIONS).join("rendered").join(file_name(case)).join(file_name(target))
}
