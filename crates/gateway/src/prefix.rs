//! The prefix, a node's own folder: the pid file, whose lock excludes a second node, and the command socket.
use rustix::fs::{Access, OFlags, access};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The longest path of a socket that the kernel accepts, in bytes.
const MAX_SOCKET_PATH_LEN: usize = 107;

/// Why the prefix cannot be used.
#[derive(Debug)]
pub(crate) enum PrefixError {
    /// No folder was given, and there is no default.
    None,
    /// The path is not a folder.
    NotAFolder(PathBuf),
    /// The path of the socket would be too long.
    TooLong(PathBuf),
    /// Another node runs in it.
    InUse { prefix: PathBuf, pid: String },
    /// Something other than a node of this machine or container holds its lock.
    Locked(PathBuf),
    /// A system call fails.
    Io { path: PathBuf, error: io::Error },
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PrefixError::None => f.write_str("prefix: name a folder for this node with `--prefix DIR`"),
            PrefixError::NotAFolder(path) => {
                write!(f, "prefix: {} is not a folder: name another with `--prefix DIR`", path.display())
            }
            PrefixError::TooLong(path) => write!(
                f,
                "prefix: {} is too long: the path of the socket in it may have {MAX_SOCKET_PATH_LEN} bytes; name a shorter \
                 one with `--prefix DIR`",
                path.display()
            ),
            PrefixError::InUse { prefix, pid } => write!(
                f,
                "prefix: another node (process {pid}) runs in {}: stop it with `weir quit`, or give this one its own \
                 folder with `--prefix DIR`",
                prefix.display()
            ),
            PrefixError::Locked(path) => {
                let path = path.display();
                write!(
                    f,
                    "prefix: {path} is locked, and the process that it names does not run here: end what holds the lock, which \
                     `fuser {path}` names, or the node of another container that has the same folder"
                )
            }
            PrefixError::Io { path, error } => {
                let is_full = error.kind() == io::ErrorKind::StorageFull;
                let fix = if is_full { "make room on the disk" } else { "make the folder writable" };
                write!(f, "prefix: {}: {error}: {fix}, or name another with `--prefix DIR`", path.display())
            }
        }
    }
}

/// The folder a node uses when none is given.
pub(crate) fn or_default(given: Option<PathBuf>) -> Result<PathBuf, PrefixError> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let default = || {
        if rustix::process::geteuid().is_root() {
            return Some(PathBuf::from("/var/lib/weir"));
        }
        let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
        Some(state.join("weir"))
    };
    given.or_else(default).ok_or(PrefixError::None)
}

/// Whether this process can use a folder, or create it.
pub(crate) fn is_usable(folder: &Path) -> bool {
    let there = folder.ancestors().find(|folder| folder.exists());
    there.is_some_and(|folder| folder.is_dir() && access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok())
}

/// The folder of logs, created if needed: where those are that go to standard error while a node is in the foreground.
pub(crate) fn logs(prefix: &Path) -> Result<PathBuf, PrefixError> {
    let path = prefix.join("logs");
    match DirBuilder::new().recursive(true).mode(0o700).create(&path) {
        Ok(()) => Ok(path),
        Err(error) => Err(PrefixError::Io { path, error }),
    }
}

/// The file in the folder of logs that standard error of a node in the background goes to.
pub(crate) fn error_log(prefix: &Path) -> PathBuf {
    prefix.join("logs/error.log")
}

