//! One exchange over a connection of its own, in any protocol: what a parity check needs.
use super::http2::{Io, News, request};
use super::message::{Heard, Talk};
use super::request::{Drawn, Requests, Stream};
use super::wire::{Buffers, Received, Tls, Wire};
use super::{Expect, Plan, Protocol, answer::Answer, grpc};
use bytes::Bytes;
use h2::client::SendRequest;
use http::HeaderMap;
use rustix::event::PollFlags;
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Instant;
use weir_http1::RequestHead;

/// The response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Response {
    /// The status.
    pub status: u16,
    /// Names in lower case, those of trailers too.
    pub headers: Vec<String>,
    /// The body; of a WebSocket, the message.
    pub body: Vec<u8>,
    /// What the trailers say of a call, if they do.
    pub grpc_status: Option<String>,
}

/// Sends the first of the plan's requests once, and waits for what comes back.
///
/// # Errors
/// Why nothing did, in words.
pub fn send_one(plan: &Plan) -> Result<Response, String> {
    let refused = |error: super::LoadError| error.to_string();
    let requests = Requests::new(plan).map_err(refused)?;
    let mut stream: Stream<'_> = requests.stream(plan.seed, 0, 1);
    let tls = plan.tls.then(|| Tls::new(plan)).transpose().map_err(refused)?;
    let address = *plan.addresses.first().ok_or("there is no address to connect to")?;
    let deadline = Instant::now() + plan.timeout;
    let wire = Wire::connect(address, tls.as_ref(), &mut Buffers::new(), deadline)?;
    match plan.protocol {
        Protocol::Http2 { .. } | Protocol::Grpc { .. } => call(plan, wire, &stream.next(), deadline),
        Protocol::WebSocket => message(wire, &stream.next(), deadline),
        Protocol::Http1 => Err("HTTP/1.1 is asked in another way".to_owned()),
    }
}

fn call(plan: &Plan, wire: Wire, drawn: &Drawn<'_>, deadline: Instant) -> Result<Response, String> {
    if !wire.speaks_http2() {
        return Err("it does not offer HTTP/2".to_owned());
    }
    let socket = wire.stream().try_clone().map_err(|error| error.to_string())?;
    let request = request(&mut RequestHead::default(), drawn.head(), plan.tls).ok_or("it cannot be asked")?;
    let body = match plan.protocol {
        Protocol::Grpc { .. } => grpc::framed(drawn.body()),
        _ => Bytes::copy_from_slice(drawn.body()),
    };
    let news = News::new();
    let context = &mut Context::from_waker(&news.waker);
    let shaking = pin!(h2::client::Builder::new().handshake::<_, Bytes>(Io::new(wire)));
    let Poll::Ready(Ok((sender, mut connection))) = shaking.poll(context) else {
        return Err("the connection ended at once".to_owned());
    };
    let mut exchange = pin!(exchange(sender, request, body));
    loop {
        let over = Pin::new(&mut connection).poll(context);
        if let Poll::Ready(got) = exchange.as_mut().poll(context) {
            return got.map_err(|error| error.to_string());
        }
        if let Poll::Ready(ended) = over {
            return Err(ended.map_or_else(|error| error.to_string(), |()| "the connection ended".to_owned()));
        }
        if !news.take() {
            super::wire::wait(&socket, PollFlags::IN, deadline)?;
        }
    }
}

async fn exchange(
    sender: SendRequest<Bytes>,
    request: http::Request<()>,
    body: Bytes,
) -> Result<Response, h2::Error> {
    let mut sender = sender.ready().await?;
    let (response, mut stream) = sender.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        stream.send_data(body, true)?;
    }
    let (head, mut body) = response.await?.into_parts();
    let mut got = Response { status: head.status.as_u16(), ..Response::default() };
    got.note(&head.headers);
    while let Some(data) = body.data().await {
        let data = data?;
        body.flow_control().release_capacity(data.len())?;
        got.body.extend_from_slice(&data);
    }
    if let Some(trailers) = body.trailers().await? {
        got.note(&trailers);
    }
    Ok(got)
}

impl Response {
    fn note(&mut self, fields: &HeaderMap) {
        self.headers.extend(fields.keys().map(|name| name.as_str().to_owned()));
        if let Some(status) = fields.get(grpc::STATUS) {
            self.grpc_status = Some(String::from_utf8_lossy(status.as_bytes()).into_owned());
        }
    }
}

fn message(mut wire: Wire, drawn: &Drawn<'_>, deadline: Instant) -> Result<Response, String> {
    let (mut talk, mut answer, mut buffers) = (Talk::new(0), Answer::default(), Buffers::new());
    wire.send(drawn.head()).map_err(|_| "the request could not be sent")?;
    loop {
        match talk
            .hear(&mut wire, &mut answer, &Expect::default())
            .map_err(|_| "what came is no WebSocket")?
        {
            Heard::Nothing => {}
            Heard::Upgraded => {
                talk.send(&mut wire, drawn.body()).map_err(|_| "the message could not be sent")?
            }
            Heard::Refused => return Ok(Response { status: talk.refusal(), ..Response::default() }),
            Heard::Message => {
                return Ok(Response { status: 101, body: talk.last().to_vec(), ..Response::default() });
            }
            Heard::Farewell => return Err("it said good-bye".to_owned()),
        }
        super::wire::wait(wire.stream(), PollFlags::IN, deadline)?;
        match wire.receive(&mut buffers) {
            Ok(Received::Bytes(bytes, _)) => talk.take(bytes),
            Ok(Received::Nothing) => {}
            Ok(Received::End) | Err(_) => return Err("it ended the connection".to_owned()),
        }
    }
}
