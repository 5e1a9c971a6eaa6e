//! Why history is not stored.
use std::path::{Path, PathBuf};
use std::{error, fmt, io};

/// A file of the history could not be read or written. Requests and the history in memory are not concerned.
#[derive(Debug)]
pub struct DiskError {
    path: PathBuf,
    doing: &'static str,
    source: io::Error,
}

impl DiskError {
    pub(super) fn new(path: &Path, doing: &'static str, source: io::Error) -> DiskError {
        DiskError { path: path.to_owned(), doing, source }
    }

    /// The kind of the system's error.
    pub fn kind(&self) -> io::ErrorKind {
        self.source.kind()
    }

    fn hint(&self) -> &'static str {
        match self.source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free some space, or store less with analytics_disk"
            }
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                "make the folder writable, or store nothing with analytics_disk=0"
            }
            _ => "check the disk, or store nothing with analytics_disk=0",
        }
    }
}

impl fmt::Display for DiskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, doing, source } = self;
        let path = path.display();
        write!(f, "the history of analytics cannot be kept: {doing} {path}: {source}; {}", self.hint())
    }
}

impl error::Error for DiskError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        Some(&self.source)
    }
}
