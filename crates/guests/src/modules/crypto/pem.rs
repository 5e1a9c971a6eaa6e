//! PEM blocks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// How long a key or a certificate may be.
pub(super) const MAX_LENGTH: usize = 64 << 10;

/// How many characters of Base64 stand on a line.
const LINE: usize = 64;

/// The label and the bytes of the first block of a text; none if there is none, or it is malformed.
pub(super) fn read(text: &[u8]) -> Option<(String, Vec<u8>)> {
    let text = std::str::from_utf8(text).ok()?;
    let (_, rest) = text.split_once("-----BEGIN ")?;
    let (label, rest) = rest.split_once("-----")?;
    let (body, _) = rest.split_once("-----END ")?;
    let digits: String =
        body.lines().filter(|line| !line.contains(':')).flat_map(str::split_whitespace).collect();
    Some((label.to_owned(), STANDARD.decode(digits).ok()?))
}

/// A block of these bytes.
pub(super) fn write(label: &str, der: &[u8]) -> String {
    let digits = STANDARD.encode(der);
    let mut text = format!("-----BEGIN {label}-----\n");
    for line in digits.as_bytes().chunks(LINE) {
        text.extend(line.iter().copied().map(char::from));
        text.push('\n');
    }
    text + "-----END " + label + "-----\n"
}
