//! Whether an instance is left out for a while, because it has failed.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;
use tokio::time::Instant;

/// How long an instance is left out behind its first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How long it is left out at most.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How long it may ask to be left out.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The health of an instance, as its responses show it.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// How often it has failed since it last answered.
    failures: u32,
    /// Until when it is left out.
    until: Option<Instant>,
}

impl Health {
    /// Whether it may be asked.
    pub(super) fn is_well(&self, now: Instant) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).until.is_none_or(|until| until <= now)
    }

    pub(super) fn succeeded(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = State::default();
    }

    /// Leaves it out, for as long as it has asked for at least. Requests that were in flight when it failed first count
    /// as one failure.
    pub(super) fn failed(&self, now: Instant, retry_after: Option<Duration>) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.until.is_none_or(|until| until <= now) {
            state.failures = state.failures.saturating_add(1);
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << state.failures.saturating_sub(1).min(10));
        let asked = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        let until = now + doubled.min(MAX_PAUSE).max(asked);
        state.until = Some(state.until.map_or(until, |known| known.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn an_instance_is_left_out_for_longer_each_time_but_not_for_ever() {
        let (health, mut now) = (Health::default(), Instant::now());
        for pause in [1, 2, 4, 8, 16, 30, 30] {
            assert!(health.is_well(now));
            health.failed(now, None);
            health.failed(now, None);
            assert!(!health.is_well(now + seconds(pause) - Duration::from_millis(1)), "{pause}");
            now += seconds(pause);
        }
        health.succeeded();
        health.failed(now, None);
        assert!(health.is_well(now + seconds(1)));
    }

    #[test]
    fn it_may_ask_for_longer_up_to_a_minute() {
        let (health, now) = (Health::default(), Instant::now());
        health.failed(now, Some(seconds(20)));
        assert!(!health.is_well(now + seconds(19)) && health.is_well(now + seconds(20)));
        health.failed(now, Some(seconds(86_400)));
        assert!(health.is_well(now + seconds(60)));
    }
}
