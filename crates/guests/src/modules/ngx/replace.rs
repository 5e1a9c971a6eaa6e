//! Templates of `ngx.re.sub`: `$1`, `${1}`, `$0`, and `$$` for a dollar.

use fancy_regex::Captures;

/// A part of a template.
enum Part<'a> {
    Text(&'a [u8]),
    Group(usize),
}

/// A parsed template.
pub(super) struct Template<'a>(Vec<Part<'a>>);

impl<'a> Template<'a> {
    /// Parses a template; none if a `$` names nothing.
    pub(super) fn parse(mut text: &'a [u8]) -> Option<Self> {
        let mut parts = Vec::new();
        while let Some(at) = memchr::memchr(b'$', text) {
            parts.push(Part::Text(&text[..at]));
            let rest = &text[at + 1..];
            let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
            text = match rest.first()? {
                b'$' => {
                    parts.push(Part::Text(b"$"));
                    &rest[1..]
                }
                b'{' => {
                    let count = digits(1);
                    parts.push(group(&rest[1..=count])?);
                    rest[count + 1..].strip_prefix(b"}")?
                }
                _ => {
                    let count = digits(0);
                    parts.push(group(&rest[..count])?);
                    &rest[count..]
                }
            };
        }
        parts.push(Part::Text(text));
        Some(Self(parts))
    }

    /// Appends the replacement of a match.
    pub(super) fn expand(&self, out: &mut Vec<u8>, captures: &Captures<'_, [u8]>) {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Group(index) => {
                    out.extend_from_slice(captures.get(*index).map_or(b"", |text| text.as_bytes()));
                }
            }
        }
    }
}

fn group(digits: &[u8]) -> Option<Part<'_>> {
    std::str::from_utf8(digits).ok()?.parse().ok().map(Part::Group)
}
