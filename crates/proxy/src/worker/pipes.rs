//! Pipes that bytes pass through from socket to socket without entering this process: lent to those that have bytes on
//! their way, as buffers are.

use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::OwnedFd;
use weir_net::socket::Socket;

/// How many pipes a worker may have at a time. Who gets none copies.
pub const MAX_PIPES: usize = 128;

/// The most that is moved at once: what a pipe holds.
const AT_ONCE: usize = 64 * 1024;

/// A pipe, and how many bytes are in it.
#[derive(Debug)]
pub(crate) struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    pub(crate) held: usize,
}

/// One worker's pipes.
#[derive(Default)]
pub(crate) struct Pipes {
    free: RefCell<Vec<Pipe>>,
    lent: Cell<usize>,
}

impl Pipes {
    /// An empty pipe, if one is to be had.
    pub(crate) fn take(&self) -> Option<Pipe> {
        let pipe = match self.free.borrow_mut().pop() {
            Some(pipe) => Some(pipe),
            None if self.lent.get() < MAX_PIPES => Pipe::new().ok(),
            None => None,
        };
        self.lent.set(self.lent.get() + usize::from(pipe.is_some()));
        pipe
    }

    /// Takes a pipe back. One that holds bytes is closed.
    pub(crate) fn give_back(&self, pipe: Pipe) {
        self.lent.set(self.lent.get() - 1);
        if pipe.held == 0 {
            self.free.borrow_mut().push(pipe);
        }
    }
}

impl Pipe {
    fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self { reader, writer, held: 0 })
    }

    /// Moves what a socket has received into the pipe, which is empty; 0 is the end.
    pub(crate) fn fill(&mut self, from: &Socket) -> io::Result<usize> {
        let n = splice(from, None, &self.writer, None, AT_ONCE, SpliceFlags::MOVE | SpliceFlags::NONBLOCK)?;
        self.held = n;
        Ok(n)
    }

    /// Moves what a socket takes out of the pipe.
    pub(crate) fn empty(&mut self, to: &Socket) -> io::Result<()> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let n = splice(&self.reader, None, to, None, self.held, flags)?;
        self.held -= n;
        if n == 0 { Err(io::ErrorKind::WriteZero.into()) } else { Ok(()) }
    }
}
