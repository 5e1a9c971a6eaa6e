//! Validates the fields of requests over HTTP/2 and HTTP/3 (RFC 9113, 8.2 and 8.3; RFC 9114, 4.2 and 4.3). Those over
//! HTTP/2 are validated before the crate `h2` parses them, because it closes the connection for a field that it cannot
//! parse.

/// The kind of a field, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    /// `:authority`
    Authority,
    /// `:method`
    Method,
    /// `:path`
    Path,
    /// `:protocol`, of an extended CONNECT
    Protocol,
    /// `:scheme`
    Scheme,
    /// `:status`
    Status,
    /// `te`
    Te,
    /// It is of one connection over HTTP/1.1.
    OfConnection,
    /// Any other field.
    Other,
    /// No field may have this name.
    Malformed,
}

/// The verdict on a field, in ascending order of severity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The field is valid.
    #[default]
    Fine,
    /// A `#` in `:path`, which the crates cut off.
    Fragment,
    /// It is of one connection over HTTP/1.1.
    OfConnection,
    /// The message must be rejected.
    Malformed,
}

/// Bytes of a field name.
const IN_NAME: u8 = 1;
/// Bytes of a method.
const IN_METHOD: u8 = 2;
/// Bytes that no value holds.
const CONTROL: u8 = 4;
const NOT_ASCII: u8 = 8;
const HASH: u8 = 16;
const NOT_IN_METHOD: u8 = 32;

static CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    let mut byte = 0_u8;
    loop {
        let is_token = byte.is_ascii_alphanumeric()
            || matches!(
                byte,
                b'!' | b'#'
                    | b'$'
                    | b'%'
                    | b'&'
                    | b'\''
                    | b'*'
                    | b'+'
                    | b'-'
                    | b'.'
                    | b'^'
                    | b'_'
                    | b'`'
                    | b'|'
                    | b'~'
            );
        let name = if is_token && !byte.is_ascii_uppercase() { IN_NAME } else { 0 };
        let method = if is_token { IN_METHOD } else { NOT_IN_METHOD };
        let control = if byte == 0x7f || byte < b' ' && byte != b'\t' { CONTROL } else { 0 };
        let ascii = if byte.is_ascii() { 0 } else { NOT_ASCII };
        let hash = if byte == b'#' { HASH } else { 0 };
        classes[byte as usize] = name | method | control | ascii | hash;
        if byte == u8::MAX {
            break classes;
        }
        byte += 1;
    }
};

impl Name {
    /// What the name says.
    pub fn of(name: &[u8]) -> Self {
        match name {
            b":authority" => Self::Authority,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":protocol" => Self::Protocol,
            b":scheme" => Self::Scheme,
            b":status" => Self::Status,
            b"te" => Self::Te,
            b"connection" | b"keep-alive" | b"proxy-connection" | b"transfer-encoding" | b"upgrade" => {
                Self::OfConnection
            }
            _ if is_name(name) => Self::Other,
            _ => Self::Malformed,
        }
    }

    /// What a field of this name and value means, wherever it stands.
    pub fn verdict(self, value: &[u8]) -> Verdict {
        let classes = value.iter().fold(0, |classes, byte| classes | CLASSES[usize::from(*byte)]);
        let is_text = classes & CONTROL == 0;
        match self {
            Self::Malformed | Self::Status => Verdict::Malformed,
            _ if !is_text => Verdict::Malformed,
            Self::Other => Verdict::Fine,
            Self::OfConnection => Verdict::OfConnection,
            Self::Te if value == b"trailers" => Verdict::Fine,
            Self::Te => Verdict::OfConnection,
            Self::Method if value.is_empty() || classes & NOT_IN_METHOD != 0 => Verdict::Malformed,
            _ if classes & NOT_ASCII != 0 && std::str::from_utf8(value).is_err() => Verdict::Malformed,
            Self::Path if classes & HASH != 0 => Verdict::Fragment,
            _ => Verdict::Fine,
        }
    }

    /// Its place among the pseudo-header fields.
    fn pseudo(self) -> Option<u8> {
        matches!(
            self,
            Self::Authority | Self::Method | Self::Path | Self::Protocol | Self::Scheme | Self::Status
        )
        .then(|| 1 << self as u8)
    }
}

fn is_name(name: &[u8]) -> bool {
    // Longer ones have no form in the crates.
    (1..=usize::from(u16::MAX)).contains(&name.len())
        && name.iter().all(|byte| CLASSES[usize::from(*byte)] & IN_NAME != 0)
}

/// The head or the trailers of a request, as far as their fields were seen.
#[derive(Default)]
pub struct Message {
    is_trailers: bool,
    /// Pseudo-header fields.
    pseudo: u8,
    /// Another field came.
    has_fields: bool,
    verdict: Verdict,
}

impl Message {
    /// A message none of whose fields came, or the trailers of one.
    pub fn new(is_trailers: bool) -> Self {
        Self { is_trailers, ..Self::default() }
    }

    /// The next field has this name, and means this by itself.
    pub fn field(&mut self, name: Name, verdict: Verdict) {
        let misplaced = match name.pseudo() {
            None => {
                self.has_fields = true;
                false
            }
            Some(pseudo) => {
                let again = self.pseudo & pseudo != 0;
                self.pseudo |= pseudo;
                again || self.has_fields || self.is_trailers
            }
        };
        self.verdict = self.verdict.max(if misplaced { Verdict::Malformed } else { verdict });
    }

    /// What its fields together mean.
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: [(&str, &str); 4] =
        [(":method", "GET"), (":scheme", "https"), (":authority", "a"), (":path", "/")];

    fn verdict(fields: &[(&str, &str)], is_trailers: bool) -> Verdict {
        let mut message = Message::new(is_trailers);
        for (name, value) in fields {
            let name = Name::of(name.as_bytes());
            message.field(name, name.verdict(value.as_bytes()));
        }
        message.verdict()
    }

    #[test]
    fn fields_of_heads() {
        use Verdict::{Fine, Fragment, Malformed, OfConnection};
        let cases = [
            (("x-y.z_1", "a\tb \u{e9}"), Fine),
            (("te", "trailers"), Fine),
            (("te", "gzip"), OfConnection),
            (("connection", "close"), OfConnection),
            (("X-Upper", "1"), Malformed),
            (("a b", "1"), Malformed),
            (("", "1"), Malformed),
            (("x", "a\nb"), Malformed),
            (("x", "a\0"), Malformed),
            (("x", "\x7f"), Malformed),
            ((":path", "/"), Malformed),
            ((":protocol", "websocket"), Malformed),
            ((":nonsense", "1"), Malformed),
            ((":status", "200"), Malformed),
        ];
        for (field, expected) in cases {
            assert_eq!(verdict(&[&HEAD[..], &[("x", "1")], &[field]].concat(), false), expected, "{field:?}");
        }
        for (field, expected) in [
            ((":path", "/#a"), Fragment),
            ((":protocol", "websocket"), Fine),
            ((":method", "G T"), Malformed),
        ] {
            assert_eq!(verdict(&[field], false), expected, "{field:?}");
        }
        assert_eq!(Name::Path.verdict(b"/\xff"), Malformed);
        assert_eq!(Name::Other.verdict(b"\xff"), Fine);
    }

    #[test]
    fn trailers_have_no_pseudo_header_fields() {
        assert_eq!(verdict(&[("grpc-status", "0")], true), Verdict::Fine);
        for field in HEAD {
            assert_eq!(verdict(&[field], true), Verdict::Malformed, "{field:?}");
        }
    }
}
