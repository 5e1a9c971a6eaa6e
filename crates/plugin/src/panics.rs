//! Panics of a plugin's work, which end that work alone.
use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;

/// Waits for a task.
///
/// # Errors
/// The message of its panic.
pub(crate) async fn catch(task: impl Future<Output = ()>) -> Result<(), String> {
    let mut task = pin!(task);
    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx))) {
        Ok(polled) => polled.map(Ok),
        Err(panic) => Poll::Ready(Err(message(&*panic).to_owned())),
    })
    .await
}

/// What a panic says.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}
