//! What plugins can do with where a request goes and with TLS handshakes: a real client, real upstreams, sockets.

mod handshakes;
mod stuck;
mod targets;

use crate::observe::access_log::{AccessLog, Format, Target};
use crate::{AccessLogs, Compiler, Listen, Options, Proxy, Retained, Traffic};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConnection, ServerConfig, ServerConnection, StreamOwned};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;
use weir_model::Document;
use weir_net::tls::{CertifiedKey, client_config, default_certificate};
use weir_plugin::Definition;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A gateway in clear, over TLS and over QUIC.
struct Gateway {
    proxy: Proxy,
    compiler: Compiler,
}

impl Gateway {
    fn start(document: &Document, plugins: &'static [Definition]) -> Self {
        static CERTIFICATE: LazyLock<Arc<CertifiedKey>> =
            LazyLock::new(|| default_certificate(None).unwrap());
        let retained = Arc::<Retained>::default();
        let compiler = Compiler {
            workers: 1,
            default_certificate: CERTIFICATE.clone(),
            client_certificate: None,
            trusted_certificates: Vec::new(),
            upstream_verification: Default::default(),
            log_tls_verify: true,
            router_flavor: weir_router::Flavor::default(),
            plugins,
            retained: retained.clone(),
        };
        let snapshot = compiler.compile(document).unwrap();
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let over = |traffic| Listen { traffic, tls: true, ..Listen::http(local) };
        let listen = vec![Listen::http(local), over(Traffic::Http), over(Traffic::Quic)];
        let off = || AccessLog::open(Target::Stderr, Format::Off).unwrap();
        let logs = AccessLogs { requests: off(), sessions: off() };
        let options = Options { listen, workers: 1, ..Options::default() };
        Self { proxy: Proxy::start(options, logs, snapshot, &retained).unwrap(), compiler }
    }

    /// Has it serve by another configuration.
    fn publish(&self, document: &Document) {
        let snapshot = self.compiler.compile(document).unwrap();
        on_runtime(self.proxy.publish(snapshot));
    }

    fn address(&self, tls: bool) -> SocketAddr {
        let listening = self.proxy.listening().iter().find(|listening| listening.tls == tls).unwrap();
        listening.address.ip().unwrap()
    }

    /// The certificates that are presented over QUIC.
    fn presented_over_quic(&self, name: &str) -> Vec<CertificateDer<'static>> {
        let mut config = Arc::unwrap_or_clone(client_config(None, None).unwrap());
        config.alpn_protocols = vec![b"h3".to_vec()];
        let config: quinn::crypto::rustls::QuicClientConfig = config.try_into().unwrap();
        let listening = self.proxy.listening().iter().find(|listening| listening.traffic == Traffic::Quic);
        let address = listening.unwrap().address.ip().unwrap();
        on_runtime(async {
            let client = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
            let config = quinn::ClientConfig::new(Arc::new(config));
            let connection = client.connect_with(config, address, name).unwrap().await.unwrap();
            *connection.peer_identity().unwrap().downcast().unwrap()
        })
    }

    /// A client's connection in clear.
    fn connect(&self) -> Client<TcpStream> {
        Client(BufReader::new(connect(self.address(false))))
    }

    /// One over TLS, which asks for this server name and offers these protocols; the certificates that were presented.
    fn connect_tls(
        &self,
        name: &str,
        alpn: &[&[u8]],
        identity: Option<Arc<CertifiedKey>>,
    ) -> std::io::Result<Client<StreamOwned<ClientConnection, TcpStream>>> {
        let mut session = tls_session(name, alpn, identity);
        let mut stream = connect(self.address(true));
        while session.is_handshaking() {
            session.complete_io(&mut stream)?;
        }
        Ok(Client(BufReader::new(StreamOwned::new(session, stream))))
    }

    /// A handshake for this server name whose first message has arrived in part.
    fn begin_handshake(&self, name: &str) -> HeldHandshake {
        let (mut session, mut hello) = (tls_session(name, &[b"http/1.1"], None), Vec::new());
        session.write_tls(&mut hello).unwrap();
        let rest = hello.split_off(hello.len() / 2);
        let mut stream = connect(self.address(true));
        stream.write_all(&hello).unwrap();
        // There is one worker: when it has served the next connection, it has begun with this one.
        self.connect_tls("other.test", &[b"http/1.1"], None).unwrap();
        HeldHandshake { session, stream, rest }
    }
}

