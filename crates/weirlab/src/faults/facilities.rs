//! What a scenario needs of the machine beyond processes: a disk that can be full or read-only, a clock that jumps, a network that can be
//! cut. Each is made for one run and removed after it.
use super::FaultError;
use super::act::DiskAct;
use super::read_only::{ReadOnly, list};
use super::scenario::Scenario;
use super::store::run;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

const DISK_BYTES: &str = "16m";
/// The library that lies about the time. Debian's `libfaketime` would do, but a program whose allocator is jemalloc hangs with it:
/// each waits for the other to be ready.
const CLOCK_LIBRARY: &str = include_str!("clock.c");
/// Each call into a disk that is slow takes so long, in microseconds.
const SLOW_SYNC_MICROS: u32 = 1_000_000;

/// A file system in memory. Dropping it unmounts it.
pub(super) struct Disk {
    pub(super) folder: PathBuf,
    read_only: Option<ReadOnly>,
    /// Since when nothing is left of it.
    filled: Option<SystemTime>,
    /// Whether the gateway wrote to a file on it then, or tried to.
    was_written_when_full: bool,
}

impl Disk {
    pub(super) fn mount(folder: &Path) -> Result<Self, FaultError> {
        let folder = folder.join("disk");
        fs::create_dir_all(&folder).map_err(|error| FaultError::system("a folder cannot be made", error))?;
        let size = format!("size={DISK_BYTES}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "weirlab"]).arg(&folder))?;
        Ok(Self { folder, read_only: None, filled: None, was_written_when_full: false })
    }

    /// Does something to it. What can be changed on it concerns these processes.
    pub(super) fn act(&mut self, act: DiskAct, processes: &BTreeSet<u32>) -> Result<(), FaultError> {
        match act {
            DiskAct::Fill => self.fill(),
            DiskAct::Forbid => {
                self.read_only = Some(ReadOnly::start(&self.folder, processes)?);
                Ok(())
            }
            DiskAct::Allow => self.read_only.take().map_or(Ok(()), ReadOnly::end),
            DiskAct::Free => self.free(),
        }
    }

    fn filler(&self) -> PathBuf {
        self.folder.join("filler")
    }

    fn fill(&mut self) -> Result<(), FaultError> {
        let failed = |error| FaultError::system("the disk cannot be filled", error);
        let mut file = File::create(self.filler()).map_err(failed)?;
        loop {
            match file.write_all(&[0; 4096]) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => break,
                Err(error) => return Err(failed(error)),
            }
        }
        self.filled = Some(SystemTime::now());
        Ok(())
    }

    fn free(&mut self) -> Result<(), FaultError> {
        let failed = |error| FaultError::system("the disk cannot be freed", error);
        if let Some(filled) = self.filled.take() {
            let mut files = Vec::new();
            list(&self.folder, &mut files).map_err(failed)?;
            // A write changes the time of a file before it finds that nothing is left.
            self.was_written_when_full |= files.iter().any(|file| is_newer(file, filled));
        }
        fs::remove_file(self.filler()).map_err(failed)
    }

    /// Whether the gateway wrote to it, or tried to, when nothing was left of it.
    #[must_use]
    pub(super) fn was_written_when_full(&self) -> bool {
        self.was_written_when_full
    }
}

/// Whether a file was changed after this moment, or a write to it was refused.
fn is_newer(file: &Path, moment: SystemTime) -> bool {
    fs::metadata(file).and_then(|metadata| metadata.modified()).is_ok_and(|modified| modified > moment)
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.read_only = None;
        // At once, even if a process still has a file open there.
        let _ = Command::new("umount").arg("--lazy").arg(&self.folder).status();
    }
}

/// The gateway's wall clock. The monotonic one goes on as it is, as it does when an administrator sets the time.
pub(super) struct Clock {
    file: PathBuf,
    library: PathBuf,
}

impl Clock {
    pub(super) fn new(folder: &Path) -> Result<Self, FaultError> {
        let clock = Self { file: folder.join("clock"), library: folder.join("clock.so") };
        clock.set(0)?;
        let source = folder.join("clock.c");
        fs::write(&source, CLOCK_LIBRARY)
            .map_err(|error| FaultError::system("the source of the clock cannot be written", error))?;
        run(Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&clock.library).arg(&source))?;
        Ok(clock)
    }

    /// Moves it so many seconds away from the real time. The gateway reads the file at any moment, which is never half written.
    pub(super) fn set(&self, seconds: i64) -> Result<(), FaultError> {
        let next = self.file.with_extension("next");
        let written = fs::write(&next, seconds.to_string()).and_then(|()| fs::rename(&next, &self.file));
        written.map_err(|error| FaultError::system("the clock cannot be set", error))
    }

    /// What the gateway is started with.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        let pairs = [("LD_PRELOAD", &self.library), ("WEIRLAB_CLOCK", &self.file)];
        pairs.map(|(name, path)| (name.to_owned(), path.display().to_string())).into_iter().collect()
    }
}

