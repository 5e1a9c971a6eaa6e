//! Did you mean?
use std::borrow::Cow;

/// What people write, and what it is called here.
const OTHER_NAMES: &[(&str, &str)] = &[
    ("send_timeout", "write_timeout"),
    ("timeout", "read_timeout"),
    ("workflows", "plugins"),
    ("uri", "paths"),
    ("uris", "paths"),
    ("path", "paths"),
    ("strip_uri", "strip_path"),
    ("upstream_url", "url"),
    ("target_url", "url"),
    ("backend", "url"),
    ("nodes", "targets"),
    ("balance", "algorithm"),
    ("roundrobin", "round-robin"),
    ("least_conn", "least-connections"),
    ("chash", "consistent-hashing"),
    ("format_version", "_format_version"),
    ("ws", "http"),
    ("wss", "https"),
    ("h2c", "http"),
    ("h2", "https"),
    ("http2", "https"),
    ("block", "deny"),
    ("user", "consumer"),
    ("query", "querystring"),
    ("ttl", "cache_ttl"),
    ("max_size", "allowed_payload_size"),
    ("url", "location"),
    ("mb", "megabytes"),
    ("kb", "kilobytes"),
    ("allow_origins", "origins"),
    ("allowed_origins", "origins"),
    ("allow_headers", "headers"),
    ("allowed_headers", "headers"),
    ("allow_methods", "methods"),
    ("allowed_methods", "methods"),
    ("expose_headers", "exposed_headers"),
    ("allow_credentials", "credentials"),
];

/// Text longer than this stands for no name, and would take long to compare.
const MAX_COMPARED_LEN: usize = 64;

/// How many bytes of what is written a message repeats.
const MAX_QUOTED_LEN: usize = 100;

/// No message is longer: rules that are not declared here may quote what they please.
const MAX_MESSAGE_LEN: usize = 2000;

/// What is written, as far as a message repeats it.
pub fn quoted(written: &str) -> Cow<'_, str> {
    shortened(written, MAX_QUOTED_LEN)
}

/// A text for terminals and logs: what moves a cursor, begins a line or turns the direction of the text is escaped.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_plain = |c: char| matches!(c, ' '..='~') || c.is_alphanumeric();
    if text.chars().all(is_plain) {
        return text.into();
    }
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        match is_plain(c) {
            true => printable.push(c),
            false => printable.extend(c.escape_debug()),
        }
    }
    printable.into()
}

/// A message, unless it is too long to be read.
pub(crate) fn readable(message: String) -> String {
    if message.len() <= MAX_MESSAGE_LEN { message } else { shortened(&message, MAX_MESSAGE_LEN).into_owned() }
}

fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    if text.len() <= most {
        return text.into();
    }
    let end = text.floor_char_boundary(most - '…'.len_utf8());
    format!("{}…", text.get(..end).unwrap_or_default()).into()
}

/// The candidate that was probably meant.
pub fn closest<'c>(written: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    if written.len() > MAX_COMPARED_LEN {
        return None;
    }
    let lower = written.to_ascii_lowercase();
    let known = |name: &str| OTHER_NAMES.contains(&(lower.as_str(), name));
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        if known(candidate) || candidate.eq_ignore_ascii_case(written) {
            return Some(candidate);
        }
        let likeness = strsim::jaro_winkler(written, candidate);
        let typos = strsim::osa_distance(written, candidate);
        let is_end = written.len() > 4 && candidate.ends_with(written);
        let near = typos <= 1 + written.len() / 4 || likeness > 0.9 || is_end;
        if near && best.is_none_or(|(most, _)| likeness > most) {
            best = Some((likeness, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `; did you mean `x`?`, or nothing.
pub fn did_you_mean<'c>(written: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    match (closest(written, candidates), written) {
        (Some(name), "ws" | "wss") => format!("; did you mean `{name}`, which WebSocket passes through?"),
        (Some(name), _) => format!("; did you mean `{name}`?"),
        (None, _) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_is_neither_compared_nor_repeated() {
        assert_eq!(closest("retrys", ["retries"]), Some("retries"));
        assert_eq!(closest("get", ["HEAD", "GET"]), Some("GET"));
        assert_eq!(closest("MB", ["megabytes", "bytes"]), Some("megabytes"));
        assert_eq!(closest("sha256", ["hmac-sha1", "hmac-sha256"]), Some("hmac-sha256"));
        let long = "retries".repeat(20);
        assert_eq!(closest(&long, [long.as_str()]), None);
        assert_eq!(quoted(&long[..100]), long[..100]);
        assert_eq!(quoted(&"ä".repeat(51)), format!("{}…", "ä".repeat(48)));
        assert_eq!(readable("x".repeat(2001)).len(), 2000);
    }
}
