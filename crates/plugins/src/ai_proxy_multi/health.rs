//! Whether an instance is left out for a while, because it has failed.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long an instance is left out behind its first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// How long it is left out at most.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How long it may ask to be left out.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// For how many callers it is known at most that their requests have failed.
const MAX_CALLERS: usize = 1000;

/// The health of an instance, as its responses show it. What fails for a caller may be the fault of its requests, so that it
/// concerns the caller alone, until another instance has answered one of them.
#[derive(Debug, Default)]
pub(super) struct Health(Mutex<States>);

#[derive(Debug, Default)]
struct States {
    of_all: State,
    of_callers: HashMap<u64, State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often it has failed since it last answered.
    failures: u32,
    /// Until when it is left out.
    until: Option<Instant>,
}

impl Health {
    fn states(&self) -> MutexGuard<'_, States> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it may be asked for a caller.
    pub(super) fn is_well(&self, caller: u64, now: Instant) -> bool {
        let states = self.states();
        states.of_all.is_well(now) && states.of_callers.get(&caller).is_none_or(|state| state.is_well(now))
    }

    pub(super) fn succeeded(&self, caller: u64) {
        let mut states = self.states();
        states.of_all = State::default();
        states.of_callers.remove(&caller);
    }

    /// Leaves it out for a caller, for as long as it has asked for at least.
    pub(super) fn failed_for(&self, caller: u64, now: Instant, retry_after: Option<Duration>) {
        let mut states = self.states();
        if states.of_callers.len() >= MAX_CALLERS {
            states.of_callers.retain(|_, state| !state.is_well(now));
        }
        if states.of_callers.len() < MAX_CALLERS || states.of_callers.contains_key(&caller) {
            states.of_callers.entry(caller).or_default().failed(now, retry_after);
        }
    }

    /// The same for all, because another instance has answered what it has not.
    pub(super) fn failed(&self, now: Instant, retry_after: Option<Duration>) {
        self.states().of_all.failed(now, retry_after);
    }
}

impl State {
    fn is_well(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }

    /// Requests that were in flight when it failed first count as one failure.
    fn failed(&mut self, now: Instant, retry_after: Option<Duration>) {
        if self.is_well(now) {
            self.failures = self.failures.saturating_add(1);
        }
        let doubled = FIRST_PAUSE.saturating_mul(1 << self.failures.saturating_sub(1).min(10));
        let asked = retry_after.unwrap_or_default().min(MAX_RETRY_AFTER);
        let until = now + doubled.min(MAX_PAUSE).max(asked);
        self.until = Some(self.until.map_or(until, |known| known.max(until)));
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
            assert!(health.is_well(7, now));
            health.failed(now, None);
            health.failed(now, None);
            assert!(!health.is_well(7, now + seconds(pause) - Duration::from_millis(1)), "{pause}");
            now += seconds(pause);
        }
        health.succeeded(7);
        health.failed(now, None);
        assert!(health.is_well(7, now + seconds(1)));
    }

    #[test]
    fn it_may_ask_for_longer_up_to_a_minute() {
        let (health, now) = (Health::default(), Instant::now());
        health.failed(now, Some(seconds(20)));
        assert!(!health.is_well(7, now + seconds(19)) && health.is_well(7, now + seconds(20)));
        health.failed(now, Some(seconds(86_400)));
        assert!(health.is_well(7, now + seconds(60)));
    }

    #[test]
    fn a_failure_concerns_its_caller_alone_and_few_are_known() {
        let (health, now) = (Health::default(), Instant::now());
        health.failed_for(1, now, None);
        assert!(!health.is_well(1, now) && health.is_well(2, now));
        health.failed(now, None);
        assert!(!health.is_well(2, now));
        health.succeeded(1);
        assert!(health.is_well(1, now) && health.is_well(2, now));
        (0..5000).for_each(|caller| health.failed_for(caller, now, None));
        assert_eq!(health.states().of_callers.len(), MAX_CALLERS);
        health.failed_for(5000, now + seconds(2), None);
        assert!(!health.is_well(5000, now + seconds(2)));
    }
}
