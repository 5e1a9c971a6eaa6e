//! What expressions are evaluated on: a request, or a connection of a stream.
use super::field::Field;
use super::queries::Arguments;
use crate::hosts::Host;
use crate::{Query, Scheme};
use std::cell::OnceCell;
use std::net::{IpAddr, SocketAddr};

/// The values of fields. A field without a value makes its predicate false.
pub(super) trait Subject {
    /// The value of a field that has one text at most.
    fn text(&self, field: &Field) -> Option<&str>;

    /// Visits the values of a header, or of an argument of the query, until the predicate returns true; returns whether
    /// it did.
    fn values(&self, field: &Field, visit: &mut dyn FnMut(&[u8]) -> bool) -> bool;

    /// The path, or nothing of a stream.
    fn path(&self) -> &str;

    /// The address of the client, and the port.
    fn source(&self) -> SocketAddr;

    /// The address that the client connected to.
    fn destination(&self) -> IpAddr;

    /// The port that the client connected to, or that the Host header names.
    fn destination_port(&self) -> i64;

    /// A number.
    #[inline]
    fn integer(&self, field: &Field) -> Option<i64> {
        match field {
            Field::SourcePort => Some(self.source().port().into()),
            Field::DestinationPort => Some(self.destination_port()),
            Field::SegmentCount => Some(segment_count(self.path())),
            _ => None,
        }
    }

    /// An address.
    fn address(&self, field: &Field) -> Option<IpAddr> {
        match field {
            Field::SourceAddress => Some(self.source().ip()),
            Field::DestinationAddress => Some(self.destination()),
            _ => None,
        }
    }
}

/// A connection of a stream, as expressions see it.
#[derive(Debug, Clone, Copy)]
pub struct Connection<'a> {
    /// `tcp`, `tls` or `udp`.
    pub protocol: &'static str,
    /// The server name of the TLS handshake, in lower case.
    pub sni: Option<&'a str>,
    /// The client.
    pub source: SocketAddr,
    /// Where it connected to.
    pub destination: SocketAddr,
}

impl Subject for Connection<'_> {
    fn text(&self, field: &Field) -> Option<&str> {
        match field {
            Field::Protocol => Some(self.protocol),
            Field::Sni => self.sni,
            _ => None,
        }
    }

    fn values(&self, _: &Field, _: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        false
    }

    fn path(&self) -> &str {
        ""
    }

    fn source(&self) -> SocketAddr {
        self.source
    }

    fn destination(&self) -> IpAddr {
        self.destination.ip()
    }

    fn destination_port(&self) -> i64 {
        self.destination.port().into()
    }
}

/// A request, as expressions see it.
pub(crate) struct Request<'a> {
    pub(crate) query: &'a Query<'a>,
    pub(crate) host: Host<'a>,
    /// Of the query; read when an expression asks for one first.
    arguments: OnceCell<Arguments<'a>>,
}

impl<'a> Request<'a> {
    pub(crate) fn new(query: &'a Query<'a>, host: Host<'a>) -> Request<'a> {
        Request { query, host, arguments: OnceCell::new() }
    }

    /// Visits the values of an argument until the predicate returns true; returns whether it did.
    pub(crate) fn argument(&self, name: &str, visit: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        self.arguments.get_or_init(|| Arguments::read(self.query.query)).visit(name, visit)
    }
}

impl Subject for Request<'_> {
    #[inline]
    fn text(&self, field: &Field) -> Option<&str> {
        let query = self.query;
        match field {
            Field::Protocol => Some(match query.scheme {
                Scheme::Http => "http",
                Scheme::Https => "https",
            }),
            Field::Sni => query.sni,
            Field::Method => Some(query.method),
            Field::Host => Some(self.host.name).filter(|name| !name.is_empty()),
            Field::Path => Some(query.path),
            Field::Segments(first, last) => segment_range(query.path, *first, *last),
            _ => None,
        }
    }

    fn values(&self, field: &Field, visit: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        match field {
            Field::Header(name) => (self.query.header)(name, visit),
            Field::Query(name) => self.argument(name, visit),
            _ => false,
        }
    }

    fn path(&self) -> &str {
        self.query.path
    }

    fn source(&self) -> SocketAddr {
        self.query.source
    }

    fn destination(&self) -> IpAddr {
        self.query.destination
    }

    fn destination_port(&self) -> i64 {
        self.host.port as i64
    }
}

/// The segments of a path with where they are. What follows the last slash is none if it is empty.
fn segments(path: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut at = 1;
    std::iter::from_fn(move || {
        let rest = path.get(at..).filter(|rest| !rest.is_empty())?;
        let segment = rest.split('/').next()?;
        let start = at;
        at += segment.len() + 1;
        Some((start, segment))
    })
}

#[inline(never)]
fn segment_count(path: &str) -> i64 {
    segments(path).count() as i64
}

/// The segments from one position to another, with the slashes between them.
#[inline(never)]
fn segment_range(path: &str, first: u32, last: u32) -> Option<&str> {
    let mut from_first = segments(path).skip(first as usize);
    let (start, segment) = from_first.next()?;
    let (end, segment) = match last - first {
        0 => (start, segment),
        more => from_first.nth(more as usize - 1)?,
    };
    path.get(start..end + segment.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_counted_from_0_and_joined_by_slashes() {
        let all = |path| segments(path).map(|(_, segment)| segment).collect::<Vec<_>>();
        assert_eq!(all("/a/b/c"), ["a", "b", "c"]);
        assert_eq!(all("/a/b/"), ["a", "b"]);
        assert!(all("/").is_empty() && all("*").is_empty() && all("").is_empty());
        let range = |first, last| segment_range("/a/bc/d", first, last);
        assert_eq!([range(0, 0), range(1, 1), range(3, 3)], [Some("a"), Some("bc"), None]);
        assert_eq!([range(0, 1), range(0, 2), range(1, 3)], [Some("a/bc"), Some("a/bc/d"), None]);
    }
}