/// A network namespace with one upstream server in it. Dropping it removes it.
pub(super) struct Network {
    pub(super) namespace: String,
    outer: String,
    /// The server's address.
    pub(super) inside: std::net::Ipv4Addr,
}

impl Network {
    pub(super) fn new() -> Result<Self, FaultError> {
        let id = std::process::id();
        let [third, fourth] = [(id >> 6) as u8, (id as u8 & 0x3f) << 2];
        let (ours, inside) = (fourth + 1, std::net::Ipv4Addr::new(10, 203, third, fourth + 2));
        let network = Self { namespace: format!("weirlab-{id}"), outer: format!("wl{id}"), inside };
        let steps = [
            format!("netns add {}", network.namespace),
            format!("link add {} type veth peer name inner netns {}", network.outer, network.namespace),
            format!("address add 10.203.{third}.{ours}/30 dev {}", network.outer),
            format!("link set {} up", network.outer),
            format!("-n {} address add {inside}/30 dev inner", network.namespace),
            format!("-n {} link set inner up", network.namespace),
            format!("-n {} link set lo up", network.namespace),
        ];
        steps.iter().try_for_each(|step| ip(step))?;
        Ok(network)
    }

    /// Has packets vanish in both directions, or pass again.
    pub(super) fn cut(&self, cut: bool) -> Result<(), FaultError> {
        let state = if cut { "down" } else { "up" };
        ip(&format!("-n {} link set inner {state}", self.namespace))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // The pair of devices goes with it.
        let _ = ip(&format!("netns delete {}", self.namespace));
        let _ = ip(&format!("link delete {}", self.outer));
    }
}

fn ip(arguments: &str) -> Result<(), FaultError> {
    run(Command::new("ip").args(arguments.split(' ')))
}

/// A disk for which each wait takes a second.
pub(super) struct SlowSync {
    /// Where `strace` notes each wait.
    notes: PathBuf,
    /// How many waits there were before the load.
    before: usize,
}

impl SlowSync {
    pub(super) fn new(folder: &Path) -> Self {
        Self { notes: folder.join("delayed"), before: 0 }
    }

    /// What a command is wrapped in so that each of its waits takes a second.
    pub(super) fn wrap(&self) -> Vec<String> {
        let inject = format!("inject=fsync,fdatasync:delay_enter={SLOW_SYNC_MICROS}");
        let notes = self.notes.display().to_string();
        // Appends, because a gateway that is started anew goes on with the notes.
        let words =
            ["strace", "-f", "-qq", "--seccomp-bpf", "-A", "-o", &notes, "-e", "trace=fsync,fdatasync", "-e"];
        words.into_iter().map(str::to_owned).chain([inject]).collect()
    }

    /// The load begins.
    pub(super) fn begin(&mut self) {
        self.before = self.waits();
    }

    /// Whether there was a wait since the load began.
    #[must_use]
    pub(super) fn has_acted(&self) -> bool {
        self.waits() > self.before
    }

    fn waits(&self) -> usize {
        fs::read_to_string(&self.notes).map_or(0, |notes| notes.matches("(DELAYED)").count())
    }
}

/// Why this machine cannot run a scenario, if so.
pub(super) fn unable(scenario: &Scenario) -> Option<&'static str> {
    let needs = |what: &str| scenario.needs.contains(what);
    let is_root = rustix::process::geteuid().is_root();
    ((needs("disk") || needs("network")) && !is_root)
        .then_some("needs root, for a disk or a network of its own")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_shows_nothing_if_no_file_was_written_to_while_it_was_full() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("log");
        fs::write(&file, "a line").unwrap();
        let written = fs::metadata(&file).unwrap().modified().unwrap();
        let second = std::time::Duration::from_secs(1);
        assert!(is_newer(&file, written - second) && !is_newer(&file, written));
        assert!(!is_newer(&folder.path().join("none"), written - second));
    }

    #[test]
    fn only_waits_during_the_load_count() {
        let folder = tempfile::tempdir().unwrap();
        let mut disk = SlowSync::new(folder.path());
        assert!(!disk.has_acted());
        let notes = folder.path().join("delayed");
        let start = "7 fsync(5) = 0 (DELAYED)\n";
        fs::write(&notes, start).unwrap();
        disk.begin();
        assert!(!disk.has_acted());
        fs::write(&notes, format!("{start}7 fdatasync(5 <unfinished ...>\n")).unwrap();
        assert!(!disk.has_acted());
        fs::write(&notes, format!("{start}{start}")).unwrap();
        assert!(disk.has_acted());
        assert!(disk.wrap().contains(&notes.display().to_string()));
    }
}
