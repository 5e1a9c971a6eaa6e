//! Addresses: escaping of paths and queries.
use percent_encoding::percent_decode_str;
use std::fmt::{self, Display, Write};

/// A segment of a path, escaped.
pub(crate) fn segment(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(byte.into()),
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    // A path of dots alone would be resolved by the browser.
    match escaped.bytes().all(|byte| byte == b'.') {
        true => escaped.replace('.', "%2E"),
        false => escaped,
    }
}

/// A query of these members, without those that are empty; with its `?`.
pub(crate) fn query<'a>(members: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(members.into_iter().filter(|(_, value)| !value.is_empty()));
    match query.finish() {
        empty if empty.is_empty() => empty,
        query => format!("?{query}"),
    }
}

/// The address of a page with its state, below the root of the UI.
#[derive(Clone, Debug)]
pub(crate) struct Address {
    path: String,
    members: Vec<(&'static str, String)>,
}

impl Address {
    pub(crate) fn new(path: impl Into<String>) -> Address {
        Address { path: path.into(), members: Vec::new() }
    }

    /// The same with another value; without the member if it is empty.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Address {
        self.members.retain(|(known, _)| *known != name);
        if !value.is_empty() {
            self.members.push((name, value.to_owned()));
        }
        self
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    pub(crate) fn members(&self) -> impl Iterator<Item = &(&'static str, String)> {
        self.members.iter()
    }
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)?;
        f.write_str(&query(self.members.iter().map(|(name, value)| (*name, value.as_str()))))
    }
}

/// The segments of a path, unescaped.
pub(crate) fn segments(path: &str) -> Vec<String> {
    let unescaped = |segment| percent_decode_str(segment).decode_utf8_lossy().into_owned();
    path.split('/').map(unescaped).collect()
}

/// An address within the UI that a browser sends back: never one of another site.
pub(crate) fn within(address: &str) -> &str {
    let is_within = |address: &&str| {
        // Browsers leave out blanks and control characters before they look at the rest.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && byte != b':' && byte != b'\\';
        !address.starts_with('/') && address.bytes().all(is_plain)
    };
    Some(address).filter(is_within).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_other_sites_are_not_followed() {
        for (address, kept) in [
            ("routes?q=a", "routes?q=a"),
            ("//evil", ""),
            ("https://evil", ""),
            ("javascript:1", ""),
            ("/\\evil", ""),
            (" //evil", ""),
            ("\t//evil", ""),
        ] {
            assert_eq!(within(address), kept);
        }
    }

    #[test]
    fn paths_are_unescaped_once() {
        assert_eq!(segments("routes/a%20b%2Fc"), ["routes", "a b/c"]);
        assert_eq!(segments("%2520/%zz/%+1/%"), ["%20", "%zz", "%+1", "%"]);
    }

    #[test]
    fn segments_and_queries_are_escaped() {
        for (text, escaped) in [("a b/c", "a%20b%2Fc"), ("..", "%2E%2E"), ("a.b", "a.b"), ("ü?", "%C3%BC%3F")]
        {
            assert_eq!(segment(text), escaped);
        }
        assert_eq!(query([("q", "a&b"), ("offset", "")]), "?q=a%26b");
        assert_eq!(query([("q", "")]), "");
    }
}
