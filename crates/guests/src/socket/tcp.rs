//! A TCP socket of Lua, which one coroutine may read while another writes.

use super::buffer::Want;
use super::connection::Connection;
use super::{TIMEOUT, text, within};
use mlua::UserData;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

/// A socket of Lua. Clones share it.
#[derive(Clone, Default)]
pub(super) struct Tcp(pub(super) Rc<State>);

/// What a socket of Lua is.
#[derive(Default)]
pub(super) struct State {
    pub(super) connection: RefCell<Option<Box<Connection>>>,
    pub(super) timeouts: Cell<Timeouts>,
    pub(super) is_reading: Cell<bool>,
    pub(super) is_writing: Cell<bool>,
}

/// How long it waits.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) send: Duration,
    pub(super) read: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: TIMEOUT, send: TIMEOUT, read: TIMEOUT }
    }
}

impl UserData for Tcp {}

/// A socket that is read or written, until this is dropped.
pub(super) struct Busy {
    pub(super) state: Rc<State>,
    flag: fn(&State) -> &Cell<bool>,
}

impl Busy {
    pub(super) fn new(state: &Rc<State>, flag: fn(&State) -> &Cell<bool>) -> Option<Self> {
        let was_busy = flag(state).replace(true);
        (!was_busy).then(|| Self { state: state.clone(), flag })
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        (self.flag)(&self.state).set(false);
    }
}

impl State {
    /// Writes the bytes, of which so many were written, and sends them.
    pub(super) fn poll_send(
        &self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        written: &mut usize,
    ) -> Poll<io::Result<()>> {
        let mut connection = self.connection.borrow_mut();
        let Some(connection) = connection.as_mut() else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        while *written < bytes.len() {
            match connection.poll_write(cx, &bytes[*written..]) {
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
                Poll::Ready(Ok(count)) => *written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => return Poll::Pending,
            }
        }
        connection.poll_flush(cx)
    }

    fn poll_read(&self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match self.connection.borrow_mut().as_mut() {
            Some(connection) => connection.poll_read(cx),
            None => Poll::Ready(Err(io::ErrorKind::NotConnected.into())),
        }
    }

    /// What the connection has of what is wanted.
    pub(super) fn take(&self, want: &Want) -> Option<Vec<u8>> {
        self.connection.borrow_mut().as_mut().and_then(|connection| connection.buffer.take(want))
    }

    /// The connection is of no more use.
    pub(super) fn lost(&self, error: &io::Error) -> String {
        self.connection.take();
        text(error)
    }

    /// Reads until there is what is wanted.
    pub(super) async fn read(&self, want: &Want) -> Result<Vec<u8>, (String, Vec<u8>)> {
        loop {
            if let Some(data) = self.take(want) {
                return Ok(data);
            }
            let read = within(self.timeouts.get().read, poll_fn(|cx| self.poll_read(cx))).await;
            let rest = |state: &Self| {
                let mut connection = state.connection.borrow_mut();
                connection.as_mut().map(|it| it.buffer.take_rest()).unwrap_or_default()
            };
            match read {
                Ok(0) => {
                    let rest = rest(self);
                    self.connection.take();
                    return if matches!(want, Want::All) {
                        Ok(rest)
                    } else {
                        Err(("closed".to_owned(), rest))
                    };
                }
                Ok(_) => {}
                Err(error) => {
                    let rest = rest(self);
                    let is_timeout = error.kind() == io::ErrorKind::TimedOut;
                    return Err((if is_timeout { text(&error) } else { self.lost(&error) }, rest));
                }
            }
        }
    }
}
