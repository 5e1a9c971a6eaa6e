//! Logs in files, which log rotation moves.
use rustix::stdio::dup2_stderr;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tracing_subscriber::fmt::MakeWriter;

/// What is reopened, by name. There is one node in a process.
static FILES: Mutex<Vec<(&'static str, Log)>> = Mutex::new(Vec::new());

#[derive(Clone)]
enum Log {
    File(LogFile),
    /// Standard error, and the file that it goes to.
    StandardError(PathBuf),
}

/// A file that lines are appended to, also after it was reopened.
#[derive(Clone)]
pub(super) struct LogFile(Arc<Opened>);

struct Opened {
    path: PathBuf,
    file: RwLock<Arc<File>>,
}

impl LogFile {
    /// Opens the file that the setting of this name has.
    pub(super) fn open(name: &'static str, path: &Path) -> io::Result<LogFile> {
        let file = RwLock::new(Arc::new(append_to(path)?));
        let log = LogFile(Arc::new(Opened { path: path.to_owned(), file }));
        files(|files| files.push((name, Log::File(log.clone()))));
        Ok(log)
    }
}

impl MakeWriter<'_> for LogFile {
    type Writer = Arc<File>;

    fn make_writer(&self) -> Arc<File> {
        self.0.file.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Log {
    fn reopen(&self) -> io::Result<()> {
        match self {
            Log::File(LogFile(opened)) => {
                let file = Arc::new(append_to(&opened.path)?);
                *opened.file.write().unwrap_or_else(PoisonError::into_inner) = file;
            }
            Log::StandardError(path) => dup2_stderr(append_to(path)?)?,
        }
        Ok(())
    }
}

/// Reopens standard error, too, if it goes to this file.
pub(crate) fn follow_standard_error(path: &Path) {
    let goes_to = fs::read_link("/proc/self/fd/2").ok();
    if goes_to.is_some() && goes_to == path.canonicalize().ok() {
        files(|files| files.push(("standard error", Log::StandardError(path.to_owned()))));
    }
}

/// Opens all logs again; returns their names with what came of it.
pub(crate) fn reopen() -> Vec<(&'static str, io::Result<()>)> {
    let all = files(|files| files.clone());
    all.into_iter().map(|(name, log)| (name, log.reopen())).collect()
}

fn files<R>(work: impl FnOnce(&mut Vec<(&'static str, Log)>) -> R) -> R {
    work(&mut FILES.lock().unwrap_or_else(PoisonError::into_inner))
}

fn append_to(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).open(path)
}
