//! The engine over connections in memory, for benchmarks: no socket, no system call, no waiting, so that what a route
//! or a plugin adds can be measured without the noise of the machine.

use crate::costs::Costs;
use crate::downstream::connection;
use crate::downstream::http1::Http1;
use crate::exchange::Connection;
use crate::limits::NodeLimits;
use crate::observe::access_log::{AccessLog, Format, Target};
use crate::runtime::proxy::StartError;
use crate::snapshot::Snapshot;
use crate::worker::Options;
use crate::worker::{Load, Node, Worker, WorkerContext};
use std::cell::{Cell, RefCell};
use std::future::ready;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::runtime::LocalRuntime;
use weir_net::connect::{MemoryConnecting, MemoryNetwork};
use weir_net::io::{Duplex, Io};
use weir_net::resolve::Resolver;
use weir_net::tls::ServerTls;
use weir_net::wire::Wire;
use weir_plugin::Retained;
use weir_plugin::engine::BodyMemory;

/// The length of the body of every response of the upstream in memory.
const BODY_LEN: usize = 1024;

/// What it answers most requests.
static PLAIN: LazyLock<Vec<u8>> = LazyLock::new(|| with_length("text/plain", &"x".repeat(BODY_LEN)));

/// What it answers those of a chat in OpenAI's form.
static CHAT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let start = "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\
                 \"message\":{\"role\":\"assistant\",\"content\":\"";
    let end = "\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":30,\"completion_tokens\":200,\"total_tokens\":230}}";
    let content = "word ".repeat(BODY_LEN);
    let content = &content[..BODY_LEN - start.len() - end.len()];
    with_length("application/json", &format!("{start}{content}{end}"))
});

/// What it answers calls of gRPC: a message in its frame, and the trailers.
static GRPC: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\nTransfer-Encoding: chunked\r\n\r\n";
    let message = "x".repeat(BODY_LEN - 5);
    let frame = [&[0][..], &(message.len() as u32).to_be_bytes(), message.as_bytes()].concat();
    let size = format!("{BODY_LEN:x}\r\n");
    [head.as_bytes(), size.as_bytes(), &frame, b"\r\n0\r\ngrpc-status: 0\r\n\r\n"].concat()
});

