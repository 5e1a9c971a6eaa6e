//! HTTP/2 by the `h2` crate's client, and byte by byte.
use super::PATIENCE;
use bytes::Bytes;
use h2::client::{self, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::{HeaderMap, Request, Response};
use std::future::Future;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

/// Runs a test's client, with patience.
pub fn block_on<T>(task: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::LocalRuntime::new().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, task).await.expect("it ends, in time") })
}

/// Connects in clear, by prior knowledge. What ends the connection is returned by the task.
pub async fn connect(
    address: SocketAddr,
) -> (SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) {
    connect_with(address, &client::Builder::new()).await
}

/// Connects with settings of the client's own.
pub async fn connect_with(
    address: SocketAddr,
    builder: &client::Builder,
) -> (SendRequest<Bytes>, tokio::task::JoinHandle<Result<(), h2::Error>>) {
    let tcp = tokio::net::TcpStream::connect(address).await.unwrap();
    tcp.set_nodelay(true).unwrap();
    let (requests, connection) = builder.handshake(tcp).await.unwrap();
    (requests, tokio::task::spawn_local(connection))
}

/// A GET of a path from `localhost`.
pub fn get(path: &str) -> Request<()> {
    Request::get(format!("http://localhost{path}")).body(()).unwrap()
}

/// Starts a request, once the connection takes one more.
pub async fn start(
    requests: &SendRequest<Bytes>,
    request: Request<()>,
    is_over: bool,
) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
    requests.clone().ready().await?.send_request(request, is_over)
}

/// A response with its body as text and its trailers.
pub async fn read(
    response: Response<RecvStream>,
) -> Result<(Response<String>, Option<HeaderMap>), h2::Error> {
    let (parts, mut body) = response.into_parts();
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        bytes.extend_from_slice(&data);
    }
    let trailers = body.trailers().await?;
    Ok((Response::from_parts(parts, String::from_utf8(bytes).unwrap()), trailers))
}

/// Sends a request without a body and reads its response.
pub async fn ask(requests: &SendRequest<Bytes>, request: Request<()>) -> Result<Response<String>, h2::Error> {
    let (response, _) = start(requests, request, true).await?;
    Ok(read(response.await?).await?.0)
}

/// Frames as a test writes them.
pub struct Frames(TcpStream);

impl Frames {
    /// Connects, and says no more than every client must.
    pub fn connect(address: SocketAddr) -> Frames {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").unwrap();
        Frames(stream)
    }

