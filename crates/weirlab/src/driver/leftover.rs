//! What a laboratory that was killed left running. Each launch leaves a `started.json` in its folder for as long as it
//! runs; a later run ends what the file names, if it is still the same.
use super::DriverError;
use super::family::send;
use crate::observe::procfs::{self, Stat};
use crate::subprocess::MARK;
use rustix::process::Signal;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fs, io, thread};

const FILE: &str = "started.json";
/// How long processes may take to end once they are killed.
const TIMEOUT: Duration = Duration::from_secs(5);

/// One process: pid and start time name it for good while the machine runs. A program may change its command line, so that
/// is compared only if the file does not name the boot of the machine that it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Started {
    pid: u32,
    started: u64,
    command: String,
    #[serde(default)]
    boot: String,
}

impl Started {
    fn is(&self, stat: &Stat, boot: &str) -> bool {
        let known = !boot.is_empty() && self.boot == boot;
        stat.started == self.started && (known || procfs::command_line(self.pid) == self.command)
    }
}

/// Notes the processes of a launch.
pub(super) fn note<'a>(folder: &Path, processes: impl Iterator<Item = &'a Stat>) -> io::Result<()> {
    let boot = procfs::boot();
    let started = processes.map(|stat| Started {
        boot: boot.clone(),
        pid: stat.pid,
        started: stat.started,
        command: procfs::command_line(stat.pid),
    });
    let text = serde_json::to_vec_pretty(&started.collect::<Vec<_>>())?;
    fs::write(folder.join(FILE), text)
}

/// The launch has ended in good order.
pub(super) fn clear(folder: &Path) {
    // Where it was never written, nothing is to be removed.
    let _ = fs::remove_file(folder.join(FILE));
}

/// Ends what launches in this folder, or in folders below it, left running; returns the command lines.
///
/// # Errors
/// When the folder cannot be read.
pub fn end_below(folder: &Path) -> io::Result<Vec<String>> {
    let mut ended = end_in(folder);
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            ended.extend(end_below(&entry.path())?);
        }
    }
    Ok(ended)
}

/// Ends what was started below this folder and that no file names, such as a daemon whose laboratory was killed while it
/// started.
///
/// # Errors
/// When some of it does not end.
pub fn end_unlisted(folder: &Path) -> io::Result<()> {
    let folder = fs::canonicalize(folder)?;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let processes = procfs::processes();
        let left: Vec<u32> =
            processes.values().filter(|stat| is_below(stat, &folder)).map(|stat| stat.pid).collect();
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("processes {left:?} do not end")));
        }
        for pid in left {
            send(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// Whether a process belongs to a launch below this folder: it carries the mark, or it works there. A shell with a
/// terminal may do that too, and is left alone.
fn is_below(stat: &Stat, folder: &Path) -> bool {
    let works_there =
        || stat.terminal == 0 && procfs::folder(stat.pid).is_some_and(|at| at.starts_with(folder));
    let is_marked = || procfs::variable(stat.pid, MARK).is_some_and(|at| Path::new(&at).starts_with(folder));
    !stat.ended() && stat.pid != std::process::id() && (is_marked() || works_there())
}

/// Ends what a launch in exactly this folder left running.
pub(super) fn end_in(folder: &Path) -> Vec<String> {
    let processes = procfs::processes();
    let found = listed(folder, &processes);
    let roots = found.iter().map(|started| started.pid).collect();
    let family = procfs::with_descendants(roots, &processes);
    for pid in &family {
        send(*pid, Signal::KILL);
    }
    // Their ports are free only when they have ended.
    let deadline = Instant::now() + TIMEOUT;
    let remains =
        |pid: &u32| Stat::of(*pid).is_some_and(|now| !now.ended() && now.started == processes[pid].started);
    while family.iter().any(remains) && Instant::now() < deadline {
        thread::sleep(Duration::from_millis(1));
    }
    clear(folder);
    found.into_iter().map(|started| started.command).collect()
}

/// Two launches of this process in one folder would take each other's processes for their own.
pub(super) fn check_unused(folder: &Path) -> Result<(), DriverError> {
    let processes = procfs::processes();
    let ours = |started: &Started| processes[&started.pid].parent == std::process::id();
    match listed(folder, &processes).into_iter().find(ours) {
        None => Ok(()),
        Some(started) => Err(DriverError::Unable(format!(
            "{} is the folder of a gateway that runs ({}): give each a folder of its own",
            folder.display(),
            started.command
        ))),
    }
}

/// The processes that a folder's file names and that are still the same.
fn listed(folder: &Path, processes: &BTreeMap<u32, Stat>) -> Vec<Started> {
    let Ok(text) = fs::read(folder.join(FILE)) else { return Vec::new() };
    // A file that was cut short by a full disk names nothing.
    let mut listed: Vec<Started> = serde_json::from_slice(&text).unwrap_or_default();
    let boot = procfs::boot();
    listed.retain(|started| processes.get(&started.pid).is_some_and(|stat| started.is(stat, &boot)));
    listed
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_shell_in_the_folder_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let mut sleep = Command::new("sleep").arg("600").current_dir(folder.path()).spawn().unwrap();
        let below = fs::canonicalize(folder.path()).unwrap();
        let stat = Stat::of(sleep.id()).unwrap();
        assert!(is_below(&Stat { terminal: 0, ..stat.clone() }, &below));
        assert!(!is_below(&Stat { terminal: 34_816, ..stat.clone() }, &below));
        assert!(!is_below(&Stat { terminal: 0, ..stat }, &below.join("other")));
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
}
