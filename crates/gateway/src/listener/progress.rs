//! The stage of a connection, and its timeouts.
use super::ClientTimeouts;
use super::connection_limit::ConnectionPermit;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, Response};
use hyper::body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// How long at most a closing connection still reads what its client sends.
const MAX_LINGER: Duration = Duration::from_secs(30);

/// The stage of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Waiting for the first request.
    Connected,
    /// A handler processes a request.
    Processing,
    /// The response is being sent.
    Responding,
    /// Waiting for the next request.
    Idle,
    /// A part of the next request's head was received.
    ReadingHead,
    /// The connection is being closed.
    Closing,
}

/// The progress of one connection.
pub(super) struct Progress {
    permit: Arc<ConnectionPermit>,
    timeouts: ClientTimeouts,
    stage: Mutex<(Stage, Instant)>,
    changed: Notify,
}

impl Progress {
    pub(super) fn new(permit: Arc<ConnectionPermit>, timeouts: ClientTimeouts) -> Arc<Progress> {
        let stage = Mutex::new((Stage::Connected, Instant::now()));
        Arc::new(Progress { permit, timeouts, stage, changed: Notify::new() })
    }

    fn stage(&self) -> MutexGuard<'_, (Stage, Instant)> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reach(&self, stage: Stage) {
        *self.stage() = (stage, Instant::now());
        self.changed.notify_one();
    }

    fn follow(&self, before: Stage, after: Stage) -> bool {
        let is_so = self.stage().0 == before;
        if is_so {
            self.reach(after);
        }
        is_so
    }

    /// The head of a request is complete.
    pub(super) fn head_complete(&self) {
        self.permit.mark_busy();
        self.reach(Stage::Processing);
    }

    /// Bytes were received.
    pub(super) fn received(&self) {
        self.follow(Stage::Idle, Stage::ReadingHead);
    }

    /// All written bytes were sent.
    pub(super) fn flushed(&self) {
        if self.follow(Stage::Responding, Stage::Idle) {
            self.permit.mark_idle();
        }
    }

    /// No further request will be served.
    pub(super) fn closing(&self) {
        self.reach(Stage::Closing);
        self.permit.mark_idle();
    }

    /// Tracks the send of a response; with `keep_alive` another request may follow.
    pub(super) fn response(self: Arc<Self>, response: Response<Body>, keep_alive: bool) -> Response<Body> {
        if response.body().size_hint().exact().is_none() {
            self.permit.uncount();
        }
        let mut response = response.map(|body| Body::new(ResponseBody { body, progress: self.clone() }));
        if !keep_alive || self.permit.is_crowded() {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Returns when the current stage has timed out.
    pub(super) async fn late(&self) {
        loop {
            let (changed, deadline) = (self.changed.notified(), self.deadline());
            let late = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = late => return,
                () = changed => {}
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        let (stage, since) = *self.stage();
        let limit = match stage {
            Stage::Connected | Stage::ReadingHead => self.timeouts.head,
            Stage::Idle => self.timeouts.idle,
            Stage::Closing => MAX_LINGER,
            // Bodies and responses have timeouts of their own.
            Stage::Processing | Stage::Responding => return None,
        };
        since.checked_add(limit)
    }
}

/// The body of a response. When it is dropped, it was sent to its end, or cannot be sent.
struct ResponseBody {
    body: Body,
    progress: Arc<Progress>,
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for ResponseBody {
    fn drop(&mut self) {
        self.progress.follow(Stage::Processing, Stage::Responding);
    }
}