fn tls_session(name: &str, alpn: &[&[u8]], identity: Option<Arc<CertifiedKey>>) -> ClientConnection {
    let mut config = Arc::unwrap_or_clone(client_config(None, identity).unwrap());
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from(name.to_owned()).unwrap();
    ClientConnection::new(Arc::new(config), name).unwrap()
}

/// A handshake that waits for the rest of the client's first message.
struct HeldHandshake {
    session: ClientConnection,
    stream: TcpStream,
    rest: Vec<u8>,
}

impl HeldHandshake {
    /// The certificates that are presented in the end.
    fn finish(mut self) -> Vec<CertificateDer<'static>> {
        self.stream.write_all(&self.rest).unwrap();
        while self.session.is_handshaking() {
            self.session.complete_io(&mut self.stream).unwrap();
        }
        self.session.peer_certificates().unwrap().to_vec()
    }
}

fn on_runtime<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(TEST_TIMEOUT, work).await.unwrap() })
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    stream
}

/// A client's connection, for one request after the other.
struct Client<S>(BufReader<S>);

impl<S: Read + Write> Client<S> {
    /// The status and the body of the response.
    fn get(&mut self, headers: &str) -> (u16, String) {
        let request = format!("GET /p HTTP/1.1\r\nHost: client.test\r\n{headers}\r\n");
        self.0.get_mut().write_all(request.as_bytes()).unwrap();
        let (line, headers) = head(&mut self.0).unwrap();
        let length = headers.iter().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap_or("0").parse().unwrap()];
        self.0.read_exact(&mut body).unwrap();
        (line.split(' ').nth(1).unwrap().parse().unwrap(), String::from_utf8(body).unwrap())
    }
}

/// The first line of a message, and its headers in small letters.
fn head(stream: &mut impl BufRead) -> Option<(String, Vec<String>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line if lines.is_empty() => lines.push(line.to_owned()),
            line => lines.push(line.to_ascii_lowercase()),
        }
    }
    let headers = lines.split_off(1);
    Some((lines.pop()?, headers))
}

/// A server that says who it is.
struct Server {
    address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

/// What a server does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    /// Answers with its name and the host that it was asked for.
    Answers,
    /// Closes the connection.
    Closes,
    /// Says nothing.
    Silent,
}

impl Server {
    fn start(name: &'static str, behaviour: Behaviour, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, connections) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
        let counted = connections.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                counted.fetch_add(1, Ordering::SeqCst);
                let tls = tls.clone();
                thread::spawn(move || match tls {
                    Some(config) => {
                        let session = ServerConnection::new(config).unwrap();
                        serve(name, behaviour, StreamOwned::new(session, stream));
                    }
                    None => serve(name, behaviour, stream),
                });
            }
        });
        Self { address, connections }
    }

    fn answering(name: &'static str) -> Self {
        Self::start(name, Behaviour::Answers, None)
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

fn serve(name: &str, behaviour: Behaviour, stream: impl Read + Write) {
    let mut stream = BufReader::new(stream);
    while let Some((_, headers)) = head(&mut stream) {
        if behaviour == Behaviour::Closes {
            return;
        }
        if behaviour == Behaviour::Silent {
            continue;
        }
        let host = headers.iter().find_map(|line| line.strip_prefix("host: ")).unwrap_or_default();
        let body = format!("{name} as {host}");
        let response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.get_mut().write_all(response.as_bytes()).is_err() {
            return;
        }
    }
}
