//! How long a data plane waits before it connects again.
use std::time::Duration;

/// The bound of the first wait.
const FIRST: Duration = Duration::from_secs(1);

/// The bound of the longest wait.
const LONGEST: Duration = Duration::from_secs(60);

/// The longest time that a control plane may ask for.
const LONGEST_ASKED: Duration = Duration::from_secs(300);

/// Waits of random length with a bound that doubles, so that the data planes of a control plane that restarts do not all
/// return at once.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The connection was of use.
    pub(super) fn reset(&mut self) {
        self.failures = 0;
    }

    /// How long to wait now; no less than the control plane has asked for.
    pub(super) fn next(&mut self, asked: Option<Duration>) -> Duration {
        let bound = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures += 1;
        bound.mul_f64(fastrand::f64()) + asked.unwrap_or_default().min(LONGEST_ASKED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_minute_and_honour_what_is_asked() {
        let mut backoff = Backoff::default();
        assert!(backoff.next(None) <= FIRST);
        let waits: Vec<_> = (0..200).map(|_| backoff.next(None)).collect();
        assert!(waits.iter().all(|wait| *wait <= LONGEST));
        assert!(waits.iter().any(|wait| *wait > FIRST), "they grow");
        assert!(backoff.next(Some(Duration::from_secs(100))) >= Duration::from_secs(100));
        assert!(backoff.next(Some(Duration::MAX)) <= LONGEST_ASKED + LONGEST);
        backoff.reset();
        assert!(backoff.next(None) <= FIRST);
    }
}
