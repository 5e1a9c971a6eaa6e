//! The CPU time, memory and context switches of a process tree.
//!
//! CPU time is the scheduler's own, in nanoseconds, kept for every thread apart: what a thread that is gone had used
//! when it was last seen stays counted. What a process used after that, or one that came and went between two samples,
//! is in its parent's account once it was waited for, in ticks: [`Sample::since`] adds it. So the workers that a reload
//! replaces are counted to their end. What remains are threads that came and went within a process that lives: where
//! the kernel's accounting per process has seen more than its rounding explains, it is taken instead. A thread that
//! runs at the moment of a sample is behind by up to one timer tick (1 to 10 ms).
use super::procfs::{self, Stat, numbers};
use crate::result::Usage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// A process and all that descend from it.
///
/// Files below `/proc` stay open between samples, because a sample is taken at the edges of a measured window, on
/// CPUs that are busy.
#[derive(Debug)]
pub struct ProcessTree {
    root: u32,
    /// Whether the kernel lists a thread's children; not every one is built to.
    lists_children: bool,
    tasks: BTreeMap<(u32, u32), Task>,
    processes: BTreeMap<u32, Process>,
    /// What threads had used that are gone.
    gone: Counters,
    /// What processes had used, when they were last seen, that are gone and that a process of the tree waited for.
    reaped: u64,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Process {
    stat: File,
    /// Nanoseconds of its threads that are gone.
    gone: u64,
}

#[derive(Debug)]
struct Task {
    schedstat: File,
    status: File,
    children: Option<File>,
    used: Counters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Counters {
    nanoseconds: u64,
    voluntary: u64,
    involuntary: u64,
}

/// What a tree has used so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    used: Counters,
    /// By the kernel's accounting, in ticks; children that were waited for included.
    user_ticks: u64,
    system_ticks: u64,
    /// Of these, what children had used in all that were waited for.
    reaped_ticks: u64,
    /// What of that is in `used`, in nanoseconds.
    reaped: u64,
    rss_kib: u64,
    rss_peak_kib: u64,
    processes: u32,
}

impl ProcessTree {
    /// The tree below this process.
    #[must_use]
    pub fn new(root: u32) -> Self {
        ProcessTree {
            root,
            lists_children: Path::new("/proc/thread-self/children").exists(),
            tasks: BTreeMap::new(),
            processes: BTreeMap::new(),
            gone: Counters::default(),
            reaped: 0,
            buffer: vec![0; 8192],
        }
    }

    /// The processes of the tree, as of the last sample.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.processes.keys().copied().collect()
    }

    /// Looks at every process and thread of the tree. Of one that has ended, what it had used is kept.
    pub fn sample(&mut self) -> Sample {
        let mut sample = Sample::default();
        self.list();
        self.read_times();
        self.read_statuses(&mut sample);
        self.read_stats(&mut sample);
        sample.used = self.tasks.values().fold(self.gone, |sum, task| sum.plus(task.used));
        sample.reaped = self.reaped;
        sample
    }

    /// Finds the processes and threads that are there now, opens the new ones and drops those that are gone.
    fn list(&mut self) {
        let mut seen = BTreeSet::new();
        let mut waiting = self.known();
        while let Some(pid) = waiting.pop() {
            let threads = numbers(&format!("/proc/{pid}/task"));
            if threads.is_empty() || seen.range((pid, 0)..=(pid, u32::MAX)).next().is_some() {
                continue;
            }
            self.open_process(pid);
            for thread in threads {
                if self.open_task(pid, thread) {
                    seen.insert((pid, thread));
                    waiting.extend(self.children(pid, thread));
                }
            }
        }
        self.forget(&seen);
    }

    /// Where to look first: the root, or all at once where the kernel would not lead from one to the next.
    fn known(&self) -> Vec<u32> {
        let root = BTreeSet::from([self.root]);
        let all =
            if self.lists_children { root } else { procfs::with_descendants(root, &procfs::processes()) };
        all.into_iter().collect()
    }

