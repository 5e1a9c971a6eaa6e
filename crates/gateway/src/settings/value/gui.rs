//! Values that say where Kong Manager is served.
use super::Value;
use axum::http::Uri;

/// The address of a web page, and the origin that browsers name for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PageUrl {
    pub(crate) url: String,
    pub(crate) origin: String,
}

impl Value for PageUrl {
    const KIND: &'static str = "URLs";
    fn parse(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a URL like `https://manager.example.com`");
        let url: Uri = text.parse().map_err(|_| wrong())?;
        let (scheme, host) = url.scheme_str().zip(url.host()).ok_or_else(wrong)?;
        let default_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(wrong()),
        };
        if url.authority().is_some_and(|authority| authority.as_str().contains('@')) {
            return Err("leave the user out of the URL: browsers do not name one".to_owned());
        }
        // Browsers write names in lower case, and leave the usual port out.
        let host = host.to_ascii_lowercase();
        let origin = match url.port_u16().filter(|port| *port != default_port) {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        };
        Ok(PageUrl { url: text.to_owned(), origin })
    }
}

/// The path below which the web UI is served, without a slash at its end; empty for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BasePath(pub(crate) String);

impl Value for BasePath {
    const KIND: &'static str = "path of a URL";
    fn parse(text: &str) -> Result<Self, String> {
        let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        let is_segment = |segment: &str| !segment.is_empty() && segment.bytes().all(is_known);
        let segments = text.strip_prefix('/');
        match segments {
            Some("") => Ok(BasePath(String::new())),
            Some(segments) if segments.split('/').all(is_segment) => Ok(BasePath(text.to_owned())),
            _ => Err(format!(
                "`{text}` is not a path like `/manager`: begin it with `/`, end it without one, and use letters, digits, \
                 `-`, `_` and single slashes"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_do() {
        let origin = |text: &str| PageUrl::parse(text).map(|page| page.origin);
        for (url, expected) in [
            ("http://localhost:8002", "http://localhost:8002"),
            ("https://Manager.Example.com/manager", "https://manager.example.com"),
            ("https://example.com:443", "https://example.com"),
            ("http://example.com:443", "http://example.com:443"),
            ("http://[::1]:80/", "http://[::1]"),
        ] {
            assert_eq!(origin(url).as_deref(), Ok(expected), "{url}");
        }
        for url in
            ["*", "example.com", "ftp://example.com", "http://user:pass@example.com", "http://", "null"]
        {
            let error = origin(url).unwrap_err();
            assert!(!error.contains("pass"), "{error}");
        }
    }

    #[test]
    fn a_base_path_has_plain_segments() {
        for (text, path) in [("/", ""), ("/manager", "/manager"), ("/kong/man-ager_2", "/kong/man-ager_2")] {
            assert_eq!(BasePath::parse(text), Ok(BasePath(path.to_owned())));
        }
        for text in ["", "manager", "/manager/", "//", "/a//b", "/a b", "/a.b"] {
            assert!(BasePath::parse(text).is_err(), "{text}");
        }
    }
}
