//! UDP sessions: the datagrams of one client to a listener, with their own socket towards the upstream.

use super::session::Session;
use super::{Counted, Refusal, StreamRoute, Transport, admit, finish, refuse, take_route, upstream};
use crate::worker::{ConnectionGuard, Datagrams, Worker};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::spawn_local;
use tokio::time::Instant;
use weir_net::deadline::Deadline;
use weir_upstream::UpstreamError;
use weir_upstream::balance::{Lease, Pick};
use weir_upstream::endpoint::Endpoint;

/// The maximum length of a UDP datagram.
const MAX_DATAGRAM_LEN: usize = 65_535;
/// At most this many datagrams of one client are queued for the upstream; more are dropped.
const WAITING: usize = 64;
/// The maximum size of that queue in bytes, except for a single longer datagram.
const WAITING_BYTES: usize = 64 * 1024;
/// How long receiving pauses after an error that may persist.
const RECEIVE_BACKOFF: Duration = Duration::from_millis(50);

/// One socket that clients send to, and the sessions of those who did.
struct Listener {
    socket: UdpSocket,
    local: SocketAddr,
    sessions: RefCell<HashMap<SocketAddr, Inbound>>,
    /// The receive buffer.
    room: RefCell<Vec<u8>>,
}

/// The way of one client's datagrams to its session.
struct Inbound {
    sender: mpsc::Sender<Vec<u8>>,
    /// Bytes on it.
    bytes: Rc<Cell<usize>>,
}

impl Inbound {
    fn push(&self, datagram: Vec<u8>) {
        let (waiting, length) = (self.bytes.get(), datagram.len());
        if (waiting == 0 || waiting + length <= WAITING_BYTES) && self.sender.try_send(datagram).is_ok() {
            self.bytes.set(waiting + length);
        }
    }
}

/// The session's end of it.
struct Outbound {
    receiver: mpsc::Receiver<Vec<u8>>,
    bytes: Rc<Cell<usize>>,
}

impl Outbound {
    fn poll_pop(&mut self, cx: &mut Context<'_>) -> Poll<Option<Vec<u8>>> {
        self.receiver.poll_recv(cx).map(|datagram| {
            self.bytes.set(self.bytes.get() - datagram.as_ref().map_or(0, Vec::len));
            datagram
        })
    }
}

fn inbound() -> (Inbound, Outbound) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let bytes = Rc::new(Cell::new(0));
    (Inbound { sender, bytes: bytes.clone() }, Outbound { receiver, bytes })
}

/// Receives until a drain. Sessions that wait for answers then still get them.
pub(crate) async fn receive(worker: Rc<Worker>, datagrams: Datagrams) {
    let Ok(socket) = UdpSocket::from_std(datagrams.socket) else { return };
    let (sessions, room) = (RefCell::default(), RefCell::new(vec![0; MAX_DATAGRAM_LEN]));
    let listener = Rc::new(Listener { socket, local: datagrams.local, sessions, room });
    let place = poll_fn(|cx| Poll::Ready(worker.register_waker(cx.waker().clone()))).await;
    loop {
        let received = poll_fn(|cx| match listener.poll_receive(cx) {
            Poll::Pending if worker.draining.get() => Poll::Ready(None),
            received => received.map(Some),
        });
        match received.await {
            None => break,
            Some(Ok((client, datagram))) => listener.take(&worker, client, datagram),
            Some(Err(_)) => tokio::time::sleep(RECEIVE_BACKOFF).await,
        }
    }
    worker.unregister_waker(place);
}

impl Listener {
    fn poll_receive(&self, cx: &mut Context<'_>) -> Poll<io::Result<(SocketAddr, Vec<u8>)>> {
        let room = &mut *self.room.borrow_mut();
        let mut room = ReadBuf::new(room);
        let client = ready!(self.socket.poll_recv_from(cx, &mut room))?;
        Poll::Ready(Ok((client, room.filled().to_vec())))
    }

    fn take(self: &Rc<Self>, worker: &Rc<Worker>, client: SocketAddr, datagram: Vec<u8>) {
        if let Some(session) = self.sessions.borrow().get(&client) {
            return session.push(datagram);
        }
        if worker.draining.get() || is_full(worker) {
            return;
        }
        worker.load().connections.fetch_add(1, Ordering::Relaxed);
        let (session, datagrams) = inbound();
        session.push(datagram);
        self.sessions.borrow_mut().insert(client, session);
        spawn_local(serve(worker.clone(), self.clone(), client, datagrams));
    }
}

/// Whether there is room left only for those who connect: datagrams can be sent in anybody's name.
fn is_full(worker: &Worker) -> bool {
    let open = worker.node.connections();
    let full = open >= worker.options.max_connections / 2;
    if full && worker.may_warn() {
        tracing::warn!("datagrams of new clients are dropped: {open} connections and sessions are open");
    }
    full
}

async fn serve(worker: Rc<Worker>, listener: Rc<Listener>, client: SocketAddr, datagrams: Outbound) {
    let _guard = ConnectionGuard::register(&worker).await;
    worker.count_connection();
    let _counted = Counted::new(&worker);
    let mut session = Session::new(client, listener.local, Transport::Udp);
    match begin(&worker, &mut session).await {
        Ok((socket, _lease, route)) => {
            let mut relay = Relay {
                worker: &worker,
                listener: &listener,
                client,
                socket,
                datagrams,
                deadline: Deadline::default(),
                timeout: route.idle_timeout(),
                waiting: None,
                outstanding: 0,
            };
            relay.deadline.set(Instant::now(), relay.timeout);
            match poll_fn(|cx| relay.poll(cx, &mut session)).await {
                Ok(()) => session.served(),
                Err(error) => {
                    refuse(&worker, &mut session, &Refusal::Upstream(UpstreamError::Connect(error)));
                }
            }
        }
        Err(refusal) => refuse(&worker, &mut session, &refusal),
    }
    listener.sessions.borrow_mut().remove(&client);
    finish(&worker, session);
}

