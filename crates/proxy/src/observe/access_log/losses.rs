//! What the node's log says of lines that were lost.

use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// At most one message is logged in this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// How many lost lines were reported, and when.
#[derive(Default)]
pub(super) struct Losses {
    reported: u64,
    last: Option<Instant>,
    /// Why writing failed, since the last report.
    error: Option<io::Error>,
}

impl Losses {
    /// Writing failed.
    pub(super) fn failed(&mut self, error: io::Error) {
        self.error = Some(error);
    }

    /// How long the next report has to wait, where there is something to report; `lost` is the total since the start.
    pub(super) fn next_report(&self, lost: u64, now: Instant) -> Option<Duration> {
        let elapsed = |last| now.saturating_duration_since(last);
        let wait = self.last.map_or(Duration::ZERO, |last| REPORT_INTERVAL.saturating_sub(elapsed(last)));
        (lost > self.reported).then_some(wait)
    }

    /// Whether there is something to report and it need not wait.
    pub(super) fn is_due(&self, lost: u64, now: Instant) -> bool {
        self.next_report(lost, now).is_some_and(|wait| wait.is_zero())
    }

    /// Logs how many lines were lost since the last report, and why.
    pub(super) fn report(&mut self, lost: u64, path: &str) {
        let lines = lost - self.reported;
        if lines == 0 {
            return;
        }
        match self.error.take() {
            Some(error) => {
                tracing::error!(path, %error, lines, "the access log lost lines: it cannot be written")
            }
            None => tracing::error!(
                path,
                lines,
                "the access log lost lines: the disk is slower than requests come"
            ),
        }
        (self.reported, self.last) = (lost, Some(Instant::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_reported_at_once_and_then_once_a_minute() {
        let (mut losses, start) = (Losses::default(), Instant::now());
        assert_eq!((losses.next_report(0, start), losses.is_due(0, start)), (None, false));
        assert!(losses.is_due(3, start));
        losses.report(3, "access.log");
        let last = losses.last.unwrap();
        assert_eq!(losses.next_report(3, last), None, "nothing more is lost");
        let later = |seconds| last + Duration::from_secs(seconds);
        assert_eq!(losses.next_report(5, later(20)), Some(Duration::from_secs(40)));
        assert_eq!((losses.is_due(5, later(59)), losses.is_due(5, later(60))), (false, true));
        losses.report(5, "access.log");
        assert_eq!(losses.reported, 5);
    }
}
