//! The requests to compare by, from files of several formats.
mod access_log;
mod har;
mod http_file;

use http::Uri;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// What a client's request said that belongs to its connection.
const OF_THE_CONNECTION: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-connection",
    "transfer-encoding",
    "upgrade",
    "te",
    "content-length",
    "expect",
];

/// A request that was recorded or written down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: String,
    /// The path and the query.
    pub(super) target: String,
    pub(super) host: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

/// The requests of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    pub(super) requests: Vec<Request>,
    /// Why entries are left out, and how many.
    pub(super) skipped: BTreeMap<String, usize>,
}

impl Recorded {
    fn skip(&mut self, why: &str) {
        *self.skipped.entry(why.to_owned()).or_default() += 1;
    }
}

/// Reads a file of requests; its content decides on the format.
pub(super) fn read(file: &Path) -> Result<Recorded, String> {
    let name = file.display();
    let mut text = Vec::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().lock().read_to_end(&mut text).map(drop),
        false => std::fs::read(file).map(|bytes| text = bytes),
    };
    read.map_err(|error| format!("{name}: {error}"))?;
    let recorded = parse(&String::from_utf8_lossy(&text)).map_err(|error| format!("{name}: {error}"))?;
    if recorded.requests.is_empty() {
        return Err(format!("{name}: no request found: write one on each line, such as GET /path"));
    }
    Ok(recorded)
}

fn parse(text: &str) -> Result<Recorded, String> {
    let text = text.trim_start_matches('\u{feff}');
    let first = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().trim();
    if har::is_har(text) {
        har::parse(text)
    } else if first.starts_with('{') || access_log::quoted_request(first).is_some() {
        Ok(access_log::parse(text))
    } else {
        http_file::parse(text)
    }
}

impl Request {
    /// A request of a URL or of a path; none if it is neither.
    fn new(method: &str, url: &str) -> Option<Self> {
        let uri: Uri = url.parse().ok()?;
        let target = uri.path_and_query()?.as_str();
        if !target.starts_with('/') || http::Method::from_bytes(method.as_bytes()).is_err() {
            return None;
        }
        Some(Self {
            method: method.to_owned(),
            target: target.to_owned(),
            host: uri.authority().map(|authority| authority.as_str().to_owned()),
            headers: Vec::new(),
            body: Vec::new(),
        })
    }

    /// Adds a header, unless it is about the connection.
    fn add(&mut self, name: &str, value: &str) {
        if name.eq_ignore_ascii_case("host") {
            self.host = Some(value.to_owned());
        } else if !OF_THE_CONNECTION.iter().any(|known| name.eq_ignore_ascii_case(known))
            && !name.starts_with(':')
        {
            self.headers.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Whether it changes nothing (RFC 9110, 9.2.1).
    pub(super) fn is_safe(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD" | "OPTIONS")
    }

    /// Adds the headers that it has not.
    pub(super) fn add_missing(&mut self, headers: &[(String, String)]) {
        for (name, value) in headers {
            let has = match name.eq_ignore_ascii_case("host") {
                true => self.host.is_some(),
                false => self.headers.iter().any(|(other, _)| other.eq_ignore_ascii_case(name)),
            };
            if !has {
                self.add(name, value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn targets(text: &str) -> Vec<String> {
        let recorded = parse(text).expect("a file of requests");
        recorded.requests.iter().map(|request| format!("{} {}", request.method, request.target)).collect()
    }

    #[test]
    fn the_content_decides_on_the_format() {
        let har =
            r#"{"log": {"entries": [{"request": {"method": "GET", "url": "http://a/h", "headers": []}}]}}"#;
        let line = r#"{"request": {"method": "GET", "uri": "/f", "headers": {"host": "a"}}}"#;
        let log = r#"10.0.0.1 - - [22/Nov/2026:10:00:00 +0000] "GET /l HTTP/1.1" 200 5 "-" "curl/8""#;
        assert_eq!(targets(har), ["GET /h"]);
        assert_eq!(targets(line), ["GET /f"]);
        assert_eq!(targets(log), ["GET /l"]);
        assert_eq!(targets("GET /t\n"), ["GET /t"]);
        assert_eq!(targets("\u{feff}\n/only/a/path\n"), ["GET /only/a/path"]);
    }

    #[test]
    fn what_is_about_a_connection_is_not_sent_again() {
        let mut request = Request::new("GET", "https://a.test/x?y=1").expect("a URL");
        request.add("Connection", "close");
        request.add(":authority", "a.test");
        request.add("X-A", "1");
        request.add_missing(&[
            ("x-a".into(), "2".into()),
            ("Host".into(), "b".into()),
            ("X-B".into(), "3".into()),
        ]);
        assert_eq!(request.host.as_deref(), Some("a.test"));
        assert_eq!(request.headers, [("X-A".to_owned(), "1".to_owned()), ("X-B".to_owned(), "3".to_owned())]);
    }
}
