//! Relays the request's body to the upstream and the response's body to the client at the same time, with backpressure
//! and without buffering either as a whole.

mod filtered;
mod upload;

use crate::client::{Client, Timeouts};
use crate::error::{RelayError, RequestError};
use crate::exchange::Exchange;
use crate::snapshot::chain::Chain;
use h2::Reason as Reset;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::{Framing, Limits};
use weir_net::http2::reset_reason;
use weir_plugin::engine::are_trailers_taken;
use weir_plugin::{BodyMemoryExhausted, BufferedBody};
use weir_upstream::{HeadProgress, ResponseSlot, Upstream, UpstreamError};

pub(crate) use upload::Upload;

/// One exchange between a client and a connection to an upstream.
pub(crate) struct Relay<'a, C, U> {
    pub(crate) client: &'a mut C,
    pub(crate) upstream: &'a mut U,
    pub(crate) exchange: &'a mut Exchange,
    /// The plugins of the route.
    pub(crate) chain: &'a Chain,
    pub(crate) timeouts: &'a Timeouts,
    pub(crate) limits: &'a Limits,
    /// The most bytes of request body; 0 is any.
    pub(crate) max_body: u64,
    pub(crate) read_ahead: bool,
    pub(crate) upload: Upload,
    pub(crate) awaited: Awaited,
    /// An interim response is on its way to the client.
    pub(crate) has_interim: bool,
    /// Reading from the upstream failed while bytes it had sent before were still to be passed on.
    pub(crate) lost: bool,
}

/// Whom the exchange waits for, which decides the timeout and its answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Upstream, for the response.
    Response,
    /// Client, for the request's body.
    Body,
    /// Upstream, to take the request's body.
    Write,
    /// Client, to take the response.
    Send,
}

impl Awaited {
    /// What did not move once that was too long within a response, and which setting limits it.
    fn limit(self) -> &'static str {
        match self {
            Self::Response => "the upstream sent nothing for as long as `read_timeout` of the service",
            Self::Body => {
                "the client sent nothing of its request for as long as the setting `client_body_timeout`"
            }
            Self::Write => {
                "the upstream took nothing of the request for as long as `write_timeout` of the service"
            }
            Self::Send => "the client took nothing of it for as long as the setting `send_timeout`",
        }
    }
}

