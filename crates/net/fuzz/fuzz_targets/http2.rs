//! No bytes of a client make HTTP/2 panic, and a request that is accepted is one request over HTTP/1.1 too.
//!
//! The input is a block of header fields, and then, in another connection, frames as they are.
#![no_main]

mod sent;

use libfuzzer_sys::fuzz_target;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::LocalRuntime;
use weir_http1::Version;
use weir_net::http2::{Sender, Transport};
use weir_net::io::Io;

/// What every client sends first: the preface, and settings.
const BEGIN: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const HEADERS: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 0x5;
const MAX_FRAME: usize = 16_384;

/// A client that sends these bytes, closes, and takes whatever it is sent.
struct Client(io::Cursor<Vec<u8>>);

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, room)
    }
}

impl AsyncWrite for Client {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

async fn serve(bytes: Vec<u8>) {
    let transport =
        Transport::from(Io::Memory(Box::new(Client(io::Cursor::new(bytes))))).guarded(100, 65_536);
    let sender = transport.sender();
    // What the transport writes may be lost: the client takes it and knows nothing of it.
    let _ = sender.with(accept_all(transport, &sender)).await;
}

/// Accepts requests until the connection ends, or its bytes can no longer be understood, as the engine does.
async fn accept_all(transport: Transport, sender: &Sender) {
    let mut builder = h2::server::Builder::new();
    let handshake = builder
        .max_header_list_size(65_536)
        .enable_connect_protocol()
        .handshake::<_, bytes::Bytes>(transport);
    let Ok(mut connection) = handshake.await else { return };
    loop {
        let accepted = poll_fn(|cx| match connection.poll_accept(cx) {
            Poll::Pending if sender.failure().is_some() => Poll::Ready(None),
            accepted => accepted,
        });
        let Some(Ok((request, _respond))) = accepted.await else { return };
        let (parts, body) = request.into_parts();
        sent::check(&parts, Version::Http2, body.is_end_stream());
    }
}

thread_local! {
    static RUNTIME: LocalRuntime = LocalRuntime::new().expect("a runtime");
}

fuzz_target!(|input: &[u8]| {
    let block = &input[..input.len().min(MAX_FRAME)];
    let length = u32::try_from(block.len()).expect("short").to_be_bytes();
    let head = [&length[1..], &[HEADERS, END_STREAM_AND_HEADERS, 0, 0, 0, 1], block].concat();
    RUNTIME.with(|runtime| {
        runtime.block_on(serve([BEGIN, &head].concat()));
        runtime.block_on(serve([BEGIN, input].concat()));
    });
});
