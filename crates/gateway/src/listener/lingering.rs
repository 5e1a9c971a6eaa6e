//! A connection whose progress is followed, and that is closed without destroying its last answer.
use super::deadline::Budget;
use super::progress::Progress;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What a client still sends to a connection that is being closed is read for so long, and a second more for each 64 KiB.
const LINGER: Duration = Duration::from_secs(2);

/// Tells its [`Progress`] what comes and goes. Shutting it down first ends what is sent, and then reads what the client
/// still sends until it closes too: data that was never read would have the kernel reset the connection, and the client
/// might lose the answer.
pub(super) struct Watched<S> {
    stream: S,
    progress: Arc<Progress>,
    /// The client has closed.
    ended: bool,
    /// Once sending is ended.
    linger: Option<Budget>,
    longest: Duration,
}

impl<S> Watched<S> {
    /// A client may pause for so long while it sends a body.
    pub(super) fn new(stream: S, progress: Arc<Progress>, longest_pause: Duration) -> Watched<S> {
        Watched { stream, progress, ended: false, linger: None, longest: LINGER.min(longest_pause) }
    }
}

impl<S: AsyncRead + Unpin> Watched<S> {
    fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(budget) = &mut self.linger else { return Poll::Ready(()) };
        let mut bytes = [0; 8 << 10];
        while !self.ended {
            if budget.poll(cx).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
            budget.extend(buffer.filled().len());
            self.ended = read.is_err() || buffer.filled().is_empty();
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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
            self.linger = Some(Budget::new(self.longest));
            self.progress.closing();
        }
        self.poll_linger(cx).map(Ok)
    }
}
