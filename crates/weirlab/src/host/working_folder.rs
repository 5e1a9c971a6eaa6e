//! The working folder of a session, which it holds by a lock; and the folders of sessions that were killed.
use super::settings;
use crate::driver::Driver;
use rustix::process::geteuid;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use tempfile::TempDir;

const PREFIX: &str = "weirlab-";
const LOCK: &str = "lock";

/// A session's working folder; removed at the end, with what targets left there.
pub(crate) struct WorkingFolder {
    folder: TempDir,
    /// Held for as long as this process lives, however it ends.
    _lock: File,
    /// Whether another session was running when this one started.
    pub(crate) other_session_running: bool,
}

impl WorkingFolder {
    /// Makes the folder below `parent`, and ends and removes what killed sessions left there.
    pub(crate) fn begin(parent: &Path, driver: &dyn Driver) -> io::Result<WorkingFolder> {
        let other_session_running = sweep(parent, driver)?;
        let folder = tempfile::Builder::new().prefix(PREFIX).tempdir_in(parent)?;
        // Only once it is held does it get its name: a lock that can be had is taken for an orphan's.
        let draft = folder.path().join("lock.draft");
        let lock = File::create(&draft)?;
        lock.lock()?;
        fs::rename(&draft, folder.path().join(LOCK))?;
        Ok(WorkingFolder { folder, _lock: lock, other_session_running })
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Leaves the folder to the next session, which clears it.
    pub(super) fn leave(&mut self) {
        self.folder.disable_cleanup(true);
    }
}

/// Goes through the folders of all sessions; whether one of them is alive.
fn sweep(parent: &Path, driver: &dyn Driver) -> io::Result<bool> {
    let mut other_session_running = false;
    for entry in fs::read_dir(parent)?.flatten() {
        let folder = entry.path();
        if !entry.file_name().to_string_lossy().starts_with(PREFIX) || !is_own(&folder) {
            continue;
        }
        let Ok(lock) = File::open(folder.join(LOCK)) else { continue };
        match lock.try_lock() {
            // What cannot be ended keeps its folder, which names it.
            Ok(()) => drop(clear(&folder, driver)),
            Err(_) => other_session_running = true,
        }
    }
    Ok(other_session_running)
}

/// Ends what a session has left running in its folder, puts back the settings of the machine that it has changed, and
/// removes the folder.
pub(super) fn clear(folder: &Path, driver: &dyn Driver) -> io::Result<()> {
    driver.end_below(folder).map_err(|error| io::Error::other(error.to_string()))?;
    settings::restore(folder)?;
    fs::remove_dir_all(folder)
}

/// A folder that another user made in the shared parent names no process of ours.
fn is_own(folder: &Path) -> bool {
    fs::symlink_metadata(folder)
        .is_ok_and(|metadata| metadata.is_dir() && metadata.uid() == geteuid().as_raw())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::process::Process;
    use crate::observe::procfs::Stat;
    use crate::target::Launch;
    use std::collections::BTreeSet;

    fn names(parent: &Path) -> BTreeSet<String> {
        let entries = fs::read_dir(parent).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_a_killed_session_left_is_ended_and_removed() {
        let parent = TempDir::new().unwrap();
        let orphan = parent.path().join("weirlab-orphan");
        let folder = orphan.join("t/0/0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(orphan.join(LOCK), "").unwrap();
        fs::create_dir(parent.path().join("weirlab-of-no-session")).unwrap();
        let command = ["sleep", "60"].map(str::to_owned).to_vec();
        let launch = Launch { label: "sleeper".to_owned(), command, folder, ..Launch::default() };
        let running = Process.start(&launch, &[]).unwrap();
        let pid = running.pid();
        // As when its session is killed.
        std::mem::forget(running);

        let work = WorkingFolder::begin(parent.path(), &Process).unwrap();
        assert!(!work.other_session_running);
        assert!(Stat::of(pid).is_none_or(|stat| stat.ended()));
        let own = work.path().file_name().unwrap().to_str().unwrap().to_owned();
        assert_eq!(names(parent.path()), BTreeSet::from(["weirlab-of-no-session".to_owned(), own]));
    }

    #[test]
    fn a_session_that_lives_is_seen_and_left_alone() {
        let parent = TempDir::new().unwrap();
        let first = WorkingFolder::begin(parent.path(), &Process).unwrap();
        let second = WorkingFolder::begin(parent.path(), &Process).unwrap();
        assert!(!first.other_session_running && second.other_session_running);
        assert!(first.path().exists());
        drop((first, second));
        assert!(names(parent.path()).is_empty());
    }
}
