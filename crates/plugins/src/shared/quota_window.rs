//! A window that begins with what is used first, and what was used in it.

use crate::shared::counters::{Counter, Recent};
use std::cell::RefCell;
use std::sync::{Mutex, PoisonError};
use std::thread::LocalKey;

/// The limit: so many requests per window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limit {
    pub(crate) count: u64,
    pub(crate) milliseconds: u64,
}

/// How a limit stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) admitted: bool,
    pub(crate) remaining: u64,
    /// Seconds until the window ends, rounded up.
    pub(crate) reset: u64,
}

/// The window of one key. Both numbers change together, so they are behind a lock, which is held only briefly.
#[derive(Debug, Default)]
pub(crate) struct Window(Mutex<Used>);

#[derive(Debug, Default)]
struct Used {
    /// In milliseconds since 1970.
    ends: u64,
    count: u64,
}

impl Window {
    /// Takes one request if one is left; also returns the second in which that was decided. The clock is read under the
    /// lock, so that a later call reads a later time, unless the clock was set back.
    pub(crate) fn take(&self, limit: Limit, clock: impl Fn() -> u64) -> (u64, Usage) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock();
        used.begin_at(now, limit);
        let admitted = used.count < limit.count;
        used.count += u64::from(admitted);
        (now / 1_000, Usage { admitted, ..used.usage(limit, now) })
    }

    /// Whether any is left, and the second in which that was so. Nothing is taken.
    pub(crate) fn look(&self, limit: Limit, clock: impl Fn() -> u64) -> (u64, Usage) {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock();
        let begun = Used { ends: now.saturating_add(limit.milliseconds), count: 0 };
        let used = if used.is_over(now, limit) { &begun } else { &*used };
        (now / 1_000, used.usage(limit, now))
    }

    /// Adds to what was used, whatever the limit; also returns the second.
    pub(crate) fn add(&self, limit: Limit, more: u64, clock: impl Fn() -> u64) -> (u64, Usage) {
        let mut used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = clock();
        used.begin_at(now, limit);
        used.count = used.count.saturating_add(more);
        (now / 1_000, used.usage(limit, now))
    }
}

impl Used {
    /// Whether the window has ended, or the clock was set back.
    fn is_over(&self, now: u64, limit: Limit) -> bool {
        self.ends <= now || self.ends > now.saturating_add(limit.milliseconds)
    }

    /// Begins the next window, if this one is over.
    fn begin_at(&mut self, now: u64, limit: Limit) {
        if self.is_over(now, limit) {
            *self = Used { ends: now.saturating_add(limit.milliseconds), count: 0 };
        }
    }

    fn usage(&self, limit: Limit, now: u64) -> Usage {
        Usage {
            admitted: self.count < limit.count,
            remaining: limit.count.saturating_sub(self.count),
            reset: (self.ends - now).div_ceil(1_000),
        }
    }
}

thread_local! {
    static OWN: RefCell<Recent<Window>> = const { RefCell::new(Recent::new()) };
}

impl Counter for Window {
    type Time = u64;

    fn time(seconds: u64) -> u64 {
        seconds * 1_000
    }

    fn is_over(&self, now: &u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).ends <= *now
    }

    const NUMBERS: usize = 2;

    fn numbers(&self) -> Vec<u64> {
        let used = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        vec![used.ends, used.count]
    }

    fn restore(&self, numbers: &[u64]) {
        if let [ends, count] = *numbers {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Used { ends, count };
        }
    }

    fn recent() -> &'static LocalKey<RefCell<Recent<Self>>> {
        &OWN
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

    const NOON: u64 = 1_706_702_400_000;
    const TWO: Limit = Limit { count: 2, milliseconds: 10_000 };

    fn take(window: &Window, now: u64) -> (bool, u64, u64) {
        let (_, Usage { admitted, remaining, reset }) = window.take(TWO, || now);
        (admitted, remaining, reset)
    }

    #[test]
    fn a_window_begins_with_its_first_request() {
        let window = Window::default();
        assert_eq!(take(&window, NOON + 700), (true, 1, 10));
        assert_eq!(take(&window, NOON + 4_701), (true, 0, 6));
        assert_eq!(take(&window, NOON + 10_699), (false, 0, 1));
        assert_eq!(take(&window, NOON + 10_700), (true, 1, 10));
    }

    #[test]
    fn a_clock_set_back_does_not_lock_clients_out() {
        let window = Window::default();
        assert_eq!([0, 0, 0].map(|later| take(&window, NOON + later).0), [true, true, false]);
        assert!(take(&window, NOON - 60_000).0);
    }

    #[test]
    fn what_is_known_later_is_added_whatever_is_left() {
        let window = Window::default();
        let look = |now: u64| window.look(TWO, || now).1;
        let whole = Usage { admitted: true, remaining: 2, reset: 10 };
        assert_eq!((look(NOON), look(NOON + 5_000)), (whole, whole), "looking begins no window");
        assert_eq!(window.add(TWO, 1, || NOON).1, Usage { admitted: true, remaining: 1, reset: 10 });
        assert_eq!(window.add(TWO, 9, || NOON + 1_000).1.remaining, 0);
        assert_eq!(look(NOON + 9_001), Usage { admitted: false, remaining: 0, reset: 1 });
        assert_eq!(look(NOON + 10_000), whole);
    }

    #[test]
    fn k_requests_at_once_take_exactly_what_is_left() {
        let (window, admitted) = (Window::default(), AtomicU64::new(0));
        let limit = Limit { count: 1_000, milliseconds: 60_000 };
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    let mine = (0..500).filter(|_| window.take(limit, || NOON).1.admitted).count();
                    admitted.fetch_add(mine as u64, SeqCst);
                });
            }
        });
        assert_eq!(admitted.into_inner(), 1_000);
    }

    #[test]
    fn a_window_is_over_when_it_has_ended() {
        let window = Window::default();
        take(&window, NOON);
        assert!(!window.is_over(&Window::time((NOON + 9_000) / 1_000)));
        assert!(window.is_over(&Window::time((NOON + 10_000) / 1_000)));
    }
}
