//! What is sent on of a message: its own bytes where nothing in them concerns one connection alone, and a head written
//! anew where something does.
use std::net::SocketAddr;
use weir_http1::{
    BodyDecoder, Framing, Headers, Known, ParseError, RequestHead, ResponseHead, Version, encode,
};

/// Fields that may not be sent on. Transfer-Encoding is not among them: chunks are sent on as they came.
const OF_ONE_CONNECTION: [Known; 6] =
    [Known::Connection, Known::KeepAlive, Known::ProxyConnection, Known::Te, Known::Trailer, Known::Upgrade];

/// What is still to come of a body.
pub(super) enum Body {
    Length(u64),
    Chunked(BodyDecoder),
    UntilClose,
}

impl Body {
    pub(super) fn new(framing: Framing) -> Self {
        match framing {
            Framing::None => Self::Length(0),
            Framing::Length(length) => Self::Length(length),
            Framing::Chunked => Self::Chunked(BodyDecoder::new(framing)),
            Framing::UntilClose => Self::UntilClose,
        }
    }

    /// How many bytes of the input belong to the body.
    pub(super) fn take(&mut self, input: &[u8]) -> Result<usize, ParseError> {
        self.each(input, |_| {})
    }

    /// The same; the payload goes to `payload` without its chunks' frames.
    pub(super) fn unwrap(&mut self, input: &[u8], payload: &mut Vec<u8>) -> Result<usize, ParseError> {
        self.each(input, |data| payload.extend_from_slice(data))
    }

    fn each(&mut self, input: &[u8], mut data: impl FnMut(&[u8])) -> Result<usize, ParseError> {
        let used = match self {
            Self::UntilClose => input.len(),
            Self::Length(left) => {
                let used = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
                *left -= used as u64;
                used
            }
            Self::Chunked(decoder) => {
                let mut used = 0;
                while used < input.len() && !decoder.is_done() {
                    let decoded = decoder.decode(&input[used..])?;
                    data(&input[used..][decoded.data]);
                    used += decoded.consumed;
                }
                return Ok(used);
            }
        };
        data(&input[..used]);
        Ok(used)
    }

    pub(super) fn is_done(&self) -> bool {
        match self {
            Self::Length(left) => *left == 0,
            Self::Chunked(decoder) => decoder.is_done(),
            Self::UntilClose => false,
        }
    }
}

/// Whether a request's bytes can be sent on as they came.
pub(super) fn request_goes_as_it_is(head: &RequestHead, bytes: &[u8]) -> bool {
    head.version == Version::Http11
        && bytes[0] != b'\r'
        && head.target().starts_with('/')
        && goes_as_it_is(&head.headers)
}

/// Whether a response's bytes can be forwarded unchanged to a client whose connection is kept.
pub(super) fn response_goes_as_it_is(head: &ResponseHead) -> bool {
    head.version == Version::Http11 && head.status != 204 && goes_as_it_is(&head.headers)
}

fn goes_as_it_is(headers: &Headers) -> bool {
    !OF_ONE_CONNECTION.iter().any(|name| headers.contains_known(*name))
}

/// Writes a request's head for the upstream.
pub(super) fn write_request(head: &mut RequestHead, upstream: SocketAddr, out: &mut Vec<u8>) {
    head.headers.remove_hop_by_hop();
    let query = head.query().map_or([&b""[..], b""], |query| [b"?", query.as_bytes()]);
    encode::request_line(out, head.method_str(), &[head.path().as_bytes(), query[0], query[1]]);
    if !head.headers.contains_known(Known::Host) {
        encode::header(out, "Host", upstream.to_string());
    }
    write_fields(&head.headers, head.framing == Framing::Chunked, true, out);
}

/// Writes a response's head for the client.
pub(super) fn write_response(head: &mut ResponseHead, chunked: bool, keep_alive: bool, out: &mut Vec<u8>) {
    head.headers.remove_hop_by_hop();
    encode::status_line(out, head.status);
    write_fields(&head.headers, chunked, keep_alive, out);
}

fn write_fields(headers: &Headers, chunked: bool, keep_alive: bool, out: &mut Vec<u8>) {
    encode::headers(out, headers);
    if chunked {
        encode::header(out, "Transfer-Encoding", "chunked");
    }
    if !keep_alive {
        encode::header(out, "Connection", "close");
    }
    encode::end(out);
}

/// Writes an answer of the relay's own, after which the connection closes.
pub(super) fn write_own(status: u16, reason: &str, out: &mut Vec<u8>) {
    encode::status_line(out, status);
    encode::header(out, "Content-Type", "text/plain");
    encode::header(out, "Connection", "close");
    encode::content_length(out, reason.len() as u64);
    encode::end(out);
    out.extend_from_slice(reason.as_bytes());
}
