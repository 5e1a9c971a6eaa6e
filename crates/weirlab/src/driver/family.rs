//! All processes of one gateway, also those that left its process group: a target may put itself into the background.
//!
//! This process adopts orphans below it, so that a daemon's parent is known: a process of the family is one of its
//! process group, an orphan that carries its mark, works in its folder or is named by its pid file, or a descendant of
//! these. An orphan that is older than the launch is not one of them, even if a pid file names it.
use crate::observe::procfs::{self, Stat};
use crate::subprocess::MARK;
use crate::target::Launch;
use rustix::process::{Pid, Signal, WaitOptions};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub(super) struct Family {
    folder: PathBuf,
    pid_file: Option<PathBuf>,
    /// The process that was started, which leads the group.
    leader: u32,
    /// What ran before the launch: when each process was started, by its number.
    earlier: BTreeMap<u32, u64>,
    /// Every group that a member was seen in: whom to wait for once it has ended.
    groups: BTreeSet<u32>,
}

impl Family {
    /// `earlier` is what ran before `leader` was started. The time of a start alone cannot tell, because the kernel counts
    /// it in hundredths of a second.
    pub(super) fn new(launch: &Launch, leader: u32, earlier: BTreeMap<u32, Stat>) -> Self {
        let earlier = earlier.into_iter().map(|(pid, stat)| (pid, stat.started)).collect();
        let (folder, pid_file) = (launch.folder.clone(), launch.pid_file.clone());
        Family { folder, pid_file, leader, earlier, groups: BTreeSet::from([leader]) }
    }

    /// The member that the pid file names, where there is such a file.
    pub(super) fn named(&self, members: &BTreeMap<u32, Stat>) -> Option<Stat> {
        members.get(&self.in_pid_file()?).cloned()
    }

    fn in_pid_file(&self) -> Option<u32> {
        fs::read_to_string(self.pid_file.as_ref()?).ok()?.trim().parse().ok()
    }

    /// Its living members.
    pub(super) fn members(&mut self) -> BTreeMap<u32, Stat> {
        let processes = procfs::processes();
        let ours = std::process::id();
        let named = self.in_pid_file();
        let adopted = |stat: &Stat| {
            stat.parent == ours
                && self.earlier.get(&stat.pid) != Some(&stat.started)
                && (named == Some(stat.pid) || self.carries_mark(stat))
        };
        let roots = processes.values().filter(|stat| stat.group == self.leader || adopted(stat));
        let found = procfs::with_descendants(roots.map(|stat| stat.pid).collect(), &processes);
        let members = processes.into_iter().filter(|(pid, _)| found.contains(pid));
        let (ended, alive): (BTreeMap<_, _>, BTreeMap<_, _>) = members.partition(|(_, stat)| stat.ended());
        self.groups.extend(alive.values().map(|stat| stat.group));
        self.wait_for(ended.values().filter(|stat| stat.parent == ours));
        alive
    }

    fn carries_mark(&self, stat: &Stat) -> bool {
        self.groups.contains(&stat.group)
            || procfs::folder(stat.pid).as_ref() == Some(&self.folder)
            || procfs::variable(stat.pid, MARK).is_some_and(|folder| self.folder == Path::new(&folder))
    }

    /// Waits for adopted members that have ended. The leader is left to its handle.
    fn wait_for<'a>(&self, ended: impl Iterator<Item = &'a Stat>) {
        for stat in ended.filter(|stat| stat.pid != self.leader) {
            // If another thread has waited for it, the work is done.
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;

    /// Many times, because two processes that are started one after the other often have the same time of start.
    #[test]
    fn a_process_older_than_the_launch_is_no_member_even_if_the_pid_file_names_it() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        for _ in 0..20 {
            let mut older = Command::new("sleep").arg("600").spawn().unwrap();
            let earlier = procfs::processes();
            let mut leader = Command::new("sleep").arg("600").process_group(0).spawn().unwrap();
            fs::write(&pid_file, older.id().to_string()).unwrap();
            let (folder, pid_file) = (folder.path().to_owned(), Some(pid_file.clone()));
            let groups = BTreeSet::from([leader.id()]);
            let earlier = earlier.into_iter().map(|(pid, stat)| (pid, stat.started)).collect();
            let mut family = Family { folder, pid_file, leader: leader.id(), earlier, groups };
            let members: Vec<u32> = family.members().into_keys().collect();
            let ids = (older.id(), leader.id());
            for process in [&mut older, &mut leader] {
                process.kill().unwrap();
                process.wait().unwrap();
            }
            assert_eq!(members, [ids.1], "the older one is {}", ids.0);
        }
    }
}
