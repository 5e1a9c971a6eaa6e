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
    limit_of(&groups, Path::new("/sys/fs/cgroup"))
}

/// The least limit of the groups that a process is in, as `/proc/self/cgroup` lists them.
fn limit_of(groups: &str, root: &Path) -> Option<u64> {
    let limits = groups.lines().filter_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        if controllers.is_empty() {
            // Beyond `memory.high` the kernel slows the group down, at `memory.max` it kills.
            return limit_below(root, &["memory.max", "memory.high"], group);
        }
        // Version 1, where a limit that is not set is a number beyond the memory of any machine. Controllers that are
        // mounted together may be found by each of their names, or by all of them.
        let has_memory = controllers.split(',').any(|controller| controller == "memory");
        let mounts = ["memory", controllers].into_iter().filter(|_| has_memory);
        mounts.filter_map(|mount| limit_below(&root.join(mount), &["memory.limit_in_bytes"], group)).min()
    });
    limits.min()
}

/// The least limit, in files of these names, of a group and those above it.
fn limit_below(root: &Path, files: &[&str], group: &str) -> Option<u64> {
    let folder: PathBuf = root.join(group.trim_start_matches('/'));
    let groups = folder.ancestors().take_while(|folder| folder.starts_with(root));
    let limit = |file: PathBuf| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    groups.flat_map(|folder| files.iter().map(|file| folder.join(file))).filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_limit_of_the_groups_counts() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        let limit = |group: &str| limit_of(&format!("0::{group}\n"), root.path());
        let write = |file: &str, text: &str| fs::write(root.path().join(file), text).unwrap();
        assert_eq!(limit("/a/b"), None);
        write("a/b/memory.max", "max\n");
        assert_eq!(limit("/a/b"), None);
        write("a/memory.max", "1000\n");
        assert_eq!(limit("/a/b"), Some(1000));
        write("a/b/memory.max", "2000\n");
        assert_eq!(limit("/a/b"), Some(1000));
        write("a/b/memory.high", "900\n");
        write("a/memory.high", "max\n");
        assert_eq!([limit("/a/b"), limit("/a")], [Some(900), Some(1000)]);
        assert_eq!(limit("/"), None);
    }

    #[test]
    fn version_1_may_mount_memory_together_with_others() {
        let root = tempfile::tempdir().unwrap();
        let limit = |groups: &str| limit_of(groups, root.path());
        for (mount, bytes) in [("memory", "3000"), ("hugetlb,memory", "2000")] {
            fs::create_dir_all(root.path().join(mount).join("a")).unwrap();
            fs::write(root.path().join(mount).join("a/memory.limit_in_bytes"), bytes).unwrap();
        }
        assert_eq!(limit("12:cpu,cpuacct:/b\n4:memory:/a\n"), Some(3000));
        assert_eq!(limit("4:memory,pids:/a\n"), Some(3000));
        assert_eq!(limit("4:hugetlb,memory:/a\n"), Some(2000));
        assert_eq!(limit("4:memory_of_others:/a\n"), None);
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
