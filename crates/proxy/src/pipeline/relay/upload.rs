//! Sends the request's body on, as far as the upstream takes it, and remembers what may have to be sent again.

use super::{Awaited, Relay};
use crate::client::Client;
use crate::error::RequestError;
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Instant;
use weir_upstream::{Upstream, UpstreamError};

/// Where the request's body stands.
pub(crate) struct Upload {
    /// Bytes of the collected body that were sent.
    collected: usize,
    /// Bytes that were sent and that the client still has, all of its body: as long as they may have to be sent again.
    repeatable: usize,
    /// Nothing more has to be sent again: the response has begun.
    is_final: bool,
    /// Bytes that were consumed as they were sent.
    streamed: u64,
    /// Bytes of the client's body that were counted and shown to plugins, in this attempt or one before.
    pub(crate) seen: u64,
    ended: bool,
    /// Nothing more of it will be sent.
    pub(crate) done: bool,
    /// All of it was sent: only then can the connection carry another request.
    pub(crate) whole: bool,
    /// How long the client was waited for until it went on, all together. A wait that the response has ended was as much the
    /// upstream's.
    pub(crate) client_took: Duration,
    /// Since when it is waited for, if it is.
    awaited_since: Option<Instant>,
    /// The upstream no longer takes the body, which may be fine: it can have answered already.
    pub(super) broken: Option<io::Error>,
}

impl Upload {
    /// A body of which so much was seen in attempts before.
    pub(crate) fn new(seen: u64) -> Self {
        let (collected, repeatable, streamed) = (0, 0, 0);
        let (is_final, ended, done, whole) = (false, false, false, false);
        let (client_took, awaited_since, broken) = (Duration::ZERO, None, None);
        Self {
            collected,
            repeatable,
            is_final,
            streamed,
            seen,
            ended,
            done,
            whole,
            client_took,
            awaited_since,
            broken,
        }
    }

    /// From now on the client is what is waited for, or no longer.
    pub(super) fn await_client(&mut self, is_awaited: bool, now: Instant) {
        if let Some(since) = self.awaited_since.take() {
            self.client_took += now.saturating_duration_since(since);
        }
        self.awaited_since = is_awaited.then_some(now);
    }

    /// Whether all that was sent can be sent again.
    pub(crate) fn can_be_repeated(&self) -> bool {
        self.streamed == 0
    }
}

enum Step {
    Progress,
    Waiting(Awaited),
}

impl<C: Client, U: Upstream> Relay<'_, C, U> {
    /// Nothing has to be sent again from here on.
    pub(super) fn release_body(&mut self) {
        self.upload.is_final = true;
        let repeatable = std::mem::take(&mut self.upload.repeatable);
        if repeatable > 0 {
            self.client.consume(repeatable);
            self.upload.streamed += repeatable as u64;
        }
    }

    /// Moves the request's body on as far as both sides allow. Returns what is waited for next, and whether anything
    /// moved meanwhile.
    pub(super) fn poll_upload(&mut self, cx: &mut Context<'_>) -> Result<(Awaited, bool), RequestError> {
        let mut moved = false;
        while !self.upload.done {
            match self.upload_step(cx) {
                Ok(Step::Progress) => moved = true,
                Ok(Step::Waiting(awaited)) => return Ok((awaited, moved)),
                // What the upstream said before it stopped listening decides.
                Err(RequestError::Upstream(UpstreamError::Closed(error))) => {
                    self.upload.broken = Some(error);
                    self.upload.done = true;
                }
                Err(failure) => return Err(failure),
            }
        }
        Ok((Awaited::Response, false))
    }

    fn upload_step(&mut self, cx: &mut Context<'_>) -> Result<Step, RequestError> {
        let upstream = &mut *self.upstream;
        if let Some(collected) = &self.exchange.engine.body
            && self.upload.collected < collected.len()
        {
            let sent = upstream.poll_send(cx, &collected[self.upload.collected..]);
            return Ok(match sent.map_err(UpstreamError::Closed)? {
                Poll::Pending => Step::Waiting(Awaited::Write),
                Poll::Ready(n) => {
                    self.upload.collected += n;
                    Step::Progress
                }
            });
        }
        let repeatable = self.upload.repeatable;
        let data = &self.client.body().map_err(RequestError::Rejected)?[repeatable..];
        if !data.is_empty() {
            return match upstream.poll_send(cx, data).map_err(UpstreamError::Closed)? {
                Poll::Pending => {
                    self.client.read_ahead(cx);
                    Ok(Step::Waiting(Awaited::Write))
                }
                Poll::Ready(n) => {
                    let seen = self.upload.seen.saturating_sub(self.upload.streamed + repeatable as u64);
                    let new = &data[n.min(seen as usize)..n];
                    self.exchange.engine.request_passes(new)?;
                    self.upload.seen += new.len() as u64;
                    self.exchange.bytes_in += new.len() as u64;
                    self.passed(n)
                }
            };
        }
        if self.client.body_has_ended() {
            return self.finish_upload(cx);
        }
        if let Poll::Ready(more) = self.client.poll_more(cx) {
            return more.map(|()| Step::Progress);
        }
        match upstream.poll_flush(cx).map_err(UpstreamError::Closed)? {
            Poll::Pending => Ok(Step::Waiting(Awaited::Write)),
            Poll::Ready(()) => Ok(Step::Waiting(Awaited::Body)),
        }
    }

    /// So much of the client's body was sent. A body that is here whole stays where it is, so that it can be sent again.
    fn passed(&mut self, n: usize) -> Result<Step, RequestError> {
        let is_repeatable = !self.upload.is_final && self.upload.streamed == 0 && self.client.body_is_whole();
        if is_repeatable {
            self.client.acknowledge(n);
            self.upload.repeatable += n;
        } else {
            self.client.consume(n);
            self.upload.streamed += n as u64;
        }
        let collected = self.exchange.engine.body.as_ref().map_or(0, |body| body.len()) as u64;
        if self.max_body > 0
            && collected + self.upload.streamed + self.upload.repeatable as u64 > self.max_body
        {
            return Err(RequestError::BodyTooLarge);
        }
        Ok(Step::Progress)
    }

    fn finish_upload(&mut self, cx: &mut Context<'_>) -> Result<Step, RequestError> {
        let upstream = &mut *self.upstream;
        if !self.upload.ended {
            self.upload.ended = true;
            let trailers = self.client.trailers().map(|it| self.chain.passing_trailers(self.exchange, it));
            let trailers = trailers.as_ref().filter(|trailers| !trailers.is_empty());
            upstream.end_body(trailers).map_err(UpstreamError::Closed)?;
        }
        match upstream.poll_flush(cx).map_err(UpstreamError::Closed)? {
            Poll::Pending => Ok(Step::Waiting(Awaited::Write)),
            Poll::Ready(()) => {
                self.upload.done = true;
                self.upload.whole = true;
                Ok(Step::Progress)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_the_response_ends_is_no_time_of_the_client() {
        let (mut upload, start) = (Upload::new(0), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        upload.await_client(true, start);
        upload.await_client(false, after(2));
        upload.await_client(true, after(3));
        assert_eq!(upload.client_took, Duration::from_secs(2));
    }
}
