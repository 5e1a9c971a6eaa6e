//! A disk that has become read-only. Linux refuses to remount one whose files are open for writing, so `strace` has each change
//! of a file on it fail as it would then.
use super::FaultError;
use super::store::until;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// What changes files by their descriptors, and what replaces or removes them.
const CHANGES: &str = "write,writev,pwrite64,pwritev,pwritev2,ftruncate,truncate,fallocate,rename,renameat,renameat2,unlink,unlinkat";

/// Changes fail for as long as this is kept.
pub(super) struct ReadOnly {
    tracer: Child,
}

impl ReadOnly {
    /// For these processes and what they start, and the files that are in the folder now.
    pub(super) fn start(folder: &Path, processes: &BTreeSet<u32>) -> Result<Self, FaultError> {
        let mut files = Vec::new();
        list(folder, &mut files)
            .map_err(|error| FaultError::system("the files of the disk cannot be listed", error))?;
        let inject = format!("inject={CHANGES}:error=EROFS");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={CHANGES}"), "-e", &inject]);
        for file in &files {
            strace.arg("-P").arg(file);
        }
        for process in processes {
            strace.args(["-p", &process.to_string()]);
        }
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let tracer = strace.spawn().map_err(|error| FaultError::system("strace cannot be run", error))?;
        let mut read_only = Self { tracer };
        until("strace", || read_only.is_attached(processes))?;
        Ok(read_only)
    }

    /// Whether it traces each thread.
    fn is_attached(&mut self, processes: &BTreeSet<u32>) -> Result<bool, FaultError> {
        if !matches!(self.tracer.try_wait(), Ok(None)) {
            return Err(FaultError::lost("strace"));
        }
        let tracer = format!("TracerPid:\t{}\n", self.tracer.id());
        let threads = processes.iter().flat_map(|process| {
            fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten()
        });
        // A thread that has ended is no matter.
        let mut statuses = threads.filter_map(|thread| fs::read_to_string(thread.path().join("status")).ok());
        Ok(statuses.all(|status| status.contains(&tracer)))
    }
}

impl Drop for ReadOnly {
    fn drop(&mut self) {
        // It lets go of what it traces. It may have ended by itself, with all of that.
        let _ = super::server_process::send(self.tracer.id(), Signal::TERM);
        let _ = self.tracer.wait();
    }
}

fn list(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            list(&entry.path(), files)?;
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}
