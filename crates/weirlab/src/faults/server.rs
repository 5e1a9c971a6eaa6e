//! The upstream server of a run, a process of its own so that it can be killed and stopped. It checks each request, reports
//! it on its standard output before it answers, and takes its behaviour from its standard input.
use super::behaviour::Behaviour;
use super::exchange::RequestId;
use super::message::{Inbox, Message, MessageError};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// How long the head is held back by [`Behaviour::SlowHead`].
const SLOW: Duration = Duration::from_millis(400);
/// What [`Behaviour::Drip`] sends at a time, and how often.
const DROP_BYTES: usize = 64;
const DROP_INTERVAL: Duration = Duration::from_millis(4);
/// The longest time after which [`Behaviour::CloseIdle`] closes a connection.
const MAX_IDLE_MICROS: u64 = 4_000;
/// How often a connection that waits looks whether its behaviour has changed.
const LOOK: Duration = Duration::from_millis(20);

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Its certificate and its key, as files in PEM, if it speaks TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The length of response bodies.
    pub body_bytes: usize,
}

struct Server {
    body_bytes: usize,
    tls: Option<Arc<ServerConfig>>,
    behaviour: Mutex<Behaviour>,
    output: Mutex<io::Stdout>,
}

/// Serves until the standard input ends.
///
/// # Errors
/// When it cannot listen or does not understand its input.
pub fn serve(plan: &Plan) -> io::Result<()> {
    let tls = plan.tls.as_ref().map(|(certificate, key)| tls(certificate, key)).transpose()?;
    let server = Arc::new(Server {
        body_bytes: plan.body_bytes,
        tls,
        behaviour: Mutex::new(Behaviour::Healthy),
        output: Mutex::new(io::stdout()),
    });
    for address in &plan.listen {
        let (listener, server) = (TcpListener::bind(address)?, Arc::clone(&server));
        thread::spawn(move || server.accept(&listener));
    }
    server.say("ready");
    for line in io::stdin().lock().lines() {
        let behaviour: Behaviour = line?.trim().parse().map_err(io::Error::other)?;
        *server.behaviour.lock().unwrap_or_else(PoisonError::into_inner) = behaviour;
        server.say(&format!("behaves {behaviour}"));
    }
    Ok(())
}

fn tls(certificate: &Path, key: &Path) -> io::Result<Arc<ServerConfig>> {
    let chain = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(io::Error::other)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(io::Error::other)?;
    Ok(Arc::new(config))
}

/// A connection's bytes, and the socket below them.
trait Channel: Read + Write {
    fn socket(&self) -> &TcpStream;
}

impl Channel for TcpStream {
    fn socket(&self) -> &TcpStream {
        self
    }
}

impl Channel for StreamOwned<ServerConnection, TcpStream> {
    fn socket(&self) -> &TcpStream {
        self.get_ref()
    }
}

impl Server {
    fn behaviour(&self) -> Behaviour {
        *self.behaviour.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One line in one piece, so that a kill cuts none in two.
    fn say(&self, line: &str) {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        // Without a reader, the run is over.
        let _ = output.write_all(format!("{line}\n").as_bytes()).and_then(|()| output.flush());
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for socket in listener.incoming().flatten() {
            let server = Arc::clone(&self);
            thread::spawn(move || server.greet(socket));
        }
    }

    fn greet(&self, socket: TcpStream) {
        // Either fails only on a connection that is gone.
        let _ = socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(Some(LOOK)));
        match self.behaviour() {
            Behaviour::ResetAfterAccept => {
                self.say("hit -");
                reset(&socket);
            }
            Behaviour::StallHandshake => self.hold(&socket),
            _ => self.open(socket),
        }
    }

    fn open(&self, socket: TcpStream) {
        match &self.tls {
            None => self.converse(socket),
            Some(config) => {
                if let Ok(session) = ServerConnection::new(Arc::clone(config)) {
                    self.converse(StreamOwned::new(session, socket));
                }
            }
        }
    }

    /// Neither reads nor closes until the fault is over.
    fn hold(&self, socket: &TcpStream) {
        self.say("hit -");
        while self.behaviour() == Behaviour::StallHandshake {
            thread::sleep(LOOK);
        }
        reset(socket);
    }

    fn converse(&self, mut channel: impl Channel) {
        let mut inbox = Inbox::default();
        loop {
            match inbox.message(&mut channel, true) {
                Ok(request) => {
                    if !self.serve_one(&mut channel, &request) {
                        return;
                    }
                }
                Err(MessageError::Malformed(what)) => return self.say(&format!("bad {what}")),
                Err(_) => return,
            }
        }
    }

    /// Whether the connection goes on.
    fn serve_one(&self, channel: &mut impl Channel, request: &Message) -> bool {
        let mut words = request.start.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if path == "/health" {
            return channel.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok();
        }
        let Some(id) = RequestId::in_path(path) else {
            self.say(&format!("bad a request for {path}"));
            return false;
        };
        if request.body != id.body(request.body.len()) || (method == "POST") == request.body.is_empty() {
            self.say(&format!("bad the body of request {id}"));
        }
        self.say(&format!("seen {method} {id}"));
        self.answer(channel, id) && !request.closes()
    }

