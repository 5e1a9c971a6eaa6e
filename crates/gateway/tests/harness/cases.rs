//! What tables of cases share.

/// The bytes that a text with escapes stands for.
pub fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text;
    while let Some((before, escape)) = rest.split_once('\\') {
        bytes.extend_from_slice(before.as_bytes());
        let (byte, length) = match escape.as_bytes()[0] {
            b'r' => (b'\r', 1),
            b'n' => (b'\n', 1),
            b't' => (b'\t', 1),
            b'0' => (0, 1),
            b'x' => (u8::from_str_radix(&escape[1..3], 16).unwrap(), 3),
            b'{' => {
                let (repeated, behind) = escape[1..].split_once('}').unwrap();
                let (piece, times) = repeated.rsplit_once('*').unwrap();
                bytes.extend(unescape(piece).repeat(times.parse().unwrap()));
                rest = behind;
                continue;
            }
            other => unreachable!("no escape: {other}"),
        };
        bytes.push(byte);
        rest = &escape[length..];
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes
}
