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
    /// Where it notes each change that failed.
    notes: PathBuf,
}

impl ReadOnly {
    /// For these processes and what they start, and the files that are in the folder now. What fails is noted beside it.
    pub(super) fn start(folder: &Path, processes: &BTreeSet<u32>) -> Result<Self, FaultError> {
        let notes = folder.with_extension("failed");
        let mut files = Vec::new();
        list(folder, &mut files)
            .map_err(|error| FaultError::system("the files of the disk cannot be listed", error))?;
        let inject = format!("inject={CHANGES}:error=EROFS");
        let mut strace = Command::new("strace");
        strace.args(["-f", "-qq", "-e", &format!("trace={CHANGES}"), "-e", &inject, "-o"]).arg(&notes);
        for file in &files {
            strace.arg("-P").arg(file);
        }
        for process in processes {
            strace.args(["-p", &process.to_string()]);
        }
        strace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let tracer = strace.spawn().map_err(|error| FaultError::system("strace cannot be run", error))?;
        let mut read_only = Self { tracer, notes };
        until("strace", || read_only.is_attached(processes))?;
        Ok(read_only)
    }

    /// Files can be changed again. A run in which no change has failed shows nothing, unless the processes have ended.
    pub(super) fn end(mut self) -> Result<(), FaultError> {
        let is_traced = matches!(self.tracer.try_wait(), Ok(None));
        let notes = self.notes.clone();
        drop(self);
        let failed = fs::read_to_string(notes)
            .map_err(|error| FaultError::system("what failed on the disk cannot be read", error))?;
        if is_traced && !failed.contains("(INJECTED)") {
            let text = "nothing was written to the disk while it was read-only: the scenario shows nothing";
            return Err(FaultError::Unable(text.to_owned()));
        }
        Ok(())
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

/// The files below a folder.
pub(super) fn list(folder: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
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
