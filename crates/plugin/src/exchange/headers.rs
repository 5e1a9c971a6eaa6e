//! Changing headers one by one, where what cannot be sent is an error rather than left out or changed.

use super::Exchange;
use std::fmt;
use weir_http1::{Framing, Headers, is_token};

/// Why a header cannot be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderError {
    /// The name is empty, or has characters that names cannot have.
    Name,
    /// The value has a line break or NUL.
    Value,
}

impl fmt::Display for HeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "the header's name has characters that it cannot have",
            Self::Value => "the header's value has a line break or NUL",
        })
    }
}

impl std::error::Error for HeaderError {}

/// Which headers are changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadersOf {
    /// Those that go to the upstream. `Host` is the host that the upstream is asked for.
    Request,
    /// Those that go to the client.
    Response,
}

impl Exchange {
    /// Sets a header, in the place of all of its name.
    pub fn set_header(&mut self, of: HeadersOf, name: &str, value: &[u8]) -> Result<(), HeaderError> {
        check(name, value)?;
        if of == HeadersOf::Request && name.eq_ignore_ascii_case("host") {
            self.set_upstream_host(std::str::from_utf8(value).map_err(|_| HeaderError::Value)?);
            return Ok(());
        }
        self.headers_of(of).set(name, value);
        Ok(())
    }

    /// Adds a header to those of its name.
    pub fn add_header(&mut self, of: HeadersOf, name: &str, value: &[u8]) -> Result<(), HeaderError> {
        if of == HeadersOf::Request && name.eq_ignore_ascii_case("host") {
            return self.set_header(of, name, value);
        }
        check(name, value)?;
        self.headers_of(of).append(name, value);
        Ok(())
    }

    /// Removes all headers of a name.
    pub fn clear_header(&mut self, of: HeadersOf, name: &str) -> Result<(), HeaderError> {
        check(name, b"")?;
        self.headers_of(of).remove(name);
        if of == HeadersOf::Request && self.request.framing != Framing::None {
            self.keep_cleared(name);
        }
        Ok(())
    }

    /// A trailer must not bring a removed header back. Bodies of HTTP/2 and HTTP/3 with a length have trailers too.
    fn keep_cleared(&mut self, name: &str) {
        let cleared = &mut self.engine.extras().cleared;
        if !cleared.iter().any(|known| known.eq_ignore_ascii_case(name)) {
            cleared.push(name.into());
        }
    }

    fn headers_of(&mut self, of: HeadersOf) -> &mut Headers {
        match of {
            HeadersOf::Request => &mut self.request.headers,
            HeadersOf::Response => &mut self.response.headers,
        }
    }
}

pub(super) fn check(name: &str, value: &[u8]) -> Result<(), HeaderError> {
    if !is_token(name.as_bytes()) {
        return Err(HeaderError::Name);
    }
    let ends_line = |byte: &u8| matches!(byte, b'\r' | b'\n' | 0);
    if value.iter().any(ends_line) { Err(HeaderError::Value) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::{HeaderError, HeadersOf};
    use crate::testing::Gateway;

    #[test]
    fn what_cannot_be_sent_is_an_error() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        let mut set = |name, value: &str| exchange.set_header(HeadersOf::Response, name, value.as_bytes());
        assert_eq!(set("X-A", "1"), Ok(()));
        assert_eq!((set("X A", "1"), set("", "1")), (Err(HeaderError::Name), Err(HeaderError::Name)));
        assert_eq!(set("X-A", "1\r\nX-B: 2"), Err(HeaderError::Value));
        assert_eq!(exchange.add_header(HeadersOf::Response, "x-a", b"2"), Ok(()));
        assert_eq!(exchange.response.headers.get_all("X-A").count(), 2);
        assert_eq!(exchange.clear_header(HeadersOf::Response, "X-A"), Ok(()));
        assert_eq!(exchange.response.headers.get("X-A"), None);
    }

    #[test]
    fn the_host_is_that_of_the_upstream() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        exchange.set_header(HeadersOf::Request, "HOST", b"a.test").unwrap();
        assert_eq!(exchange.upstream_host(), Some("a.test"));
        exchange.add_header(HeadersOf::Request, "Host", b"b.test").unwrap();
        assert_eq!(exchange.upstream_host(), Some("b.test"));
        assert_eq!(exchange.request.host(), Some("gateway.test:8000"));
    }
}
