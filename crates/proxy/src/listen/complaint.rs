//! Warns that connections cannot be accepted.

use std::time::Duration;
use tokio::time::Instant;

/// Says that connections have to wait, as often as is of use.
#[derive(Default)]
pub(crate) struct Complaint {
    last: Option<Instant>,
}

impl Complaint {
    pub(crate) fn log(&mut self, why: std::fmt::Arguments<'_>) {
        if self.is_due(Instant::now()) {
            tracing::error!(
                "cannot accept connections: {why}; clients wait until some close: raise the limit of open files \
                 (ulimit -n)"
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
