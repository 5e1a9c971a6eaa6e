//! Limits on how many processes and threads the system starts.
use rustix::io::Errno;
use std::io;

/// Whether such a limit is the cause of an error.
pub(crate) fn is_reached(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::AGAIN.raw_os_error())
}

/// How to fix an error that such a limit causes; nothing for other errors.
pub(crate) fn hint(error: &io::Error) -> &'static str {
    if is_reached(error) {
        ": no more processes and threads may be started: raise the limit (`ulimit -u`, `TasksMax` of systemd, or the \
         container's `pids.max`)"
    } else {
        ""
    }
}
