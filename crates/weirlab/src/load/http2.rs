//! One connection's HTTP/2: its streams, driven by the thread's own loop. What wakes a stream sets a flag, and no more.
use super::Expect;
use super::answer::Answer;
use super::grpc::Call;
use super::request::Drawn;
use super::wire::Wire;
use bytes::Bytes;
use h2::client::{Connection, ResponseFuture, SendRequest};
use h2::{Reason, RecvStream};
use http::header::{CONNECTION, HOST, HeaderName, HeaderValue, UPGRADE};
use http::{HeaderMap, Method, Request, Uri};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use weir_http1::{Limits, RequestHead};

/// The flow-control windows of a stream and of a connection: large, so that answers do not wait for updates.
const STREAM_WINDOW: u32 = 1 << 20;
const CONNECTION_WINDOW: u32 = 1 << 24;
const LIMITS: Limits = Limits {
    max_head_bytes: 256 * 1024,
    max_fields: Limits::MAX_FIELDS,
    max_target_bytes: 8192,
    max_field_bytes: usize::MAX,
};

/// The connection's socket as h2 reads and writes it.
pub(super) struct Io {
    wire: Wire,
    received: Arc<AtomicU64>,
}

impl Io {
    pub(super) fn new(wire: Wire) -> Io {
        Io { wire, received: Arc::default() }
    }
}