impl<C: Client, U: Upstream> Relay<'_, C, U> {
    /// Sends the request and waits for the response's head.
    pub(crate) fn poll_response(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RequestError>> {
        loop {
            let (awaited, moved) = self.poll_upload(cx)?;
            self.await_now(awaited, moved);
            match self.poll_head(cx) {
                Poll::Ready(Ok(HeadProgress::Final)) => {
                    self.release_body();
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Ok(progress)) => {
                    self.await_now(self.awaited, self.awaited == Awaited::Response);
                    if progress == HeadProgress::Interim {
                        self.pass_interim();
                    }
                }
                Poll::Ready(Err(error)) => return Poll::Ready(Err(self.explain(error, cx))),
                Poll::Pending => break,
            }
        }
        if self.has_interim && self.client.poll_flush(cx).map_err(|_| RequestError::ClientGone)?.is_ready() {
            self.has_interim = false;
        }
        if self.upload.done && self.client.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(RequestError::ClientGone));
        }
        ready!(self.client.deadline().poll(cx));
        Poll::Ready(Err(match self.timeouts.ends {
            Some(ends) if ends <= Instant::now() => RequestError::DeadlineExceeded,
            _ if self.awaited == Awaited::Body => RequestError::ClientTimeout,
            _ => UpstreamError::Timeout.into(),
        }))
    }

    /// Passes on the interim response that stands in the exchange. No plugin sees it, so it has nothing of the gateway's.
    #[cold]
    fn pass_interim(&mut self) {
        let headers = &mut self.exchange.response.headers;
        headers.remove_hop_by_hop();
        let names: Vec<String> = headers
            .iter()
            .filter(|field| field.name.get(..7).is_some_and(|name| name.eq_ignore_ascii_case(b"x-kong-")))
            .map(|field| String::from_utf8_lossy(field.name).into_owned())
            .collect();
        for name in &names {
            headers.remove(name);
        }
        self.client.send_interim(&self.exchange.response);
        self.has_interim = true;
    }

    /// Reads towards the response's head.
    fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<HeadProgress, UpstreamError>> {
        let exchange = &mut self.exchange.public;
        let (head, upgrade) = (&mut exchange.response, exchange.engine.upgrade.as_deref());
        let mut slot = ResponseSlot { head, method: exchange.request.method, upgrade };
        self.upstream.poll_head(cx, &mut slot, self.limits)
    }

    /// Restarts the timer for what is waited for now, unless that was so already and nothing moved.
    fn await_now(&mut self, awaited: Awaited, moved: bool) {
        if self.awaited != awaited || moved {
            self.awaited = awaited;
            let timeout = match awaited {
                Awaited::Response => self.timeouts.read,
                Awaited::Write => self.timeouts.write,
                Awaited::Body => self.timeouts.client_body,
                Awaited::Send => self.timeouts.client_send,
            };
            let now = Instant::now();
            self.upload.await_client(awaited == Awaited::Body, now);
            let timeout = match awaited {
                Awaited::Body => self.body_time().map_or(timeout, |time| time.min(timeout)),
                _ => timeout,
            };
            let at = now + timeout;
            // What has to be over by now stays over, however much still moves.
            let at = self.timeouts.ends.map_or(at, |ends| ends.min(at));
            self.client.deadline().move_to(at);
        }
    }

    /// How long more of the client's body may take, so that it does not drip in for ever. A body of unknown length may be a
    /// stream of events, which takes its time.
    fn body_time(&self) -> Option<Duration> {
        let is_known = matches!(self.client.framing(), Framing::Length(_));
        let allowed = self.timeouts.body_time(self.upload.seen).filter(|_| is_known)?;
        Some(allowed.saturating_sub(self.upload.client_took))
    }

    /// Where the upstream stopped taking the request before it closed, that is the reason. Where it ended a call because
    /// the client left or its time is over, that is.
    fn explain(&mut self, error: UpstreamError, cx: &mut Context<'_>) -> RequestError {
        match (error, self.upload.broken.take()) {
            (UpstreamError::Reset(Reset::CANCEL), _) if self.client.poll_gone(cx).is_ready() => {
                RequestError::ClientGone
            }
            (UpstreamError::Reset(Reset::CANCEL | Reset::NO_ERROR), _) if self.timeouts.are_over() => {
                RequestError::DeadlineExceeded
            }
            (UpstreamError::Closed(_), Some(broken)) => UpstreamError::Closed(broken).into(),
            (error, _) => error.into(),
        }
    }

    /// Passes the response's body on. Its head stands in the client's outbox.
    pub(crate) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayError>> {
        self.poll_download(cx, Self::download_step)
    }

    /// Passes the response's body on by steps, which are true at its end, and meanwhile the rest of the request's.
    #[inline]
    fn poll_download(
        &mut self,
        cx: &mut Context<'_>,
        mut step: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<Result<bool, RelayError>>,
    ) -> Poll<Result<(), RelayError>> {
        if !self.upload.done {
            match self.poll_upload(cx) {
                // The response decides how long either may be silent: two that took turns at it would wait for ever.
                Ok((_, moved)) => self.await_now(self.awaited, moved),
                Err(_) => {
                    self.upload.done = true;
                    self.client.close_after();
                }
            }
        }
        loop {
            match step(self, cx)? {
                Poll::Ready(true) => return Poll::Ready(Ok(())),
                Poll::Ready(false) => {}
                Poll::Pending => break,
            }
        }
        ready!(self.client.deadline().poll(cx));
        Poll::Ready(Err(self.timed_out()))
    }

    /// Reads the response's body for its observers alone: to its end, or until none of them needs more.
    pub(crate) fn poll_observed(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayError>> {
        self.poll_download(cx, |relay, cx| {
            let engine = &mut relay.exchange.public.engine;
            if relay.upstream.body_is_done() || !engine.upstream_is_observed() {
                return Poll::Ready(Ok(true));
            }
            let data = relay.upstream.body().map_err(RelayError::Garbage)?;
            let length = data.len();
            engine.upstream_passes(data);
            relay.upstream.consume_body(length);
            if length > 0 || relay.upstream.body_is_done() { Poll::Ready(Ok(false)) } else { relay.fill(cx) }
        })
    }

    /// Takes the response's body into memory instead, up to its end or until so many bytes are here; true at its end.
    pub(crate) fn poll_buffer(
        &mut self,
        cx: &mut Context<'_>,
        buffered: &mut BufferedBody,
        most: usize,
    ) -> Poll<Result<bool, RelayError>> {
        if !self.upload.done && self.poll_upload(cx).is_err() {
            self.upload.done = true;
            self.client.close_after();
        }
        let length = match self.exchange.response.framing {
            Framing::Length(n) => n as usize,
            _ => most,
        };
        loop {
            let data = self.upstream.body().map_err(RelayError::Garbage)?;
            let n = data.len();
            buffered.push(data, length).map_err(|BodyMemoryExhausted| RelayError::BodyMemoryExhausted)?;
            self.exchange.engine.upstream_passes(data);
            self.upstream.consume_body(n);
            if self.upstream.body_is_done() || buffered.len() >= most {
                return Poll::Ready(Ok(self.upstream.body_is_done()));
            }
            if n == 0 && self.fill(cx)?.is_pending() {
                break;
            }
        }
        if self.client.poll_gone(cx).is_ready() {
            return Poll::Ready(Err(RelayError::Client(io::ErrorKind::ConnectionAborted.into())));
        }
        ready!(self.client.deadline().poll(cx));
        Poll::Ready(Err(self.timed_out()))
    }

    /// Sends what is left of a response's body that was buffered, and began to be sent at `since`.
    pub(crate) fn poll_send_buffered(
        &mut self,
        cx: &mut Context<'_>,
        buffered: &BufferedBody,
        (since, sent): (Instant, &mut usize),
    ) -> Poll<Result<(), RelayError>> {
        while *sent < buffered.len() {
            let left = &buffered[*sent..];
            let n = self.client.poll_send(cx, left).map_err(RelayError::Client)?;
            self.await_now(Awaited::Send, n.is_ready());
            if let Some(due) = buffered.due(since, self.timeouts.client_send, *sent) {
                self.client.deadline().at_latest(due);
            }
            let Poll::Ready(n) = n else {
                ready!(self.client.deadline().poll(cx));
                return Poll::Ready(Err(self.timed_out()));
            };
            self.exchange.engine.response_passes(&left[..n]);
            self.exchange.bytes_out += n as u64;
            *sent += n;
        }
        Poll::Ready(Ok(()))
    }

    /// Ends a response whose body was left out.
    pub(crate) fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RelayError>> {
        self.client.end(None).map_err(RelayError::Client)?;
        if let Poll::Ready(flushed) = self.client.poll_flush(cx).map_err(RelayError::Client)? {
            return Poll::Ready(Ok(flushed));
        }
        self.await_now(Awaited::Send, false);
        ready!(self.client.deadline().poll(cx));
        Poll::Ready(Err(self.timed_out()))
    }

    /// One step of the response's body; true at its end.
    fn download_step(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, RelayError>> {
        let data = self.upstream.body().map_err(RelayError::Garbage)?;
        if !data.is_empty() {
            let sent = match self.client.poll_send(cx, data).map_err(RelayError::Client)? {
                Poll::Ready(sent) => sent,
                Poll::Pending => return self.read_ahead(cx),
            };
            self.exchange.engine.response_passes(&data[..sent]);
            self.exchange.engine.upstream_passes(&data[..sent]);
            // The client takes the response: it may pause anew.
            self.await_now(Awaited::Response, false);
            self.upstream.consume_body(sent);
            self.exchange.bytes_out += sent as u64;
            return Poll::Ready(Ok(false));
        }
        if self.upstream.body_is_done() { self.finish_download(cx) } else { self.fill(cx) }
    }

    /// Ends the response as the upstream has; true once all of it was sent.
    fn finish_download(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, RelayError>> {
        let trailers = self.upstream.trailers();
        if let Some(trailers) = trailers {
            self.exchange.decision.is_in(trailers);
        }
        let trailers = trailers.filter(|_| !are_trailers_taken(self.exchange));
        self.client.end(trailers).map_err(RelayError::Client)?;
        let flushed = self.client.poll_flush(cx).map_err(RelayError::Client)?;
        if flushed.is_pending() {
            self.await_now(Awaited::Send, false);
        }
        flushed.map(|()| Ok(true))
    }

    fn fill(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, RelayError>> {
        if self.lost {
            return Poll::Ready(Err(self.cut_off(None)));
        }
        match self.upstream.poll_more(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(self.cut_off(Some(&error)))),
            Poll::Ready(Ok(())) => {
                self.await_now(Awaited::Response, true);
                Poll::Ready(Ok(false))
            }
            Poll::Pending => {
                // Nothing more for now: what is here goes out at once.
                let flushed = self.client.poll_flush(cx).map_err(RelayError::Client)?;
                let awaited = if flushed.is_pending() { Awaited::Send } else { Awaited::Response };
                self.await_now(awaited, false);
                // Checks for a closed client, which would otherwise go unnoticed while the upstream is silent.
                if self.upload.done && self.client.poll_gone(cx).is_ready() {
                    return Poll::Ready(Err(RelayError::Client(io::ErrorKind::ConnectionReset.into())));
                }
                Poll::Pending
            }
        }
    }

    fn timed_out(&self) -> RelayError {
        match self.timeouts.ends {
            Some(ends) if ends <= Instant::now() => RelayError::Deadline,
            _ => RelayError::Timeout(self.awaited.limit()),
        }
    }

    /// The upstream broke off.
    fn cut_off(&self, error: Option<&io::Error>) -> RelayError {
        match error.and_then(reset_reason) {
            Some(Reset::CANCEL | Reset::NO_ERROR) | None if self.timeouts.are_over() => RelayError::Deadline,
            Some(reason) => RelayError::Reset(reason),
            None => RelayError::Truncated,
        }
    }

    /// The client is slow. With `response_buffering` the upstream is still read, as far as the buffer reaches.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> Poll<Result<bool, RelayError>> {
        self.await_now(Awaited::Send, false);
        if self.upstream.read_ahead(cx, self.read_ahead).is_err() {
            // Remembers the error, because a later read would mistake a reset for a proper end.
            self.lost = true;
        }
        Poll::Pending
    }
}
