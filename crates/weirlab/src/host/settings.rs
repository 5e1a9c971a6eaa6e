//! Settings of a machine that a measurement changes, and how they are put back: each change is in a file of the session's
//! folder before it is made, so that whatever clears the folder can undo it.
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

const FILE: &str = "settings.json";
const CPUS: &str = "/sys/devices/system/cpu";
/// More connections than ephemeral ports cannot be open to one address.
const PORTS: (&str, &str) = ("net.ipv4.ip_local_port_range", "10240 65535");
const BACKLOG: (&str, u64) = ("net.core.somaxconn", 65_535);

/// A change of one file of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Change {
    path: PathBuf,
    before: String,
    after: String,
}

/// Sets what measurements want: the governor of each CPU, ephemeral ports and the length of listen queues. Says by name
/// what was changed, and what could not be.
pub(super) fn apply(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let wanted = wanted();
    let changes: Vec<Change> = wanted.iter().map(|(_, change)| change.clone()).collect();
    fs::write(folder.join(FILE), serde_json::to_vec_pretty(&changes)?)?;
    let said = wanted.into_iter().map(|(name, change)| {
        let outcome = match fs::write(&change.path, &change.after) {
            Ok(()) => format!("{} → {}", change.before, change.after),
            Err(error) => format!("{}; it could not be set to {}: {error}", change.before, change.after),
        };
        (name, outcome)
    });
    Ok(said.collect())
}

/// Undoes the changes that the file in this folder names, but for what has been set anew since. It tries each of them;
/// the file stays until all are undone.
///
/// # Errors
/// The first that cannot be undone.
pub(super) fn restore(folder: &Path) -> io::Result<()> {
    let file = folder.join(FILE);
    let Ok(text) = fs::read(&file) else { return Ok(()) };
    // A file that was cut short was written before anything was changed.
    let changes: Vec<Change> = serde_json::from_slice(&text).unwrap_or_default();
    let mut outcome = Ok(());
    for change in changes {
        if read(&change.path).as_deref() == Some(change.after.as_str()) {
            let named = |error| io::Error::other(format!("{}: {error}", change.path.display()));
            outcome = outcome.and(fs::write(&change.path, &change.before).map_err(named));
        }
    }
    outcome.and_then(|()| fs::remove_file(file))
}

/// What is not yet as it is wanted, with a name.
fn wanted() -> Vec<(String, Change)> {
    let ports = (PORTS.0.to_owned(), sysctl(PORTS.0), PORTS.1.to_owned());
    let backlog = sysctl(BACKLOG.0);
    let longer = read(&backlog).and_then(|length| length.parse().ok()).unwrap_or(0).max(BACKLOG.1);
    let backlog = (BACKLOG.0.to_owned(), backlog, longer.to_string());
    let settings = governors().into_iter().chain([ports, backlog]);
    let change = |(name, path, after): (String, PathBuf, String)| {
        let before = read(&path)?;
        (before != after).then_some((name, Change { path, before, after }))
    };
    settings.filter_map(change).collect()
}

/// The governor of each CPU that has one.
fn governors() -> Vec<(String, PathBuf, String)> {
    let cpus = fs::read_dir(CPUS).into_iter().flatten().flatten();
    let governor = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let path = entry.path().join("cpufreq/scaling_governor");
        path.exists().then(|| (format!("governor of {name}"), path, "performance".to_owned()))
    };
    cpus.filter_map(governor).collect()
}

fn sysctl(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

/// A setting as it is, with single blanks; none where the machine has no such.
fn read(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.split_ascii_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_set_anew_since_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let [ours, theirs] = ["ours", "theirs"].map(|name| folder.path().join(name));
        let change = |path: &PathBuf| Change { path: path.clone(), before: "1 2".into(), after: "3".into() };
        let journal = serde_json::to_vec(&[change(&ours), change(&theirs)]).unwrap();
        fs::write(folder.path().join(FILE), journal).unwrap();
        fs::write(&ours, "3\n").unwrap();
        fs::write(&theirs, "4\n").unwrap();
        restore(folder.path()).unwrap();
        assert_eq!((read(&ours).unwrap(), read(&theirs).unwrap()), ("1 2".to_owned(), "4".to_owned()));
        assert!(!folder.path().join(FILE).exists());
        restore(folder.path()).unwrap();
    }

    #[test]
    fn one_that_cannot_be_undone_keeps_no_other_from_it_and_the_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let ours = folder.path().join("ours");
        fs::write(&ours, "3").unwrap();
        // It cannot be written, even by root.
        let fixed = PathBuf::from("/proc/version");
        let text = read(&fixed).unwrap();
        let changes = [
            Change { path: fixed, before: text.clone(), after: text },
            Change { path: ours.clone(), before: "1".into(), after: "3".into() },
        ];
        fs::write(folder.path().join(FILE), serde_json::to_vec(&changes).unwrap()).unwrap();
        let said = restore(folder.path()).unwrap_err().to_string();
        assert!(said.starts_with("/proc/version: "), "{said}");
        assert_eq!(read(&ours).unwrap(), "1");
        assert!(folder.path().join(FILE).exists());
    }
}