    fn open_process(&mut self, pid: u32) {
        // The file of a process that has ended stays unreadable, even when its number is used anew.
        let buffer = &mut self.buffer;
        if self.processes.get(&pid).is_some_and(|process| read(&process.stat, buffer).is_some()) {
            return;
        }
        self.bury(pid);
        if let Ok(stat) = File::open(format!("/proc/{pid}/stat")) {
            self.processes.insert(pid, Process { stat, gone: 0 });
        }
    }

    /// A process has ended. Unless it was the root, its parent is of the tree and has all that it used in its account.
    fn bury(&mut self, pid: u32) {
        let threads: Vec<_> = self.tasks.range((pid, 0)..=(pid, u32::MAX)).map(|(key, _)| *key).collect();
        for key in threads {
            self.end_task(key);
        }
        let used = self.processes.remove(&pid).map_or(0, |process| process.gone);
        if pid != self.root {
            self.reaped += used;
        }
    }

    /// A thread has ended: what it was last seen to have used stays counted.
    fn end_task(&mut self, key: (u32, u32)) {
        let Some(task) = self.tasks.remove(&key) else { return };
        self.gone = self.gone.plus(task.used);
        if let Some(process) = self.processes.get_mut(&key.0) {
            process.gone += task.used.nanoseconds;
        }
    }

    fn open_task(&mut self, pid: u32, thread: u32) -> bool {
        if let Some(task) = self.tasks.get(&(pid, thread)) {
            if read(&task.schedstat, &mut self.buffer).is_some() {
                return true;
            }
            self.end_task((pid, thread));
        }
        match Task::open(pid, thread) {
            Ok(task) => self.tasks.insert((pid, thread), task).is_none(),
            Err(_) => false,
        }
    }

