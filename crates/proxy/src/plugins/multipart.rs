//! Multipart forms (RFC 7578), as they stand in bodies.

use std::ops::Range;

/// The parts of a form and where they are.
pub(crate) struct Multipart<'b> {
    pub(crate) parts: Vec<Part<'b>>,
    /// Where the first delimiter is.
    pub(crate) start: usize,
    /// Where the last one is.
    pub(crate) end: usize,
    closed: bool,
}

/// One part.
pub(crate) struct Part<'b> {
    pub(crate) name: Option<&'b str>,
    pub(crate) is_file: bool,
    pub(crate) value: &'b [u8],
    /// The part with the delimiter before it.
    pub(crate) range: Range<usize>,
}

impl Multipart<'_> {
    /// Whether the form ends as it should, and all of it was understood.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }
}

/// The boundary that a `Content-Type` names.
pub(crate) fn boundary(content_type: &str) -> Option<&str> {
    let parameter = |part: &str| {
        part.trim().split_once('=').is_some_and(|(name, _)| name.eq_ignore_ascii_case("boundary"))
    };
    let (_, value) = content_type.split(';').find(|part| parameter(part))?.split_once('=')?;
    Some(value.trim().trim_matches('"')).filter(|boundary| !boundary.is_empty())
}

/// Parts as RFC 2046 delimits them; what does not end in a delimiter is no part. None without a delimiter.
pub(crate) fn read<'b>(body: &'b [u8], boundary: &str) -> Option<Multipart<'b>> {
    let delimiter = [b"--", boundary.as_bytes()].concat();
    let begins_line = |at: &usize| *at == 0 || body[..*at].ends_with(b"\r\n");
    let starts: Vec<_> = memchr::memmem::find_iter(body, &delimiter).filter(begins_line).collect();
    let part = |pair: &[usize]| {
        let range = pair[0]..pair[1];
        let text =
            body.get(pair[0] + delimiter.len()..pair[1])?.strip_prefix(b"\r\n")?.strip_suffix(b"\r\n")?;
        let end = memchr::memmem::find(text, b"\r\n\r\n")?;
        let (name, is_file) = field(std::str::from_utf8(&text[..end]).ok()?);
        Some(Part { name, is_file, value: &text[end + 4..], range })
    };
    let (start, end) = (*starts.first()?, *starts.last()?);
    let parts: Vec<_> = starts.windows(2).filter_map(part).collect();
    let closed = body[end + delimiter.len()..].starts_with(b"--") && parts.len() + 1 == starts.len();
    Some(Multipart { parts, start, end, closed })
}

/// The name in `Content-Disposition: form-data; name="…"`, and whether it is of a file.
fn field(head: &str) -> (Option<&str>, bool) {
    let disposition = head.split("\r\n").find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let parameter = |name: &str| {
        let mut pairs = disposition?.split(';').skip(1).filter_map(|pair| pair.trim().split_once('='));
        pairs.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim_matches('"'))
    };
    (parameter("name"), parameter("filename").is_some())
}
