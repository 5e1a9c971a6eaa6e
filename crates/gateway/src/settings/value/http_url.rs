//! The address of a server, which may have a password in it.
use super::{SECRET, Value};
use axum::http::{HeaderValue, Uri};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use percent_encoding::percent_decode_str;
use std::fmt;

/// The address of a server of HTTP.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct HttpUrl {
    /// The URL without user and password, and without a slash at its end.
    pub(crate) url: String,
    /// The header for user and password, if the URL has them.
    pub(crate) authorization: Option<HeaderValue>,
}

impl Value for HttpUrl {
    const KIND: &'static str = "URL";
    fn parse(text: &str) -> Result<Self, String> {
        // A password is not repeated.
        let wrong = || "this is not a URL like `http://HOST:PORT`".to_owned();
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        let authority = &rest[..rest.find('/').unwrap_or(rest.len())];
        let user = authority.rsplit_once('@').map(|(user, _)| user);
        let rest = user.map_or(rest, |user| &rest[user.len() + 1..]);
        if rest.contains('@') {
            return Err(
                "there is an `@` behind the host; in user and password write `/` as %2F and `@` as %40"
                    .to_owned(),
            );
        }
        let url = format!("{scheme}://{}", rest.trim_end_matches('/'));
        let parsed: Uri = url.parse().map_err(|_| wrong())?;
        if !matches!(scheme, "http" | "https")
            || parsed.host().is_none_or(str::is_empty)
            || parsed.query().is_some()
        {
            return Err(wrong());
        }
        Ok(HttpUrl { url, authorization: user.map(basic).transpose()? })
    }
    fn shown(text: &str) -> serde_json::Value {
        match Self::read(text) {
            Ok(HttpUrl { url, authorization: None }) if !text.contains('@') => url.into(),
            _ => SECRET.into(),
        }
    }
}

/// The header of basic authentication for `user:password`, which a URL may have encoded.
fn basic(user: &str) -> Result<HeaderValue, String> {
    let wrong = || "user or password: a `%` is not followed by two hexadecimal digits".to_owned();
    let encoded = STANDARD.encode(decoded(user).ok_or_else(wrong)?);
    let mut header = HeaderValue::from_str(&format!("Basic {encoded}")).map_err(|_| wrong())?;
    header.set_sensitive(true);
    Ok(header)
}

/// A text whose bytes may be percent-encoded; none if a `%` is not followed by two hexadecimal digits.
pub(super) fn decoded(text: &str) -> Option<Vec<u8>> {
    let is_escape = |part: &str| part.bytes().take_while(u8::is_ascii_hexdigit).nth(1).is_some();
    text.split('%').skip(1).all(is_escape).then(|| percent_decode_str(text).collect())
}

impl fmt::Debug for HttpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpUrl").field("url", &self.url).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_and_password_become_a_header() {
        let parsed = HttpUrl::parse("https://weir:p%40ss@prometheus.test:9090/base/").unwrap();
        assert_eq!(parsed.url, "https://prometheus.test:9090/base");
        assert_eq!(parsed.authorization.clone().unwrap(), format!("Basic {}", STANDARD.encode("weir:p@ss")));
        assert!(!format!("{parsed:?}").contains("p@ss"));
        for text in ["http://weir:secret@a", "http://weir:sec/ret@a", "http://a/secret@b"] {
            assert_eq!(HttpUrl::shown(text), SECRET);
        }
        assert_eq!(HttpUrl::shown("http://a:9090/"), "http://a:9090");
    }

    #[test]
    fn what_is_no_url_is_not_repeated() {
        for text in [
            "secret",
            "ftp://u:secret@a",
            "http://u:secret@",
            "http://u:secret%4@a",
            "http://u:secret%+4@a",
            "http://u:1/secret@a",
            "http://a?secret=1",
        ] {
            assert!(!HttpUrl::parse(text).unwrap_err().contains("secret"), "{text}");
        }
    }
}
