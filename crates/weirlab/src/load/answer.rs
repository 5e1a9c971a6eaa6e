//! Answers from bytes: where one ends, and whether it is what was expected.
use super::Expect;
use memchr::memmem;
use weir_http1::{BodyDecoder, Framing, Limits, Method, ParseError, ResponseHead};

const LIMITS: Limits = Limits {
    max_head_bytes: 256 * 1024,
    max_fields: Limits::MAX_FIELDS,
    max_target_bytes: 8192,
    max_field_bytes: usize::MAX,
};

/// The answer that a connection is in the middle of.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// The beginning of a head that did not come in one piece.
    partial: Vec<u8>,
    body: Body,
    status: u16,
    keep_alive: bool,
    length: u64,
    spoilt: Option<Difference>,
    search: Search,
}

#[derive(Debug, Default)]
enum Body {
    /// The head is yet to come.
    #[default]
    Ahead,
    /// So many bytes are.
    Length(u64),
    Other(BodyDecoder),
}

/// Whether a text was seen in a body that comes in pieces.
#[derive(Debug, Default)]
struct Search {
    found: bool,
    /// The end of what was seen, in which the text may have begun.
    tail: Vec<u8>,
}

/// How an answer differs from what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Difference {
    Status,
    Body,
}

impl Answer {
    /// Makes ready for the next answer.
    pub(super) fn reset(&mut self) {
        self.partial.clear();
        self.body = Body::Ahead;
        self.length = 0;
        self.spoilt = None;
        self.search.found = false;
        self.search.tail.clear();
    }

    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Whether some of the body has come.
    pub(super) fn has_body(&self) -> bool {
        self.length > 0
    }

    /// Of what does not come as HTTP/1.1 writes it.
    pub(super) fn begin(&mut self, status: u16) {
        self.status = status;
    }

    /// Takes in data of such an answer's body.
    pub(super) fn see(&mut self, data: &[u8], expect: &Expect) {
        self.length += data.len() as u64;
        self.search.see(data, expect.body_contains.as_deref());
    }

    /// The call failed, or what came back is not what was to come, whatever the status says.
    pub(super) fn spoil(&mut self, difference: Difference) {
        self.spoilt = Some(difference);
    }

    /// Whether the connection carries another exchange.
    pub(super) fn keep_alive(&self) -> bool {
        self.keep_alive
    }

    /// Takes in what came: how many bytes belonged to the answer if it is complete now, else nothing, and all did.
    /// `head` is lent, so that not every connection has its own.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
        method: Method,
        expect: &Expect,
    ) -> Result<Option<usize>, ParseError> {
        if !matches!(self.body, Body::Ahead) {
            return self.take_body(input, expect);
        }
        if self.partial.is_empty() {
            return match self.take_head(input, head, method)? {
                Some(at) => Ok(self.take_body(&input[at..], expect)?.map(|more| at + more)),
                None => {
                    self.partial.extend_from_slice(input);
                    Ok(None)
                }
            };
        }
        let before = self.partial.len();
        let mut whole = std::mem::take(&mut self.partial);
        whole.extend_from_slice(input);
        let outcome = match self.take_head(&whole, head, method)? {
            Some(at) => self.take_body(&whole[at..], expect)?.map(|more| at + more - before),
            None => {
                self.partial = whole;
                return Ok(None);
            }
        };
        whole.clear();
        self.partial = whole;
        Ok(outcome)
    }

    /// To be asked when the connection has ended: whether that completes the answer.
    pub(super) fn ends_with_connection(&self) -> bool {
        matches!(&self.body, Body::Other(decoder) if decoder.finish().is_ok())
    }

    /// What differs in a complete answer.
    pub(super) fn difference(&self, expect: &Expect) -> Option<Difference> {
        let right = match expect.status.is_empty() {
            // A message of a connection that was upgraded has the status that it was upgraded with.
            true => (200..400).contains(&self.status) || self.status == 101,
            false => expect.status.contains(&self.status),
        };
        let length = expect.body_length.is_none_or(|length| length == self.length);
        let contains = expect.body_contains.is_none() || self.search.found;
        match (right, length && contains) {
            (false, _) => Some(Difference::Status),
            _ if self.spoilt.is_some() => self.spoilt,
            (true, false) => Some(Difference::Body),
            (true, true) => None,
        }
    }

    /// Where the final head ends, if it is there; interim ones (1xx) are passed over.
    fn take_head(
        &mut self,
        input: &[u8],
        head: &mut ResponseHead,
        method: Method,
    ) -> Result<Option<usize>, ParseError> {
        let mut at = 0;
        loop {
            head.clear();
            if input.len() == at {
                return Ok(None);
            }
            let Some(end) = head.parse(&input[at..], &LIMITS, method)? else { return Ok(None) };
            at += end;
            if head.status >= 200 || head.status == 101 {
                break;
            }
        }
        self.status = head.status;
        self.keep_alive = head.keep_alive && !head.upgrade;
        self.body = match head.framing {
            Framing::None => Body::Length(0),
            Framing::Length(length) => Body::Length(length),
            framing => Body::Other(BodyDecoder::new(framing)),
        };
        Ok(Some(at))
    }

    /// How many bytes belonged to the body, if it is complete now.
    fn take_body(&mut self, input: &[u8], expect: &Expect) -> Result<Option<usize>, ParseError> {
        let wanted = expect.body_contains.as_deref();
        match &mut self.body {
            Body::Ahead => Ok(None),
            Body::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                *left -= taken as u64;
                let done = *left == 0;
                self.length += taken as u64;
                self.search.see(&input[..taken], wanted);
                Ok(done.then_some(taken))
            }
            Body::Other(decoder) => {
                let mut at = 0;
                while at < input.len() && !decoder.is_done() {
                    let piece = decoder.decode(&input[at..])?;
                    let data = &input[at..][piece.data];
                    self.length += data.len() as u64;
                    self.search.see(data, wanted);
                    at += piece.consumed;
                }
                Ok(decoder.is_done().then_some(at))
            }
        }
    }
}

