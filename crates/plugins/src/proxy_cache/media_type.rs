//! Media types, as in `Content-Type` and in configurations.

/// A media type; `*` stands for any type or subtype.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct MediaType {
    kind: String,
    subtype: String,
    /// Sorted by name.
    parameters: Vec<(String, String)>,
}

impl MediaType {
    /// None if the text is not a media type.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let mut members = std::str::from_utf8(text).ok()?.split(';').map(str::trim);
        let (kind, subtype) = members.next()?.split_once('/')?;
        let parameters = members.filter(|member| !member.is_empty()).map(|member| {
            let (name, value) = member.split_once('=')?;
            Some((name.trim().to_ascii_lowercase(), value.trim().trim_matches('"').to_owned()))
        });
        let mut parameters = parameters.collect::<Option<Vec<_>>>()?;
        parameters.sort_unstable();
        let is_named = !kind.is_empty() && !subtype.is_empty();
        let (kind, subtype) = (kind.to_ascii_lowercase(), subtype.to_ascii_lowercase());
        is_named.then_some(Self { kind, subtype, parameters })
    }

    /// Whether `other` is this type, or one that it includes.
    pub(super) fn includes(&self, other: &Self) -> bool {
        let same = |own: &str, other: &str| own == "*" || own == other;
        same(&self.kind, &other.kind)
            && same(&self.subtype, &other.subtype)
            && self.parameters == other.parameters
    }
}

#[cfg(test)]
mod tests {
    use super::MediaType;

    #[test]
    fn types_are_compared_with_their_parameters() {
        let parse = |text: &str| MediaType::parse(text.as_bytes()).unwrap();
        for (wanted, is, expected) in [
            ("text/plain", "Text/Plain", true),
            ("text/plain", "text/plain; charset=utf-8", false),
            ("text/plain;charset=utf-8", "text/plain; Charset=\"utf-8\"", true),
            ("text/plain;charset=utf-8", "text/plain; charset=latin1", false),
            ("a/b; x=1; y=2", "a/b;y=2;x=1;", true),
            ("*/*", "text/html", true),
            ("text/*", "text/html", true),
            ("text/*", "image/png", false),
        ] {
            assert_eq!(parse(wanted).includes(&parse(is)), expected, "{wanted} {is}");
        }
        for none in ["", "text", "/", "text/", "text/plain; charset"] {
            assert_eq!(MediaType::parse(none.as_bytes()), None, "{none}");
        }
    }
}
