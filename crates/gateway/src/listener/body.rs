//! The body of a request that must arrive in time.
use super::BYTES_PER_SECOND;
use axum::body::{Bytes, HttpBody};
use axum::extract::rejection::BytesRejection;
use axum::http::StatusCode;
use hyper::body::{Frame, Incoming, SizeHint};
use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Sleep, sleep};

/// Ends with [`TooSlow`] where it takes longer than what is left to it.
pub(super) struct Timely {
    body: Incoming,
    /// Begins when the body is first waited for.
    left: Option<Pin<Box<Sleep>>>,
    limit: Duration,
}

impl Timely {
    pub(super) fn new(body: Incoming, limit: Duration) -> Timely {
        Timely { body, left: None, limit }
    }

    fn extend(&mut self, received: usize) {
        if let Some(left) = &mut self.left {
            let more = Duration::from_secs_f64(received as f64 / BYTES_PER_SECOND as f64);
            let deadline = left.deadline() + more;
            left.as_mut().reset(deadline);
        }
    }
}

impl HttpBody for Timely {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if matches!(polled, Poll::Ready(None)) {
            return Poll::Ready(None);
        }
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let received = frame.data_ref().map_or(0, Bytes::len);
            self.extend(received);
        }
        // Also where there is always a little more to read at once.
        let limit = self.limit;
        let left = self.left.get_or_insert_with(|| Box::pin(sleep(limit)));
        if left.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Some(Err(TooSlow.into())));
        }
        polled.map_err(Into::into)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
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
