//! One thread of the upstream: its connections, and the answers that it holds back.
use super::Plan;
use super::connection::{Connection, Next, Workspace};
use super::pace::Line;
use super::stream::Stream;
use crate::event_loop::{Handler, Poll, Slots, Socket, Token};
use rustix::event::epoll::EventFlags;
use rustls::ServerConfig;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

const CONNECTION: u8 = 1;

pub(super) struct Server {
    tls: Option<Arc<ServerConfig>>,
    started: Instant,
    connections: Slots<Connection>,
    held_back: BinaryHeap<Reverse<(Instant, Token)>>,
    line: Option<Line<Token>>,
    workspace: Workspace,
}

impl Server {
    pub(super) fn new(
        plan: Arc<Plan>,
        tls: Option<Arc<ServerConfig>>,
        started: Instant,
        thread: u64,
    ) -> Self {
        let connections = Slots::new(CONNECTION);
        let line = plan.at_once.map(Line::new);
        let workspace = Workspace::new(plan, thread);
        Self { tls, started, connections, held_back: BinaryHeap::new(), line, workspace }
    }

    fn drive(&mut self, poll: &mut Poll, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else { return };
        match connection.drive(&mut self.workspace) {
            Ok(Next::Wait) => {}
            Ok(Next::Again) => poll.again(token),
            Ok(Next::HoldBack(delay)) => self.held_back.push(Reverse((Instant::now() + delay, token))),
            Ok(Next::WaitInLine(takes)) => {
                if self.line.as_mut().is_none_or(|line| line.enter(token, takes)) {
                    self.begin_work(token, Instant::now() + takes);
                }
            }
            Ok(Next::Close) | Err(_) => drop(self.connections.remove(token)),
        }
    }

    fn begin_work(&mut self, token: Token, done: Instant) {
        if let Some(connection) = self.connections.get_mut(token) {
            connection.begin_work();
        }
        self.held_back.push(Reverse((done, token)));
    }

    /// A worker is done with a request, and goes on with the next.
    fn next_in_line(&mut self, now: Instant) {
        let Self { line, connections, .. } = self;
        let next = line.as_mut().and_then(|line| line.next(|token| connections.get_mut(*token).is_some()));
        if let Some((token, takes)) = next {
            self.begin_work(token, now + takes);
        }
    }
}

impl Handler for Server {
    fn accepted(&mut self, poll: &mut Poll, socket: OwnedFd, listener: usize) {
        let tls = self.tls.as_ref().filter(|_| listener >= self.workspace.plan.listen.len());
        let Ok(stream) = Stream::new(Socket::accepted(socket), tls) else { return };
        let token = self.connections.insert(Connection::new(stream));
        let watched =
            self.connections.get_mut(token).map(|connection| poll.watch(connection.socket(), token));
        if !matches!(watched, Some(Ok(()))) {
            self.connections.remove(token);
        }
    }

    fn ready(&mut self, poll: &mut Poll, token: Token, flags: EventFlags) {
        if let Some(connection) = self.connections.get_mut(token) {
            connection.note(flags);
            self.drive(poll, token);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        self.held_back.peek().map(|Reverse((due, _))| *due)
    }

    fn woken(&mut self, poll: &mut Poll) {
        let now = Instant::now();
        while let Some(Reverse((due, token))) = self.held_back.peek().copied() {
            if due > now {
                return;
            }
            self.held_back.pop();
            // Not from now on, so that a late timer costs no capacity.
            self.next_in_line(due);
            if let Some(connection) = self.connections.get_mut(token) {
                connection.release();
                self.drive(poll, token);
            }
        }
    }

    fn before_events(&mut self) {
        if let Some(left) = self.workspace.plan.stall.and_then(|stall| stall.left(self.started.elapsed())) {
            thread::sleep(left);
        }
    }
}
