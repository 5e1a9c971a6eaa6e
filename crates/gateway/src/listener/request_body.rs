//! Request bodies with a deadline, and the disposal of those that no handler reads.
use super::deadline::TransferDeadline;
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

/// How much of an unread body is discarded at most.
const MAX_DISCARDED_LEN: u64 = 10 << 20;

/// How long discarding may take at most.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(10);

/// Fails with [`TooSlow`] when its deadline passes. A body that is not read to the end goes to its [`UnreadBody`].
pub(super) struct TimedBody {
    body: Option<Incoming>,
    deadline: TransferDeadline,
    unread: UnreadBody,
}

/// The rest of a body after the response.
#[derive(Clone)]
pub(super) struct UnreadBody(Arc<Mutex<BodyState>>);

enum BodyState {
    /// A handler is reading it.
    Reading,
    /// It was read to the end.
    Complete,
    /// This part was not read.
    Unread(Incoming),
    /// The rest cannot be read, because it is late or cut off.
    Failed,
}

impl TimedBody {
    pub(super) fn new(body: Incoming, limit: Duration) -> (TimedBody, UnreadBody) {
        let unread = UnreadBody(Arc::new(Mutex::new(BodyState::Reading)));
        (
            TimedBody { body: Some(body), deadline: TransferDeadline::new(limit), unread: unread.clone() },
            unread,
        )
    }

    fn end(&mut self, left: BodyState) {
        self.body = None;
        self.unread.put(left);
    }
}

impl HttpBody for TimedBody {
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
                self.end(BodyState::Complete);
                return Poll::Ready(None);
            }
            Poll::Ready(Some(Ok(frame))) => self.deadline.extend(frame.data_ref().map_or(0, Bytes::len)),
            Poll::Ready(Some(Err(_))) => self.end(BodyState::Failed),
            Poll::Pending => {}
        }
        // Even if there is always a little more to read.
        if self.deadline.poll(cx).is_ready() {
            self.end(BodyState::Failed);
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

impl Drop for TimedBody {
    fn drop(&mut self) {
        match self.body.take() {
            Some(body) if body.is_end_stream() => self.unread.put(BodyState::Complete),
            Some(body) => self.unread.put(BodyState::Unread(body)),
            None => {}
        }
    }
}

impl UnreadBody {
    fn put(&self, left: BodyState) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = left;
    }

    /// Reads and discards the rest, so that another request can follow. False if the rest is too long, or takes longer
    /// than `limit`: then the connection must be closed.
    pub(super) async fn discard(self, limit: Duration) -> bool {
        let left = std::mem::replace(
            &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner),
            BodyState::Reading,
        );
        match left {
            BodyState::Complete => true,
            BodyState::Unread(body) if body.size_hint().lower() <= MAX_DISCARDED_LEN => {
                timeout(limit.min(DISCARD_TIMEOUT), drain(body)).await.unwrap_or(false)
            }
            BodyState::Unread(_) | BodyState::Reading | BodyState::Failed => false,
        }
    }
}

/// Reads a body to its end; false if it is too long or breaks off.
async fn drain(mut body: Incoming) -> bool {
    let mut left = MAX_DISCARDED_LEN;
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
        f.write_str("the body arrived too slowly")
    }
}

impl Error for TooSlow {}

/// Why a body could not be read to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// It is longer than allowed.
    TooLarge,
    /// It arrived too slowly.
    TooSlow,
    /// It ended early.
    Cut,
}

impl BodyError {
    /// From the error of the extractor.
    pub(crate) fn of(rejection: &BytesRejection) -> BodyError {
        let mut causes = std::iter::successors(Some(rejection as &dyn Error), |error| (*error).source());
        match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => BodyError::TooLarge,
            _ if causes.any(|cause| cause.is::<TooSlow>()) => BodyError::TooSlow,
            _ => BodyError::Cut,
        }
    }

    /// The status of the response.
    pub(crate) fn status(self) -> StatusCode {
        match self {
            BodyError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            BodyError::TooSlow => StatusCode::REQUEST_TIMEOUT,
            BodyError::Cut => StatusCode::BAD_REQUEST,
        }
    }

    /// The message for the client; `longest` is the limit in bytes.
    pub(crate) fn message(self, longest: usize) -> String {
        match self {
            BodyError::TooLarge => format!("Payload too large: send {} MiB at most", longest >> 20),
            BodyError::TooSlow => {
                "the body arrived too slowly; send it faster, or raise client_body_timeout".to_owned()
            }
            BodyError::Cut => "the body ended early; send it whole".to_owned(),
        }
    }
}
