//! What goes wrong with a cache. None of it stops a start.
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// Why the cache cannot be used, or does not have what is active.
#[derive(Debug)]
pub enum CacheError {
    /// Another process uses it.
    Locked(PathBuf),
    /// The operating system refuses to read or write.
    Io {
        /// What was done, such as `write`.
        operation: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It lacks an earlier change, so that this one cannot be added: store everything.
    Behind(PathBuf),
}

impl CacheError {
    pub(super) fn write(path: &Path, error: io::Error) -> CacheError {
        CacheError::io("write", path, error)
    }

    pub(super) fn io(operation: &'static str, path: &Path, error: io::Error) -> CacheError {
        CacheError::Io { operation, path: path.to_owned(), error }
    }
}

impl fmt::Display for CacheError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheError::Locked(path) => write!(
                f,
                "another process uses the cache {}: give each data plane a prefix of its own",
                path.display()
            ),
            CacheError::Io { operation, path, error } => {
                let hint = match error.kind() {
                    io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                        "; make room on this file system"
                    }
                    io::ErrorKind::PermissionDenied => "; let the user that runs weir write there",
                    _ => "",
                };
                write!(f, "cannot {operation} {}: {error}{hint}", path.display())
            }
            CacheError::Behind(path) => {
                write!(f, "the cache {} lacks an earlier change, and is to be written anew", path.display())
            }
        }
    }
}

impl std::error::Error for CacheError {}

/// What is to be logged about a cache that was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheWarning {
    /// A file could not be used, and has another name now.
    SetAside {
        /// The file.
        path: PathBuf,
        /// What it is called now.
        renamed: PathBuf,
        /// Why.
        why: String,
    },
    /// The end of a file was damaged: what was written there last is lost.
    Torn {
        /// The file.
        path: PathBuf,
        /// The last change that is intact.
        sequence: u64,
    },
}

impl fmt::Display for CacheWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CacheWarning::SetAside { path, renamed, why } => write!(
                f,
                "the cached configuration {} cannot be used, because {why}; it was renamed to {}",
                path.display(),
                renamed.display()
            ),
            CacheWarning::Torn { path, sequence } => write!(
                f,
                "the end of the cached configuration {} is damaged; sequence {sequence}, which is before that, is used",
                path.display()
            ),
        }
    }
}
