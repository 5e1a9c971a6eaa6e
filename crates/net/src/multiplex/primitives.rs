//! Parses the integers and string literals of HPACK and QPACK (RFC 7541, 5; RFC 9204, 4.1).

use super::huffman;

/// The maximum number of bytes behind the first of an integer; the crate `h2` has the same limit.
const MAX_CONTINUATION_BYTES: usize = 4;

/// An integer with a prefix of this many bits.
pub fn integer(rest: &mut &[u8], bits: u8) -> Option<usize> {
    let (first, after) = rest.split_first()?;
    *rest = after;
    let mask = u8::MAX >> (8 - bits);
    let mut value = usize::from(first & mask);
    if value < usize::from(mask) {
        return Some(value);
    }
    for shift in (0..7 * MAX_CONTINUATION_BYTES).step_by(7) {
        let (byte, after) = rest.split_first()?;
        *rest = after;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// A text whose first byte has so many bits of its length, and above them whether it is Huffman-coded. The room is for a
/// text that has to be decoded.
pub fn text<'t, 'b: 't>(rest: &mut &'b [u8], bits: u8, room: &'t mut Vec<u8>) -> Option<&'t [u8]> {
    let is_coded = rest.first()? >> bits & 1 != 0;
    let length = integer(rest, bits)?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    if !is_coded {
        return Some(text);
    }
    room.clear();
    huffman::decode(text, room)?;
    Some(room)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_of_the_rfc() {
        let cases: [(&[u8], u8, Option<usize>); 7] = [
            (b"\x0a", 5, Some(10)),
            (b"\x1f\x9a\x0a", 5, Some(1337)),
            (b"\x2a", 8, Some(42)),
            (b"\x1f\x00", 5, Some(31)),
            (b"", 5, None),
            (b"\x1f\x9a", 5, None),
            (b"\x1f\xff\xff\xff\xff\x01", 5, None),
        ];
        for (bytes, bits, expected) in cases {
            assert_eq!(integer(&mut &*bytes, bits), expected, "{bytes:?}");
        }
    }

    #[test]
    fn texts_may_be_coded_and_are_whole() {
        let mut room = Vec::new();
        let mut read = |mut bytes: &[u8], bits| text(&mut bytes, bits, &mut room).map(<[u8]>::to_vec);
        assert_eq!(read(b"\x02abc", 7), Some(b"ab".to_vec()));
        assert_eq!(read(b"\x81\x1fc", 7), Some(b"a".to_vec()));
        assert_eq!(read(b"\x29\x1fc", 3), Some(b"a".to_vec()));
        assert_eq!(read(b"\x03ab", 7), None);
        assert_eq!(read(b"\x81\x18", 7), None);
    }
}
