//! Writes the fields of responses (RFC 9204): with references to the static table, and without a dynamic one. Text is
//! not compressed: a head is a small part of a datagram.

use bytes::{BufMut, BytesMut};
use http::HeaderMap;

/// What a field takes beside its name and its value, at most.
const FIELD_BYTES: usize = 1 + 4 + 4;
/// The same of all before the fields.
const HEAD_BYTES: usize = 2 + 8;

/// Enough room for these fields and a status.
pub(super) fn room(fields: &HeaderMap) -> usize {
    let sizes = fields.iter().map(|(name, value)| name.as_str().len() + value.len() + FIELD_BYTES);
    HEAD_BYTES + sizes.sum::<usize>()
}

/// Writes the head of a response.
pub(super) fn encode_head(into: &mut BytesMut, status: u16, fields: &HeaderMap) {
    // Neither entries of a dynamic table nor a base in it.
    into.put_slice(&[0, 0]);
    match static_status(status) {
        Some(index) => integer(into, 0b1100_0000, 6, index),
        None => {
            integer(into, 0b0101_0000, 4, 24);
            text(into, itoa::Buffer::new().format(status).as_bytes());
        }
    }
    encode_fields(into, fields);
}

/// Writes trailers.
pub(super) fn encode(into: &mut BytesMut, fields: &HeaderMap) {
    into.put_slice(&[0, 0]);
    encode_fields(into, fields);
}

fn encode_fields(into: &mut BytesMut, fields: &HeaderMap) {
    for (name, value) in fields {
        let name = name.as_str();
        match static_name(name) {
            Some(index) => integer(into, 0b0101_0000, 4, index),
            None => {
                integer(into, 0b0010_0000, 3, name.len());
                into.put_slice(name.as_bytes());
            }
        }
        text(into, value.as_bytes());
    }
}

fn text(into: &mut BytesMut, text: &[u8]) {
    integer(into, 0, 7, text.len());
    into.put_slice(text);
}

/// Writes a number in so many bits of a byte that begins so, and in more bytes if it is larger (RFC 7541, 5.1).
fn integer(into: &mut BytesMut, begin: u8, bits: u32, number: usize) {
    let most = (1 << bits) - 1;
    if number < most {
        return into.put_u8(begin | number as u8);
    }
    into.put_u8(begin | most as u8);
    let mut rest = number - most;
    while rest >= 0x80 {
        into.put_u8(rest as u8 | 0x80);
        rest >>= 7;
    }
    into.put_u8(rest as u8);
}

/// The entry of the static table (RFC 9204, appendix A) for a status.
fn static_status(status: u16) -> Option<usize> {
    let index = match status {
        200 => 25,
        304 => 26,
        404 => 27,
        503 => 28,
        100 => 63,
        204 => 64,
        206 => 65,
        302 => 66,
        400 => 67,
        403 => 68,
        421 => 69,
        500 => 71,
        _ => return None,
    };
    Some(index)
}

/// The first entry of the static table with a name.
fn static_name(name: &str) -> Option<usize> {
    let index = match name {
        "age" => 2,
        "content-disposition" => 3,
        "content-length" => 4,
        "date" => 6,
        "etag" => 7,
        "last-modified" => 10,
        "link" => 11,
        "location" => 12,
        "set-cookie" => 14,
        "accept-ranges" => 32,
        "access-control-allow-headers" => 33,
        "access-control-allow-origin" => 35,
        "cache-control" => 36,
        "content-encoding" => 42,
        "content-type" => 44,
        "strict-transport-security" => 56,
        "vary" => 59,
        "x-content-type-options" => 61,
        "x-xss-protection" => 62,
        "access-control-allow-credentials" => 73,
        "access-control-allow-methods" => 76,
        "access-control-expose-headers" => 79,
        "alt-svc" => 83,
        "content-security-policy" => 85,
        "server" => 92,
        "timing-allow-origin" => 93,
        "x-frame-options" => 97,
        _ => return None,
    };
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn fields(fields: &[(&'static str, &str)]) -> HeaderMap {
        let field = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_str(value).unwrap())
        };
        fields.iter().map(field).collect()
    }

    fn head(status: u16, given: &[(&'static str, &str)]) -> Vec<u8> {
        let (mut block, fields) = (BytesMut::new(), fields(given));
        encode_head(&mut block, status, &fields);
        assert!(block.len() <= room(&fields));
        block.to_vec()
    }

    #[test]
    fn heads_refer_to_the_static_table() {
        assert_eq!(head(200, &[]), b"\0\0\xd9");
        assert_eq!(head(500, &[]), b"\0\0\xff\x08");
        assert_eq!(head(201, &[]), b"\0\0\x5f\x09\x03201");
        assert_eq!(head(200, &[("content-length", "17")]), b"\0\0\xd9\x54\x0217");
        assert_eq!(head(200, &[("server", "weir")]), b"\0\0\xd9\x5f\x4d\x04weir");
        assert_eq!(head(200, &[("x-a", "b")]), b"\0\0\xd9\x23x-a\x01b");
        assert_eq!(head(200, &[("x-longer", "")]), b"\0\0\xd9\x27\x01x-longer\0");
    }

    #[test]
    fn what_is_written_is_what_is_read() {
        let long = "v".repeat(20_000);
        let given =
            fields(&[("via", "1.1 weir"), ("x-long", &long), ("date", "today"), ("set-cookie", "a=b")]);
        let mut block = BytesMut::new();
        encode(&mut block, &given);
        let mut rest = &block[2..];
        let mut read = 0;
        while !rest.is_empty() {
            match rest[0] {
                0b0101_0000.. => drop(weir_net::multiplex::integer(&mut rest, 4).unwrap()),
                _ => drop(weir_net::multiplex::text(&mut rest, 3, &mut Vec::new()).unwrap()),
            }
            read += weir_net::multiplex::text(&mut rest, 7, &mut Vec::new()).unwrap().len();
        }
        assert_eq!(read, given.values().map(HeaderValue::len).sum::<usize>());
    }
}
