//! The body of a request that must arrive in time, and what becomes of one that nothing reads.
use super::deadline::Budget;
use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::timeout;

/// So much of a body is read to be thrown away.
const MOST_DISCARDED: u64 = 10 << 20;

/// For so long at most.
const LONGEST_DISCARD: Duration = Duration::from_secs(10);

/// Ends with [`TooSlow`] where it takes longer than its budget. What is not read to the end goes to its [`Leftover`].
pub(super) struct Timely {
    body: Option<Incoming>,
    budget: Budget,
    leftover: Leftover,
}

/// What is left of a body once it was answered.
#[derive(Clone)]
pub(super) struct Leftover(Arc<Mutex<Left>>);

enum Left {
    /// It is being read.
    Lent,
    /// All of it was read.
    Nothing,
    /// This was not read.
    Rest(Incoming),
    /// The rest cannot be read: it is late, or cut off.
    Broken,
}

impl Timely {
    pub(super) fn new(body: Incoming, limit: Duration) -> (Timely, Leftover) {
        let leftover = Leftover(Arc::new(Mutex::new(Left::Lent)));
        (Timely { body: Some(body), budget: Budget::new(limit), leftover: leftover.clone() }, leftover)
    }

    fn end(&mut self, left: Left) {
        self.body = None;
        self.leftover.put(left);
    }
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = Pin::new(body).poll_frame(cx);
        match &polled {
            Poll::Ready(None) => {
                self.end(Left::Nothing);
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Ok(frame))) => self.budget.extend(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(Some(Err(_))) => self.end(Left::Broken),
            Poll::Pending => {}
        }
        // Also where there is always a little more to read at once.
        if self.budget.poll(cx).is_ready() {
            self.end(Left::Broken);
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Timely {
    fn drop(&mut self) {
        match self.body.take() {
            Some(body) if body.is_end_stream() => self.leftover.put(Left::Nothing),
            Some(body) => self.leftover.put(Left::Rest(body)),
            None => {}
        }
    }
}

impl Leftover {
    fn put(&self, left: Left) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    /// Reads and throws away what is left, so that another request can follow. False where that is too much, or takes
    /// longer than `limit`: then no request can follow.
    pub(super) async fn discard(self, limit: Duration) -> bool {
        let left = std::mem::replace(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner), Left::Lent);
        match left {
            Left::Nothing => true,
            Left::Rest(body) if body.size_hint().lower() <= MOST_DISCARDED => {
                timeout(limit.min(LONGEST_DISCARD), drain(body)).await.unwrap_or(false)
            }
            Left::Rest(_) | Left::Lent | Left::Broken => false,
        }
    }
}

/// Reads a body to its end; false where it is too long or breaks off.
async fn drain(mut body: Incoming) -> bool {
    let mut left = MOST_DISCARDED;
    loop {
        match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            None => return true,
            Some(Err(_)) => return false,
            Some(Ok(frame)) => match left.checked_sub(frame.data_ref().map_or(0, Bytes::len) as u64) {
                Some(less) => left = less,
                None => return false,
            },
        }
    }
}

#[derive(Debug)]
struct TooSlow;

impl fmt::Display for TooSlow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the body came too slowly")
    }
}

impl Error for TooSlow {}

/// Why a body was not read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// It is longer than what is read.
    TooLarge,
    /// It came too slowly.
    TooSlow,
    /// It ended early.
    Cut,
}

impl Unread {
    /// From how reading it failed.
    pub(crate) fn of(rejection: &BytesRejection) -> Unread {
        let mut causes = std::iter::successors(Some(rejection as &dyn Error), |error| (*error).source());
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => Unread::TooLarge,
            _ if causes.any(|cause| cause.is::<TooSlow>()) => Unread::TooSlow,
            _ => Unread::Cut,
        }
    }

    /// The status to answer with.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Unread::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Unread::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Unread::Cut => StatusCode::BAD_REQUEST,
        }
    }

    /// What to tell whoever sent it, where at most this many bytes are read.
    pub(crate) fn message(self, longest: usize) -> String {
        match self {
            Unread::TooLarge => format!("Payload too large: send {} MiB at most", longest >> 20),
            Unread::TooSlow => {
                "the body came too slowly; send it faster, or raise client_body_timeout".to_owned()
            }
            Unread::Cut => "the body ended early; send it whole".to_owned(),
        }
    }
}
