//! Which names may get a certificate.

use super::config::Config;
use std::collections::HashSet;
use std::net::Ipv4Addr;

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
        if host.is_empty() || !self.ipv4 && host.parse::<Ipv4Addr>().is_ok() {
            return false;
        }
        let has_suffix = |suffix: &String| host.len() > suffix.len() && host.ends_with(&**suffix);
        self.any || self.names.contains(host) || self.suffixes.iter().any(has_suffix)
    }
}