async fn begin(
    worker: &Worker,
    session: &mut Session,
) -> Result<(UdpSocket, Option<Lease>, Arc<StreamRoute>), Refusal> {
    let route = take_route(worker, session)?;
    admit(&route, session)?;
    let service = route.service.as_deref().ok_or(Refusal::NoService)?;
    let Pick { endpoint, lease } =
        upstream::pick(worker, service, session, &[]).map_err(Refusal::Upstream)?;
    let timeout = Duration::from_millis(service.entity.connect_timeout.into());
    let resolving = tokio::time::timeout(timeout, address(worker, endpoint)).await;
    let address = resolving.unwrap_or(Err(UpstreamError::ConnectTimeout)).map_err(Refusal::Upstream)?;
    let now = Instant::now();
    session.engine.upstream = Some((address, now, now));
    let opened = open(address).await.map_err(|error| Refusal::Upstream(UpstreamError::Connect(error)));
    opened.map(|socket| (socket, lease, route))
}

async fn address(worker: &Worker, endpoint: &Endpoint) -> Result<SocketAddr, UpstreamError> {
    if endpoint.unix.is_some() {
        let error = io::Error::new(io::ErrorKind::Unsupported, "datagrams go over IP alone");
        return Err(UpstreamError::Connect(error));
    }
    if let Some(ip) = endpoint.ip {
        return Ok(SocketAddr::new(ip, endpoint.port));
    }
    let resolved = worker.node.resolver.resolve(&endpoint.host).await;
    let addresses = resolved.map_err(UpstreamError::NameResolution)?;
    let mut sockets = addresses.sockets(endpoint.port, worker.random() as usize);
    sockets.find(|address| endpoint.admits(Some(*address))).ok_or(UpstreamError::NoTarget)
}

async fn open(address: SocketAddr) -> io::Result<UdpSocket> {
    let any: SocketAddr =
        if address.is_ipv4() { (Ipv4Addr::UNSPECIFIED, 0).into() } else { (Ipv6Addr::UNSPECIFIED, 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(address).await?;
    Ok(socket)
}

/// Datagrams both ways, as they come.
struct Relay<'s> {
    worker: &'s Worker,
    listener: &'s Listener,
    client: SocketAddr,
    socket: UdpSocket,
    datagrams: Outbound,
    /// Taken from `datagrams`, and not yet sent.
    waiting: Option<Vec<u8>>,
    deadline: Deadline,
    timeout: Duration,
    /// How many more datagrams the client has sent than it was sent.
    outstanding: i64,
}

impl Relay<'_> {
    /// Ready when nothing came for too long, or when a drain ends what is not waiting for an answer.
    fn poll(&mut self, cx: &mut Context<'_>, session: &mut Session) -> Poll<io::Result<()>> {
        let before = session.received + session.sent;
        if let Poll::Ready(Err(error)) = self.poll_up(cx, session) {
            return Poll::Ready(Err(error));
        }
        if let Poll::Ready(Err(error)) = self.poll_down(cx, session) {
            return Poll::Ready(Err(error));
        }
        if session.received + session.sent != before {
            self.deadline.set(Instant::now(), self.timeout);
        }
        if self.worker.draining.get() && self.outstanding <= 0 {
            return Poll::Ready(Ok(()));
        }
        self.deadline.poll(cx).map(Ok)
    }

    /// From the client to the upstream; ready when that failed.
    fn poll_up(&mut self, cx: &mut Context<'_>, session: &mut Session) -> Poll<io::Result<()>> {
        loop {
            if self.waiting.is_none() {
                self.waiting = ready!(self.datagrams.poll_pop(cx));
            }
            let Some(datagram) = &self.waiting else { return Poll::Pending };
            ready!(self.socket.poll_send(cx, datagram))?;
            session.received += datagram.len() as u64;
            self.outstanding += 1;
            self.waiting = None;
        }
    }

    /// From the upstream to the client; ready when that failed.
    fn poll_down(&mut self, cx: &mut Context<'_>, session: &mut Session) -> Poll<io::Result<()>> {
        let room = &mut *self.listener.room.borrow_mut();
        loop {
            let mut room = ReadBuf::new(room);
            ready!(self.socket.poll_recv(cx, &mut room))?;
            // The socket is shared by all sessions: what it does not take at once is lost, as datagrams may be.
            let _ = self.listener.socket.try_send_to(room.filled(), self.client);
            session.sent += room.filled().len() as u64;
            self.outstanding -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_of_one_client_is_little() {
        let (inbound, mut outbound) = inbound();
        let mut taken = || {
            let mut cx = Context::from_waker(std::task::Waker::noop());
            let pop = |_| match outbound.poll_pop(&mut cx) {
                Poll::Ready(datagram) => datagram.map(|datagram| datagram.len()),
                Poll::Pending => None,
            };
            (0..100).map_while(pop).collect::<Vec<_>>()
        };
        (0..9).for_each(|_| inbound.push(vec![0; 30_000]));
        assert_eq!(taken(), [30_000, 30_000]);
        inbound.push(vec![0; MAX_DATAGRAM_LEN]);
        inbound.push(vec![0; 5000]);
        assert_eq!(taken(), [MAX_DATAGRAM_LEN]);
        (0..90).for_each(|_| inbound.push(Vec::new()));
        assert_eq!(taken().len(), WAITING);
    }
}
