//! One lazy timer per connection: setting a later deadline is only a store, and the timer re-arms itself when it fires.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::time::Sleep;

/// The timeout of a connection's current operation.
#[derive(Default)]
pub struct Deadline {
    at: Option<Instant>,
    timer: Option<Pin<Box<Sleep>>>,
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
            && timer.deadline().into_std() > at
        {
            timer.as_mut().reset(at.into());
        }
    }

    /// Moves it to an earlier moment, unless it is earlier already.
    pub fn at_latest(&mut self, at: Instant) {
        if self.at.is_none_or(|set| set > at) {
            self.move_to(at);
        }
    }

    /// Ready once the deadline has passed; otherwise the task is woken then.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(at) = self.at else { return Poll::Pending };
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(at.into())));
        while timer.as_mut().poll(cx).is_ready() {
            if timer.deadline().into_std() >= at {
                return Poll::Ready(());
            }
            timer.as_mut().reset(at.into());
        }
        Poll::Pending
    }
}