    fn children(&mut self, pid: u32, thread: u32) -> Vec<u32> {
        if !self.lists_children {
            return Vec::new();
        }
        let file = self.tasks.get(&(pid, thread)).and_then(|task| task.children.as_ref());
        let text = file.and_then(|file| read(file, &mut self.buffer)).unwrap_or_default();
        text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    fn forget(&mut self, seen: &BTreeSet<(u32, u32)>) {
        let threads: Vec<_> = self.tasks.keys().filter(|key| !seen.contains(key)).copied().collect();
        threads.into_iter().for_each(|key| self.end_task(key));
        let there = |pid: u32| seen.range((pid, 0)..=(pid, u32::MAX)).next().is_some();
        let ended: Vec<_> = self.processes.keys().filter(|pid| !there(**pid)).copied().collect();
        ended.into_iter().for_each(|pid| self.bury(pid));
    }

    /// CPU times first, and close together: they are what a request's cost is computed from.
    fn read_times(&mut self) {
        for task in self.tasks.values_mut() {
            let text = read(&task.schedstat, &mut self.buffer).unwrap_or_default();
            if let Some(time) = text.split(' ').next().and_then(|time| time.parse().ok()) {
                task.used.nanoseconds = time;
            }
        }
    }

    fn read_statuses(&mut self, sample: &mut Sample) {
        for ((pid, thread), task) in &mut self.tasks {
            let status = read(&task.status, &mut self.buffer).unwrap_or_default();
            for line in status.lines() {
                let Some((name, value)) = line.split_once(':') else { continue };
                let number =
                    || value.split_ascii_whitespace().next().and_then(|number| number.parse::<u64>().ok());
                match name {
                    "VmHWM" if pid == thread => sample.rss_peak_kib += number().unwrap_or(0),
                    "VmRSS" if pid == thread => sample.rss_kib += number().unwrap_or(0),
                    "voluntary_ctxt_switches" => {
                        task.used.voluntary = number().unwrap_or(task.used.voluntary)
                    }
                    "nonvoluntary_ctxt_switches" => {
                        task.used.involuntary = number().unwrap_or(task.used.involuntary)
                    }
                    _ => {}
                }
            }
        }
    }

    fn read_stats(&mut self, sample: &mut Sample) {
        for process in self.processes.values() {
            let Some(stat) = read(&process.stat, &mut self.buffer).and_then(Stat::parse) else { continue };
            sample.user_ticks += stat.user + stat.children_user;
            sample.system_ticks += stat.system + stat.children_system;
            sample.reaped_ticks += stat.children_user + stat.children_system;
            sample.processes += u32::from(!stat.ended());
        }
    }
}

impl Task {
    fn open(pid: u32, thread: u32) -> io::Result<Task> {
        let open = |name: &str| File::open(format!("/proc/{pid}/task/{thread}/{name}"));
        Ok(Task {
            schedstat: open("schedstat")?,
            status: open("status")?,
            children: open("children").ok(),
            used: Counters::default(),
        })
    }
}

impl Counters {
    fn plus(self, other: Counters) -> Counters {
        Counters {
            nanoseconds: self.nanoseconds + other.nanoseconds,
            voluntary: self.voluntary + other.voluntary,
            involuntary: self.involuntary + other.involuntary,
        }
    }
}

impl Sample {
    /// What was used between an earlier sample of the same tree and this one.
    #[must_use]
    pub fn since(&self, earlier: &Sample) -> Usage {
        let user = self.user_ticks.saturating_sub(earlier.user_ticks) as f64;
        let system = self.system_ticks.saturating_sub(earlier.system_ticks) as f64;
        let tick_us = 1e6 / rustix::param::clock_ticks_per_second() as f64;
        let threads_us = self.used.nanoseconds.saturating_sub(earlier.used.nanoseconds) as f64 / 1e3;
        let ticks_us = (user + system) * tick_us;
        // What children used that have ended, beyond what was seen of it.
        let reaped_us = self.reaped_ticks.saturating_sub(earlier.reaped_ticks) as f64 * tick_us;
        let seen_us = self.reaped.saturating_sub(earlier.reaped) as f64 / 1e3;
        let threads_us = threads_us + (reaped_us - seen_us).max(0.0);
        // Each process rounds its user and its system time, at either end.
        let rounding_us = 2.0 * tick_us * f64::from(self.processes.max(earlier.processes));
        let cpu_us = if ticks_us > threads_us + rounding_us { ticks_us } else { threads_us };
        let user_share = if user + system > 0.0 { user / (user + system) } else { self.user_share() };
        Usage {
            cpu_us,
            user_us: cpu_us * user_share,
            system_us: cpu_us * (1.0 - user_share),
            rss_kib: self.rss_kib,
            rss_peak_kib: self.rss_peak_kib.max(earlier.rss_peak_kib),
            voluntary: self.used.voluntary.saturating_sub(earlier.used.voluntary),
            involuntary: self.used.involuntary.saturating_sub(earlier.used.involuntary),
            processes: self.processes,
        }
    }

    /// Since the tree began: what is left to go by when a window is shorter than a tick.
    fn user_share(&self) -> f64 {
        let all = self.user_ticks + self.system_ticks;
        if all == 0 { 1.0 } else { self.user_ticks as f64 / all as f64 }
    }
}

/// A whole file of the kernel, if its process still exists.
fn read<'a>(file: &File, buffer: &'a mut Vec<u8>) -> Option<&'a str> {
    let mut length = 0;
    loop {
        if length == buffer.len() {
            buffer.resize(2 * length, 0);
        }
        match file.read_at(&mut buffer[length..], length as u64) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
    if length == 0 { None } else { std::str::from_utf8(&buffer[..length]).ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn children_are_found_where_the_kernel_does_not_list_them() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & echo $!; wait"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = io::BufReader::new(shell.stdout.take().unwrap());
        io::BufRead::read_line(&mut output, &mut line).unwrap();
        let mut tree = ProcessTree { lists_children: false, ..ProcessTree::new(shell.id()) };
        tree.sample();
        let child: u32 = line.trim().parse().unwrap();
        let pid = rustix::process::Pid::from_raw(child as i32).unwrap();
        // The shell ends with what it waits for.
        rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert_eq!(BTreeSet::from_iter(tree.pids()), BTreeSet::from([shell.id(), child]));
    }
}
