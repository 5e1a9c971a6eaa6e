//! All processes of one gateway, also those that left its process group: a target may put itself into the background.
//!
//! This process adopts orphans below it, so that a daemon's parent is known: a process of the family is one of its
//! process group, an orphan that carries its mark or works in its folder, or a descendant of these.
use crate::observe::procfs::{self, Stat};
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The environment variable that marks what belongs to a launch: its folder.
pub(super) const MARK: &str = "WEIRLAB_FOLDER";

pub(super) struct Family {
    folder: PathBuf,
    /// The process that was started, which leads the group.
    leader: u32,
    /// Every group that a member was seen in: whom to wait for once it has ended.
    groups: BTreeSet<u32>,
}

impl Family {
    pub(super) fn new(folder: &Path, leader: u32) -> Self {
        Family { folder: folder.to_owned(), leader, groups: BTreeSet::from([leader]) }
    }

    /// Its living members.
    pub(super) fn members(&mut self) -> BTreeMap<u32, Stat> {
        let processes = procfs::processes();
        let ours = std::process::id();
        let roots = processes.values().filter(|stat| stat.group == self.leader || self.adopted(stat, ours));
        let found = procfs::with_descendants(roots.map(|stat| stat.pid).collect(), &processes);
        let members = processes.into_iter().filter(|(pid, _)| found.contains(pid));
        let (ended, alive): (BTreeMap<_, _>, BTreeMap<_, _>) = members.partition(|(_, stat)| stat.ended());
        self.groups.extend(alive.values().map(|stat| stat.group));
        self.wait_for(ended.values().filter(|stat| stat.parent == ours));
        alive
    }

    fn adopted(&self, stat: &Stat, ours: u32) -> bool {
        stat.parent == ours
            && (self.groups.contains(&stat.group)
                || procfs::folder(stat.pid).as_ref() == Some(&self.folder)
                || procfs::has_variable(stat.pid, MARK, &self.folder.to_string_lossy()))
    }

    /// Waits for adopted members that have ended. The leader is left to its handle.
    fn wait_for<'a>(&self, ended: impl Iterator<Item = &'a Stat>) {
        for stat in ended.filter(|stat| stat.pid != self.leader) {
            // Whoever else has waited for it has done what is wanted here.
            let _ = rustix::process::waitpid(pid(stat.pid), WaitOptions::NOHANG);
        }
    }

    /// Kills all members, over and over, since a process may start another while it is killed.
    pub(super) fn kill(&mut self) -> bool {
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let members = self.members();
            if members.is_empty() {
                return true;
            }
            if Instant::now() > deadline {
                return false;
            }
            for member in members.keys() {
                send(*member, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Sends a signal; false if there is no such process, or not one of ours.
pub(super) fn send(process: u32, signal: Signal) -> bool {
    pid(process).is_some_and(|pid| rustix::process::kill_process(pid, signal).is_ok())
}

fn pid(process: u32) -> Option<Pid> {
    i32::try_from(process).ok().and_then(Pid::from_raw)
}
