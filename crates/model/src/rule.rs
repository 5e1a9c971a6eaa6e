//! Rules for strings that several fields share; an error says how to fix the value.

use uuid::Uuid;

pub use crate::pem::{
    ca_certificate, certificates, expires, private_key, public_key, public_key_fits, weak_rsa_bits,
};
pub use crate::regex::{marked_regex, regex};

/// The id that a text is. Other ways to write a UUID, such as 32 digits alone, are names: keys look like that.
pub fn id(text: &str) -> Option<Uuid> {
    Uuid::try_parse(text).ok().filter(|_| text.len() == uuid::fmt::Hyphenated::LENGTH)
}

/// A UUID.
pub fn uuid(text: &str) -> Result<(), String> {
    match id(text) {
        Some(_) => Ok(()),
        None => Err(format!("expected a UUID, got {text:?}")),
    }
}

/// A host name or an IP address, without a port.
pub fn host(text: &str) -> Result<(), String> {
    if text.parse::<std::net::IpAddr>().is_ok() {
        return Ok(());
    }
    if let Some(address) = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<std::net::Ipv6Addr>().map(|_| ()).map_err(|_| not_a_host(text));
    }
    // What stands before it may be a password, which no error repeats.
    if text.contains('@') {
        return Err("expected a host name alone; leave out what stands before the `@`".to_owned());
    }
    if text.contains("://") {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
        return Err(format!("expected a host name, got the URL {text:?}; write {host:?} without the scheme"));
    }
    if text.contains(':') {
        return Err(format!("expected a host name without a port, got {text:?}; move the port to `port`"));
    }
    hostname(text)
}

/// The same, or `unix:` and the path of a socket.
pub fn host_or_socket(text: &str) -> Result<(), String> {
    match text.strip_prefix("unix:") {
        Some(path) => socket_path(path),
        None => host(text),
    }
}

/// The path of a Unix socket.
pub fn socket_path(path: &str) -> Result<(), String> {
    if path.starts_with('/') && path.len() <= MAX_SOCKET_PATH_LEN && !path.contains(['\0', ':']) {
        return Ok(());
    }
    Err(format!(
        "expected unix:/path of at most {MAX_SOCKET_PATH_LEN} bytes without a colon, got \"unix:{path}\""
    ))
}

/// What fits in the address of a socket on Linux.
const MAX_SOCKET_PATH_LEN: usize = 107;

/// A host name: labels of letters, digits, `-` and `_`, none of which ends in `-`. There is no limit of length, because
/// names that only the gateway resolves, such as those of upstreams, may be longer than DNS allows.
pub fn hostname(text: &str) -> Result<(), String> {
    let label = |label: &str| {
        !label.is_empty()
            && !label.ends_with('-')
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
    };
    let labels = text.strip_suffix('.').unwrap_or(text);
    if labels.split('.').all(label) { Ok(()) } else { Err(not_a_host(text)) }
}

fn not_a_host(text: &str) -> String {
    format!("expected a host name such as example.com, got {text:?}")
}

/// The name of an entity: anything without reserved characters.
pub fn name(text: &str) -> Result<(), String> {
    match text.chars().find(|c| !c.is_alphanumeric() && !matches!(c, '.' | '-' | '_' | '~') && c.is_ascii()) {
        None => Ok(()),
        Some(other) => Err(format!("a name has letters, digits and . - _ ~ only, not {other:?}")),
    }
}

/// A tag: printable, without `,` and `/`.
pub fn tag(text: &str) -> Result<(), String> {
    match text.chars().find(|c| matches!(c, ',' | '/') || c.is_control()) {
        None => Ok(()),
        Some(other) => Err(format!("a tag must not contain {other:?}")),
    }
}

/// The name of a header.
pub fn header_name(text: &str) -> Result<(), String> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !text.is_empty() && text.bytes().all(token) {
        Ok(())
    } else {
        Err(format!("expected the name of a header, got {text:?}"))
    }
}

/// The path of a URL: starts with `/`, has no empty segment and no character that URLs have not.
pub fn path(text: &str) -> Result<(), String> {
    if !text.starts_with('/') {
        return Err(format!("a path starts with /; write \"/{text}\""));
    }
    if text.contains("//") {
        return Err(format!("a path has no empty segment; write {:?}", single_slashes(text)));
    }
    let literal = |c: char| c.is_ascii_alphanumeric() || "-._~/%:@!$&'()*+,;=".contains(c);
    if let Some(other) = text.chars().find(|c| !literal(*c)) {
        return Err(format!("a path must not contain {other:?}; write it percent-encoded"));
    }
    let bytes = text.as_bytes();
    let escape =
        |at: usize| bytes.get(at + 1..at + 3).is_some_and(|hex| hex.iter().all(u8::is_ascii_hexdigit));
    match bytes.iter().enumerate().any(|(at, byte)| *byte == b'%' && !escape(at)) {
        true => {
            Err("a `%` must be followed by two hex digits; write %25 for the character itself".to_owned())
        }
        false => Ok(()),
    }
}