    fn answer(&self, channel: &mut impl Channel, id: RequestId) -> bool {
        let behaviour = self.behaviour();
        let hit = !matches!(
            behaviour,
            Behaviour::Healthy | Behaviour::CloseIdle | Behaviour::CloseAfterEach | Behaviour::Drip
        );
        if hit {
            self.say(&format!("hit {id}"));
        }
        let (head, body) = response(id, self.body_bytes, behaviour == Behaviour::CloseAfterEach);
        let whole = [head.as_slice(), body.as_slice()].concat();
        match behaviour {
            Behaviour::CloseWithoutAnswer => false,
            Behaviour::ResetInHead => cut(channel, &head[..head.len() / 2], true),
            Behaviour::ResetInBody => cut(channel, &whole[..head.len() + body.len() / 2], true),
            Behaviour::CloseInBody => cut(channel, &whole[..head.len() + body.len() / 2], false),
            Behaviour::Garbage => cut(channel, b"\x16\x03\x01 this is no HTTP\r\n\r\n", false),
            Behaviour::BlackHole => self.swallow(channel),
            Behaviour::Drip => self.send(channel, &whole, id, drip),
            Behaviour::SlowHead => {
                thread::sleep(SLOW);
                self.send(channel, &whole, id, Write::write_all)
            }
            Behaviour::CloseIdle => self.send(channel, &whole, id, Write::write_all) && self.stays_open(),
            Behaviour::CloseAfterEach => {
                // The connection ends whether or not this reached the gateway.
                self.send(channel, &whole, id, Write::write_all);
                false
            }
            _ => self.send(channel, &whole, id, Write::write_all),
        }
    }

    /// Sends a whole response, and reports that. Whether the connection took it.
    fn send<C: Channel>(
        &self,
        channel: &mut C,
        whole: &[u8],
        id: RequestId,
        write: impl Fn(&mut C, &[u8]) -> io::Result<()>,
    ) -> bool {
        let is_done = write(channel, whole).and_then(|()| channel.flush()).is_ok();
        if is_done {
            self.say(&format!("done {id}"));
        }
        is_done
    }

    /// One connection in two is closed while it is idle, at a moment when the next request may already be on its way.
    fn stays_open(&self) -> bool {
        if fastrand::bool() {
            return true;
        }
        thread::sleep(Duration::from_micros(fastrand::u64(0..MAX_IDLE_MICROS)));
        self.say("hit -");
        false
    }

    /// Waits until the gateway gives up, or the fault is over: a request that was lost stays without an answer.
    fn swallow(&self, channel: &mut impl Channel) -> bool {
        let mut buffer = [0; 1024];
        while self.behaviour() == Behaviour::BlackHole {
            match channel.read(&mut buffer) {
                Ok(0) => return false,
                Err(error) if !matches!(error.kind(), io::ErrorKind::WouldBlock) => return false,
                _ => {}
            }
        }
        false
    }
}

fn response(id: RequestId, bytes: usize, close: bool) -> (Vec<u8>, Vec<u8>) {
    let body = id.body(bytes);
    let close = if close { "Connection: close\r\n" } else { "" };
    let head = format!("HTTP/1.1 200 OK\r\nX-Request: {id}\r\n{close}");
    if !id.is_chunked() {
        return (format!("{head}Content-Length: {bytes}\r\n\r\n").into_bytes(), body);
    }
    let mut chunks = Vec::with_capacity(bytes + 64);
    for piece in body.chunks(bytes / 3 + 1) {
        chunks.extend_from_slice(format!("{:x}\r\n", piece.len()).as_bytes());
        chunks.extend_from_slice(piece);
        chunks.extend_from_slice(b"\r\n");
    }
    chunks.extend_from_slice(b"0\r\n\r\n");
    (format!("{head}Transfer-Encoding: chunked\r\n\r\n").into_bytes(), chunks)
}

/// Sends a part of a response and ends the connection.
fn cut(channel: &mut impl Channel, part: &[u8], by_reset: bool) -> bool {
    // The part that is missing is the fault; so may be all of it.
    let _ = channel.write_all(part).and_then(|()| channel.flush());
    if by_reset {
        // What was sent would be thrown away by the peer's kernel if the reset overtook its reading.
        thread::sleep(Duration::from_millis(2));
        reset(channel.socket());
    }
    false
}

fn drip(channel: &mut impl Channel, whole: &[u8]) -> io::Result<()> {
    whole.chunks(DROP_BYTES).try_for_each(|piece| {
        thread::sleep(DROP_INTERVAL);
        channel.write_all(piece)
    })
}

/// Has the connection end with a reset once it is dropped.
fn reset(socket: &TcpStream) {
    // Without it the connection ends in good order, which is a fault as well.
    let _ = rustix::net::sockopt::set_socket_linger(socket, Some(Duration::ZERO));
}
