//! One lazy timer per connection: setting a later deadline is only a store, and the timer re-arms itself when it fires.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::{unconstrained, yield_now};
use tokio::time::Instant;
use tokio::time::Sleep;

/// A deadline that is noticed so much later shows that the process, or the machine, did not run meanwhile.
const LATE: Duration = Duration::from_millis(50);
/// What others get to answer then.
const GRACE: Duration = Duration::from_millis(50);

/// The timeout of a connection's current operation.
#[derive(Default)]
pub struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
    /// The task that the timer wakes, once the timer has it: a comparison costs less than to hand it over again.
    waker: Option<Waker>,
    /// The deadline that has passed, after which the runtime is to look at the sockets once more.
    passed: Option<Instant>,
}

impl Deadline {
    /// Sets the deadline to so long after `now`.
    pub fn set(&mut self, now: Instant, timeout: Duration) {
        self.move_to(now + timeout);
    }

    /// Sets the deadline to an instant, which may be in the past.
    pub fn move_to(&mut self, at: Instant) {
        self.at = Some(at);
        // Only a deadline before the armed one must touch the timer wheel.
        if let Some(timer) = &mut self.timer
            && timer.deadline() > at
        {
            timer.as_mut().reset(at);
        }
    }

    /// Moves it to an earlier moment, unless it is earlier already.
    pub fn at_latest(&mut self, at: Instant) {
        if self.at.is_none_or(|set| set > at) {
            self.move_to(at);
        }
    }

    /// Ready once the deadline has passed; otherwise the task is woken then.
    ///
    /// A process that was stopped gets EINTR from `epoll_wait` when it goes on (signal(7)): then the runtime knows that timers
    /// have passed, and not what came meanwhile. So the task is woken once more after the runtime has looked at the sockets,
    /// or after 50 ms if this process has not run for so long that it may have sent late what is to be answered.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        if self.is_armed(cx.waker()) {
            return Poll::Pending;
        }
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at)));
        // Whatever the task has left of its budget: without any, the timer would not take the waker.
        while pin!(unconstrained(timer.as_mut())).poll(cx).is_ready() {
            if timer.deadline() >= at {
                return self.confirm(at, cx);
            }
            timer.as_mut().reset(at);
        }
        self.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Ready if the runtime has looked at the sockets since the deadline passed.
    fn confirm(&mut self, at: Instant, cx: &mut Context<'_>) -> Poll<()> {
        if self.passed.replace(at) == Some(at) {
            return Poll::Ready(());
        }
        let now = Instant::now();
        match &mut self.timer {
            Some(timer) if now.duration_since(at) > LATE => {
                timer.as_mut().reset(now + GRACE);
                pin!(unconstrained(timer.as_mut())).poll(cx)
            }
            // It wakes the task only after the runtime has looked.
            _ => pin!(yield_now()).poll(cx),
        }
    }

    /// Whether the timer still runs, and wakes this task.
    fn is_armed(&self, waker: &Waker) -> bool {
        let wakes = self.waker.as_ref().is_some_and(|known| known.will_wake(waker));
        wakes && self.timer.as_ref().is_some_and(|timer| !timer.is_elapsed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::io::Write as _;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;
    use tokio::io::{AsyncRead, ReadBuf};

    #[derive(Default)]
    struct Wakes(AtomicU32);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    const MOMENT: Duration = Duration::from_millis(1);

    /// The runtime does nothing meanwhile, as if the process were stopped.
    #[allow(clippy::disallowed_methods)]
    fn stand_still(time: Duration) {
        std::thread::sleep(time);
    }

    #[tokio::test]
    async fn a_deadline_that_was_moved_wakes_the_task_then() {
        let mut deadline = Deadline::default();
        for (from, to) in [(5, 10), (60_000, 5), (5, 5)] {
            let now = Instant::now();
            deadline.set(now, from * MOMENT);
            assert!(poll_fn(|cx| Poll::Ready(deadline.poll(cx))).await.is_pending());
            deadline.set(now, to * MOMENT);
            poll_fn(|cx| deadline.poll(cx)).await;
            assert!(now.elapsed() >= to * MOMENT, "from {from} to {to}");
        }
    }

    #[tokio::test]
    async fn what_came_before_the_deadline_is_seen_before_it_passes() {
        let (mut ours, theirs) = tokio::net::UnixStream::pair().unwrap();
        let mut theirs = theirs.into_std().unwrap();
        let (mut deadline, mut looks) = (Deadline::default(), 0);
        deadline.set(Instant::now(), MOMENT);
        let read = poll_fn(|cx| {
            for _ in 0..2 {
                looks += 1;
                let mut byte = [0];
                if Pin::new(&mut ours).poll_read(cx, &mut ReadBuf::new(&mut byte)).is_ready() {
                    return Poll::Ready(true);
                }
                if deadline.poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                if looks == 1 {
                    theirs.write_all(b"a").unwrap();
                    stand_still(10 * MOMENT);
                }
            }
            Poll::Pending
        });
        assert!(read.await, "the deadline passed with a byte waiting");
    }

    #[tokio::test]
    async fn who_is_asked_late_gets_time_to_answer() {
        let mut deadline = Deadline::default();
        deadline.set(Instant::now(), MOMENT);
        stand_still(LATE + 2 * MOMENT);
        let noticed = Instant::now();
        poll_fn(|cx| deadline.poll(cx)).await;
        assert!(noticed.elapsed() >= GRACE);
    }

    #[tokio::test]
    async fn the_task_that_polled_last_is_woken() {
        let (first, last) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let mut deadline = Deadline::default();
        deadline.set(Instant::now(), 5 * MOMENT);
        for wakes in [&first, &first, &last, &last] {
            assert!(deadline.poll(&mut Context::from_waker(&wakes.clone().into())).is_pending());
        }
        tokio::time::sleep(10 * MOMENT).await;
        assert_eq!([&first, &last].map(|wakes| wakes.0.load(Ordering::Relaxed)), [0, 1]);
    }

    #[tokio::test]
    async fn a_task_that_has_used_its_budget_is_woken_too() {
        let wakes = Arc::new(Wakes::default());
        let (mut deadline, waker) = (Deadline::default(), wakes.clone().into());
        deadline.set(Instant::now(), Duration::from_millis(500));
        poll_fn(|cx| {
            while Box::pin(tokio::task::consume_budget()).as_mut().poll(cx).is_ready() {}
            assert!(deadline.poll(&mut Context::from_waker(&waker)).is_pending());
            Poll::Ready(())
        })
        .await;
        tokio::task::yield_now().await;
        let before = wakes.0.load(Ordering::Relaxed);
        assert!(deadline.poll(&mut Context::from_waker(&waker)).is_pending());
        let woken = async {
            while wakes.0.load(Ordering::Relaxed) == before {
                tokio::time::sleep(MOMENT).await;
            }
        };
        assert!(tokio::time::timeout(Duration::from_secs(20), woken).await.is_ok());
    }
}
