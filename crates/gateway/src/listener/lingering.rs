//! A connection that reports its progress, and closes without losing its last response (lingering close).
use super::deadline::TransferDeadline;
use super::progress::Progress;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long a closing connection still reads what its client sends; one second more for each 64 KiB.
const LINGER: Duration = Duration::from_secs(2);

/// Reports reads and writes to its [`Progress`]. A shutdown first ends the send side, and then reads until the client
/// closes too, because the kernel resets a connection that is closed with unread data, and the client might lose the
/// response.
pub(super) struct LingeringStream<S> {
    stream: S,
    progress: Arc<Progress>,
    /// The client has closed.
    ended: bool,
    /// Set once the send side is shut down.
    linger: Option<TransferDeadline>,
    longest: Duration,
}

impl<S> LingeringStream<S> {
    /// `longest_pause` is the timeout of request bodies.
    pub(super) fn new(stream: S, progress: Arc<Progress>, longest_pause: Duration) -> LingeringStream<S> {
        LingeringStream { stream, progress, ended: false, linger: None, longest: LINGER.min(longest_pause) }
    }
}

impl<S: AsyncRead + Unpin> LingeringStream<S> {
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(deadline) = &mut self.linger else { return Poll::Ready(()) };
        let mut bytes = [0; 8 << 10];
        while !self.ended {
            if deadline.poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            deadline.extend(buffer.filled().len());
            self.ended = read.is_err() || buffer.filled().is_empty();
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LingeringStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = ready!(Pin::new(&mut self.stream).poll_read(cx, buffer));
        match buffer.filled().len() > before {
            true => self.progress.received(),
            false => self.ended = true,
        }
        Poll::Ready(read)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for LingeringStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        self.progress.flushed();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(cx))?;
            self.linger = Some(TransferDeadline::new(self.longest));
            self.progress.closing();
        }
        self.poll_linger(cx).map(Ok)
    }
}
