//! The descriptors of a gateway: how many more its processes may open, and whether one of them runs out.
use super::FaultError;
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// How often descriptors are looked at.
const LOOK: Duration = Duration::from_millis(1);
/// What is open at each of so many looks stays open; other descriptors come and go with requests.
const LOOKS: usize = 50;
/// How long a limit may take to be reached before it is lowered.
const REACHED_WITHIN: Duration = Duration::from_millis(500);

/// Lets these processes open so many more descriptors than those that stay open, and waits until one of them has opened all that
/// it may. If none does, because few requests are in flight at once on this machine, they may open half as many, and so on. Whether
/// one did in the end.
pub(super) fn exhaust(processes: &BTreeSet<u32>, more: u64) -> Result<bool, FaultError> {
    let staying: Vec<(u32, BTreeSet<u64>)> =
        processes.iter().map(|process| (*process, staying(*process))).collect();
    let mut more = usize::try_from(more).unwrap_or_default();
    while more > 0 {
        let mut limits = Vec::with_capacity(staying.len());
        for (process, open) in &staying {
            let limit = free(open, more);
            set(*process, Some(limit))?;
            limits.push((*process, limit));
        }
        let deadline = Instant::now() + REACHED_WITHIN;
        while Instant::now() < deadline {
            if limits.iter().any(|(process, limit)| free(&open(*process), 0) >= *limit) {
                return Ok(true);
            }
            thread::sleep(LOOK);
        }
        more /= 2;
    }
    Ok(false)
}

/// Lets these processes open as many descriptors as this one may.
pub(super) fn restore(processes: &BTreeSet<u32>) -> Result<(), FaultError> {
    let ours = getrlimit(Resource::Nofile).current;
    processes.iter().try_for_each(|process| set(*process, ours))
}

fn set(process: u32, current: Option<u64>) -> Result<(), FaultError> {
    let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| FaultError::lost("a process"))?;
    let maximum = getrlimit(Resource::Nofile).maximum;
    prlimit(Some(pid), Resource::Nofile, Rlimit { current, maximum })
        .map(drop)
        .map_err(|error| FaultError::system("a limit cannot be set", error.into()))
}

fn staying(process: u32) -> BTreeSet<u64> {
    let mut staying = open(process);
    for _ in 0..LOOKS {
        thread::sleep(LOOK);
        let open = open(process);
        staying.retain(|number| open.contains(number));
    }
    staying
}

/// The numbers of the descriptors that a process has open; none once it has ended.
fn open(process: u32) -> BTreeSet<u64> {
    let entries = fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// The free number that has so many others below it. A new descriptor gets the lowest one, which has to be below the limit.
fn free(open: &BTreeSet<u64>, others: usize) -> u64 {
    (0..).filter(|number| !open.contains(number)).nth(others).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_limit_leaves_so_many_numbers_free() {
        let open = BTreeSet::from([0, 1, 2, 5, 9]);
        assert_eq!([0, 1, 2, 3, 5].map(|others| free(&open, others)), [3, 4, 6, 7, 10]);
        assert_eq!(free(&BTreeSet::new(), 4), 4);
    }

    #[test]
    fn a_process_that_opens_nothing_does_not_run_out() {
        let mut idle = Command::new("sleep").arg("600").spawn().unwrap();
        let exhausted = exhaust(&BTreeSet::from([idle.id()]), 2);
        idle.kill().unwrap();
        idle.wait().unwrap();
        assert!(!exhausted.unwrap());
    }
}
