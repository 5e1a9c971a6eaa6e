//! Limits how many requests a client cancels, because Rapid Reset (CVE-2023-44487) and MadeYouReset (CVE-2025-8671)
//! cost it a few bytes for each, but the gateway and its upstreams a request.

use std::cell::{Cell, RefCell};
use std::task::{Context, Waker};
use std::time::Duration;
use tokio::time::Instant;

/// A request that lived no longer counts whole, one of ten times this age a tenth.
const SHORT: Duration = Duration::from_millis(10);
/// A request that lived this long does not count.
const LONG: Duration = Duration::from_secs(1);

/// What a client may still do after the resets so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Standing {
    Good,
    /// It gets the responses to its requests in flight, but may send no more requests.
    Excessive,
    /// It went on after it was refused further requests.
    Abusive,
}

/// A leaky bucket: each reset fills it, and time empties it. It holds as many resets as it loses in a second.
pub(crate) struct Resets {
    most: f64,
    level: Cell<f64>,
    filled: Cell<Instant>,
    standing: Cell<Standing>,
    /// The task that acts on another standing.
    waiting: RefCell<Option<Waker>>,
}

impl Resets {
    /// A client that may give up so many requests in a second.
    pub(crate) fn new(most: u32) -> Self {
        Self {
            most: most.into(),
            level: Cell::new(0.0),
            filled: Cell::new(Instant::now()),
            standing: Cell::new(Standing::Good),
            waiting: RefCell::default(),
        }
    }

    /// A request was given up at this age, before it had a response.
    pub(crate) fn given_up(&self, age: Duration) {
        if age < LONG {
            self.fill((SHORT.as_secs_f64() / age.as_secs_f64()).min(1.0), Instant::now());
        }
    }

    /// So many streams were reset because the client broke a rule.
    pub(crate) fn broken(&self, streams: u32) {
        if streams > 0 {
            self.fill(streams.into(), Instant::now());
        }
    }

    pub(crate) fn standing(&self) -> Standing {
        self.standing.get()
    }

    /// Wakes the task whenever the standing changes.
    pub(crate) fn watch(&self, cx: &Context<'_>) {
        self.waiting.borrow_mut().get_or_insert_with(|| cx.waker().clone());
    }

    fn fill(&self, amount: f64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.filled.replace(now)).as_secs_f64();
        let level = (self.level.get() - elapsed * self.most).max(0.0) + amount;
        self.level.set(level);
        let standing = match level {
            _ if level > 2.0 * self.most => Standing::Abusive,
            _ if level > self.most => Standing::Excessive,
            _ => Standing::Good,
        };
        if standing > self.standing.get() {
            self.standing.set(standing);
            if let Some(waiting) = &*self.waiting.borrow() {
                waiting.wake_by_ref();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The standing of a client after so many resets, each of so much, which come at this rate each second.
    fn after(resets: u32, amount: f64, rate: u32) -> Standing {
        let bucket = Resets::new(256);
        let start = bucket.filled.get();
        for number in 0..resets {
            bucket.fill(amount, start + Duration::from_secs(1) * number / rate);
        }
        bucket.standing()
    }

    #[test]
    fn what_counts_is_the_rate() {
        assert_eq!(after(100_000, 1.0, 200), Standing::Good);
        assert_eq!(after(256, 1.0, 1_000_000), Standing::Good);
        assert_eq!(after(260, 1.0, 1_000_000), Standing::Excessive);
        assert_eq!(after(600, 1.0, 1_000_000), Standing::Abusive);
        assert_eq!(after(10_000, 0.1, 2_000), Standing::Good);
    }

    #[test]
    fn old_requests_count_less() {
        let level = |age: u64| {
            let bucket = Resets::new(256);
            bucket.given_up(Duration::from_millis(age));
            (bucket.level.get() * 1000.0).round()
        };
        assert_eq!([0, 10, 50, 100, 999, 1000].map(level), [1000.0, 1000.0, 200.0, 100.0, 10.0, 0.0]);
    }

    #[test]
    fn a_standing_that_is_lost_does_not_come_back() {
        let bucket = Resets::new(1);
        bucket.broken(2);
        bucket.fill(0.0, Instant::now() + Duration::from_secs(100));
        assert_eq!(bucket.standing(), Standing::Excessive);
    }
}
