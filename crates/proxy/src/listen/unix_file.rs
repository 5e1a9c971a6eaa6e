//! The file of a Unix socket: created atomically with its mode, never over one in use, and removed by its owner alone.

use rustix::fs::{Mode, OFlags};
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether a process removes the files of its sockets. Another one may have taken the sockets over.
#[derive(Debug, Clone, Default)]
pub(super) struct Ownership {
    is_others: Arc<AtomicBool>,
}

impl Ownership {
    pub(super) fn set(&self, is_own: bool) {
        self.is_others.store(!is_own, Ordering::SeqCst);
    }
}

/// The file of a socket that this process listens on; dropping it removes the file.
#[derive(Debug)]
pub struct UnixFile {
    path: PathBuf,
    /// Device and inode: by the time of the removal the path may be another's.
    identity: (u64, u64),
    ownership: Ownership,
}

impl UnixFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Binds a socket beside the path, and renames it once it has its mode and is listened on, so that a client never
    /// finds the path missing, and the socket never has wider permissions.
    pub(super) fn create(
        path: &Path,
        mode: u32,
        ownership: &Ownership,
        bind: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<Self> {
        refuse_unless_free(path)?;
        let mut beside = OsString::from(path);
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        // Of a process of this number that was killed between the two steps.
        remove_socket(&beside)?;
        bind(&beside)?;
        let placed = fs::set_permissions(&beside, fs::Permissions::from_mode(mode))
            .and_then(|()| fs::symlink_metadata(&beside))
            .and_then(|found| fs::rename(&beside, path).map(|()| found));
        match placed {
            Ok(found) => Ok(Self::of(path, &found, ownership)),
            Err(error) => {
                let _ = fs::remove_file(&beside);
                Err(error)
            }
        }
    }

    /// Takes over the file of a socket that another process has created.
    pub(super) fn adopt(path: &Path, ownership: &Ownership) -> io::Result<Self> {
        let found = fs::symlink_metadata(path)?;
        if !found.file_type().is_socket() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
        }
        Ok(Self::of(path, &found, ownership))
    }

    /// The file with the mode that it is to get.
    pub(super) fn with_mode(&self, mode: u32) -> FileMode {
        FileMode { path: self.path.clone(), identity: self.identity, mode }
    }

    fn of(path: &Path, found: &fs::Metadata, ownership: &Ownership) -> Self {
        let (identity, ownership) = ((found.dev(), found.ino()), ownership.clone());
        Self { path: path.to_owned(), identity, ownership }
    }
}

/// The mode that the file of a socket is to get.
#[derive(Debug)]
pub(super) struct FileMode {
    pub(super) path: PathBuf,
    identity: (u64, u64),
    mode: u32,
}

impl FileMode {
    /// Sets it, unless another file is there by now, such as a link to one.
    pub(super) fn set(&self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        let found = file.metadata()?;
        if (found.dev(), found.ino()) != self.identity {
            return Ok(());
        }
        // The file that is open, whatever the path names by now.
        let opened = format!("/proc/self/fd/{}", file.as_raw_fd());
        fs::set_permissions(opened, fs::Permissions::from_mode(self.mode))
    }
}

impl Drop for UnixFile {
    fn drop(&mut self) {
        if self.ownership.is_others.load(Ordering::SeqCst) {
            return;
        }
        let own = |found: fs::Metadata| (found.dev(), found.ino()) == self.identity;
        if fs::symlink_metadata(&self.path).is_ok_and(own) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a socket without a listener, because a killed process has left it; anything else is not ours to replace.
fn refuse_unless_free(path: &Path) -> io::Result<()> {
    let found = match fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is there"));
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(io::ErrorKind::AddrInUse.into()),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(()),
        Err(error) => Err(error),
    }
}

fn remove_socket(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "a file that is no socket is beside it")),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    fn listen(path: &Path, mode: u32) -> io::Result<(UnixListener, UnixFile)> {
        let mut listener = None;
        let file = UnixFile::create(path, mode, &Ownership::default(), |place| {
            listener = Some(UnixListener::bind(place)?);
            Ok(())
        })?;
        Ok((listener.unwrap(), file))
    }

    #[test]
    fn a_socket_has_its_mode_and_is_gone_with_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let (_listener, file) = listen(&path, 0o640).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert!(UnixStream::connect(&path).is_ok());
        drop(file);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn only_what_nobody_listens_on_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let (listener, file) = listen(&path, 0o666).unwrap();
        assert_eq!(listen(&path, 0o666).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        let (_second, second) = listen(&path, 0o666).unwrap();
        drop(file);
        assert!(path.exists(), "the first owner removed the second's socket");
        drop(second);
        fs::write(&path, "kept").unwrap();
        assert_eq!(listen(&path, 0o666).unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&path).unwrap(), "kept");
    }
}
