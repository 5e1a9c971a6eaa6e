//! Relays bytes between two connections, including the end of each direction, with backpressure: reads no more than the
//! other side accepts.

use crate::worker::{Pipe, Pipes};
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::Interest;
use tokio::time::Instant;
use weir_net::buffer::Buffer;
use weir_net::deadline::Deadline;
use weir_net::io::Io;
use weir_net::socket::Socket;

/// A read that brings as much is taken for one of many: the next ones go through a pipe.
const BULK: usize = 32 * 1024;
/// A pipe that brings less is not worth its while.
const SCANT: usize = 4 * 1024;

/// How a session came to its end.
#[derive(Debug)]
pub(super) enum Ended {
    /// Both sides have said all they had to say.
    Closed,
    /// Neither side said anything for too long.
    Idle,
    /// A connection failed.
    Broken(io::Error),
}

/// Two connections, and the bytes between them.
pub(super) struct Relay<'w> {
    downstream: Io,
    upstream: Io,
    pipes: &'w Pipes,
    /// From the client to the upstream.
    pub(super) up: Half,
    /// From the upstream to the client.
    pub(super) down: Half,
    deadline: Deadline,
}

impl<'w> Relay<'w> {
    pub(super) fn new(downstream: Io, upstream: Io, pipes: &'w Pipes) -> Self {
        let (up, down) = (Half::default(), Half::default());
        Self { downstream, upstream, pipes, up, down, deadline: Deadline::default() }
    }

    /// Passes bytes on until both sides have ended, or neither has said anything for so long.
    pub(super) async fn run(&mut self, timeout: Duration) -> Ended {
        self.deadline.set(Instant::now(), timeout);
        poll_fn(|cx| self.poll(cx, timeout)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>, timeout: Duration) -> Poll<Ended> {
        let before = self.up.moved + self.down.moved;
        let up = self.up.poll(cx, &mut self.downstream, &mut self.upstream, self.pipes);
        let down = self.down.poll(cx, &mut self.upstream, &mut self.downstream, self.pipes);
        match (up, down) {
            (Poll::Ready(Err(error)), _) | (_, Poll::Ready(Err(error))) => {
                // What was cut off must not look complete to the other side.
                self.downstream.reset_on_close();
                self.upstream.reset_on_close();
                Poll::Ready(Ended::Broken(error))
            }
            (Poll::Ready(Ok(())), Poll::Ready(Ok(()))) => Poll::Ready(Ended::Closed),
            _ => {
                if self.up.moved + self.down.moved != before {
                    self.deadline.set(Instant::now(), timeout);
                }
                self.deadline.poll(cx).map(|()| Ended::Idle)
            }
        }
    }
}

impl Drop for Relay<'_> {
    fn drop(&mut self) {
        for half in [&mut self.up, &mut self.down] {
            if let Some(pipe) = half.pipe.take() {
                self.pipes.give_back(pipe);
            }
        }
    }
}

/// One direction.
#[derive(Default)]
pub(super) struct Half {
    /// Bytes passed on.
    pub(super) moved: u64,
    buffer: Buffer,
    pipe: Option<Pipe>,
    bulk: bool,
    stage: Stage,
}

#[derive(Default, Clone, Copy)]
enum Stage {
    #[default]
    Moving,
    /// One side has ended; the end is yet to be passed to the other.
    Ending,
    Done,
}

impl Half {
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Io,
        to: &mut Io,
        pipes: &Pipes,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.stage {
                Stage::Done => return Poll::Ready(Ok(())),
                Stage::Ending => {
                    // Ignores the error of a peer that has closed in the meantime.
                    let _ = ready!(to.poll_shutdown(cx));
                    self.stage = Stage::Done;
                }
                Stage::Moving => {
                    ready!(self.poll_empty(cx, to))?;
                    match self.poll_fill(cx, from, to, pipes)? {
                        Poll::Ready(1..) => {}
                        Poll::Ready(0) => self.stage = Stage::Ending,
                        Poll::Pending => {
                            self.release(pipes);
                            return Poll::Pending;
                        }
                    }
                }
            }
        }
    }

    /// Hands over all that is held.
    fn poll_empty(&mut self, cx: &mut Context<'_>, to: &mut Io) -> Poll<io::Result<()>> {
        if let (Some(pipe), Io::Plain(socket)) = (&mut self.pipe, &*to) {
            while pipe.held > 0 {
                let before = pipe.held;
                ready!(poll_io(cx, socket, Interest::WRITABLE, || pipe.empty(socket)))?;
                self.moved += (before - pipe.held) as u64;
            }
        }
        while !self.buffer.is_empty() {
            let n = ready!(to.poll_write(cx, self.buffer.bytes()))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.buffer.consume(n);
            self.moved += n as u64;
        }
        to.poll_flush(cx)
    }

    /// Takes what has come, with nothing held before; 0 is the end.
    fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        from: &mut Io,
        to: &Io,
        pipes: &Pipes,
    ) -> Poll<io::Result<usize>> {
        if let (true, Io::Plain(socket), Io::Plain(_)) = (self.bulk, &*from, to) {
            if self.pipe.is_none() {
                self.pipe = pipes.take();
            }
            if let Some(pipe) = &mut self.pipe {
                let n = ready!(poll_io(cx, socket, Interest::READABLE, || pipe.fill(socket)))?;
                self.bulk = n >= SCANT;
                return Poll::Ready(Ok(n));
            }
        }
        match ready!(from.poll_read(cx, self.buffer.room())) {
            Ok(n) => {
                self.buffer.filled(n);
                self.bulk = n >= BULK;
                Poll::Ready(Ok(n))
            }
            // TLS that ends without saying so. Many clients end like this.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Poll::Ready(Ok(0)),
            Err(error) => Poll::Ready(Err(error)),
        }
    }

    /// Gives back what a direction in which nothing moves has no need of.
    fn release(&mut self, pipes: &Pipes) {
        self.buffer.release();
        if let Some(pipe) = self.pipe.take() {
            pipes.give_back(pipe);
        }
    }
}

/// Does something as soon as the socket is ready for it.
fn poll_io<T>(
    cx: &mut Context<'_>,
    socket: &Socket,
    interest: Interest,
    mut act: impl FnMut() -> io::Result<T>,
) -> Poll<io::Result<T>> {
    loop {
        if interest.is_readable() {
            ready!(socket.poll_read_ready(cx))?;
        } else {
            ready!(socket.poll_write_ready(cx))?;
        }
        match socket.try_io(interest, &mut act) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            done => return Poll::Ready(done),
        }
    }
}
