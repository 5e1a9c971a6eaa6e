//! What requests and responses share.

/// The version of a message. Only the first two share this crate's syntax; a head that came by HTTP/2 is
/// [assembled](crate::RequestHead::assemble).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0
    Http10,
    /// HTTP/1.1
    #[default]
    Http11,
    /// HTTP/2
    Http2,
    /// HTTP/3
    Http3,
}

/// A request's method, recognised once. Methods are case-sensitive: `get` is [`Method::Other`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Method {
    #[default]
    Get,
    Head,
    Post,
    Put,
    Delete,
    Patch,
    Options,
    Trace,
    Connect,
    Other,
}

impl Method {
    /// The longest name that a method may have; those of IANA's registry have up to 17 bytes.
    pub const MAX_LEN: usize = 64;

    /// Recognises a method's name.
    pub fn of(name: &str) -> Self {
        match name {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "PATCH" => Self::Patch,
            "OPTIONS" => Self::Options,
            "TRACE" => Self::Trace,
            "CONNECT" => Self::Connect,
            _ => Self::Other,
        }
    }
}

/// How much of a head is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a head from its first line to its empty line; more answers 400 (414 within the first line).
    pub max_head_bytes: usize,
    /// Fields of a head, at most [`Limits::MAX_FIELDS`]; more answers 431.
    pub max_fields: usize,
    /// Bytes of a request target; more answers 414.
    pub max_target_bytes: usize,
    /// Bytes of one field, its name and its value; more answers 400.
    pub max_field_bytes: usize,
}

impl Limits {
    /// The most that `max_fields` can ask for.
    pub const MAX_FIELDS: usize = 1000;
    /// Parsing fewer fields than this needs no memory beyond the stack.
    pub(crate) const FEW_FIELDS: usize = 100;

    /// Whether a field is within the limit.
    pub fn allows_field(&self, name: &[u8], value: &[u8]) -> bool {
        name.len() + value.len() <= self.max_field_bytes
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_head_bytes: 64 * 1024,
            max_fields: Self::MAX_FIELDS,
            max_target_bytes: 8 * 1024,
            max_field_bytes: usize::MAX,
        }
    }
}