impl Search {
    fn see(&mut self, data: &[u8], wanted: Option<&str>) {
        let Some(wanted) = wanted.filter(|_| !self.found) else { return };
        self.tail.extend_from_slice(data);
        self.found = memmem::find(&self.tail, wanted.as_bytes()).is_some();
        let keep = wanted.len().saturating_sub(1).min(self.tail.len());
        self.tail.drain(..self.tail.len() - keep);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds an answer in pieces of a length; what it came to, and how many bytes it took if it is complete.
    fn fed(
        bytes: &[u8],
        piece: usize,
        method: Method,
        expect: &Expect,
    ) -> Result<(Answer, Option<usize>), ParseError> {
        let (mut answer, mut head) = (Answer::default(), ResponseHead::default());
        let mut at = 0;
        for part in bytes.chunks(piece) {
            if let Some(taken) = answer.take(part, &mut head, method, expect)? {
                return Ok((answer, Some(at + taken)));
            }
            at += part.len();
        }
        Ok((answer, None))
    }

    #[track_caller]
    fn check(text: &str, method: Method, status: u16, length: u64, keep_alive: bool, left: usize) {
        for piece in 1..=text.len() {
            let (answer, took) = fed(text.as_bytes(), piece, method, &Expect::default()).unwrap();
            assert_eq!((answer.status(), answer.length, answer.keep_alive()), (status, length, keep_alive));
            assert_eq!(took, Some(text.len() - left), "{piece}");
        }
    }

    #[test]
    fn answers_end_where_they_say() {
        check("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", Method::Get, 200, 5, true, 0);
        check("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP", Method::Get, 200, 2, true, 4);
        check("HTTP/1.1 204 No Content\r\n\r\n", Method::Get, 204, 0, true, 0);
        check("HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", Method::Get, 304, 0, true, 0);
        check("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", Method::Head, 200, 0, true, 0);
        check(
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 C\r\nContent-Length: 0\r\n\r\n",
            Method::Post,
            201,
            0,
            true,
            0,
        );
        check("HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", Method::Get, 200, 1, false, 0);
        check(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx",
            Method::Get,
            200,
            1,
            false,
            0,
        );
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
        check(chunked, Method::Get, 200, 5, true, 0);
    }

    #[test]
    fn what_is_not_http_is_refused() {
        for text in ["SSH-2.0-OpenSSH\r\n", "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"] {
            assert!(fed(text.as_bytes(), text.len(), Method::Get, &Expect::default()).is_err(), "{text}");
        }
    }

    #[test]
    fn the_end_of_the_connection_ends_what_has_no_length() {
        let open = b"HTTP/1.1 200 OK\r\n\r\nabc";
        let (answer, _) = fed(open, 4, Method::Get, &Expect::default()).unwrap();
        assert!(answer.ends_with_connection() && !answer.keep_alive() && answer.length == 3);
        let cut = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc";
        assert!(!fed(cut, 4, Method::Get, &Expect::default()).unwrap().0.ends_with_connection());
        let cut = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";
        assert!(!fed(cut, 4, Method::Get, &Expect::default()).unwrap().0.ends_with_connection());
    }

    #[test]
    fn differences_are_described() {
        let text = b"HTTP/1.1 404 N\r\nContent-Length: 11\r\n\r\nhello world";
        let expecting = |expect: Expect| {
            let pieces = 1..=text.len();
            let differences =
                pieces.map(|piece| fed(text, piece, Method::Get, &expect).unwrap().0.difference(&expect));
            let differences: Vec<_> = differences.collect();
            assert!(differences.iter().all(|one| *one == differences[0]));
            differences[0]
        };
        let found = Expect { status: vec![404], ..Expect::default() };
        let contains = |text: &str| Expect { body_contains: Some(text.to_owned()), ..found.clone() };
        assert_eq!(expecting(Expect::default()), Some(Difference::Status));
        assert_eq!(expecting(found.clone()), None);
        assert_eq!(expecting(Expect { body_length: Some(11), ..found.clone() }), None);
        assert_eq!(expecting(Expect { body_length: Some(10), ..found.clone() }), Some(Difference::Body));
        assert_eq!(expecting(contains("lo wo")), None);
        assert_eq!(expecting(contains("low")), Some(Difference::Body));
    }
}
