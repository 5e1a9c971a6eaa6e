//! The client of HTTP/3, by `quinn`. Heads are written by hand and those of responses skipped, so that it is quick.
use crate::gateway::Gateway;
use crate::{Case, Connection, Given, tls};
use bytes::{Buf, BufMut, Bytes};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{
    ClientConfig, Endpoint, EndpointConfig, MtuDiscoveryConfig, TokioRuntime, TransportConfig, VarInt,
};
use std::rc::Rc;
use std::sync::Arc;

const WINDOW: u32 = 1 << 20;
/// What the system gives a socket for datagrams that wait, if it may.
const SOCKET_BUFFER: usize = 2 * 1024 * 1024;
/// Types of frames.
const DATA: u64 = 0;
const HEADERS: u64 = 1;
/// Of QPACK: neither a table nor a base; `:method: GET` or `POST`, `:scheme: https`, `:authority: localhost`.
const GET: &[u8] = b"\0\0\xd1\xd7\x50\x09localhost";
const POST: &[u8] = b"\0\0\xd4\xd7\x50\x09localhost";
/// `:path` and `content-length`, with values that follow.
const PATH: u8 = 0x51;
const CONTENT_LENGTH: u8 = 0x54;

pub(crate) struct Http3 {
    connection: quinn::Connection,
    /// The control stream, which must not end.
    _control: quinn::SendStream,
}

/// Opens the connections of a case.
pub(crate) async fn connect(gateway: &Gateway, case: &Case, given: &Given) -> Vec<Rc<Http3>> {
    let endpoint = endpoint(given);
    let mut connections = Vec::new();
    for _ in 0..case.connections {
        let connecting = endpoint.connect(gateway.address, "localhost").expect("an address");
        let connection = connecting.await.expect("a connection over QUIC");
        let mut control = connection.open_uni().await.expect("a stream");
        // The type of the stream, and SETTINGS without any.
        control.write_all(b"\x00\x04\x00").await.expect("a stream");
        connections.push(Rc::new(Http3 { connection, _control: control }));
    }
    connections
}

fn endpoint(given: &Given) -> Endpoint {
    let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
    let sizes = socket2::SockRef::from(&socket);
    sizes.set_recv_buffer_size(SOCKET_BUFFER).expect("an option");
    sizes.set_send_buffer_size(SOCKET_BUFFER).expect("an option");
    let mut config = EndpointConfig::default();
    config.max_udp_payload_size(given.datagram).expect("a size of datagrams");
    let mut endpoint = Endpoint::new(config, None, socket, Arc::new(TokioRuntime)).expect("an endpoint");
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(given.datagram.max(1452));
    let mut transport = TransportConfig::default();
    transport
        .stream_receive_window(WINDOW.into())
        .receive_window(VarInt::from_u32(4 * WINDOW))
        .mtu_discovery_config(Some(discovery));
    let crypto = QuicClientConfig::try_from(tls::config(b"h3")).expect("TLS for QUIC");
    let mut config = ClientConfig::new(Arc::new(crypto));
    config.transport_config(Arc::new(transport));
    endpoint.set_default_client_config(config);
    endpoint
}

impl Connection for Http3 {
    async fn exchange(&self, sent: usize, bytes: usize) {
        let (mut send, mut receive) = self.connection.open_bi().await.expect("a stream");
        send.write_chunk(head(sent, bytes)).await.expect("a stream");
        if sent > 0 {
            upload(&mut send, sent).await;
        }
        send.finish().expect("a stream");
        let (mut frames, mut received) = (Frames::default(), 0);
        while let Some(chunk) = receive.read_chunk(usize::MAX, true).await.expect("a stream") {
            received += frames.data(chunk.bytes);
        }
        assert_eq!(received, bytes);
    }
}

fn head(sent: usize, bytes: usize) -> Bytes {
    let mut block = Vec::from(if sent > 0 { POST } else { GET });
    let mut field = |name: u8, value: &str| {
        block.push(name);
        block.push(u8::try_from(value.len()).expect("a short value"));
        block.extend_from_slice(value.as_bytes());
    };
    field(PATH, &format!("/{bytes}"));
    if sent > 0 {
        field(CONTENT_LENGTH, &sent.to_string());
    }
    let mut head = Vec::new();
    number(&mut head, HEADERS);
    number(&mut head, block.len() as u64);
    head.extend_from_slice(&block);
    head.into()
}

async fn upload(send: &mut quinn::SendStream, sent: usize) {
    let piece = Bytes::from(vec![b'x'; 64 * 1024]);
    let mut left = sent;
    while left > 0 {
        let n = left.min(piece.len());
        let mut begin = Vec::new();
        number(&mut begin, DATA);
        number(&mut begin, n as u64);
        send.write_all_chunks(&mut [begin.into(), piece.slice(..n)]).await.expect("a stream");
        left -= n;
    }
}

/// Writes a number as QUIC does, in 8 bytes if it is not small.
fn number(into: &mut Vec<u8>, number: u64) {
    match number {
        0..64 => into.put_u8(number as u8),
        _ => into.put_u64(number | 0b11 << 62),
    }
}

/// The frames of a response.
#[derive(Default)]
struct Frames {
    /// The type and length of the next, as far as they are here.
    begin: Vec<u8>,
    left: u64,
    is_data: bool,
}

impl Frames {
    /// How many bytes of a body are among these.
    fn data(&mut self, mut bytes: Bytes) -> usize {
        let mut data = 0;
        while bytes.has_remaining() {
            if self.left == 0 {
                self.begin.push(bytes.get_u8());
                let Some((kind, length)) = frame(&self.begin) else { continue };
                self.begin.clear();
                (self.left, self.is_data) = (length, kind == DATA);
                continue;
            }
            let here = bytes.len().min(usize::try_from(self.left).expect("64 bits"));
            bytes.advance(here);
            self.left -= here as u64;
            data += if self.is_data { here } else { 0 };
        }
        data
    }
}

fn frame(begin: &[u8]) -> Option<(u64, u64)> {
    let (kind, rest) = decode(begin)?;
    Some((kind, decode(rest)?.0))
}

fn decode(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (number, rest) = bytes.split_at_checked(1 << (bytes.first()? >> 6))?;
    Some((
        number[1..].iter().fold(u64::from(number[0] & 0x3f), |value, byte| value << 8 | u64::from(*byte)),
        rest,
    ))
}
