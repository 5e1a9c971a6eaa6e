//! HTTP/1.1 over a plain socket, for either side: nothing is added to what is sent, nothing is hidden of what comes.
use super::PATIENCE;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

/// The head of a request or a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// The first line, without its end.
    pub start: String,
    /// The fields in order, names as they were written.
    pub fields: Vec<(String, String)>,
}

impl Head {
    /// The value of the first field of a name.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }

    /// The values of all fields of a name.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let named = |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).map(|(_, value)| value.as_str()).collect()
    }

    fn is_chunked(&self) -> bool {
        self.field("transfer-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
    }

    fn length(&self) -> Option<u64> {
        self.field("content-length").map(|length| length.parse().expect("a Content-Length is a number"))
    }
}

/// A whole request or response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// The status of a response; 0 for a request.
    pub status: u16,
    /// Its head.
    pub head: Head,
    /// Its body, decoded.
    pub body: Vec<u8>,
    /// The trailer fields of a chunked body.
    pub trailers: Vec<(String, String)>,
}

impl Message {
    /// The body as text.
    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is UTF-8")
    }

    /// The body as JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("the body is JSON")
    }

    /// The value of the first header field of a name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.field(name)
    }
}

/// One end of a connection.
#[derive(Debug)]
pub struct Peer {
    stream: BufReader<TcpStream>,
}

impl Peer {
    /// Connects to an address.
    pub fn connect(address: SocketAddr) -> Peer {
        Peer::new(TcpStream::connect(address).expect("the gateway takes connections"))
    }

    /// Speaks over an open connection.
    pub fn new(stream: TcpStream) -> Peer {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer { stream: BufReader::new(stream) }
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        self.stream.get_ref()
    }

    /// The socket, for another protocol; nothing of it may have been read ahead.
    pub fn into_socket(self) -> TcpStream {
        assert!(self.stream.buffer().is_empty(), "bytes were read ahead");
        self.stream.into_inner()
    }

    /// What comes from the other side, as bytes.
    pub fn reader(&mut self) -> &mut impl Read {
        &mut self.stream
    }

    /// Sends bytes; what the other side no longer takes is lost.
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) -> &mut Peer {
        let _ = self.stream.get_mut().write_all(bytes.as_ref());
        self
    }

    /// Sends bytes and says whether they were taken.
    pub fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.get_mut().write_all(bytes)
    }

    /// Ends the sending half.
    pub fn finish_sending(&mut self) -> &mut Peer {
        let _ = self.socket().shutdown(Shutdown::Write);
        self
    }

    /// Closes with a reset, as a process that dies does.
    pub fn reset(self) {
        rustix::net::sockopt::set_socket_linger(self.socket(), Some(std::time::Duration::ZERO)).unwrap();
    }

    /// Reads a head; none when the other side closes before its first byte.
    pub fn head(&mut self) -> Option<Head> {
        let start = self.line()?;
        Some(Head { start, fields: self.fields() })
    }

    /// Reads a request with its body; none when the client has closed.
    pub fn request(&mut self) -> Option<Message> {
        let head = self.head()?;
        let (body, trailers) =
            if head.is_chunked() { self.chunks() } else { (self.sized(head.length().unwrap_or(0)), vec![]) };
        Some(Message { status: 0, head, body, trailers })
    }

    /// Reads a response with its body. Interim responses are returned too.
    #[track_caller]
    pub fn response(&mut self) -> Message {
        self.response_to("GET")
    }

    /// Reads a response to a method: one to HEAD has no body, whatever its head says.
    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> Message {
        let head = self.head().expect("a response, not the end of the connection");
        let status = head.start.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let bodiless = method == "HEAD" || matches!(status, 100..200 | 204 | 304);
        let (body, trailers) = match head.length() {
            _ if bodiless => (vec![], vec![]),
            _ if head.is_chunked() => self.chunks(),
            Some(length) => (self.sized(length), vec![]),
            None => (self.rest(), vec![]),
        };
        Message { status, head, body, trailers }
    }

    /// Reads the final response to a method, passing over interim ones.
    #[track_caller]
    pub fn final_response_to(&mut self, method: &str) -> Message {
        loop {
            let response = self.response_to(method);
            if response.status >= 200 {
                return response;
            }
        }
    }

    /// Reads to the end of the connection; a reset is an end too.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.stream.read_to_end(&mut bytes) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                panic!("the other side neither speaks nor closes")
            }
            _ => bytes,
        }
    }

    /// Whether the other side has closed, and sent nothing before; waits for either.
    pub fn is_closed(&mut self) -> bool {
        match self.stream.fill_buf() {
            Ok(bytes) => bytes.is_empty(),
            Err(error) => error.kind() != io::ErrorKind::WouldBlock,
        }
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        self.stream.read_until(b'\n', &mut line).expect("a line, in time");
        if line.is_empty() {
            return None;
        }
        let line = line.strip_suffix(b"\r\n").expect("a whole line, with CRLF");
        Some(String::from_utf8(line.to_vec()).expect("a head is UTF-8"))
    }

    fn fields(&mut self) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        loop {
            let line = self.line().expect("the end of a head");
            if line.is_empty() {
                return fields;
            }
            let (name, value) = line.split_once(':').expect("a field has a colon");
            fields.push((name.to_owned(), value.trim().to_owned()));
        }
    }

    fn sized(&mut self, length: u64) -> Vec<u8> {
        let mut body = Vec::new();
        (&mut self.stream).take(length).read_to_end(&mut body).expect("a body, in time");
        assert_eq!(body.len() as u64, length, "the body ended early");
        body
    }

    fn chunks(&mut self) -> (Vec<u8>, Vec<(String, String)>) {
        let mut body = Vec::new();
        loop {
            let line = self.line().expect("the size of a chunk");
            let size = line.split(';').next().unwrap_or_default();
            match u64::from_str_radix(size.trim(), 16).expect("the size of a chunk is hexadecimal") {
                0 => return (body, self.fields()),
                size => body.extend(self.sized(size)),
            }
            assert_eq!(self.line().as_deref(), Some(""), "a chunk ends with CRLF");
        }
    }
}
