//! A connection with a timeout for writes.
use super::BYTES_PER_SECOND;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// Writes fail when the peer receives nothing for too long, or too little for long.
pub(super) struct SendTimeout<S> {
    stream: S,
    longest_pause: Duration,
    /// The remaining time to wait: waiting uses it up, and received bytes add to it.
    left: Duration,
    /// Since when the peer receives nothing, and the deadline for it to continue.
    pause: Option<(Instant, Pin<Box<Sleep>>)>,
}

impl<S> SendTimeout<S> {
    pub(super) fn new(stream: S, longest_pause: Duration) -> SendTimeout<S> {
        SendTimeout { stream, longest_pause, left: longest_pause, pause: None }
    }

    /// Applies the deadline to the result of a write of so many bytes.
    fn bounded<T>(
        &mut self,
        cx: &mut Context<'_>,
        sent: Poll<io::Result<T>>,
        taken: impl FnOnce(&T) -> usize,
    ) -> Poll<io::Result<T>> {
        if let Poll::Ready(done) = &sent {
            let more = done.as_ref().map_or(0, taken) as f64 / BYTES_PER_SECOND as f64;
            let waited = self.pause.take().map_or(Duration::ZERO, |(since, _)| since.elapsed());
            let left = self.left.saturating_sub(waited) + Duration::from_secs_f64(more);
            self.left = left.min(self.longest_pause);
            return sent;
        }
        let left = self.left;
        let (_, pause) = self.pause.get_or_insert_with(|| (Instant::now(), Box::pin(sleep(left))));
        pause.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SendTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SendTimeout<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.bounded(cx, sent, |bytes| *bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.stream).poll_write_vectored(cx, slices);
        self.bounded(cx, sent, |bytes| *bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.stream).poll_flush(cx);
        self.bounded(cx, sent, |()| 0)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let sent = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.bounded(cx, sent, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    /// Sends so many bytes to a peer that reads so many at a time, with a pause before each read.
    async fn send(length: usize, at_once: usize, pause: Duration) -> io::Result<()> {
        let (stream, mut other) = duplex(at_once);
        let reading = tokio::spawn(async move {
            let mut taken = vec![0; at_once];
            loop {
                sleep(pause).await;
                other.read_exact(&mut taken).await.unwrap();
            }
        });
        let sent = SendTimeout::new(stream, Duration::from_millis(300)).write_all(&vec![0; length]).await;
        reading.abort();
        sent
    }

    #[tokio::test]
    async fn a_slow_reader_times_out() {
        let pause = Duration::from_millis(5);
        let sent = send(200, 1, pause).await;
        assert_eq!(sent.map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        // Far more bytes in far more time than one pause may take, but steadily.
        send(100 << 16, 1 << 16, pause).await.unwrap();
    }
}
