//! Compiles versions, one at a time.
use super::{Profile, VersionError, failed, git, system};
use crate::manifest::sha256_of;
use std::collections::VecDeque;
use std::fs::{self, File, FileTimes, TryLockError};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::SystemTime;

const PACKAGE: &str = "weir-gateway";
const BINARY: &str = "weir";
/// What of a compiler's output is kept for an error.
const MAX_ERROR_LINES: usize = 60;

/// The cache, for as long as this laboratory alone has it.
pub(super) struct Workshop {
    cache: PathBuf,
    profile: Profile,
    /// The version that is made, as it was written.
    label: String,
    /// Released when it is closed, however this process ends.
    _lock: File,
}

impl Workshop {
    /// Waits until no other run builds in this cache.
    pub(super) fn open(
        cache: &Path,
        profile: Profile,
        label: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<Workshop, VersionError> {
        let broken = || system(format!("cannot use the cache {}", cache.display()));
        fs::create_dir_all(cache).map_err(broken())?;
        let cache = fs::canonicalize(cache).map_err(broken())?;
        let lock = File::options().create(true).append(true).open(cache.join("lock")).map_err(broken())?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                progress("another run builds in this cache: waiting for it");
                lock.lock().map_err(broken())?;
            }
            Err(TryLockError::Error(error)) => return Err(broken()(error)),
        }
        Ok(Workshop { cache, profile, label: label.to_owned(), _lock: lock })
    }

    /// The binary of a commit.
    pub(super) fn commit(
        &self,
        top: &Path,
        commit: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, VersionError> {
        let label = &self.label;
        let kept = self.kept(commit);
        if kept.is_file() {
            progress(&format!("{label} is built already"));
            return Ok(kept);
        }
        let tree = self.cache.join("tree");
        progress(&format!("{label}: checking out {}", commit.get(..12).unwrap_or(commit)));
        if git::check_out(top, &tree, commit)? {
            refresh(&tree)?;
        }
        keep(&self.compile(&tree, "target", progress)?, &kept)?;
        Ok(kept)
    }

    /// The binary of the user's checkout as it is now, in a copy that later builds leave alone.
    pub(super) fn work_tree(
        &self,
        top: &Path,
        progress: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, VersionError> {
        let binary = self.compile(top, &own_target(top), progress)?;
        let hash = sha256_of(&binary).map_err(system(format!("cannot read {}", binary.display())))?;
        let kept = self.kept(&format!("worktree-{}", hash.get(..16).unwrap_or(&hash)));
        if !kept.is_file() {
            keep(&binary, &kept)?;
        }
        Ok(kept)
    }

    fn kept(&self, name: &str) -> PathBuf {
        self.cache.join("bin").join(format!("{name}-{}", self.profile.name())).join(BINARY)
    }

    fn compile(
        &self,
        tree: &Path,
        target: &str,
        progress: &mut dyn FnMut(&str),
    ) -> Result<PathBuf, VersionError> {
        let label = &self.label;
        progress(&format!("{label}: compiling"));
        let started = self.cargo(tree, target).spawn();
        let mut cargo = started.map_err(system("cannot run cargo; install Rust first".to_owned()))?;
        let executable = cargo.stdout.take().map(|pipe| thread::spawn(move || executable(pipe)));
        let said = cargo.stderr.take().map(|pipe| follow(pipe, label, progress)).unwrap_or_default();
        let status = cargo.wait().map_err(system("cargo cannot be waited for".to_owned()))?;
        match executable.and_then(|reader| reader.join().ok()).flatten() {
            Some(path) if status.success() => Ok(path),
            _ => Err(failed(&format!("{label} does not compile ({status})"), &said)),
        }
    }

    fn cargo(&self, tree: &Path, target: &str) -> Command {
        let mut cargo = Command::new("cargo");
        cargo.args(["build", "--package", PACKAGE, "--bin", BINARY, "--profile", self.profile.name()]);
        cargo.args(["--color", "never", "--message-format", "json-render-diagnostics", "--target-dir"]);
        cargo.arg(self.cache.join(target)).current_dir(tree);
        // A version is what its commit says, and is kept as that.
        for variable in ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS", "CARGO_BUILD_TARGET"] {
            cargo.env_remove(variable);
        }
        if tree.join("rust-toolchain.toml").is_file() {
            cargo.env_remove("RUSTUP_TOOLCHAIN");
        }
        cargo.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        cargo
    }
}

/// Cargo takes packages at the same place below two roots for the same package, and what it compiled from one for what
/// it would compile from the other, if that is older: each checkout has a folder of its own for it.
fn own_target(top: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    top.hash(&mut hasher);
    format!("target-{:016x}", hasher.finish())
}

/// Passes on what cargo says as it says it; returns its last lines.
fn follow(pipe: impl Read, label: &str, progress: &mut dyn FnMut(&str)) -> String {
    let mut last = VecDeque::new();
    for line in BufReader::new(pipe).lines().map_while(Result::ok) {
        progress(&format!("{label}: {}", line.trim()));
        last.push_back(line);
        if last.len() > MAX_ERROR_LINES {
            last.pop_front();
        }
    }
    Vec::from(last).join("\n")
}

/// The path of the binary, from cargo's messages.
fn executable(pipe: impl Read) -> Option<PathBuf> {
    let lines = BufReader::new(pipe).lines().map_while(Result::ok);
    let messages = lines.filter_map(|line| serde_json::from_str::<serde_json::Value>(&line).ok());
    let binaries = messages.filter(|message| message["target"]["name"] == BINARY);
    binaries.filter_map(|message| message["executable"].as_str().map(PathBuf::from)).last()
}

/// Cargo goes by the time of a file's last change. After a switch of commits every file counts as changed now, so that
/// nothing that was compiled from another commit, by a clock that may have been set back since, is taken for this one's.
fn refresh(tree: &Path) -> Result<(), VersionError> {
    let now = FileTimes::new().set_modified(SystemTime::now());
    for path in git::files(tree)?.iter().filter(|path| path.is_file()) {
        let touched = File::open(path).and_then(|file| file.set_times(now));
        touched.map_err(system(format!("cannot touch {}", path.display())))?;
    }
    Ok(())
}

/// Copies a binary to where it stays; never half of it. Another process copies: a file that is open for writing here
/// would be so in every process that a thread starts meanwhile, and could not be executed until those have begun.
fn keep(binary: &Path, kept: &Path) -> Result<(), VersionError> {
    let partial = kept.with_extension("partial");
    let copy = || {
        kept.parent().map_or(Ok(()), fs::create_dir_all)?;
        let status = Command::new("cp").args([binary, &partial]).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("cp: {status}")));
        }
        fs::rename(&partial, kept)
    };
    copy().map_err(system(format!("cannot keep the binary as {}", kept.display())))
}
