//! The `url` of a service, which stands for four of its fields.
use crate::node::{Entry, Node, Origin, Position, Value};
use crate::schema::{ConfigError, quoted};
use crate::secret_reference::{NOT_RESOLVED, is_reference};

/// The fields that a `url` stands for.
const OF_URL: [&str; 4] = ["protocol", "host", "port", "path"];

/// Puts protocol, host, port and path in the place of `url`, which wins over any of these: over which, is said.
///
/// # Errors
/// Where the URL is none.
pub(crate) fn split_url(service: &mut Node<'_>) -> Result<Vec<ConfigError>, ConfigError> {
    let Value::Map(entries) = &mut service.value else { return Ok(Vec::new()) };
    let Some(url) = entries.iter().position(|entry| entry.key == "url") else { return Ok(Vec::new()) };
    let Node { value, at } = entries.remove(url).node;
    let (text, origin) = match &value {
        Value::Null => return Ok(Vec::new()),
        Value::Str(text, origin) => (text.as_ref(), *origin),
        _ => ("", Origin::Quoted),
    };
    let parts = match Url::parse(text, origin) {
        Ok(parts) => parts,
        Err(message) => {
            // So that no host is missed: what is said of the URL is enough, and it may hold a password.
            entries.push(text_entry("host", "url", at, Origin::Quoted));
            return Err(ConfigError { at, path: "url".to_owned(), message });
        }
    };
    let is_ignored = |entry: &mut Entry<'_>| OF_URL.contains(&entry.key.as_ref());
    let ignored = entries.extract_if(.., is_ignored).filter(|entry| entry.node.value != Value::Null);
    // A protocol such as `ws` stands beside the URLs of widely used files, and says nothing else than they do.
    let ignored = ignored.filter(|entry| entry.key != "protocol").map(|entry| ConfigError {
        at: entry.at,
        path: entry.key.to_string(),
        message: "without effect beside `url`, which wins; leave one of them out".to_owned(),
    });
    let ignored = ignored.collect();
    entries.push(text_entry("protocol", parts.scheme, at, origin));
    entries.push(text_entry("host", parts.host, at, origin));
    entries.push(Entry { key: "port".into(), at, node: Node::new(Value::Int(parts.port), at) });
    entries.extend(parts.path.map(|path| text_entry("path", path, at, origin)));
    Ok(ignored)
}

fn text_entry(key: &'static str, text: &str, at: Position, origin: Origin) -> Entry<'static> {
    let node = Node::new(Value::Str(text.to_owned().into(), origin), at);
    Entry { key: key.into(), at, node }
}

struct Url<'u> {
    scheme: &'u str,
    host: &'u str,
    port: i64,
    path: Option<&'u str>,
}

impl<'u> Url<'u> {
    /// The parts, or what is wrong and how to fix it; a password is not repeated, nor what comes from the environment.
    fn parse(text: &'u str, origin: Origin) -> Result<Self, String> {
        if is_reference(text) {
            return Err(NOT_RESOLVED.to_owned());
        }
        if text.contains('@') {
            return Err(
                "a service's `url` has no user and no password; leave out what stands before the `@`"
                    .to_owned(),
            );
        }
        if text.contains(['?', '#']) {
            return Err(
                "a service's `url` has no query and no fragment; leave out what begins with `?` or `#`"
                    .to_owned(),
            );
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let hint = match origin {
                Origin::Quoted | Origin::Plain if !text.is_empty() => {
                    format!(" with its scheme; write http://{}", quoted(text))
                }
                _ => " such as http://example.com:8080/path".to_owned(),
            };
            return Err(format!("expected a URL{hint}"));
        };
        let path = rest.find('/').map(|at| &rest[at..]);
        let authority = &rest[..rest.len() - path.map_or(0, str::len)];
        let default = if scheme == "https" { 443 } else { 80 };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !authority.ends_with(']') => {
                (host, port.parse::<u16>().ok().map(i64::from))
            }
            _ => (authority, Some(default)),
        };
        let Some(port) = port else {
            return Err(
                "expected a whole number between 0 and 65535 as the port, behind the last `:`".to_owned()
            );
        };
        if host.is_empty() {
            return Err("expected a host behind `://`, as in http://example.com:8080/path".to_owned());
        }
        Ok(Url { scheme, host, port, path })
    }
}
