//! Processes that may start so many threads and no more.
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A user whose threads the system limits. It does not limit those of root, so root becomes a user that has no others, with the
/// right to use root's files.
pub struct LimitedUser(Option<u32>);

impl LimitedUser {
    /// Another one than any of this process's tests has. Tests that do not run as root have their own user alone.
    pub fn new() -> LimitedUser {
        static TAKEN: AtomicU32 = AtomicU32::new(0);
        let is_root = rustix::process::geteuid().is_root();
        let number = || std::process::id().wrapping_mul(64) + TAKEN.fetch_add(1, Ordering::Relaxed);
        LimitedUser(is_root.then(|| 30_000 + number() % 30_000))
    }

    /// The command before another one that runs it as this user.
    pub fn command(&self) -> String {
        let rights = "--inh-caps=-all,+dac_override --ambient-caps=-all,+dac_override";
        self.0.map_or_else(String::new, |user| format!("setpriv --reuid={user} --clear-groups {rights}"))
    }

    /// A program in a folder that runs `weir` as this user, with so many threads at most.
    pub fn weir(&self, folder: &Path, threads: Option<usize>) -> PathBuf {
        let limit = threads.map(|threads| format!("prlimit --nproc={}: ", self.others() + threads));
        let (limit, weir) = (limit.unwrap_or_default(), env!("CARGO_BIN_EXE_weir"));
        let program = folder.join("limited");
        fs::write(&program, format!("#!/bin/sh\nexec {limit}{} {weir} \"$@\"\n", self.command())).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        program
    }

    /// From now on a process of this user starts no thread while the user has this many.
    pub fn limit(&self, process: u32, threads: usize) {
        let limit = format!("{} prlimit --pid {process} --nproc={threads}:", self.command());
        assert!(Command::new("sh").args(["-c", &limit]).status().unwrap().success());
    }

    /// How many threads all processes of this user have.
    pub fn threads(&self) -> usize {
        let own = self.0.unwrap_or_else(|| rustix::process::geteuid().as_raw()).to_string();
        let field = |status: &str, name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1).map(str::to_owned)
        };
        let statuses = fs::read_dir("/proc").unwrap().flatten().filter_map(|process| {
            let status = fs::read_to_string(process.path().join("status")).ok()?;
            (field(&status, "Uid:")? == own).then(|| field(&status, "Threads:")?.parse::<usize>().ok())?
        });
        statuses.sum()
    }

    /// How many threads this user has beside those of a process that is to start.
    fn others(&self) -> usize {
        if self.0.is_some() { 0 } else { self.threads() }
    }
}