/// Removes the sockets that a process has left behind in a folder that no node uses; returns their names.
pub(crate) fn remove_sockets(prefix: &Path) -> Result<Vec<String>, PrefixError> {
    let failed = |error| PrefixError::Io { path: prefix.to_owned(), error };
    let mut removed = Vec::new();
    for entry in fs::read_dir(prefix).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_type().map_err(failed)?.is_socket() {
            fs::remove_file(entry.path()).map_err(failed)?;
            removed.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    Ok(removed)
}

/// Where the socket for commands is.
pub(crate) fn socket(prefix: &Path) -> PathBuf {
    prefix.join("weir.sock")
}

/// Creates the folder if needed.
pub(crate) fn create(folder: &Path) -> Result<(), PrefixError> {
    if folder.exists() && !folder.is_dir() {
        return Err(PrefixError::NotAFolder(folder.to_owned()));
    }
    let created = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    created.map_err(|error| PrefixError::Io { path: folder.to_owned(), error })
}

/// The folder, held by this process until it ends.
#[derive(Debug)]
pub(crate) struct Prefix {
    folder: PathBuf,
    /// Its lock ends with the process, however that ends, so a file that is left behind does no harm.
    pid_file: File,
    /// Whether this process is the node's, rather than one that replaces it or was replaced.
    is_own: bool,
}

impl Prefix {
    /// Creates the folder if needed, and takes it.
    pub(crate) fn take(folder: PathBuf) -> Result<Prefix, PrefixError> {
        let path = pid_path(&folder);
        let at = |path: &Path| {
            let path = path.to_owned();
            |error| PrefixError::Io { path, error }
        };
        if socket(&folder).as_os_str().len() > MAX_SOCKET_PATH_LEN {
            return Err(PrefixError::TooLong(folder));
        }
        create(&folder)?;
        let file = loop {
            let file = open_pid_file(&path).map_err(at(&path))?;
            match file.try_lock() {
                // A node that has ended since may have removed it, and another may have created the next one.
                Ok(()) if is_at(&file, &path) => break file,
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    let pid = read_pid(&file);
                    return Err(match has_ended(&pid) {
                        true => PrefixError::Locked(path),
                        false => PrefixError::InUse { prefix: folder, pid },
                    });
                }
                Err(TryLockError::Error(error)) => return Err(at(&path)(error)),
            }
        };
        write_pid(&file).map_err(at(&path))?;
        // The process that left this socket behind no longer holds the lock.
        match fs::remove_file(socket(&folder)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(at(&socket(&folder))(error)),
            _ => Ok(Prefix { folder, pid_file: file, is_own: true }),
        }
    }

    /// Shares the folder with the process that holds it, whose pid file this is.
    pub(crate) fn share(folder: PathBuf, pid_file: File) -> Prefix {
        Prefix { folder, pid_file, is_own: false }
    }

    /// Has the pid file name this process, which is about to take the folder over from that one.
    pub(crate) fn write_pid(&self) -> io::Result<()> {
        write_pid(&self.pid_file)
    }

    /// The folder is this process's own.
    pub(crate) fn own(&mut self) {
        self.is_own = true;
    }

    /// Leaves the folder to the process that has taken it over, with the lock, which is held until both have closed the file.
    pub(crate) fn leave(mut self) {
        self.is_own = false;
    }

    /// The pid file, for another process.
    pub(crate) fn pid_file(&self) -> io::Result<File> {
        self.pid_file.try_clone()
    }

    /// The folder's path.
    pub(crate) fn path(&self) -> &Path {
        &self.folder
    }
}

impl Drop for Prefix {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        let path = pid_path(&self.folder);
        // If it names another process, that is taking this one's place.
        if is_at(&self.pid_file, &path) && read_pid(&self.pid_file) == std::process::id().to_string() {
            let _ = fs::remove_file(socket(&self.folder));
            // Last, because the next node may start once it is gone. The lock is held until then.
            let _ = fs::remove_file(path);
        }
    }
}

fn pid_path(folder: &Path) -> PathBuf {
    folder.join("weir.pid")
}

