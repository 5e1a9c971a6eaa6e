//! The response's body, where plugins filter it: sends what the filters return in the place of what has come.

use super::{Awaited, Relay};
use crate::client::Client;
use crate::error::RelayError;
use crate::pipeline::filtered_body::FilteredBody;
use std::task::{Context, Poll, ready};
use tokio::time::Instant;
use weir_plugin::BufferedBody;
use weir_plugin::engine::show_trailers;
use weir_upstream::Upstream;

impl<C: Client, U: Upstream> Relay<'_, C, U> {
    /// Passes the response's body on through the filters.
    pub(crate) fn poll_filtered(
        &mut self,
        cx: &mut Context<'_>,
        filtered: &mut FilteredBody,
    ) -> Poll<Result<(), RelayError>> {
        self.poll_download(cx, |relay, cx| relay.filtered_step(cx, filtered))
    }

    /// One step of the response's body; true at its end.
    fn filtered_step(
        &mut self,
        cx: &mut Context<'_>,
        filtered: &mut FilteredBody,
    ) -> Poll<Result<bool, RelayError>> {
        if self.poll_send_filtered(cx, filtered)?.is_pending() {
            return self.read_ahead(cx);
        }
        if filtered.has_ended() {
            return self.finish_download(cx);
        }
        self.filter_step(cx, filtered)
    }

    /// Has the filters take what comes for as long as they hold the head.
    pub(crate) fn poll_held(
        &mut self,
        cx: &mut Context<'_>,
        filtered: &mut FilteredBody,
    ) -> Poll<Result<(), RelayError>> {
        self.poll_download(cx, |relay, cx| match filtered.holds_head() {
            true => relay.filter_step(cx, filtered),
            false => Poll::Ready(Ok(true)),
        })
    }

    /// Gives the filters what has come, or the end, which is also where they need nothing more; false, because what they
    /// return is still to be sent.
    fn filter_step(
        &mut self,
        cx: &mut Context<'_>,
        filtered: &mut FilteredBody,
    ) -> Poll<Result<bool, RelayError>> {
        if filtered.is_done() {
            self.exchange.engine.upstream_is_cut();
            filtered.end(self.exchange);
            return Poll::Ready(Ok(false));
        }
        let data = self.upstream.body().map_err(RelayError::Garbage)?;
        let n = data.len();
        if n > 0 {
            self.exchange.engine.upstream_passes(data);
            filtered.push(self.exchange, data);
            self.upstream.consume_body(n);
            return Poll::Ready(Ok(false));
        }
        if self.upstream.body_is_done() {
            if let Some(trailers) = self.upstream.trailers() {
                show_trailers(self.exchange, trailers);
            }
            filtered.end(self.exchange);
            return Poll::Ready(Ok(false));
        }
        let filled = self.fill(cx);
        if filled.is_pending() {
            filtered.release_buffer();
        }
        filled
    }

    /// Sends what the filters have returned.
    fn poll_send_filtered(
        &mut self,
        cx: &mut Context<'_>,
        filtered: &mut FilteredBody,
    ) -> Poll<Result<(), RelayError>> {
        while !filtered.unsent().is_empty() {
            let unsent = filtered.unsent();
            let n = ready!(self.client.poll_send(cx, unsent)).map_err(RelayError::Client)?;
            self.exchange.engine.response_passes(&unsent[..n]);
            self.exchange.bytes_out += n as u64;
            filtered.advance(n);
            // The client takes the response: it may pause anew.
            self.await_now(Awaited::Response, false);
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what the filters make of a response's body that was buffered, and began to be sent at `since`, but for its end.
    pub(crate) fn poll_filter_buffered(
        &mut self,
        cx: &mut Context<'_>,
        (buffered, filtered): (&BufferedBody, &mut FilteredBody),
        (since, taken): (Instant, &mut usize),
    ) -> Poll<Result<(), RelayError>> {
        loop {
            if self.poll_send_filtered(cx, filtered)?.is_pending() {
                self.await_now(Awaited::Send, false);
                if let Some(due) = buffered.due(since, self.timeouts.client_send, *taken) {
                    self.client.deadline().at_latest(due);
                }
                ready!(self.client.deadline().poll(cx));
                return Poll::Ready(Err(self.timed_out()));
            }
            match filtered.push_from(self.exchange, &buffered[*taken..]) {
                0 => return Poll::Ready(Ok(())),
                n => *taken += n,
            }
        }
    }
}
