//! Multipart forms (RFC 7578) in bodies. They are parsed as leniently as servers parse them: lines may end in LF alone,
//! blanks may follow a delimiter, and the last delimiter may be missing.

use std::ops::Range;

/// The parts of a form and their positions.
pub(crate) struct Multipart<'b> {
    pub(crate) parts: Vec<Part<'b>>,
    /// The position of the first delimiter.
    pub(crate) start: usize,
    /// The position of the closing one, if there is one.
    pub(crate) end: Option<usize>,
}

/// One part.
pub(crate) struct Part<'b> {
    pub(crate) name: Option<String>,
    pub(crate) is_file: bool,
    pub(crate) value: &'b [u8],
    /// The part with the delimiter before it.
    pub(crate) range: Range<usize>,
}

/// The boundary that a `Content-Type` names.
pub(crate) fn boundary(content_type: &str) -> Option<&str> {
    let parameter = |part: &str| {
        part.trim().split_once('=').is_some_and(|(name, _)| name.trim_end().eq_ignore_ascii_case("boundary"))
    };
    let (_, value) = content_type.split(';').find(|part| parameter(part))?.split_once('=')?;
    Some(value.trim().trim_matches('"')).filter(|boundary| !boundary.is_empty())
}

/// The parts between the delimiters. None without a delimiter.
pub(crate) fn read<'b>(body: &'b [u8], boundary: &str) -> Option<Multipart<'b>> {
    let mut delimiters = Delimiters::new(body, boundary);
    let mut here = delimiters.next()?;
    let (start, mut parts) = (here.at, Vec::new());
    while let Some(from) = here.opens {
        let next = delimiters.next();
        let to = next.as_ref().map_or(body.len(), |next| next.at);
        let text = if next.is_some() { without_line_end(&body[from..to]) } else { &body[from..] };
        parts.push(part(text, here.at..to));
        let Some(next) = next else { return Some(Multipart { parts, start, end: None }) };
        here = next;
    }
    Some(Multipart { parts, start, end: Some(here.at) })
}

/// A line that begins with the boundary.
struct Delimiter {
    at: usize,
    /// Where a part begins; none at the end of the form.
    opens: Option<usize>,
}

struct Delimiters<'b> {
    body: &'b [u8],
    begin: Vec<u8>,
    at: usize,
}

impl<'b> Delimiters<'b> {
    fn new(body: &'b [u8], boundary: &str) -> Self {
        Self { body, begin: [b"--", boundary.as_bytes()].concat(), at: 0 }
    }

    fn next(&mut self) -> Option<Delimiter> {
        loop {
            let at = self.at + memchr::memmem::find(&self.body[self.at..], &self.begin)?;
            self.at = at + self.begin.len();
            if at > 0 && self.body[at - 1] != b'\n' {
                continue;
            }
            let rest = &self.body[self.at..];
            if rest.starts_with(b"--") {
                return Some(Delimiter { at, opens: None });
            }
            let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
            let line_end = match &rest[blanks..] {
                [b'\r', b'\n', ..] => 2,
                [b'\n', ..] => 1,
                [] => 0,
                _ => continue,
            };
            self.at += blanks + line_end;
            return Some(Delimiter { at, opens: Some(self.at) });
        }
    }
}

fn without_line_end(text: &[u8]) -> &[u8] {
    text.strip_suffix(b"\r\n").or(text.strip_suffix(b"\n")).unwrap_or(text)
}

/// A part consists of its fields, an empty line and its value.
fn part(text: &[u8], range: Range<usize>) -> Part<'_> {
    let (mut head, mut value) = (text, &[][..]);
    let mut begin = 0;
    for end in memchr::memchr_iter(b'\n', text) {
        if matches!(&text[begin..end], b"" | b"\r") {
            (head, value) = (&text[..begin], &text[end + 1..]);
            break;
        }
        begin = end + 1;
    }
    let (name, is_file) = field(&String::from_utf8_lossy(head));
    Part { name, is_file, value, range }
}

/// The name in `Content-Disposition: form-data; name="…"`, and whether it is of a file.
fn field(head: &str) -> (Option<String>, bool) {
    // A line that begins with a blank continues the one before.
    let unfolded = head.replace("\r\n", "\n").replace("\n ", " ").replace("\n\t", " ");
    let disposition = unfolded.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
    });
    let parameters = disposition.map(parameters).unwrap_or_default();
    let mut is_file = false;
    let mut name = None;
    for (key, value) in parameters {
        match &*key.to_ascii_lowercase() {
            "name" => name = name.or(Some(value)),
            "filename" | "filename*" => is_file = true,
            _ => {}
        }
    }
    (name, is_file)
}

/// `key=value` pairs between semicolons, without quotes and escapes.
fn parameters(disposition: &str) -> Vec<(String, String)> {
    let (mut found, mut text) = (Vec::new(), String::new());
    let (mut is_quoted, mut characters) = (false, disposition.chars());
    let mut add = |text: &mut String| {
        if let Some((key, value)) = std::mem::take(text).split_once('=') {
            found.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    };
    while let Some(character) = characters.next() {
        match character {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => text.extend(characters.next()),
            ';' if !is_quoted => add(&mut text),
            other => text.push(other),
        }
    }
    add(&mut text);
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn fields(body: &str) -> Vec<(Option<String>, String)> {
        let parts = read(body.as_bytes(), "b").map(|form| form.parts).unwrap_or_default().into_iter();
        parts.map(|part| (part.name, String::from_utf8_lossy(part.value).into_owned())).collect()
    }

    #[test]
    fn forms_are_read_as_servers_read_them() {
        let one = |name: &str, value: &str| vec![(Some(name.to_owned()), value.to_owned())];
        for (body, expected) in [
            ("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--", one("a", "1")),
            ("--b\nContent-Disposition: form-data; name=\"a\"\n\n1\n--b--", one("a", "1")),
            ("--b \t\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1\r\n--b--", one("a", "1")),
            ("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n1", one("a", "1")),
            (
                "--b\r\nContent-Disposition : form-data;\r\n\tname=a\r\n\r\n1\r\n--bc\r\n--b--",
                one("a", "1\r\n--bc"),
            ),
            (
                "--b\r\nX: y\r\ncontent-disposition: x; NAME=\"a\\\";\\b\"; name=c\r\n\r\n\r\n--b--",
                one("a\";b", ""),
            ),
            ("--b\r\nContent-Disposition: form-data; name=\"a\"\r\n--b--", one("a", "")),
            ("--b\r\n\r\n1\r\n--b--", vec![(None, "1".to_owned())]),
            ("x--b\r\n\r\n1\r\n--b--", Vec::new()),
        ] {
            assert_eq!(fields(body), expected, "{body:?}");
        }
    }

    #[test]
    fn boundaries_are_found() {
        for (content_type, expected) in [
            ("multipart/form-data; boundary=b", Some("b")),
            ("multipart/form-data; charset=x; Boundary = \"a b\" ", Some("a b")),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; xboundary=b", None),
        ] {
            assert_eq!(boundary(content_type), expected, "{content_type}");
        }
    }

    proptest! {
        #[test]
        fn parts_follow_one_another(body in "(--b|--|\r\n|\n|[ \t]|a|: |Content-Disposition:|; name=\"a\"){0,30}") {
            let Some(form) = read(body.as_bytes(), "b") else { return Ok(()) };
            let end = form.parts.iter().try_fold(form.start, |at, part| {
                (part.range.start == at && part.range.end > at).then_some(part.range.end)
            });
            prop_assert_eq!(end, Some(form.end.unwrap_or(body.len())));
        }
    }
}
