//! What a response is one of: its resource, which unsafe requests invalidate (RFC 9111, 4.4), and its tags, by which it
//! is purged.

use super::config::Config;
use super::key::{self, Parts};
use super::stored::Subject;
use weir_plugin::{Exchange, Fingerprint, Fingerprinter, Headers, Known, normalize_path};

/// Tags that are stored of one response, and the length of one.
const MAX_TAGS: usize = 64;
const MAX_TAG_LEN: usize = 256;

/// Methods that change nothing.
const SAFE: [&str; 8] = ["GET", "HEAD", "OPTIONS", "TRACE", "PROPFIND", "REPORT", "SEARCH", "QUERY"];

/// The host, path and query of a response.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Resource {
    /// For this node.
    pub(super) fingerprint: Fingerprint,
    /// For all nodes, if they share responses.
    pub(super) name: Option<String>,
}

/// The subject of the response in the exchange.
pub(super) fn of(config: &Config, by: &Fingerprinter, exchange: &Exchange) -> Subject {
    let resource = resource(config, by, exchange, (exchange.path(), exchange.query()));
    Subject { resource, path: path(config, exchange), tags: tags(&exchange.response.headers) }
}

/// The path that requests with the same key have in common.
pub(super) fn path(config: &Config, exchange: &Exchange) -> String {
    match config.ignore_uri_case {
        true => exchange.path().to_lowercase(),
        false => exchange.path().to_owned(),
    }
}

/// The resource of this path and query, at the host of the request.
fn resource(
    config: &Config,
    by: &Fingerprinter,
    exchange: &Exchange,
    (path, query): (&str, Option<&str>),
) -> Resource {
    let mut parts = Parts::default();
    parts.add(exchange.request.host().unwrap_or_default().to_ascii_lowercase().as_bytes());
    match config.ignore_uri_case {
        true => parts.add(path.to_lowercase().as_bytes()),
        false => parts.add(path.as_bytes()),
    }
    parts.add_query(config, query);
    let name = config.is_shared().then(|| key::text(&parts.0).to_string());
    Resource { fingerprint: by.of(&parts.0), name }
}

/// Whether a request with this method may change what it names.
pub(super) fn is_unsafe(method: &str) -> bool {
    !SAFE.contains(&method)
}

/// The resources that a successful response to an unsafe request makes invalid: the request's own, and those that the
/// response names, if they are of the same origin.
pub(super) fn changed(config: &Config, by: &Fingerprinter, exchange: &Exchange) -> Vec<Resource> {
    let own = resource(config, by, exchange, (exchange.path(), exchange.query()));
    let headers = &exchange.response.headers;
    let named = [headers.get_known(Known::Location), headers.get("Content-Location")];
    let named = named.into_iter().flatten().filter_map(|uri| {
        let (path, query) = at_same_origin(std::str::from_utf8(uri).ok()?, exchange)?;
        Some(resource(config, by, exchange, (&normalize_path(&path), query)))
    });
    std::iter::once(own).chain(named).collect()
}

/// The path and the query of a URI reference, if it stays at the request's origin.
fn at_same_origin<'u>(uri: &'u str, exchange: &Exchange) -> Option<(String, Option<&'u str>)> {
    let uri = uri.split('#').next()?;
    let (uri, query) = uri.split_once('?').map_or((uri, None), |(uri, query)| (uri, Some(query)));
    let after_scheme = match uri.split_once("://") {
        Some((scheme, rest)) if scheme.eq_ignore_ascii_case(exchange.scheme()) => Some(rest),
        Some(_) => return None,
        None => uri.strip_prefix("//"),
    };
    if let Some(rest) = after_scheme {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let is_same = authority.eq_ignore_ascii_case(exchange.request.host()?);
        return is_same.then(|| (if path.is_empty() { "/" } else { path }.to_owned(), query));
    }
    match uri {
        "" => Some((exchange.request.path().to_owned(), query)),
        path if path.starts_with('/') => Some((path.to_owned(), query)),
        path => {
            let base = exchange.request.path();
            let folder = &base[..base.rfind('/').map_or(0, |end| end + 1)];
            Some((format!("{folder}{path}"), query))
        }
    }
}

/// `Surrogate-Key` separates tags by spaces, `Cache-Tag` by commas.
fn tags(headers: &Headers) -> Vec<String> {
    let by_space = headers.get_all("Surrogate-Key").flat_map(|line| line.split(u8::is_ascii_whitespace));
    let by_comma = headers.get_all("Cache-Tag").flat_map(|line| line.split(|byte| *byte == b','));
    let tags = by_space.chain(by_comma).filter_map(|tag| std::str::from_utf8(tag.trim_ascii()).ok());
    tags.filter(|tag| (1..=MAX_TAG_LEN).contains(&tag.len())).take(MAX_TAGS).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::PLUGINS;
    use weir_plugin::testing::Gateway;

    #[test]
    fn what_a_response_names_is_found_at_the_same_origin_alone() {
        let exchange = Gateway::new(PLUGINS).exchange("POST /a/b?c");
        for (uri, expected) in [
            ("/x?y#z", Some(("/x", Some("y")))),
            ("x", Some(("/a/x", None))),
            ("", Some(("/a/b", None))),
            ("http://gateway.test:8000/x", Some(("/x", None))),
            ("HTTP://GATEWAY.test:8000", Some(("/", None))),
            ("//gateway.test:8000/x", Some(("/x", None))),
            ("http://gateway.test/x", None),
            ("https://gateway.test:8000/x", None),
            ("http://other.test/x", None),
        ] {
            let found = at_same_origin(uri, &exchange);
            let found = found.as_ref().map(|(path, query)| (path.as_str(), *query));
            assert_eq!(found, expected, "{uri}");
        }
    }

    #[test]
    fn tags_are_read_of_both_headers() {
        let mut headers = Headers::new();
        headers.append("Surrogate-Key", b"one  two");
        headers.append("Cache-Tag", b"three, four five,");
        assert_eq!(tags(&headers), ["one", "two", "three", "four five"]);
    }

    #[test]
    fn methods_that_are_not_known_may_change_something() {
        assert!(["POST", "PUT", "DELETE", "M-SEARCH"].into_iter().all(is_unsafe));
        assert!(!is_unsafe("GET") && !is_unsafe("OPTIONS"));
    }
}
