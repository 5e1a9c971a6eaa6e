//! What the operating system reports about this process.
use crate::memory::resident_bytes;
use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_plugins::prometheus::Process;

/// The resources that this process uses now; `started` is the time of its start.
pub(crate) fn process(started: SystemTime) -> Process {
    Process {
        id: std::process::id(),
        started: started.duration_since(UNIX_EPOCH).unwrap_or_default(),
        cpu: cpu(),
        resident_bytes: resident_bytes(),
        open_files: fs::read_dir("/proc/self/fd").map_or(0, Iterator::count) as u64,
        most_open_files: getrlimit(Resource::Nofile).current,
    }
}

/// The CPU time of all threads.
pub(crate) fn cpu() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ProcessCPUTime)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_of_this_process() {
        let held: Vec<_> = (0..10).map(|_| fs::File::open("/proc/self/status").unwrap()).collect();
        let process = process(UNIX_EPOCH + Duration::from_secs(7));
        assert_eq!((process.id, process.started.as_secs()), (std::process::id(), 7));
        assert!(process.cpu > Duration::ZERO);
        assert!(process.resident_bytes > 1 << 20, "{}", process.resident_bytes);
        assert!(process.open_files > held.len() as u64, "{}", process.open_files);
        assert!(process.most_open_files.is_none_or(|most| most >= process.open_files));
    }
}
