//! A strict reader of HTTP/1.1 messages, which shares no code with the gateway: what it does not expect is an error, so
//! that bytes which belong to another message are found.
use std::io::{self, Read};
use std::time::{Duration, Instant};

const MAX_HEAD_BYTES: usize = 64 * 1024;
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;

/// Why there is no message.
#[derive(Debug)]
pub(super) enum MessageError {
    /// The connection ended in good order before a byte of it.
    Closed,
    /// The connection ended or was reset within it, which the reader can tell.
    Broken(String),
    /// It did not come in time.
    Late,
    /// The bytes are no such message.
    Malformed(String),
}

/// A head and its body.
#[derive(Debug)]
pub(super) struct Message {
    /// The first line.
    pub(super) start: String,
    /// The fields, with their names in lower case.
    pub(super) fields: Vec<(String, String)>,
    /// The body.
    pub(super) body: Vec<u8>,
}

impl Message {
    /// The value of a field.
    #[must_use]
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Whether the connection carries no other message afterwards.
    #[must_use]
    pub(super) fn closes(&self) -> bool {
        self.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }
}

/// The bytes of a connection that were not used yet.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bytes: Vec<u8>,
    deadline: Option<Instant>,
}

impl Inbox {
    /// Gives up on messages that take longer from now on. The stream must wake up now and then.
    pub(super) fn within(&mut self, patience: Duration) {
        self.deadline = Some(Instant::now() + patience);
    }

    /// Whether bytes came that belong to no message so far.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Reads the next message. Without a length, a request has no body, and a response has one until the connection ends.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn message(
        &mut self,
        stream: &mut impl Read,
        is_request: bool,
    ) -> Result<Message, MessageError> {
        let end = loop {
            if let Some(at) = find(&self.bytes, b"\r\n\r\n") {
                break at + 4;
            }
            if self.bytes.len() > MAX_HEAD_BYTES {
                return Err(MessageError::Malformed("a head without an end".to_owned()));
            }
            let fresh = self.bytes.is_empty();
            if self.fill(stream)? == 0 {
                return Err(if fresh { MessageError::Closed } else { broken("within the head") });
            }
        };
        let head: Vec<u8> = self.bytes.drain(..end).collect();
        let mut message = parse_head(&head)?;
        message.body = match (message.field("transfer-encoding"), message.field("content-length")) {
            (Some(coding), None) if coding.eq_ignore_ascii_case("chunked") => self.chunks(stream)?,
            (None, Some(length)) => {
                let length = length.parse().map_err(|_| malformed("a length that is no number"))?;
                self.exactly(stream, length)?
            }
            (None, None) if is_request => Vec::new(),
            (None, None) => self.rest(stream)?,
            _ => return Err(malformed("a length and a coding at once")),
        };
        Ok(message)
    }

    fn chunks(&mut self, stream: &mut impl Read) -> Result<Vec<u8>, MessageError> {
        let mut body = Vec::new();
        loop {
            let line = self.line(stream)?;
            let size = usize::from_str_radix(&line, 16).map_err(|_| malformed("a chunk without a size"))?;
            if size == 0 {
                return match self.line(stream)?.as_str() {
                    "" => Ok(body),
                    _ => Err(malformed("trailers that no server sent")),
                };
            }
            body.extend(self.exactly(stream, size)?);
            if !self.line(stream)?.is_empty() {
                return Err(malformed("a chunk longer than its size"));
            }
        }
    }

    fn line(&mut self, stream: &mut impl Read) -> Result<String, MessageError> {
        loop {
            if let Some(at) = find(&self.bytes, b"\r\n") {
                let line: Vec<u8> = self.bytes.drain(..at + 2).take(at).collect();
                return String::from_utf8(line).map_err(|_| malformed("a line that is no text"));
            }
            if self.fill(stream)? == 0 {
                return Err(broken("within the body"));
            }
        }
    }

    fn exactly(&mut self, stream: &mut impl Read, length: usize) -> Result<Vec<u8>, MessageError> {
        if length > MAX_BODY_BYTES {
            return Err(malformed("a body that is too large"));
        }
        while self.bytes.len() < length {
            if self.fill(stream)? == 0 {
                return Err(broken("within the body"));
            }
        }
        Ok(self.bytes.drain(..length).collect())
    }

    fn rest(&mut self, stream: &mut impl Read) -> Result<Vec<u8>, MessageError> {
        while self.fill(stream)? > 0 {}
        Ok(std::mem::take(&mut self.bytes))
    }

    fn fill(&mut self, stream: &mut impl Read) -> Result<usize, MessageError> {
        let mut buffer = [0; 16 * 1024];
        loop {
            match stream.read(&mut buffer) {
                Ok(count) => {
                    self.bytes.extend_from_slice(&buffer[..count]);
                    return Ok(count);
                }
                Err(error) if is_timeout(&error) => {
                    if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                        return Err(MessageError::Late);
                    }
                }
                Err(error) => return Err(MessageError::Broken(error.kind().to_string())),
            }
        }
    }
}

/// Whether nothing has come, while more may.
pub(super) fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}

fn parse_head(head: &[u8]) -> Result<Message, MessageError> {
    let text = std::str::from_utf8(head).map_err(|_| malformed("a head that is no text"))?;
    let mut lines = text.trim_end_matches("\r\n").split("\r\n");
    let start = lines.next().unwrap_or_default().to_owned();
    let fields = lines.map(|line| {
        let (name, value) = line.split_once(':').ok_or_else(|| malformed("a field without a colon"))?;
        Ok((name.to_ascii_lowercase(), value.trim().to_owned()))
    });
    Ok(Message { start, fields: fields.collect::<Result<_, MessageError>>()?, body: Vec::new() })
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    memchr::memmem::find(bytes, wanted)
}

fn broken(place: &str) -> MessageError {
    MessageError::Broken(format!("closed {place}"))
}

fn malformed(what: &str) -> MessageError {
    MessageError::Malformed(what.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(bytes: &str) -> Result<Message, MessageError> {
        Inbox::default().message(&mut bytes.as_bytes(), false)
    }

    #[test]
    fn a_body_that_is_cut_short_is_no_message() {
        let whole =
            ["Content-Length: 4\r\n\r\nbody", "Transfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\n\r\n"];
        for rest in whole {
            let message = format!("HTTP/1.1 200 OK\r\n{rest}");
            assert_eq!(response(&message).unwrap().body, b"body");
            for cut in 17..message.len() {
                assert!(matches!(response(&message[..cut]), Err(MessageError::Broken(_))), "{cut}");
            }
        }
    }

    #[test]
    fn what_follows_a_message_stays() {
        let mut inbox = Inbox::default();
        let two = "GET /r/1-1 HTTP/1.1\r\n\r\nGET /r/1-2 HTTP/1.1\r\n\r\n";
        let mut stream = two.as_bytes();
        assert_eq!(inbox.message(&mut stream, true).unwrap().start, "GET /r/1-1 HTTP/1.1");
        assert!(!inbox.is_empty());
        assert_eq!(inbox.message(&mut stream, true).unwrap().start, "GET /r/1-2 HTTP/1.1");
        assert!(matches!(inbox.message(&mut stream, true), Err(MessageError::Closed)));
    }

    #[test]
    fn two_lengths_are_refused() {
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(matches!(response(both), Err(MessageError::Malformed(_))));
    }
}