impl AsyncRead for Io {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let io = self.get_mut();
        match io.wire.read(into.initialize_unfilled()) {
            Ok(count) => {
                io.received.fetch_add(count as u64, Ordering::Relaxed);
                into.advance(count);
                Poll::Ready(Ok(()))
            }
            // The task that waits for the socket is polled again.
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Io {
    /// What the socket does not take is held: h2 has bounds of its own.
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let sent = self.get_mut().wire.send(bytes);
        Poll::Ready(sent.map(|()| bytes.len()).map_err(|_| ErrorKind::BrokenPipe.into()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.get_mut().wire.flush().map_err(|_| ErrorKind::BrokenPipe.into()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(context)
    }
}

/// Set by whatever has news for a stream or the connection.
#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A flag and the waker that sets it.
pub(super) struct News {
    flag: Arc<Flag>,
    pub(super) waker: Waker,
}

impl News {
    pub(super) fn new() -> News {
        let flag = Arc::new(Flag::default());
        News { waker: flag.clone().into(), flag }
    }

    pub(super) fn take(&self) -> bool {
        self.flag.0.swap(false, Ordering::Relaxed)
    }
}

/// The HTTP/2 of a connection.
pub(super) struct Session {
    connection: Connection<Io, Bytes>,
    sender: SendRequest<Bytes>,
    news: News,
    lanes: Vec<StreamSlot>,
    received: Arc<AtomicU64>,
    counted: u64,
    head: RequestHead,
    /// The request that was sent last, as it was written: often the next is the same but for its body.
    last: Option<(Vec<u8>, Request<()>)>,
    tls: bool,
}

/// One of the streams that a connection has at once.
struct StreamSlot {
    news: News,
    stage: Stage,
    call: Option<Call>,
}

enum Stage {
    Free,
    Head(ResponseFuture),
    Body(RecvStream),
}

/// What became of a stream.
pub(super) enum Progress {
    /// The answer is yet to be complete.
    Pending,
    Complete,
    /// The stream ended before.
    Failed(Failure),
}

/// How a stream or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// By the peer's will.
    Closed,
    /// The peer took no more requests, and has not looked at this one.
    Unprocessed,
    Socket,
    Malformed,
}

impl From<&h2::Error> for Failure {
    fn from(error: &h2::Error) -> Failure {
        match error {
            error if error.is_io() => Failure::Socket,
            error if error.is_remote() && error.is_go_away() => Failure::Unprocessed,
            error if error.is_remote() => Failure::Closed,
            _ => Failure::Malformed,
        }
    }
}

impl Session {
    /// Begins to speak; nothing, if not even that can be sent.
    pub(super) fn begin(wire: Wire, streams: usize, grpc: bool, tls: bool) -> Option<Session> {
        let io = Io::new(wire);
        let received = io.received.clone();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(STREAM_WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
        // As many as are wanted, unless the peer says otherwise.
        builder.initial_max_send_streams(streams);
        let news = News::new();
        let shaking = pin!(builder.handshake::<_, Bytes>(io));
        // Only writing could make it wait, and that never does.
        let Poll::Ready(Ok((sender, connection))) = shaking.poll(&mut Context::from_waker(&news.waker))
        else {
            return None;
        };
        let lane = || StreamSlot { news: News::new(), stage: Stage::Free, call: grpc.then(Call::default) };
        let lanes = (0..streams).map(|_| lane()).collect();
        Some(Session {
            connection,
            sender,
            news,
            lanes,
            received,
            counted: 0,
            head: RequestHead::default(),
            last: None,
            tls,
        })
    }

    /// Sends a request on a free lane; whether that can be.
    pub(super) fn send(&mut self, lane: usize, drawn: &Drawn<'_>) -> bool {
        let Some(request) = self.request(drawn.head()) else { return false };
        let StreamSlot { news, stage, call } = &mut self.lanes[lane];
        let body = match call {
            Some(call) => call.begin(drawn.body()),
            None => Bytes::copy_from_slice(drawn.body()),
        };
        if !matches!(self.sender.poll_ready(&mut Context::from_waker(&self.news.waker)), Poll::Ready(Ok(())))
        {
            return false;
        }
        let Ok((response, mut stream)) = self.sender.send_request(request, body.is_empty()) else {
            return false;
        };
        // What goes over the peer's window is held by h2 until there is room.
        if !body.is_empty() && stream.send_data(body, true).is_err() {
            return false;
        }
        *stage = Stage::Head(response);
        news.flag.wake_by_ref();
        true
    }

    fn request(&mut self, bytes: &[u8]) -> Option<Request<()>> {
        if let Some((_, request)) = self.last.as_ref().filter(|(written, _)| written == bytes) {
            return Some(request.clone());
        }
        let request = request(&mut self.head, bytes, self.tls)?;
        self.last = Some((bytes.to_vec(), request.clone()));
        Some(request)
    }

    /// Whether the connection carries further requests.
    pub(super) fn is_open(&mut self) -> bool {
        !matches!(self.sender.poll_ready(&mut Context::from_waker(&self.news.waker)), Poll::Ready(Err(_)))
    }

    /// Gives a stream up.
    pub(super) fn cancel(&mut self, lane: usize) {
        self.lanes[lane].stage = Stage::Free;
    }

    /// Reads and writes what can be; how the connection ended, if it has.
    pub(super) fn drive(&mut self) -> Result<(), Failure> {
        self.news.take();
        match Pin::new(&mut self.connection).poll(&mut Context::from_waker(&self.news.waker)) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) => Err(Failure::Closed),
            Poll::Ready(Err(error)) => Err(Failure::from(&error)),
        }
    }

    /// Whether there is something to read or write that came up meanwhile.
    pub(super) fn has_news(&self) -> bool {
        self.news.flag.0.load(Ordering::Relaxed)
    }

    /// How many bytes have come since this was last asked.
    pub(super) fn received(&mut self) -> u64 {
        let all = self.received.load(Ordering::Relaxed);
        all - std::mem::replace(&mut self.counted, all)
    }

    /// Goes on with a stream's answer, if there are news of it.
    pub(super) fn advance(&mut self, lane: usize, answer: &mut Answer, expect: &Expect) -> Progress {
        let lane = &mut self.lanes[lane];
        if !lane.news.take() {
            return Progress::Pending;
        }
        match lane.poll(answer, expect) {
            Poll::Pending => Progress::Pending,
            Poll::Ready(ended) => {
                lane.stage = Stage::Free;
                ended.map_or_else(|error| Progress::Failed(Failure::from(&error)), |()| Progress::Complete)
            }
        }
    }
}

impl StreamSlot {
    fn poll(&mut self, answer: &mut Answer, expect: &Expect) -> Poll<Result<(), h2::Error>> {
        let context = &mut Context::from_waker(&self.news.waker);
        loop {
            match &mut self.stage {
                Stage::Free => return Poll::Pending,
                Stage::Head(response) => {
                    let Poll::Ready(response) = Pin::new(response).poll(context) else {
                        return Poll::Pending;
                    };
                    let (head, body) = response?.into_parts();
                    answer.begin(head.status.as_u16());
                    if let Some(call) = &mut self.call {
                        call.head(&head.headers);
                    }
                    self.stage = Stage::Body(body);
                }
                Stage::Body(body) => match body.poll_data(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(data)) => {
                        let data = data?;
                        body.flow_control().release_capacity(data.len())?;
                        match &mut self.call {
                            Some(call) => call.see(&data, answer, expect),
                            None => answer.see(&data, expect),
                        }
                    }
                    Poll::Ready(None) => {
                        let Poll::Ready(trailers) = body.poll_trailers(context) else { return Poll::Pending };
                        let trailers = match trailers {
                            // The answer is complete, and the peer wants no more of the request.
                            Err(error) if error.reason() == Some(Reason::NO_ERROR) => None,
                            trailers => trailers?,
                        };
                        if let Some(difference) =
                            self.call.as_ref().and_then(|call| call.verdict(trailers.as_ref()))
                        {
                            answer.spoil(difference);
                        }
                        return Poll::Ready(Ok(()));
                    }
                },
            }
        }
    }
}

/// A request that is written as HTTP/1.1 writes it, as HTTP/2 knows it: without fields that are a connection's own.
pub(super) fn request(head: &mut RequestHead, bytes: &[u8], tls: bool) -> Option<Request<()>> {
    head.clear();
    head.parse(bytes, &LIMITS).ok()??;
    let mut fields = HeaderMap::with_capacity(head.headers.len());
    for field in head.headers.iter() {
        let name = HeaderName::from_bytes(field.name).ok()?;
        if name != HOST && name != CONNECTION && name != UPGRADE {
            fields.append(name, HeaderValue::from_bytes(field.value).ok()?);
        }
    }
    let host = head.headers.get("host")?;
    let scheme = if tls { "https" } else { "http" };
    let uri = Uri::builder().scheme(scheme).authority(host).path_and_query(head.target()).build().ok()?;
    let mut request = Request::new(());
    *request.method_mut() = Method::from_bytes(head.method_str().as_bytes()).ok()?;
    *request.uri_mut() = uri;
    *request.headers_mut() = fields;
    Some(request)
}
