//! How far the client of a connection is, and how long it may take.
use super::Limits;
use super::connection_limit::Place;
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

/// What a client still sends to a connection that is being closed is read for so long at most.
const LONGEST_LINGER: Duration = Duration::from_secs(30);

/// How far a client is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Its first request is awaited.
    Connected,
    /// A request is being answered.
    Served,
    /// The response is made, and not yet sent to its end.
    Answered,
    /// The next request is awaited.
    Idle,
    /// A part of the next request's head has come.
    Asking,
    /// The connection is being closed.
    Closing,
}

/// The progress of one connection.
pub(super) struct Progress {
    place: Arc<Place>,
    limits: Limits,
    stage: Mutex<(Stage, Instant)>,
    changed: Notify,
}

impl Progress {
    pub(super) fn new(place: Arc<Place>, limits: Limits) -> Arc<Progress> {
        let stage = Mutex::new((Stage::Connected, Instant::now()));
        Arc::new(Progress { place, limits, stage, changed: Notify::new() })
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
    pub(super) fn asked(&self) {
        self.place.has_asked();
        self.reach(Stage::Served);
    }

    /// Bytes have come.
    pub(super) fn received(&self) {
        self.follow(Stage::Idle, Stage::Asking);
    }

    /// Everything that was written has been sent.
    pub(super) fn flushed(&self) {
        if self.follow(Stage::Answered, Stage::Idle) {
            self.place.falls_silent();
        }
    }

    /// Nothing more will be answered.
    pub(super) fn closing(&self) {
        self.reach(Stage::Closing);
        self.place.falls_silent();
    }

    /// The answer as it is sent; with `keep_alive` another request may follow.
    pub(super) fn answer(self: Arc<Self>, answer: Response<Body>, keep_alive: bool) -> Response<Body> {
        let mut answer = answer.map(|body| Body::new(Answer { body, progress: self.clone() }));
        if !keep_alive || self.place.is_scarce() {
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        answer
    }

    /// Returns when the client has taken longer than it may.
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
            Stage::Connected | Stage::Asking => self.limits.head,
            Stage::Idle => self.limits.idle,
            Stage::Closing => LONGEST_LINGER,
            // Bodies and answers have limits of their own.
            Stage::Served | Stage::Answered => return None,
        };
        since.checked_add(limit)
    }
}

/// The body of an answer. When it is dropped, it was sent to its end, or cannot be sent.
struct Answer {
    body: Body,
    progress: Arc<Progress>,
}

impl HttpBody for Answer {
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

impl Drop for Answer {
    fn drop(&mut self) {
        self.progress.follow(Stage::Served, Stage::Answered);
    }
}
