//! The parameters of the header: `hmac username="…", algorithm="…", headers="…", signature="…"`.

use regex::bytes::Regex;
use std::sync::LazyLock;

/// The parts of one header.
pub(super) struct Parameters<'a> {
    pub(super) username: &'a [u8],
    pub(super) algorithm: &'a [u8],
    headers: &'a [u8],
    /// In base64.
    pub(super) signature: &'a [u8],
}

/// As Kong parses it: in this order, anywhere in the header.
static FORM: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let form = r#"(?-u)[Hh]mac\s*username="(.+)",\s*algorithm="(.+)",\s*headers="(.+)",\s*signature="(.+)""#;
    Regex::new(form).ok()
});

impl<'a> Parameters<'a> {
    pub(super) fn parse(header: &'a [u8]) -> Option<Self> {
        Self::at_the_start(header).or_else(|| Self::anywhere(header))
    }

    /// Parses the form that nearly all clients send without a regex: no quotes but those around the parameters.
    fn at_the_start(header: &'a [u8]) -> Option<Self> {
        let rest = header.strip_prefix(b"hmac").or_else(|| header.strip_prefix(b"Hmac"))?;
        let (username, rest) = quoted(rest.trim_ascii_start(), b"username=\"")?;
        let next = |rest: &'a [u8], name| quoted(rest.strip_prefix(b",")?.trim_ascii_start(), name);
        let (algorithm, rest) = next(rest, b"algorithm=\"")?;
        let (headers, rest) = next(rest, b"headers=\"")?;
        let (signature, rest) = next(rest, b"signature=\"")?;
        (!rest.contains(&b'"')).then_some(Self { username, algorithm, headers, signature })
    }

    fn anywhere(header: &'a [u8]) -> Option<Self> {
        let captures = FORM.as_ref()?.captures(header)?;
        let part = |index| captures.get(index).map(|part| part.as_bytes());
        Some(Self { username: part(1)?, algorithm: part(2)?, headers: part(3)?, signature: part(4)? })
    }

    /// The names of the signed headers, in order.
    pub(super) fn headers(&self) -> impl Iterator<Item = &'a [u8]> {
        self.headers.split(|byte| *byte == b' ')
    }
}

/// The text between a name and the next quote, if there is any, and the rest.
fn quoted<'a>(text: &'a [u8], name: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let text = text.strip_prefix(name)?;
    let end = memchr::memchr(b'"', text).filter(|end| *end > 0)?;
    Some((&text[..end], &text[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::Parameters;

    fn parts<'a>(parsed: Option<Parameters<'a>>) -> Option<[&'a [u8]; 4]> {
        parsed.map(|parsed| [parsed.username, parsed.algorithm, parsed.headers, parsed.signature])
    }

    #[test]
    fn what_is_found_at_the_start_is_what_the_regex_finds() {
        let usual = r#"hmac username="a", algorithm="hmac-sha256", headers="date x", signature="c=""#;
        assert!(Parameters::at_the_start(usual.as_bytes()).is_some());
        let odd = [
            usual.replace("hmac u", "Hmac   u"),
            usual.replace(", ", ","),
            usual.replace("hmac u", "HMAC u"),
            usual.replace("hmac u", "other hmac u"),
            usual.replace("\"a\"", "\"\""),
            usual.replace("\"a\"", "\"a\"b\""),
            usual.replace("\"c=\"", "\"c=\", more=\"d\""),
            usual.replace("\"c=\"", "\"c=\" and more"),
            usual.replace(", headers", "; headers"),
            usual.replace("\"c=\"", "\"c="),
            format!("{usual}, {usual}"),
        ];
        for header in odd.iter().map(String::as_bytes).chain([usual.as_bytes()]) {
            let text = String::from_utf8_lossy(header);
            assert_eq!(parts(Parameters::parse(header)), parts(Parameters::anywhere(header)), "{text}");
        }
    }
}
