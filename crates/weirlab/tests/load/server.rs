//! A server with a thread for each connection, which does to each request what a test says.
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// A request as it came.
pub(crate) struct Request {
    /// How many came before it, over all connections.
    pub(crate) number: usize,
    pub(crate) line: String,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

/// Ends when it is dropped.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    over: AtomicBool,
    requests: AtomicUsize,
    connections: AtomicUsize,
}

impl Server {
    /// `answer` writes the answer; the connection is closed after an error.
    pub(crate) fn start(
        answer: impl Fn(&Request, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Server {
        Server::serving(move |stream, state| converse(&stream, &mut &stream, state, &answer))
    }

    /// Accepts connections and says nothing.
    pub(crate) fn silent() -> Server {
        Server::serving(|mut stream, _| io::copy(&mut stream, &mut io::sink()).map(drop))
    }

    /// `serve` is given each connection, with its streams wrapped as it likes.
    fn serving(serve: impl Fn(TcpStream, &State) -> io::Result<()> + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (state, serve) = (Arc::new(State::default()), Arc::new(serve));
        let accepting = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming() {
                if accepting.over.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                stream.set_nodelay(true).unwrap();
                accepting.connections.fetch_add(1, Ordering::SeqCst);
                let (state, serve) = (accepting.clone(), serve.clone());
                // How a connection ends is for the client to see.
                thread::spawn(move || drop(serve(stream, &state)));
            }
        });
        Server { address, state }
    }

    /// The same over TLS; `shaken` sees each connection once its handshake is over.
    pub(crate) fn start_tls(
        config: Arc<rustls::ServerConfig>,
        shaken: impl Fn(&rustls::ServerConnection) + Send + Sync + 'static,
        answer: impl Fn(&Request, &mut dyn Write) -> io::Result<()> + Send + Sync + 'static,
    ) -> Server {
        Server::serving(move |mut stream, state| {
            let mut tls = rustls::ServerConnection::new(config.clone()).map_err(io::Error::other)?;
            while tls.is_handshaking() {
                tls.complete_io(&mut stream)?;
            }
            shaken(&tls);
            let both = std::cell::RefCell::new(rustls::StreamOwned::new(tls, stream));
            converse(Shared(&both), &mut Shared(&both), state, &answer)
        })
    }

    pub(crate) fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// Connections so far, but for the one that looks whether anything listens.
    pub(crate) fn connections(&self) -> usize {
        self.state.connections.load(Ordering::SeqCst) - 1
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::SeqCst);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

/// One stream to read from and to write to.
struct Shared<'a>(&'a std::cell::RefCell<rustls::StreamOwned<rustls::ServerConnection, TcpStream>>);

impl Read for Shared<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.borrow_mut().read(buffer)
    }
}

impl Write for Shared<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.borrow_mut().flush()
    }
}

fn converse(
    reader: impl Read,
    writer: &mut dyn Write,
    state: &State,
    answer: &impl Fn(&Request, &mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut reader = BufReader::new(reader);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut request =
            Request { number: 0, line: line.trim_end().to_owned(), headers: Vec::new(), body: String::new() };
        loop {
            let mut header = String::new();
            reader.read_line(&mut header)?;
            match header.trim_end() {
                "" => break,
                header => request.headers.push(header.to_owned()),
            }
        }
        let length = request.header("content-length").and_then(|value| value.parse().ok()).unwrap_or(0);
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        request.body = String::from_utf8(body).unwrap();
        request.number = state.requests.fetch_add(1, Ordering::SeqCst);
        answer(&request, writer)?;
        if request.header("connection") == Some("close") {
            return Ok(());
        }
    }
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut pairs = self.headers.iter().filter_map(|header| header.split_once(": "));
        pairs.find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    pub(crate) fn path(&self) -> &str {
        self.line.split(' ').nth(1).unwrap()
    }
}

/// A whole answer with a length.
pub(crate) fn plain(writer: &mut dyn Write, status: u16, body: &str) -> io::Result<()> {
    let text = format!("HTTP/1.1 {status} Some\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    writer.write_all(text.as_bytes())
}

/// Ends the connection.
pub(crate) fn hang_up() -> io::Result<()> {
    Err(io::ErrorKind::ConnectionAborted.into())
}
