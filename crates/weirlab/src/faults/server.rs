//! The upstream server of a run, a process of its own so that it can be killed and stopped. It checks each request, reports
//! it on its standard output before it answers, and takes its behaviour from its standard input.
use super::behaviour::Behaviour;
use super::channel::{Channel, cut, drip, reset, tls};
use super::exchange::RequestId;
use super::message::{Inbox, Message, MessageError, is_timeout};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{self, BufRead, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};
use time::OffsetDateTime;

/// How long the head is held back by [`Behaviour::SlowHead`].
const SLOW: Duration = Duration::from_millis(400);
/// The longest time after which [`Behaviour::CloseIdle`] closes a connection.
const MAX_IDLE_MICROS: u64 = 4_000;
/// How long a connection that [`Behaviour::CloseIdle`] has closed is read from. A gateway that sends on it later has not looked
/// whether it has ended, even on a machine that is busy.
const CLOSED_WITHIN: Duration = Duration::from_millis(100);
/// How often a connection that waits looks whether its behaviour has changed.
const LOOK: Duration = Duration::from_millis(20);

/// How a server is started.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where it listens.
    pub listen: Vec<SocketAddr>,
    /// Its certificate and its key, as files in PEM, if it speaks TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// The length of bodies, in both directions.
    pub body_bytes: usize,
}

struct Server {
    body_bytes: usize,
    tls: Option<Arc<ServerConfig>>,
    behaviour: Mutex<Behaviour>,
    output: Mutex<Box<dyn Write + Send>>,
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
        output: Mutex::new(Box::new(io::stdout())),
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

    /// Reports that something has met a behaviour, which does not say that it may be lost.
    fn say_acts(&self, behaviour: Behaviour) {
        self.say(&format!("acts {behaviour}"));
    }

    fn accept(self: Arc<Self>, listener: &TcpListener) {
        for socket in listener.incoming().flatten() {
            let server = Arc::clone(&self);
            thread::spawn(move || server.greet(socket));
        }
    }

    fn greet(&self, socket: TcpStream) {
        let accepted = OffsetDateTime::now_utc().unix_timestamp();
        // Either fails only on a connection that is gone.
        let _ = socket.set_nodelay(true).and_then(|()| socket.set_read_timeout(Some(LOOK)));
        match self.behaviour() {
            Behaviour::ResetAfterAccept => {
                self.say_acts(Behaviour::ResetAfterAccept);
                self.say("hit -");
                reset(&socket);
            }
            Behaviour::StallHandshake => self.hold(&socket),
            _ => self.open(socket, accepted),
        }
    }

    fn open(&self, socket: TcpStream, accepted: i64) {
        match &self.tls {
            None => self.converse(socket, accepted),
            Some(config) => {
                if let Ok(session) = ServerConnection::new(Arc::clone(config)) {
                    self.converse(StreamOwned::new(session, socket), accepted);
                }
            }
        }
    }

    /// Neither reads nor closes until the fault is over.
    fn hold(&self, socket: &TcpStream) {
        self.say_acts(Behaviour::StallHandshake);
        self.say("hit -");
        while self.behaviour() == Behaviour::StallHandshake {
            thread::sleep(LOOK);
        }
        reset(socket);
    }

    /// Serves a connection that was accepted in this second, since 1970.
    fn converse(&self, mut channel: impl Channel, accepted: i64) {
        let mut inbox = Inbox::default();
        loop {
            match inbox.message(&mut channel, true) {
                Ok(request) => {
                    if !self.serve_one(&mut channel, &request, accepted) {
                        return;
                    }
                }
                Err(MessageError::Malformed(what)) => return self.say(&format!("bad {what}")),
                Err(_) => return,
            }
        }
    }

    /// Whether the connection goes on.
    fn serve_one(&self, channel: &mut impl Channel, request: &Message, accepted: i64) -> bool {
        let mut words = request.start.split(' ');
        let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if path == "/health" {
            return channel.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").is_ok();
        }
        let Some(id) = RequestId::in_path(path) else {
            self.say(&format!("bad a request for {path}"));
            return false;
        };
        if !id.is_as_sent(method, &request.body, self.body_bytes) {
            self.say(&format!("bad the method or the body of request {id}"));
        }
        if self.tls.is_some() {
            self.say(&format!("opened {accepted} {id}"));
        }
        self.say(&format!("seen {method} {id}"));
        self.answer(channel, id) && !request.closes()
    }

