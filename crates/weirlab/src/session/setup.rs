//! Sets a session up: its cells before anything is measured, and what is known about them without measuring.
use super::assignment::{Assignment, Entry};
use super::profile::Profile;
use super::progress::Progress;
use super::target_runner::Contender;
use crate::host::Site;
use crate::manifest;
use crate::observe::Layout;
use crate::result::{Cell, Run, SCHEMA, Status, TargetManifest};
use crate::scenario::{CasePlan, Measure};
use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

/// What starting, checking and ending a target usually takes beside the load.
const AROUND: Duration = Duration::from_millis(350);

/// What opening a connection that then idles usually takes.
const OPENING: Duration = Duration::from_micros(500);

/// A name for the run's folder: when, and what.
pub(super) fn run_id(assignment: &Assignment) -> String {
    let when = manifest::now().replace([':', '-'], "").replace('T', "-");
    let when = when.split(['.', 'Z']).next().unwrap_or_default();
    let what = match assignment.entries.as_slice() {
        [one] => one.case.case.scenario.replace('/', "-"),
        many => format!("{}-cases", many.len()),
    };
    format!("{when}-{}-{what}", assignment.kind)
}

/// How many workers the target of an entry has in all.
fn workers(assignment: &Assignment, entry: &Entry) -> usize {
    entry.case.gateway.workers.unwrap_or(assignment.workers) * entry.case.gateway.instances.max(1)
}

/// The CPUs of each entry.
pub(super) fn layouts(assignment: &Assignment) -> Vec<Layout> {
    let layout = |entry: &Entry| {
        let layout = assignment.site.layout(workers(assignment, entry));
        match entry.case.beside().as_slice() {
            [] => layout,
            beside => layout.with_instances(entry.case.gateway.instances, &beside.join(" and ")),
        }
    };
    assignment.entries.iter().map(layout).collect()
}

/// The run before its first block.
pub(super) fn run(assignment: &Assignment, id: &str, layouts: &[Layout]) -> Run {
    let mut manifest = layouts.first().map(manifest::collect).unwrap_or_default();
    manifest.cpu_sharing = layouts.iter().any(|layout| layout.sharing);
    let mut words: Vec<String> = layouts.iter().map(|layout| layout.words.clone()).collect();
    words.dedup();
    manifest.pinning = words.join("; ");
    assignment.site.describe(&mut manifest);
    for contender in assignment.contenders.iter().filter(|contender| !contender.generator.is_own()) {
        let name = format!("generator {}", contender.generator.kind.name());
        manifest.machine.entry(name).or_insert_with(|| contender.generator.version.clone());
    }
    for contender in &assignment.contenders {
        manifest.targets.insert(contender.label.clone(), target_manifest(contender, &assignment.site));
    }
    Run {
        schema: SCHEMA,
        id: id.to_owned(),
        kind: assignment.kind.to_owned(),
        profile: assignment.profile.name.clone(),
        seed: assignment.seed,
        baseline: assignment.contenders.first().map(|first| first.label.clone()).unwrap_or_default(),
        interrupted: false,
        manifest,
        cases: assignment.entries.iter().map(|entry| entry.case.case.clone()).collect(),
        cells: assignment.entries.iter().flat_map(|entry| cells(entry, &assignment.contenders)).collect(),
        capacities: Vec::new(),
        flames: Vec::new(),
        chains: Vec::new(),
    }
}

/// Warns of targets with more workers than CPUs, because they serve no more than with one for each.
pub(super) fn warn_of_workers(assignment: &Assignment, layouts: &[Layout], progress: &Progress) {
    let mut warnings = Vec::new();
    for (entry, layout) in assignment.entries.iter().zip(layouts) {
        let (workers, cpus) = (workers(assignment, entry), layout.target.len());
        if cpus > 0 && workers > cpus {
            warnings.push(format!(
                "warning: {workers} workers share {cpus} CPU{} ({}): requests per second say nothing of {workers} cores; \
                 use fewer workers, or a machine with more CPUs",
                if cpus == 1 { "" } else { "s" },
                layout.words
            ));
        }
    }
    warnings.dedup();
    warnings.iter().for_each(|warning| progress.line(warning));
}