fn open_pid_file(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        // Otherwise another user could create a link here and have any file emptied.
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

/// Whether the file is still the one at this path.
fn is_at(file: &File, path: &Path) -> bool {
    let id = |file: io::Result<fs::Metadata>| file.ok().map(|file| (file.dev(), file.ino()));
    let own = id(file.metadata());
    own.is_some() && own == id(path.symlink_metadata())
}

/// Has the pid file name this process. Both processes of an upgrade have the same place in the file, so it is named.
pub(crate) fn write_pid(file: &File) -> io::Result<()> {
    let line = format!("{}\n", std::process::id());
    // In this order, so that a reader never finds it empty.
    file.write_all_at(line.as_bytes(), 0)?;
    file.set_len(line.len() as u64)
}

/// The process that the pid file names.
fn read_pid(file: &File) -> String {
    let mut pid = [0; 16];
    let length = file.read_at(&mut pid, 0).unwrap_or(0);
    match String::from_utf8_lossy(&pid[..length]).trim() {
        "" => "unknown".to_owned(),
        pid => pid.to_owned(),
    }
}

/// Whether there is no process of this number any more.
fn has_ended(pid: &str) -> bool {
    let pid = pid.parse().ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::SeqCst;

    #[test]
    fn a_lock_that_no_node_holds_is_called_that() {
        let folder = tempfile::tempdir().unwrap();
        let mut ended = std::process::Command::new("true").spawn().unwrap();
        ended.wait().unwrap();
        let path = pid_path(folder.path());
        fs::write(&path, format!("{}\n", ended.id())).unwrap();
        let held = File::open(&path).unwrap();
        held.lock_shared().unwrap();
        let refused = Prefix::take(folder.path().to_owned()).unwrap_err();
        assert!(matches!(refused, PrefixError::Locked(_)), "{refused}");
        drop(held);
        Prefix::take(folder.path().to_owned()).unwrap();
    }

    #[test]
    fn one_node_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a/b");
        let first = Prefix::take(path.clone()).unwrap();
        let refused = Prefix::take(path.clone()).unwrap_err();
        assert!(refused.to_string().contains(&std::process::id().to_string()), "{refused}");
        drop(first);
        assert!(!pid_path(&path).exists(), "a node that ends leaves no file behind");
        Prefix::take(path).unwrap();
    }

    #[test]
    fn one_node_at_a_time_while_others_end() {
        let folder = tempfile::tempdir().unwrap();
        let held = std::sync::atomic::AtomicBool::new(false);
        let nodes = || {
            for _ in 0..500 {
                match Prefix::take(folder.path().to_owned()) {
                    Ok(prefix) => {
                        assert!(!held.swap(true, SeqCst), "two nodes hold the folder");
                        held.store(false, SeqCst);
                        drop(prefix);
                    }
                    Err(error) => assert!(matches!(error, PrefixError::InUse { .. }), "{error}"),
                }
            }
        };
        std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(nodes))));
    }

    #[test]
    fn what_another_process_has_taken_over_is_left_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let old = Prefix::take(folder.path().to_owned()).unwrap();
        fs::write(socket(folder.path()), "").unwrap();
        fs::write(pid_path(folder.path()), "1\n").unwrap();
        drop(old);
        assert!(socket(folder.path()).exists() && pid_path(folder.path()).exists());
    }

    #[test]
    fn what_a_killed_node_left_behind_is_taken_over() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("weir.pid"), "1\n").unwrap();
        fs::write(socket(folder.path()), "").unwrap();
        let prefix = Prefix::take(folder.path().to_owned()).unwrap();
        assert!(!socket(prefix.path()).exists());
        let pid = fs::read_to_string(folder.path().join("weir.pid")).unwrap();
        assert_eq!(pid, format!("{}\n", std::process::id()));
    }

    #[test]
    fn one_process_takes_it_over_from_another() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("weir.pid");
        let old = Prefix::take(folder.path().to_owned()).unwrap();
        let share = |old: &Prefix| Prefix::share(folder.path().to_owned(), old.pid_file().unwrap());
        fs::write(socket(folder.path()), "").unwrap();
        drop(share(&old));
        let pid = format!("{}\n", std::process::id());
        assert_eq!(fs::read_to_string(&pid_file).unwrap(), pid, "a process that fails changes nothing");
        let mut new = share(&old);
        new.write_pid().unwrap();
        new.own();
        old.leave();
        assert!(socket(folder.path()).exists());
        assert_eq!(fs::read_to_string(&pid_file).unwrap(), pid);
        assert!(Prefix::take(folder.path().to_owned()).is_err(), "the lock is kept");
        drop(new);
        assert!(!pid_file.exists(), "the file ends with the node");
        assert!(Prefix::take(folder.path().to_owned()).is_ok());
    }

    #[test]
    fn a_process_that_cannot_take_it_over_leaves_it_as_it_was() {
        let folder = tempfile::tempdir().unwrap();
        let old = Prefix::take(folder.path().to_owned()).unwrap();
        fs::write(socket(folder.path()), "").unwrap();
        let read_only = File::open(folder.path().join("weir.pid")).unwrap();
        Prefix::share(folder.path().to_owned(), read_only).write_pid().unwrap_err();
        let new = Prefix::share(folder.path().to_owned(), old.pid_file().unwrap());
        new.write_pid().unwrap();
        // The other process does not wait any longer.
        drop(new);
        assert!(socket(folder.path()).exists());
        let pid = fs::read_to_string(folder.path().join("weir.pid")).unwrap();
        assert_eq!(pid, format!("{}\n", std::process::id()));
    }

    #[test]
    fn what_cannot_be_a_nodes_folder_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        fs::write(&file, "").unwrap();
        assert!(matches!(Prefix::take(file), Err(PrefixError::NotAFolder(_))));
        let long = folder.path().join("a".repeat(MAX_SOCKET_PATH_LEN));
        assert!(matches!(Prefix::take(long.clone()), Err(PrefixError::TooLong(_))));
        assert!(!long.exists());
    }

    #[test]
    fn a_link_is_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let other = folder.path().join("other");
        fs::write(&other, "precious").unwrap();
        std::os::unix::fs::symlink(&other, folder.path().join("weir.pid")).unwrap();
        let refused = Prefix::take(folder.path().to_owned()).unwrap_err();
        assert!(refused.to_string().contains("weir.pid"), "{refused}");
        assert_eq!(fs::read_to_string(other).unwrap(), "precious");
    }
}
