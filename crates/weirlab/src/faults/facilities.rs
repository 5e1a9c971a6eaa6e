//! What a scenario needs of the machine beyond processes: a disk that can be full or read-only, a clock that jumps, a network that can be
//! cut. Each is made for one run and removed after it.
use super::FaultError;
use super::act::DiskAct;
use super::read_only::ReadOnly;
use super::scenario::Scenario;
use super::store::run;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

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
}

impl Disk {
    pub(super) fn mount(folder: &Path) -> Result<Self, FaultError> {
        let folder = folder.join("disk");
        fs::create_dir_all(&folder).map_err(|error| FaultError::system("a folder cannot be made", error))?;
        let size = format!("size={DISK_BYTES}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "weirlab"]).arg(&folder))?;
        Ok(Self { folder, read_only: None })
    }

    /// Does something to it. What can be changed on it concerns these processes.
    pub(super) fn act(&mut self, act: DiskAct, processes: &BTreeSet<u32>) -> Result<(), FaultError> {
        let filler = self.folder.join("filler");
        match act {
            DiskAct::Fill => {
                let full = |error| FaultError::system("the disk cannot be filled", error);
                let mut file = File::create(filler).map_err(full)?;
                // The error that ends it is that nothing is left.
                while file.write_all(&[0; 4096]).is_ok() {}
                Ok(())
            }
            DiskAct::Forbid => {
                self.read_only = Some(ReadOnly::start(&self.folder, processes)?);
                Ok(())
            }
            DiskAct::Allow => self.read_only.take().map_or(Ok(()), ReadOnly::end),
            DiskAct::Free => {
                fs::remove_file(filler).map_err(|error| FaultError::system("the disk cannot be freed", error))
            }
        }
    }
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

/// What a command is wrapped in so that each wait for the disk takes a second.
pub(super) fn slow_sync() -> Vec<String> {
    let inject = format!("inject=fsync,fdatasync:delay_enter={SLOW_SYNC_MICROS}");
    let words =
        ["strace", "-f", "-qq", "--seccomp-bpf", "-o", "/dev/null", "-e", "trace=fsync,fdatasync", "-e"];
    words.into_iter().map(str::to_owned).chain([inject]).collect()
}

/// Why this machine cannot run a scenario, if so.
pub(super) fn unable(scenario: &Scenario) -> Option<&'static str> {
    let needs = |what: &str| scenario.needs.contains(what);
    let is_root = rustix::process::geteuid().is_root();
    ((needs("disk") || needs("network")) && !is_root)
        .then_some("needs root, for a disk or a network of its own")
}
