//! The relay: clients, pooled connections of the upstream, and the exchanges between them.
use super::message;
use super::peer::{Client, Exchange, Server, Stage};
use crate::event_loop::{Handler, Poll, Received, Slots, Socket, Token};
use rustix::event::epoll::EventFlags;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use weir_http1::{Limits, RequestHead, ResponseHead};

const CLIENT: u8 = 1;
const SERVER: u8 = 2;
/// Holds the largest head, and what came after it.
const SCRATCH_BYTES: usize = 128 * 1024;
/// How many steps one exchange takes before others get their turn.
const TURNS: usize = 32;
pub(super) const LIMITS: Limits = Limits {
    max_head_bytes: 64 * 1024,
    max_fields: 256,
    max_target_bytes: 32 * 1024,
    max_field_bytes: usize::MAX,
};

pub(super) struct Relay {
    pub(super) upstream: SocketAddr,
    pub(super) clients: Slots<Client>,
    pub(super) servers: Slots<Server>,
    /// Connections that wait for work, the one used last on top; some may be gone.
    pub(super) pool: Vec<Token>,
    scratch: Vec<u8>,
    pub(super) staged: Vec<u8>,
    pub(super) request: RequestHead,
    pub(super) response: ResponseHead,
}

/// How far a client's connection went.
pub(super) enum Step {
    /// It may go on at once.
    On,
    /// It waits for one of its sides.
    Wait,
    /// It is over.
    Over,
}

impl Relay {
    pub(super) fn new(upstream: SocketAddr) -> Self {
        Self {
            upstream,
            clients: Slots::new(CLIENT),
            servers: Slots::new(SERVER),
            pool: Vec::new(),
            scratch: vec![0; SCRATCH_BYTES],
            staged: Vec::new(),
            request: RequestHead::default(),
            response: ResponseHead::default(),
        }
    }

    /// Takes a client's connection as far as it goes.
    fn advance(&mut self, poll: &mut Poll, token: Token) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut turns = 0;
        // An error that comes up to here is of the client's connection.
        let step = loop {
            let step = self.step(poll, token, &mut scratch).unwrap_or(Step::Over);
            turns += 1;
            if turns == TURNS || !matches!(step, Step::On) {
                break step;
            }
        };
        self.scratch = scratch;
        match step {
            Step::On => poll.again(token),
            Step::Wait => {}
            Step::Over => self.drop_client(token),
        }
    }

    fn step(&mut self, poll: &mut Poll, token: Token, scratch: &mut [u8]) -> io::Result<Step> {
        let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
        match client.stage {
            Stage::Exchange(_) => match self.send_request(token, scratch)? {
                Step::Wait => self.send_response(poll, token, scratch),
                step => Ok(step),
            },
            _ if !client.socket.flush()? => Ok(Step::Wait),
            Stage::Idle => self.begin(poll, token, scratch),
            Stage::Closing => Ok(Step::Over),
            Stage::Lingering => {
                client.socket.finish_sending();
                client.stage = Stage::Drained;
                Ok(Step::On)
            }
            Stage::Drained if !client.socket.is_readable() => Ok(Step::Wait),
            Stage::Drained => match client.socket.receive(scratch)? {
                Received::End => Ok(Step::Over),
                Received::Bytes(_) | Received::Nothing => Ok(Step::On),
            },
        }
    }

    /// A connection to the upstream for this client, and whether it has served before.
    pub(super) fn check_out(&mut self, poll: &Poll, client: Token) -> io::Result<(Token, bool)> {
        while let Some(token) = self.pool.pop() {
            if let Some(server) = self.servers.get_mut(token) {
                server.client = Some(client);
                return Ok((token, true));
            }
        }
        let socket = Socket::connect(self.upstream)?;
        let token = self.servers.insert(Server::new(socket, client));
        let watched = self.servers.get_mut(token).map(|server| poll.watch(&server.socket, token));
        match watched {
            Some(Err(error)) => {
                self.servers.remove(token);
                Err(error)
            }
            _ => Ok((token, false)),
        }
    }

    /// Puts a connection back, to be used again if it can be. One that still has something to read or to send cannot:
    /// most likely it is being closed.
    pub(super) fn check_in(&mut self, token: Token, reusable: bool) {
        let Some(server) = self.servers.get_mut(token) else { return };
        if reusable && !server.socket.is_readable() && !server.socket.is_blocked() {
            server.client = None;
            self.pool.push(token);
        } else {
            self.servers.remove(token);
        }
    }

    /// Answers in the upstream's place and ends the client's connection.
    pub(super) fn refuse(&mut self, token: Token, status: u16, reason: &str) -> io::Result<Step> {
        self.staged.clear();
        message::write_own(status, reason, &mut self.staged);
        let Some(client) = self.clients.get_mut(token) else { return Ok(Step::Wait) };
        if let Stage::Exchange(Exchange { server, .. }) =
            std::mem::replace(&mut client.stage, Stage::Lingering)
        {
            self.servers.remove(server);
        }
        client.socket.send(&self.staged)?;
        Ok(Step::On)
    }

    fn drop_client(&mut self, token: Token) {
        let client = self.clients.remove(token);
        if let Some(Client { stage: Stage::Exchange(exchange), .. }) = client {
            self.servers.remove(exchange.server);
        }
    }

    fn client_ready(&mut self, poll: &mut Poll, token: Token, flags: EventFlags) {
        let Some(client) = self.clients.get_mut(token) else { return };
        if flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            return self.drop_client(token);
        }
        client.socket.note(flags);
        self.advance(poll, token);
    }

    fn server_ready(&mut self, poll: &mut Poll, token: Token, flags: EventFlags) {
        let Some(server) = self.servers.get_mut(token) else { return };
        server.socket.note(flags);
        match server.client {
            Some(client) => self.advance(poll, client),
            // No request is pending on it: it closes, or sends unexpected bytes.
            None if server.socket.is_readable() => drop(self.servers.remove(token)),
            None => {}
        }
    }
}

impl Handler for Relay {
    fn accepted(&mut self, poll: &mut Poll, socket: OwnedFd, _: usize) {
        let token = self.clients.insert(Client::new(Socket::accepted(socket)));
        let watched = self.clients.get_mut(token).map(|client| poll.watch(&client.socket, token));
        if !matches!(watched, Some(Ok(()))) {
            self.clients.remove(token);
        }
    }

    fn ready(&mut self, poll: &mut Poll, token: Token, flags: EventFlags) {
        match token.kind() {
            CLIENT => self.client_ready(poll, token, flags),
            _ => self.server_ready(poll, token, flags),
        }
    }
}
