//! The memory of the process, and how much of it the system allows.

use std::fs;
use std::path::{Path, PathBuf};

/// The memory that is in RAM.
pub(crate) fn resident_bytes() -> u64 {
    let memory = fs::read_to_string("/proc/self/status").unwrap_or_default();
    kibibytes(&memory, "VmRSS:") * 1_024
}

fn kibibytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or_default()
}

/// What the process may use: the limit of its control group, or of one above it, and at most what the machine has.
pub(crate) fn limit() -> Option<u64> {
    let machine = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let of_machine = Some(kibibytes(&machine, "MemTotal:") * 1_024).filter(|bytes| *bytes > 0);
    [limit_of_group(), of_machine].into_iter().flatten().min()
}

fn limit_of_group() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let limits = groups.lines().filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        match controllers {
            "" => limit_below((Path::new("/sys/fs/cgroup"), "memory.max"), group),
            // Version 1, where a limit that is not set is a number beyond the memory of any machine.
            "memory" => limit_below((Path::new("/sys/fs/cgroup/memory"), "memory.limit_in_bytes"), group),
            _ => None,
        }
    });
    limits.min()
}

/// The least limit, in files of this name, of a group and those above it.
fn limit_below((root, file): (&Path, &str), group: &str) -> Option<u64> {
    let folder: PathBuf = root.join(group.trim_start_matches('/'));
    let groups = folder.ancestors().take_while(|folder| folder.starts_with(root));
    let limit = |folder: &Path| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
    groups.filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_the_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        assert_eq!(limit_below((root.path(), "memory.max"), "/a/b"), None);
        fs::write(group.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit_below((root.path(), "memory.max"), "/a/b"), None);
        fs::write(root.path().join("a/memory.max"), "1000\n").unwrap();
        assert_eq!(limit_below((root.path(), "memory.max"), "/a/b"), Some(1000));
        fs::write(group.join("memory.max"), "2000\n").unwrap();
        assert_eq!(limit_below((root.path(), "memory.max"), "/a/b"), Some(1000));
        assert_eq!(limit_below((root.path(), "memory.max"), "/"), None);
    }

    #[test]
    fn the_memory_of_the_machine_is_a_limit() {
        let machine = kibibytes(&fs::read_to_string("/proc/meminfo").unwrap(), "MemTotal:") * 1_024;
        assert!(limit().is_some_and(|bytes| bytes <= machine && bytes > resident_bytes()));
    }

    #[test]
    fn the_memory_is_that_of_this_process() {
        assert!(resident_bytes() > 1 << 20, "{}", resident_bytes());
    }
}
