//! Which names may get a certificate.

use super::config::Config;
use std::collections::HashSet;
use std::net::Ipv4Addr;

/// The longest host name, and the longest label of one (RFC 1035, section 2.3.4).
const MAX_NAME_LEN: usize = 253;
const MAX_LABEL_LEN: usize = 63;

/// Whether this can be in a certificate: a host name without a dot at its end, or an IPv4 address.
pub(super) fn is_host(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=MAX_LABEL_LEN).contains(&label.len())
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    // The parts of an IPv4 address are labels too.
    text.len() <= MAX_NAME_LEN && text.split('.').all(is_label)
}

/// The names that may get a certificate.
pub(super) struct Domains {
    any: bool,
    ipv4: bool,
    names: HashSet<String>,
    /// `.example.com` of `*.example.com`.
    suffixes: Vec<String>,
}

impl Domains {
    pub(super) fn new(config: &Config) -> Self {
        let names = || config.domains.iter().flatten().map(|name| name.to_ascii_lowercase());
        Self {
            any: config.allow_any_domain,
            ipv4: config.enable_ipv4_common_name,
            names: names().filter(|name| !name.starts_with('*')).collect(),
            suffixes: names().filter_map(|name| name.strip_prefix('*').map(str::to_owned)).collect(),
        }
    }

    /// Whether this name, in small letters, may get one.
    pub(super) fn allow(&self, host: &str) -> bool {
        if !is_host(host) || !self.ipv4 && host.parse::<Ipv4Addr>().is_ok() {
            return false;
        }
        let has_suffix = |suffix: &String| host.len() > suffix.len() && host.ends_with(&**suffix);
        self.any || self.names.contains(host) || self.suffixes.iter().any(has_suffix)
    }
}
