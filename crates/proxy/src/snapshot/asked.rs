//! Which clients are asked for a certificate, by SNI.

use foldhash::HashSet;
use weir_model::entity::Route;
use weir_plugin::without_port;

/// The SNIs whose clients are asked for a certificate. Empty if no route needs certificates; then there is no lookup.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    everybody: bool,
    exact: HashSet<Box<str>>,
    /// `*.example.com` as `.example.com`.
    suffixes: HashSet<Box<str>>,
    /// `example.*` as `example.`.
    prefixes: HashSet<Box<str>>,
}

impl Asked {
    /// The names by which clients reach these routes: their SNIs or else their hosts. One with neither is reached by any.
    pub(crate) fn by<'r>(routes: impl Iterator<Item = &'r Route>) -> Self {
        let mut asked = Self::default();
        for route in routes {
            match (route.snis.as_deref(), route.hosts.as_deref()) {
                (Some(names @ [_, ..]), _) | (_, Some(names @ [_, ..])) => {
                    names.iter().for_each(|name| asked.add(name));
                }
                _ => asked.everybody = true,
            }
        }
        asked
    }

    fn add(&mut self, name: &str) {
        let name = without_port(name).to_ascii_lowercase();
        if let Some(suffix) = name.strip_prefix('*') {
            self.suffixes.insert(suffix.into());
        } else if let Some(prefix) = name.strip_suffix('*') {
            self.prefixes.insert(prefix.into());
        } else {
            self.exact.insert(name.into());
        }
    }

    /// Whether no client is asked.
    pub(crate) fn is_empty(&self) -> bool {
        !self.everybody && self.exact.is_empty() && self.suffixes.is_empty() && self.prefixes.is_empty()
    }

    /// Whether a client that asks for this server name is asked.
    pub(crate) fn includes(&self, server_name: Option<&str>) -> bool {
        let Some(name) = server_name.filter(|_| !self.everybody) else { return self.everybody };
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let dots = || name.match_indices('.').map(|(at, _)| at);
        self.exact.contains(&*name)
            || dots().any(|at| self.suffixes.contains(&name[at..]) || self.prefixes.contains(&name[..=at]))
    }
}

#[cfg(test)]
mod tests {
    use super::Asked;

    #[test]
    fn wildcards_stand_for_any_number_of_labels_as_in_hosts() {
        let mut asked = Asked::default();
        assert!(asked.is_empty() && !asked.includes(Some("a.test")) && !asked.includes(None));
        ["a.test:8443", "*.b.test", "c.*"].iter().for_each(|name| asked.add(name));
        let included = ["a.test", "A.Test.", "x.b.test", "x.y.b.test", "c.test", "c.co.test"];
        assert!(included.iter().all(|name| asked.includes(Some(name))));
        let others = ["b.test", "x.a.test", "xb.test", "x.c.test", "c"];
        assert!(others.iter().all(|name| !asked.includes(Some(name))));
        assert!(!asked.includes(None));
    }
}
