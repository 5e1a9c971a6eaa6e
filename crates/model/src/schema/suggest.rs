//! Did you mean?

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
    ("api_keys", "keyauth_credentials"),
    ("key_auth_credentials", "keyauth_credentials"),
    ("basic_auth_credentials", "basicauth_credentials"),
    ("hmac_auth_credentials", "hmacauth_credentials"),
    ("jwt_credentials", "jwt_secrets"),
    ("format_version", "_format_version"),
];

/// The candidate that was probably meant.
pub fn closest<'c>(written: &str, candidates: impl IntoIterator<Item = &'c str>) -> Option<&'c str> {
    let known = OTHER_NAMES.iter().find(|(other, _)| *other == written).map(|(_, name)| *name);
    let mut best: Option<(f64, &str)> = None;
    for candidate in candidates {
        if known == Some(candidate) {
            return Some(candidate);
        }
        let likeness = strsim::jaro_winkler(written, candidate);
        let typos = strsim::osa_distance(written, candidate);
        let near = typos <= 1 + written.len() / 4 || likeness > 0.9;
        if near && best.is_none_or(|(most, _)| likeness > most) {
            best = Some((likeness, candidate));
        }
    }
    best.map(|(_, candidate)| candidate)
}

/// `; did you mean `x`?`, or nothing.
pub fn did_you_mean<'c>(written: &str, candidates: impl IntoIterator<Item = &'c str>) -> String {
    closest(written, candidates).map(|name| format!("; did you mean `{name}`?")).unwrap_or_default()
}
