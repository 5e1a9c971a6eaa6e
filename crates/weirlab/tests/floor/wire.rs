//! Raw requests and answers, and the servers that they go to.
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, SignatureScheme, StreamOwned};
use serde::Deserialize;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use weir_http1::{BodyDecoder, Framing, Limits, Method, ResponseHead};

/// Longer than anything here takes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// A server of the laboratory in a process of its own, which is gone when this is dropped.
pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) listen: SocketAddr,
    pub(crate) listen_tls: Vec<SocketAddr>,
}

#[derive(Deserialize)]
struct Announcement {
    pid: u32,
    listen: Vec<SocketAddr>,
    listen_tls: Vec<SocketAddr>,
}

impl Server {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_weirlab"))
            .args(arguments)
            .arg("--with-parent")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let announced: Announcement = serde_json::from_str(&line).unwrap();
        assert_eq!(announced.pid, child.id());
        Self { child, listen: announced.listen[0], listen_tls: announced.listen_tls }
    }

    pub(crate) fn floor(upstream: SocketAddr) -> Self {
        Self::start(&["floor", "--to", &upstream.to_string()])
    }

    pub(crate) fn open_descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    /// Waits until no more descriptors are open than that.
    pub(crate) fn settles_at(&self, descriptors: usize) {
        eventually(|| self.open_descriptors() <= descriptors, "descriptors are left open");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let ended = Instant::now() + TIMEOUT;
        while self.child.try_wait().unwrap().is_none() {
            if Instant::now() > ended {
                self.child.kill().unwrap();
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

pub(crate) fn eventually(condition: impl Fn() -> bool, otherwise: &str) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "{otherwise}");
        thread::sleep(Duration::from_millis(2));
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// The fields that do not concern the connection or the framing.
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) closes: bool,
    pub(crate) body: Vec<u8>,
    /// Whether the body was all there.
    pub(crate) whole: bool,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

pub(crate) fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.set_write_timeout(Some(TIMEOUT)).unwrap();
    stream
}

/// Connects with TLS and verifies nothing.
pub(crate) fn connect_tls(to: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
        .with_no_client_auth();
    let session = ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap();
    StreamOwned::new(session, connect(to))
}

#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Sends bytes and reads one answer for each method, interim ones included.
pub(crate) fn exchange(to: SocketAddr, bytes: &[u8], methods: &[Method]) -> Vec<Answer> {
    let mut stream = connect(to);
    stream.write_all(bytes).unwrap();
    let mut reader = BufReader::new(stream);
    methods.iter().map(|method| read_answer(&mut reader, *method)).collect()
}

pub(crate) fn get(to: SocketAddr, path: &str) -> Answer {
    exchange(to, format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n").as_bytes(), &[Method::Get]).remove(0)
}

pub(crate) fn read_answer(reader: &mut impl BufRead, method: Method) -> Answer {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n\r\n") {
        let count = reader.read_until(b'\n', &mut bytes).unwrap();
        assert!(count > 0, "the connection ended within a head: {:?}", String::from_utf8_lossy(&bytes));
    }
    let mut head = ResponseHead::default();
    head.parse(&bytes, &Limits::default(), method).unwrap().unwrap();
    let (body, whole) = read_body(reader, head.framing);
    let of_connection = ["connection", "content-length", "transfer-encoding"];
    let fields = head.headers.iter().map(|field| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        (text(field.name).to_ascii_lowercase(), text(field.value))
    });
    let fields = fields.filter(|(name, _)| !of_connection.contains(&&**name)).collect();
    Answer { status: head.status, fields, closes: !head.keep_alive, body, whole }
}

fn read_body(reader: &mut impl BufRead, framing: Framing) -> (Vec<u8>, bool) {
    let (mut decoder, mut body) = (BodyDecoder::new(framing), Vec::new());
    while !decoder.is_done() {
        let input = reader.fill_buf().unwrap();
        if input.is_empty() {
            return (body, decoder.finish().is_ok());
        }
        let decoded = decoder.decode(input).unwrap();
        body.extend_from_slice(&input[decoded.data]);
        reader.consume(decoded.consumed);
    }
    (body, true)
}

/// An upstream that does what a test says, connection by connection.
pub(crate) struct Script {
    pub(crate) address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Script {
    pub(crate) fn new(connections: Vec<Box<dyn FnOnce(TcpStream) + Send>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let thread = thread::spawn(move || {
            for each in connections {
                let (stream, _) = listener.accept().unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                each(stream);
            }
        });
        Self { address, thread: Some(thread) }
    }

    /// Answers one request without a body with these bytes, then closes.
    pub(crate) fn answering(bytes: &'static [u8]) -> Self {
        Self::new(vec![Box::new(move |mut stream| {
            read_head(&mut stream);
            stream.write_all(bytes).unwrap();
        })])
    }

    /// Waits for the script's end and passes its failure on.
    pub(crate) fn over(mut self) {
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Reads up to the empty line.
pub(crate) fn read_head(stream: &mut TcpStream) -> String {
    let (mut bytes, mut byte) = (Vec::new(), [0]);
    while !bytes.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    String::from_utf8(bytes).unwrap()
}
