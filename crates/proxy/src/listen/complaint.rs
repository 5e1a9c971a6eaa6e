//! Warns that connections cannot be accepted.

use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// Says that connections have to wait, as often as is of use.
#[derive(Default)]
pub(crate) struct Complaint {
    last: Option<Instant>,
}

impl Complaint {
    /// The system lets no more connections be opened.
    pub(crate) fn log_error(&mut self, error: &io::Error) {
        if self.is_due(Instant::now()) {
            tracing::error!(
                "cannot accept connections: {error}; clients wait until some close: raise the limit of open files \
                 (worker_rlimit_nofile, ulimit -n)"
            );
        }
    }

    /// As many connections are open as may be.
    pub(crate) fn log_limit(&mut self, most: usize) {
        if self.is_due(Instant::now()) {
            tracing::error!(
                "cannot accept connections: {most} connections are open, which is the limit; clients wait until some \
                 close: raise worker_connections and the limit of open files (worker_rlimit_nofile, ulimit -n); half of \
                 the lower of the two is for clients"
            );
        }
    }

    /// Once a second.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let due = self.last.is_none_or(|last| now.duration_since(last) >= Duration::from_secs(1));
        if due {
            self.last = Some(now);
        }
        due
    }
}