fn with_length(content_type: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    let head = "HTTP/1.1 200 OK\r\nServer: memory";
    format!("{head}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// One worker without sockets.
pub struct InMemory {
    worker: Rc<Worker>,
    runtime: LocalRuntime,
    /// How many requests were taken so far.
    taken: Cell<usize>,
}

impl InMemory {
    /// A worker that serves this snapshot.
    pub fn new(options: Options, snapshot: Snapshot) -> Result<Self, StartError> {
        let node = Arc::new(node(options, &snapshot, Arc::default())?);
        let context = WorkerContext { memory: Some(Rc::new(Upstreams)), ..WorkerContext::default() };
        let worker = Worker::new(0, node, Arc::new(snapshot), context);
        let runtime = LocalRuntime::new().map_err(StartError::System)?;
        Ok(Self { worker, runtime, taken: Cell::new(0) })
    }

    /// Serves so many requests on one connection, taking the given ones in turn, beginning with the one that is next after
    /// those taken before. Returns how many were answered 200.
    pub fn serve(&self, requests: &Rc<[Vec<u8>]>, count: usize) -> usize {
        let succeeded = Rc::new(Cell::new(0));
        let next = self.taken.replace(self.taken.get() + count) % requests.len();
        let (requests, response) = (requests.clone(), None);
        let client =
            Client { requests, next, left: count, awaited: 0, succeeded: succeeded.clone(), response };
        self.run(client, false);
        succeeded.get()
    }

    /// Serves a request of a trusted peer, and returns the response.
    pub fn ask(&self, request: Vec<u8>) -> Vec<u8> {
        let response = Rc::new(RefCell::default());
        let (requests, kept) = (Rc::new([request]), Some(response.clone()));
        let succeeded = Rc::default();
        self.run(Client { requests, next: 0, left: 1, awaited: 0, succeeded, response: kept }, true);
        response.take()
    }

    /// Serves a client until it sends nothing more.
    fn run(&self, client: Client, trusted: bool) {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let connection = Rc::new(Connection::new(local(40_000), local(8000), 1, None, trusted));
        let client = Box::new(Http1::new(Wire::new(Io::Memory(Box::new(client)))));
        self.runtime.block_on(connection::exchanges(&self.worker, client, connection));
    }
}

/// What the only worker of a gateway without sockets works with.
pub(crate) fn node(
    options: Options,
    snapshot: &Snapshot,
    retained: Arc<Retained>,
) -> Result<Node, StartError> {
    let off = || AccessLog::open(Target::Stderr, Format::Off).map_err(StartError::System);
    let tls = ServerTls::new(&options.tls, snapshot.certificates.clone()).map_err(StartError::Tls)?;
    Ok(Node {
        resolver: Arc::new(Resolver::new(options.resolver.clone()).map_err(StartError::System)?),
        stream_tls: tls.config.clone(),
        tls,
        access_log: off()?,
        session_log: off()?,
        loads: vec![Load::default()],
        limits: NodeLimits::new(1, options.worker_requests_in_flight, options.connections_per_ip),
        costs: Arc::new(Costs::new(1, options.cost_sampling)),
        bodies: Arc::new(BodyMemory::new(options.mem_bodies_size, 1)),
        retained,
        alternatives: Vec::new(),
        options,
    })
}

/// Sends its requests one by one, and reads what comes.
struct Client {
    requests: Rc<[Vec<u8>]>,
    next: usize,
    left: usize,
    /// How many responses are still to come.
    awaited: usize,
    succeeded: Rc<Cell<usize>>,
    /// What has come, where that is wanted.
    response: Option<Rc<RefCell<Vec<u8>>>>,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.left == 0 {
            // It stays for the last response. The connection reads on behind that by itself.
            return if self.awaited > 0 { Poll::Pending } else { Poll::Ready(Ok(())) };
        }
        if self.requests[self.next].len() > buffer.remaining() {
            return Poll::Pending;
        }
        self.left -= 1;
        self.awaited += 1;
        buffer.put_slice(&self.requests[self.next]);
        self.next = (self.next + 1) % self.requests.len();
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if bytes.starts_with(b"HTTP/1.1 200") {
            self.succeeded.set(self.succeeded.get() + 1);
        }
        let begins = usize::from(bytes.starts_with(b"HTTP/1.1 "));
        self.awaited = self.awaited.saturating_sub(begins);
        if let Some(response) = &self.response {
            response.borrow_mut().extend_from_slice(bytes);
        }
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// Connects to an upstream in memory at every address.
struct Upstreams;

impl MemoryNetwork for Upstreams {
    fn connect(&self, _: SocketAddr) -> MemoryConnecting {
        Box::pin(ready(Ok(Box::new(Upstream { waiting: 0, left: 0, response: &PLAIN }) as Box<dyn Duplex>)))
    }
}

/// Answers each write with one response; those of a `POST` once all of its body has come.
struct Upstream {
    waiting: usize,
    /// How much of a body is still to come.
    left: usize,
    /// What the next is answered.
    response: &'static [u8],
}

impl Upstream {
    /// How much of the body is still to come after this piece of the request. Its head says what it is answered.
    fn left_after(&mut self, bytes: &[u8]) -> usize {
        if !bytes.starts_with(b"POST ") {
            return self.left.saturating_sub(bytes.len());
        }
        let end = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(bytes.len(), |end| end + 4);
        let (head, body) = bytes.split_at(end);
        let is_call = memchr::memmem::find(head, b"\r\nContent-Type: application/grpc\r\n").is_some();
        let is_chat = head.starts_with(b"POST /v1/chat/completions ");
        self.response = if is_chat { &CHAT } else { &PLAIN };
        if is_call {
            self.response = &GRPC;
        }
        let name = b"\r\nContent-Length: ";
        let digits = memchr::memmem::find(head, name).map_or(&[][..], |at| &head[at + name.len()..]);
        let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
        let length = digits.fold(0_usize, |length, digit| length * 10 + usize::from(digit - b'0'));
        length.saturating_sub(body.len())
    }
}

impl AsyncRead for Upstream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.waiting == 0 {
            return Poll::Pending;
        }
        self.waiting -= 1;
        buffer.put_slice(self.response);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Upstream {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.left = self.left_after(bytes);
        self.waiting += usize::from(self.left == 0);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
