//! From the upstream to the client.
use super::message::{self, Body};
use super::peer::{Exchange, Request, Response, Stage};
use super::relay::{LIMITS, Relay, Step};
use crate::event_loop::{Poll, Received, Token};
use std::io;
use weir_http1::{Framing, ParseError, ResponseHead};

/// What is to be sent on of the bytes at hand.
struct Passed {
    /// How many of them are done with.
    used: usize,
    to_send: ToSend,
}

enum ToSend {
    AsTheyCame,
    Staged,
    Nothing,
}

impl Relay {
    /// Sends on what has arrived of the response.
    pub(super) fn send_response(
        &mut self,
        poll: &Poll,
        token: Token,
        scratch: &mut [u8],
    ) -> io::Result<Step> {
        let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
        let Stage::Exchange(exchange) = &client.stage else { return Ok(Step::Wait) };
        let Some(server) = self.servers.get_mut(exchange.server) else { return Ok(Step::Over) };
        if !client.socket.flush()? {
            return Ok(Step::Wait);
        }
        match server.inbox.fill(&mut server.socket, scratch) {
            Ok(Received::Bytes(count)) => self.pass_on(token, &scratch[..count]),
            Ok(Received::Nothing) => Ok(Step::Wait),
            Ok(Received::End) => self.upstream_ended(poll, token, true),
            Err(_) => self.upstream_ended(poll, token, false),
        }
    }

    fn pass_on(&mut self, token: Token, input: &[u8]) -> io::Result<Step> {
        let Self { clients, servers, staged, response: head, .. } = self;
        let Some(client) = clients.get_mut(token) else { return Ok(Step::Wait) };
        let Stage::Exchange(exchange) = &mut client.stage else { return Ok(Step::Wait) };
        let Some(server) = servers.get_mut(exchange.server) else { return Ok(Step::Over) };
        staged.clear();
        let passed = match &mut exchange.response {
            Response::Body(body, _) => body_part(body, input, exchange.chunks, staged),
            Response::Head => match read_head(head, exchange, input, staged) {
                Ok(None) => {
                    server.inbox.hold(input, true);
                    return Ok(Step::On);
                }
                Ok(Some(passed)) => Ok(passed),
                Err(reject) => Err(reject),
            },
        };
        let Ok(Passed { used, to_send }) = passed else { return self.distrust(token) };
        match to_send {
            ToSend::AsTheyCame => client.socket.send(&input[..used])?,
            ToSend::Staged => client.socket.send(staged)?,
            ToSend::Nothing => {}
        }
        match &exchange.response {
            Response::Body(body, _) if body.is_done() => Ok(self.finish(token, used < input.len())),
            _ => {
                server.inbox.hold(&input[used..], false);
                Ok(Step::On)
            }
        }
    }

    /// The exchange is over: both connections go back to where they wait, or end.
    fn finish(&mut self, token: Token, surplus: bool) -> Step {
        let Some(client) = self.clients.get_mut(token) else { return Step::Wait };
        let Stage::Exchange(exchange) = std::mem::replace(&mut client.stage, Stage::Idle) else {
            return Step::Wait;
        };
        let whole = exchange.request.is_whole();
        if !(whole && exchange.keep_alive) {
            client.stage = if whole && client.inbox.is_empty() { Stage::Closing } else { Stage::Lingering };
        }
        let reusable = whole && !surplus && matches!(exchange.response, Response::Body(_, true));
        self.check_in(exchange.server, reusable);
        Step::On
    }

    /// The upstream ended its connection, in good order or not.
    fn upstream_ended(&mut self, poll: &Poll, token: Token, in_order: bool) -> io::Result<Step> {
        let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
        let Stage::Exchange(exchange) = &mut client.stage else { return Ok(Step::Wait) };
        match (&exchange.response, &exchange.request) {
            (Response::Body(Body::UntilClose, _), _) if in_order => Ok(self.finish(token, false)),
            // A client that has a part of the response can only be disconnected.
            (Response::Body(..), _) => Ok(Step::Over),
            (Response::Head, Request::Replayable) => self.replay(poll, token),
            (Response::Head, _) => {
                self.refuse(token, 502, "the upstream ended the connection without an answer")
            }
        }
    }