    fn answer(&self, channel: &mut impl Channel, id: RequestId) -> bool {
        let behaviour = self.behaviour();
        self.report(behaviour, id);
        let closes = matches!(behaviour, Behaviour::CloseAfterEach | Behaviour::ResetAfterAccept);
        let (head, body) = response(id, self.body_bytes, closes);
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
            Behaviour::CloseIdle => {
                self.send(channel, &whole, id, Write::write_all) && self.stays_open(channel)
            }
            _ => self.send(channel, &whole, id, Write::write_all) && !closes,
        }
    }

    /// Reports that a request has met a behaviour, and whether that is a reason to lose it.
    fn report(&self, behaviour: Behaviour, id: RequestId) {
        let spoils = behaviour.spoils_responses();
        if spoils || matches!(behaviour, Behaviour::CloseAfterEach | Behaviour::Drip) {
            self.say_acts(behaviour);
        }
        if spoils {
            self.say(&format!("hit {id}"));
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
    fn stays_open(&self, channel: &mut impl Channel) -> bool {
        if fastrand::bool() {
            return true;
        }
        thread::sleep(Duration::from_micros(fastrand::u64(0..MAX_IDLE_MICROS)));
        self.say_acts(Behaviour::CloseIdle);
        // Fails only on a connection that is gone.
        let _ = channel.socket().shutdown(Shutdown::Write);
        self.report_unread(channel);
        false
    }

    /// Reports the requests that were on their way when a connection was closed. They stay without an answer; whether they may be
    /// sent again depends on their method.
    fn report_unread(&self, channel: &mut impl Channel) {
        let deadline = Instant::now() + CLOSED_WITHIN;
        let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
        loop {
            match channel.read(&mut buffer) {
                Ok(0) => return,
                Ok(length) => {
                    bytes.extend_from_slice(&buffer[..length]);
                    for id in RequestId::all_in(&bytes) {
                        self.say(&format!("unread {id}"));
                    }
                }
                Err(error) if is_timeout(&error) && Instant::now() < deadline => {}
                Err(_) => return,
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::Ipv4Addr;

    #[derive(Clone, Default)]
    struct Output(Arc<Mutex<Vec<u8>>>);

    impl Write for Output {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Output {
        fn lines(&self) -> Vec<String> {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap().lines().map(str::to_owned).collect()
        }
    }

    fn server(behaviour: Behaviour) -> (Server, Output) {
        let output = Output::default();
        let said = Mutex::new(Box::new(output.clone()) as Box<dyn Write + Send>);
        (Server { body_bytes: 200, tls: None, behaviour: Mutex::new(behaviour), output: said }, output)
    }

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(LOOK)).unwrap();
        (client, server)
    }

    /// What a server says about one request on a connection that is open already, and what it answers.
    fn served(behaviour: Behaviour, request: &str) -> (Vec<String>, String) {
        let ((server, output), (mut client, socket)) = (server(behaviour), pair());
        client.write_all(request.as_bytes()).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        server.converse(socket, 0);
        let mut answer = String::new();
        client.read_to_string(&mut answer).unwrap();
        (output.lines(), answer)
    }

    #[test]
    fn a_body_that_is_short_is_bad() {
        let request = "POST /r/1-2 HTTP/1.1\r\nContent-Length: 4\r\n\r\n1-2\n";
        let (said, _) = served(Behaviour::Healthy, request);
        assert_eq!(said[0], "bad the method or the body of request 1-2");
    }

    #[test]
    fn a_behaviour_acts_without_being_a_reason_for_a_loss() {
        let request = "GET /r/1-2 HTTP/1.1\r\n\r\n";
        let said = |behaviour| served(behaviour, request).0;
        assert_eq!(said(Behaviour::Healthy), ["seen GET 1-2", "done 1-2"]);
        assert_eq!(said(Behaviour::Drip), ["seen GET 1-2", "acts drip", "done 1-2"]);
        let closes = ["seen GET 1-2", "acts close-after-each", "done 1-2"];
        assert_eq!(said(Behaviour::CloseAfterEach), closes);
        let cut = ["seen GET 1-2", "acts close-in-body", "hit 1-2"];
        assert_eq!(said(Behaviour::CloseInBody), cut);
    }

    #[test]
    fn connections_from_before_end_in_good_order_where_new_ones_are_reset() {
        let (said, answer) = served(Behaviour::ResetAfterAccept, "GET /r/1-2 HTTP/1.1\r\n\r\n");
        assert_eq!(said, ["seen GET 1-2", "done 1-2"]);
        assert!(answer.contains("\r\nConnection: close\r\n"), "{answer}");
    }

    #[test]
    fn only_a_request_that_was_on_its_way_is_unread() {
        let post = "POST /r/3-17 HTTP/1.1\r\nContent-Length: 200\r\n\r\n3-17\n";
        let cases: [(&str, &[&str]); 3] = [("", &[]), (post, &["unread 3-17"]), ("POST /r/3-1", &[])];
        for (sent, expected) in cases {
            let ((server, output), (mut client, mut socket)) = (server(Behaviour::CloseIdle), pair());
            client.write_all(sent.as_bytes()).unwrap();
            client.shutdown(Shutdown::Write).unwrap();
            server.report_unread(&mut socket);
            assert_eq!(output.lines(), expected, "{sent}");
        }
    }
}
