//! Kong's words for texts that break a named rule.
use super::Words;
use weir_model::schema::quoted;

/// What Kong says of a text that breaks a rule of this name.
pub(super) fn of_rule(rule: &str, text: &str, ours: &str) -> Option<Words> {
    let shown = quoted(text);
    let words = match rule {
        "name" => format!(
            "invalid value '{shown}': the only accepted ascii characters are alphanumerics or ., -, _, and ~"
        ),
        "tag" => format!(
            "invalid tag '{shown}': expected printable ascii (except `,` and `/`) or valid utf-8 sequences"
        ),
        "path" => path(text),
        "route_path" => route_path(text, ours)?,
        "regex" => format!("not a valid regex: {shown}"),
        "header_name" => {
            format!("bad header name '{shown}', allowed characters are A-Z, a-z, 0-9, '_', and '-'")
        }
        "host" | "host_or_socket" | "hostname" => host(text),
        "wildcard_host" | "server_name" => wildcard_host(text),
        "wildcard_host_and_port" => route_host(text),
        "ip_or_cidr" => format!("invalid ip or cidr range: '{shown}'"),
        "method" => format!("invalid value: {shown}"),
        "uuid" => "expected a valid UUID".to_owned(),
        "target" => format!("Invalid target ('{shown}'); not a valid hostname or ip address"),
        "virtual_host" => upstream_name(text),
        "certificates" => format!("invalid certificate: {ours}"),
        "private_key" => format!("invalid key: {ours}"),
        "ca_certificate" => return Some(authority(text, ours)),
        "url" if !text.contains("://") => "missing scheme in url".to_owned(),
        "url" => "missing host in url".to_owned(),
        _ => return None,
    };
    Some((words, false))
}

fn path(text: &str) -> String {
    if !text.starts_with('/') {
        "should start with: /".to_owned()
    } else if text.contains("//") {
        "must not have empty segments".to_owned()
    } else if let Some(escape) = wrong_escape(text) {
        format!("invalid url-encoded value: '{escape}'")
    } else {
        format!(
            "invalid path: '{}' (characters outside of the reserved list of RFC 3986 found)",
            quoted(text)
        )
    }
}

/// The first `%` without two digits, and what follows it.
fn wrong_escape(text: &str) -> Option<&str> {
    let is_wrong = |at: usize| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        !digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let at = text.match_indices('%').map(|(at, _)| at).find(|at| is_wrong(*at))?;
    Some(&text[at..text.floor_char_boundary(at + 3)])
}

fn route_path(text: &str, ours: &str) -> Option<String> {
    if !text.starts_with('/') && !text.starts_with("~/") {
        return Some("should start with: / (fixed path) or ~/ (regex path)".to_owned());
    }
    if text.contains("//") {
        return Some("must not have empty segments".to_owned());
    }
    match text.strip_prefix('~') {
        Some(regex) => {
            let why = ours.strip_prefix("the regex does not compile: ").unwrap_or(ours);
            let why = why.split_once("; ").map_or(why, |(why, _)| why);
            Some(format!("invalid regex: '{}' (PCRE returned: {why})", quoted(regex)))
        }
        None => wrong_escape(text).map(|escape| format!("invalid url-encoded value: '{escape}'")),
    }
}

fn has_port(text: &str) -> bool {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.contains(':') || host.ends_with(']'));
    port.is_some_and(|(host, port)| {
        !host.is_empty() && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
    })
}

fn host(text: &str) -> String {
    if has_port(text) {
        "must not have a port".to_owned()
    } else {
        format!("invalid value: {}", quoted(text))
    }
}

fn wildcard_host(text: &str) -> String {
    match text.matches('*').count() {
        0 if text.parse::<std::net::IpAddr>().is_ok() => "must not be an IP".to_owned(),
        0 => host(text),
        _ if !text.starts_with('*') && !text.ends_with('*') => {
            "wildcard must be leftmost or rightmost character".to_owned()
        }
        1 => host(text),
        _ => "only one wildcard must be specified".to_owned(),
    }
}

fn route_host(text: &str) -> String {
    let is_placed = text.starts_with("*.") || text.ends_with(".*") || !text.contains('*');
    match text.matches('*').count() {
        0 | 1 if is_placed => format!("invalid hostname: {}", quoted(text)),
        0 | 1 => "invalid wildcard: must be placed at leftmost or rightmost label".to_owned(),
        _ => "invalid wildcard: must have at most one wildcard".to_owned(),
    }
}

fn upstream_name(text: &str) -> String {
    if text.parse::<std::net::IpAddr>().is_ok() {
        "Invalid name; no ip addresses allowed".to_owned()
    } else if has_port(text) {
        "Invalid name; no port allowed".to_owned()
    } else {
        "Invalid name; must be a valid hostname".to_owned()
    }
}

/// Kong says most of an authority's certificate of the whole entity.
fn authority(text: &str, ours: &str) -> Words {
    if text.matches("-----BEGIN CERTIFICATE-----").count() > 1 {
        ("please submit only one certificate at a time".to_owned(), true)
    } else if ours.contains("CA:TRUE") {
        let words =
            "certificate does not appear to be a CA because it is missing the \"CA\" basic constraint";
        (words.to_owned(), true)
    } else {
        (format!("invalid certificate: {ours}"), false)
    }
}