fn single_slashes(text: &str) -> String {
    let mut path = text.to_owned();
    while path.contains("//") {
        path = path.replace("//", "/");
    }
    path
}

/// An http or https URL with a host.
pub fn url(text: &str) -> Result<(), String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    match rest {
        Some(rest) if has_authority(rest) && !text.contains(char::is_control) => Ok(()),
        _ if text.contains('@') => Err("expected a URL such as https://example.com/path".to_owned()),
        _ if !text.contains("://") && url(&format!("http://{text}")).is_ok() => {
            Err(format!("expected a URL with its scheme, got {text:?}; write \"http://{text}\""))
        }
        _ => Err(format!("expected a URL such as https://example.com/path, got {text:?}")),
    }
}

/// Whether a host, and a port if any, stand before path and query.
fn has_authority(rest: &str) -> bool {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let port = host.rsplit_once(':').filter(|(_, port)| !port.contains(']'));
    let (name, port) = port.map_or((host, ""), |(name, port)| (name, port));
    !name.is_empty() && (port.is_empty() || port.parse::<u16>().is_ok())
}

/// A host name in which one `*` may stand for the first or the last label.
pub fn wildcard_host(text: &str) -> Result<(), String> {
    let plain = match (text.matches('*').count(), text.strip_prefix("*."), text.strip_suffix(".*")) {
        (0, ..) => return host(text),
        (1, Some(rest), _) | (1, _, Some(rest)) => rest,
        _ => {
            return Err(format!(
                "one `*` may stand for the first or the last label, as in *.example.com; got {text:?}"
            ));
        }
    };
    hostname(plain)
}

/// The same, with or without a port.
pub fn wildcard_host_and_port(text: &str) -> Result<(), String> {
    match text.rsplit_once(':') {
        Some((host, port)) if !text.ends_with(']') && !host.contains(':') && !text.contains("://") => {
            match port.parse::<u16>() {
                Ok(_) => wildcard_host(host),
                Err(_) => Err(format!("expected a host name such as example.com, got {text:?}")),
            }
        }
        _ => wildcard_host(text),
    }
}

/// An IP address, or a range of them.
pub fn ip_or_cidr(text: &str) -> Result<(), String> {
    let (address, bits) = text.split_once('/').map_or((text, None), |(address, bits)| (address, Some(bits)));
    let most = match address.parse::<std::net::IpAddr>() {
        Ok(std::net::IpAddr::V4(_)) => Some(32),
        Ok(std::net::IpAddr::V6(_)) => Some(128),
        Err(_) => None,
    };
    let fits = |bits: &str| bits.parse::<u8>().is_ok_and(|bits| most.is_some_and(|most| bits <= most));
    if most.is_some() && bits.is_none_or(fits) {
        Ok(())
    } else {
        Err(format!("expected an IP address or a range such as 10.0.0.0/8, got {text:?}"))
    }
}

/// A path of a route: a prefix, or a regex behind `~`.
pub fn route_path(text: &str) -> Result<(), String> {
    match text.strip_prefix('~') {
        Some(pattern) if !pattern.starts_with('/') => Err(format!(
            "a regex path starts with ~/; write \"~/{}\"",
            pattern.trim_start_matches(['^', '/'])
        )),
        Some(pattern) => marked_regex("~", pattern),
        None => prefix(text),
    }
}

fn prefix(text: &str) -> Result<(), String> {
    if let Some(base) = text.strip_suffix("/*").or_else(|| text.strip_suffix("/**")) {
        let base = if base.is_empty() { "/" } else { base };
        return Err(format!("a prefix needs no `*`; write {base:?}"));
    }
    if means_regex(text) {
        return Err(format!("regex paths must start with `~`; write \"~{text}\""));
    }
    path(text)
}

/// Whether a prefix holds what only regexes do.
fn means_regex(text: &str) -> bool {
    text.contains(['[', ']', '{', '}', '\\', '^', '|', '?'])
        || [".*", ".+", "(.", ")*", ")+"].iter().any(|pattern| text.contains(pattern))
        || text.len() > 2 && text.ends_with('$')
}

/// Whether a path holds characters that Kong before 3.0 took for a regex.
pub(crate) fn looks_like_regex(text: &str) -> bool {
    !text.bytes().all(|b| b.is_ascii_alphanumeric() || b".-_~/%".contains(&b))
}