/// Notes what disturbs the measurement: that is a fact of the machines.
pub(super) fn note_site(site: &Site, run: &mut Run, progress: &Progress) {
    if site.other_session_running {
        run.manifest.machine.insert("another weirlab".to_owned(), "running at the start".to_owned());
        progress.line("another weirlab is running on this machine and disturbs the measurement; wait for it, or expect wider intervals");
    }
    site.warnings.iter().for_each(|warning| progress.line(warning));
}

fn cells<'a>(entry: &'a Entry, contenders: &'a [Contender]) -> impl Iterator<Item = Cell> + 'a {
    entry.contenders.iter().map(|index| {
        let contender = &contenders[*index];
        let status = match (&contender.unavailable, contender.target.lacks(&entry.case.needs)) {
            (_, Some(lacks)) => Status::Skipped(lacks),
            (Some(why), None) => Status::Unmeasured(why.clone()),
            (None, None) => Status::Measured,
        };
        Cell {
            case: entry.case.case.name.clone(),
            target: contender.label.clone(),
            control: contender.control,
            status,
            cut_short: None,
            parity: Vec::new(),
            blocks: Vec::new(),
        }
    })
}

fn target_manifest(contender: &Contender, site: &Site) -> TargetManifest {
    let mut manifest = contender.manifest.clone();
    manifest.driver = site.driver.name().to_owned();
    if !contender.target.has_process() {
        // The upstream is of this program.
        manifest.sha256 = env::current_exe().and_then(|own| manifest::sha256_of(&own)).unwrap_or_default();
    } else if contender.unavailable.is_none() {
        manifest.binary = manifest::shortened(&contender.binary.to_string_lossy());
        let command = contender.target.version_command(&contender.binary).unwrap_or_default();
        (manifest.sha256, manifest.version) = site.hosts.target.program(&contender.binary, &command);
    }
    manifest
}

/// The index of a cell in the run.
pub(super) fn cell_index(entries: &[Entry], case: usize, target: usize) -> usize {
    entries[..case].iter().map(|entry| entry.contenders.len()).sum::<usize>() + target
}

/// About how long a block takes, all in all.
pub(super) fn block_time(profile: &Profile, case: &CasePlan) -> Duration {
    match case.measure {
        Measure::Load => profile.window(case) + profile.warm_up.at_least + AROUND,
        Measure::Start | Measure::Reload => AROUND * 2,
        Measure::IdleConnections => OPENING * case.load.connections as u32 + AROUND * 2,
    }
}

/// About how long the session takes.
pub(super) fn expected(assignment: &Assignment, run: &Run, rounds: u32) -> Duration {
    let mut total = Duration::ZERO;
    for (index, entry) in assignment.entries.iter().enumerate() {
        let first = cell_index(&assignment.entries, index, 0);
        let cells = &run.cells[first..first + entry.contenders.len()];
        let measured = cells.iter().filter(|cell| cell.status == Status::Measured).count();
        total += block_time(&assignment.profile, &entry.case) * measured as u32;
    }
    total * rounds
}

/// Notes why a cell is measured no further. What was measured before stays.
pub(super) fn end(cell: &mut Cell, status: Status) {
    match status {
        Status::Failed(why) if !cell.blocks.is_empty() => cell.cut_short = Some(why),
        status => cell.status = status,
    }
}

/// The message for a cell that is not measured further.
pub(super) fn not_measured(cell: &Cell, status: &Status) -> String {
    let why = match status {
        Status::Measured => "measured",
        Status::Skipped(why) | Status::Different(why) | Status::Failed(why) | Status::Unmeasured(why) => why,
    };
    format!("{} on {} is not measured: {why}", cell.case, cell.target)
}

/// Appends to the log of a target.
pub(super) fn append_log(folder: &Path, cell: &Cell, log: &str) -> io::Result<()> {
    if log.is_empty() {
        return Ok(());
    }
    let folder = folder.join("logs").join(file_name(&cell.case));
    fs::create_dir_all(&folder)?;
    let path = folder.join(format!("{}.log", file_name(&cell.target)));
    File::options().create(true).append(true).open(path)?.write_all(log.as_bytes())
}

/// A name of a case or a target as that of a file.
pub(super) fn file_name(name: &str) -> String {
    name.replace(|c: char| !(c.is_ascii_alphanumeric() || "-_.@".contains(c)), "-")
}