    /// Sends a request again: the connection that it went to was closed while it was pooled.
    fn replay(&mut self, poll: &Poll, token: Token) -> io::Result<Step> {
        loop {
            let Ok((replacement, reused)) = self.check_out(poll, token) else {
                return self.refuse(token, 502, "the upstream cannot be connected to");
            };
            let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
            let Stage::Exchange(exchange) = &mut client.stage else { return Ok(Step::Wait) };
            self.servers.remove(std::mem::replace(&mut exchange.server, replacement));
            exchange.request = if reused { Request::Replayable } else { Request::Sent };
            let sent = self.servers.get_mut(replacement).map(|server| server.socket.send(&client.replay));
            if matches!(sent, Some(Ok(()))) {
                return Ok(Step::On);
            }
            if !reused {
                return self.refuse(token, 502, "the upstream takes no request");
            }
        }
    }

    /// The upstream sent something that is not a response.
    fn distrust(&mut self, token: Token) -> io::Result<Step> {
        let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
        match client.stage {
            Stage::Exchange(Exchange { response: Response::Head, .. }) => {
                self.refuse(token, 502, "the upstream's answer is not HTTP/1.1")
            }
            _ => Ok(Step::Over),
        }
    }
}

/// Reads a head and what there is of its body; `None` while the head is incomplete.
fn read_head(
    head: &mut ResponseHead,
    exchange: &mut Exchange,
    input: &[u8],
    staged: &mut Vec<u8>,
) -> Result<Option<Passed>, ParseError> {
    let Some(length) = head.parse(input, &LIMITS, exchange.method)? else {
        // The next bytes to be parsed may be another connection's.
        head.clear();
        return Ok(None);
    };
    match head.status {
        // No change of protocol was asked for.
        101 => return Err(ParseError::StatusLine),
        100..200 => {
            // HTTP/1.0 knows no interim responses.
            let to_send = if exchange.chunks { ToSend::AsTheyCame } else { ToSend::Nothing };
            return Ok(Some(Passed { used: length, to_send }));
        }
        _ => {}
    }
    let mut body = Body::new(head.framing);
    exchange.keep_alive &= head.framing != Framing::UntilClose && exchange.request.is_whole();
    let (used, to_send) = if exchange.keep_alive && message::response_goes_as_it_is(head) {
        (body.take(&input[length..])?, ToSend::AsTheyCame)
    } else {
        let chunked = head.framing == Framing::Chunked && exchange.chunks;
        message::write_response(head, chunked, exchange.keep_alive, staged);
        (stage(&mut body, &input[length..], exchange.chunks, staged)?, ToSend::Staged)
    };
    exchange.response = Response::Body(body, head.keep_alive);
    Ok(Some(Passed { used: length + used, to_send }))
}

/// Reads a part of a body.
fn body_part(
    body: &mut Body,
    input: &[u8],
    chunks: bool,
    staged: &mut Vec<u8>,
) -> Result<Passed, ParseError> {
    if chunks {
        return Ok(Passed { used: body.take(input)?, to_send: ToSend::AsTheyCame });
    }
    Ok(Passed { used: stage(body, input, chunks, staged)?, to_send: ToSend::Staged })
}

/// Stages a part of a body, without its chunks' frames for a client that does not know them.
fn stage(body: &mut Body, input: &[u8], chunks: bool, staged: &mut Vec<u8>) -> Result<usize, ParseError> {
    if !chunks {
        return body.unwrap(input, staged);
    }
    let used = body.take(input)?;
    staged.extend_from_slice(&input[..used]);
    Ok(used)
}
