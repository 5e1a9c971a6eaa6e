//! From the client to the upstream.
use super::message::{self, Body};
use super::peer::{Exchange, Request, Response, Stage};
use super::relay::{LIMITS, Relay, Step};
use crate::event_loop::{Poll, Received, Token};
use std::io;
use weir_http1::{Framing, Method, ParseError, RequestHead, Version};

impl Relay {
    /// Reads a request's head and sends it on with what there is of its body.
    pub(super) fn begin(&mut self, poll: &Poll, token: Token, scratch: &mut [u8]) -> io::Result<Step> {
        let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
        let input = match client.inbox.fill(&mut client.socket, scratch)? {
            Received::Bytes(count) => &scratch[..count],
            Received::Nothing => return Ok(Step::Wait),
            Received::End => return Ok(Step::Over),
        };
        let (body, end) = match read(&mut self.request, input) {
            Ok(Some(read)) => read,
            Ok(None) => {
                client.inbox.hold(input, true);
                // The next bytes to be parsed may be another client's.
                self.request.clear();
                return Ok(Step::On);
            }
            Err(reject) => return self.refuse(token, reject.status(), &reject.to_string()),
        };
        client.inbox.hold(&input[end.message..], false);
        if self.request.method == Method::Connect {
            return self.refuse(token, 501, "this relay opens no tunnels");
        }
        if message::request_goes_as_it_is(&self.request, input) {
            return self.dispatch(poll, token, body, &input[..end.message]);
        }
        let mut staged = std::mem::take(&mut self.staged);
        staged.clear();
        message::write_request(&mut self.request, self.upstream, &mut staged);
        staged.extend_from_slice(&input[end.head..end.message]);
        let step = self.dispatch(poll, token, body, &staged);
        self.staged = staged;
        step
    }

    /// Sends the beginning of a request to a connection that takes it.
    fn dispatch(&mut self, poll: &Poll, token: Token, body: Body, bytes: &[u8]) -> io::Result<Step> {
        let method = self.request.method;
        let (server, reused) = loop {
            let Ok((server, reused)) = self.check_out(poll, token) else {
                return self.refuse(token, 502, "the upstream cannot be connected to");
            };
            match self.servers.get_mut(server).map(|server| server.socket.send(bytes)) {
                Some(Ok(())) => break (server, reused),
                // The upstream closed it while it was pooled.
                _ if reused => drop(self.servers.remove(server)),
                _ => {
                    self.servers.remove(server);
                    return self.refuse(token, 502, "the upstream takes no request");
                }
            }
        };
        let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
        let request = match body {
            body if !body.is_done() => Request::Body(body),
            _ if reused && is_safe(method) => {
                client.replay.clear();
                client.replay.extend_from_slice(bytes);
                Request::Replayable
            }
            _ => Request::Sent,
        };
        let chunks = self.request.version == Version::Http11;
        let keep_alive = self.request.keep_alive && chunks;
        let response = Response::Head;
        client.stage = Stage::Exchange(Exchange { server, method, keep_alive, chunks, request, response });
        Ok(Step::On)
    }

    /// Sends on what is left of the request: what the upstream did not take yet, and what arrives of the body.
    pub(super) fn send_request(&mut self, token: Token, scratch: &mut [u8]) -> io::Result<Step> {
        let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
        let Stage::Exchange(exchange) = &mut client.stage else { return Ok(Step::Wait) };
        let Some(server) = self.servers.get_mut(exchange.server) else { return Ok(Step::Over) };
        if matches!(server.socket.flush(), Ok(false)) {
            return Ok(Step::Wait);
        }
        let Request::Body(body) = &mut exchange.request else { return Ok(Step::Wait) };
        if !client.socket.is_readable() {
            return Ok(Step::Wait);
        }
        let input = match client.socket.receive(scratch)? {
            Received::Bytes(count) => &scratch[..count],
            Received::Nothing => return Ok(Step::Wait),
            Received::End => return Ok(Step::Over),
        };
        let used = match body.take(input) {
            Ok(used) => used,
            // The head of the response may be out already: there is no way left to say what is wrong.
            Err(_) => return Ok(Step::Over),
        };
        client.inbox.hold(&input[used..], false);
        let is_done = body.is_done();
        if server.socket.send(&input[..used]).is_err() {
            // It may have answered before it stopped to read.
            exchange.request = Request::Abandoned;
        } else if is_done {
            exchange.request = Request::Sent;
        }
        Ok(Step::On)
    }
}

/// Where a request's head ends, and where what has arrived of it ends.
struct Ends {
    head: usize,
    message: usize,
}

fn read(head: &mut RequestHead, input: &[u8]) -> Result<Option<(Body, Ends)>, ParseError> {
    let Some(end) = head.parse(input, &LIMITS)? else { return Ok(None) };
    if head.framing == Framing::None {
        return Ok(Some((Body::Length(0), Ends { head: end, message: end })));
    }
    let mut body = Body::new(head.framing);
    let message = end + body.take(&input[end..])?;
    Ok(Some((body, Ends { head: end, message })))
}

fn is_safe(method: Method) -> bool {
    matches!(method, Method::Get | Method::Head | Method::Options | Method::Trace)
}