    /// The bytes of a frame.
    pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    }

    /// A GET of `/` from `a`, without a Huffman code: fields of the static table, and one literal.
    pub fn get(stream: u32) -> Vec<u8> {
        Self::frame(1, 0x5, stream, b"\x82\x84\x86\x41\x01a")
    }

    /// How long a send may take before the other side counts as one that takes no more.
    pub fn patience(&mut self, patience: std::time::Duration) {
        self.0.set_write_timeout(Some(patience)).unwrap();
    }

    /// Sends bytes; false when the other side takes no more.
    pub fn send(&mut self, bytes: &[u8]) -> bool {
        self.0.write_all(bytes).is_ok()
    }

    /// The code of the GOAWAY that ends the connection; none when it ends without one.
    pub fn goaway(mut self) -> Option<u32> {
        let mut code = None;
        while let Some((kind, payload)) = self.next() {
            if kind == 7 {
                code = Some(u32::from_be_bytes(payload[4..8].try_into().unwrap()));
            }
        }
        code
    }

    /// The code that a stream is reset with; none when it ends otherwise, or the connection does.
    pub fn reset(&mut self, stream: u32) -> Option<u32> {
        self.until(stream, |kind, _, payload| (kind == 3).then(|| code(payload)))
    }

    /// What begins the fields of a response that comes to its end; none when it does not.
    pub fn answer(&mut self, stream: u32) -> Option<u8> {
        let mut first = None;
        self.until(stream, |kind, flags, payload| {
            first = first.or_else(|| payload.first().copied().filter(|_| kind == 1));
            (kind < 2 && flags & 1 != 0).then_some(())
        })?;
        first
    }

    /// The body of a response that comes to its end; none when it does not.
    pub fn body(&mut self, stream: u32) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        self.until(stream, |kind, flags, payload| {
            if kind == 0 {
                body.extend_from_slice(payload);
            }
            (kind < 2 && flags & 1 != 0).then_some(())
        })?;
        Some(body)
    }

    /// How a stream ends.
    pub fn outcome(&mut self, stream: u32) -> Outcome {
        let mut status = 0;
        let ended = self.until(stream, |kind, flags, payload| match kind {
            3 => Some(Outcome::Reset(code(payload))),
            _ => {
                if kind == 1 && status == 0 {
                    status = of_status(payload);
                }
                (kind < 2 && flags & 1 != 0).then_some(Outcome::Status(status))
            }
        });
        ended.unwrap_or(Outcome::Gone)
    }

    /// The code of the GOAWAY that comes next; none when the connection ends without one.
    pub fn going_away(&mut self) -> Option<u32> {
        loop {
            let (kind, payload) = self.next()?;
            if kind == 7 {
                return Some(code(&payload[4..]));
            }
        }
    }

    /// Looks at the frames of a stream, by kind, flags and payload, until something is found, or the stream was reset or
    /// the connection is going to end.
    fn until<T>(&mut self, stream: u32, mut find: impl FnMut(u8, u8, &[u8]) -> Option<T>) -> Option<T> {
        loop {
            let (head, payload) = Self::read(&mut self.0)?;
            let is_of_stream = code(&head[5..]) == stream;
            let found = if is_of_stream { find(head[3], head[4], &payload) } else { None };
            if found.is_some() || head[3] == 7 || head[3] == 3 && is_of_stream {
                return found;
            }
        }
    }

    /// The next frame's kind and payload; none at the end.
    pub fn next(&mut self) -> Option<(u8, Vec<u8>)> {
        let (head, payload) = Self::read(&mut self.0)?;
        Some((head[3], payload))
    }

    /// The next frame's kind, flags and stream; none at the end.
    pub fn next_head(&mut self) -> Option<(u8, u8, u32)> {
        Self::skip(&mut self.0)
    }

    /// The next frame's kind, flags and stream; none at the end.
    pub fn skip(from: &mut impl Read) -> Option<(u8, u8, u32)> {
        let (head, _) = Self::read(from)?;
        Some((head[3], head[4], u32::from_be_bytes(head[5..].try_into().unwrap())))
    }

    fn read(from: &mut impl Read) -> Option<([u8; 9], Vec<u8>)> {
        let mut head = [0; 9];
        from.read_exact(&mut head).ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        from.read_exact(&mut payload).ok()?;
        Some((head, payload))
    }
}

/// How a stream has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was answered to its end.
    Status(u16),
    /// It was reset, with this code.
    Reset(u32),
    /// The connection ended.
    Gone,
}

/// The status that a block of fields begins with, if that is in the static table or came for the first time.
fn of_status(block: &[u8]) -> u16 {
    const IN_TABLE: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];
    match *block {
        [index @ 0x88..=0x8e, ..] => IN_TABLE[usize::from(index - 0x88)],
        [0x08 | 0x18 | 0x48, 3, a, b, c, ..] => {
            [a, b, c].iter().fold(0, |sum, digit| sum * 10 + u16::from(digit - b'0'))
        }
        [0x08 | 0x18 | 0x48, length @ 0x82..=0x83, ref rest @ ..] => {
            huffman_digits(&rest[..usize::from(length & 0x7f)])
        }
        _ => panic!("no status: {block:x?}"),
    }
}

/// Three digits in HPACK's Huffman code: 0 to 2 have five bits, the others six.
fn huffman_digits(bytes: &[u8]) -> u16 {
    let bits = bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| u16::from(byte >> at & 1)));
    let (mut digits, mut code, mut length) = (Vec::new(), 0, 0);
    for bit in bits {
        (code, length) = (code << 1 | bit, length + 1);
        let digit = match (length, code) {
            (5, 0..=2) => code,
            (6, 25..=31) => code - 22,
            _ => continue,
        };
        digits.push(digit);
        (code, length) = (0, 0);
    }
    digits.iter().take(3).fold(0, |number, digit| number * 10 + digit)
}

/// The number that bytes begin with.
fn code(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}
