//! The CPU time, memory and context switches of a process tree.
//!
//! CPU time is the scheduler's own, in nanoseconds, kept for every thread apart: what a thread that is gone had used
//! when it was last seen stays counted. What it used after that is lost to this count, as is a thread that came and
//! went between two samples. The kernel's accounting per process, in ticks, still holds it: where that has seen more
//! than its rounding explains, [`Sample::since`] takes it instead. A thread that runs at the moment of a sample is
//! behind by up to one timer tick (1 to 10 ms).
use super::procfs::{self, Stat, numbers};
use crate::result::Usage;
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
    stats: BTreeMap<u32, File>,
    /// What threads had used that are gone.
    gone: Counters,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Task {
    schedstat: File,
    status: File,
    children: Option<File>,
    used: Counters,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counters {
    nanoseconds: u64,
    voluntary: u64,
    involuntary: u64,
}

/// What a tree has used so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    used: Counters,
    /// By the kernel's accounting, in ticks; children that were waited for included.
    user_ticks: u64,
    system_ticks: u64,
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
            stats: BTreeMap::new(),
            gone: Counters::default(),
            buffer: vec![0; 8192],
        }
    }

    /// The processes of the tree, as of the last sample.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        self.stats.keys().copied().collect()
    }

    /// Looks at every process and thread of the tree. Of one that has ended, what it had used is kept.
    pub fn sample(&mut self) -> Sample {
        let mut sample = Sample::default();
        self.list();
        self.read_times();
        self.read_statuses(&mut sample);
        self.read_stats(&mut sample);
        sample.used = self.tasks.values().fold(self.gone, |sum, task| sum.plus(task.used));
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
        if self.stats.get(&pid).is_none_or(|file| read(file, buffer).is_none())
            && let Ok(file) = File::open(format!("/proc/{pid}/stat"))
        {
            self.stats.insert(pid, file);
        }
    }

    fn open_task(&mut self, pid: u32, thread: u32) -> bool {
        if let Some(task) = self.tasks.get(&(pid, thread)) {
            if read(&task.schedstat, &mut self.buffer).is_some() {
                return true;
            }
            self.gone = self.gone.plus(task.used);
            self.tasks.remove(&(pid, thread));
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
        let gone = &mut self.gone;
        self.tasks.retain(|key, task| {
            let there = seen.contains(key);
            if !there {
                *gone = gone.plus(task.used);
            }
            there
        });
        self.stats.retain(|pid, _| seen.range((*pid, 0)..=(*pid, u32::MAX)).next().is_some());
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
        for file in self.stats.values() {
            let Some(stat) = read(file, &mut self.buffer).and_then(Stat::parse) else { continue };
            sample.user_ticks += stat.user + stat.children_user;
            sample.system_ticks += stat.system + stat.children_system;
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

/// A whole file of the kernel's, if what it tells of is still there.
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
