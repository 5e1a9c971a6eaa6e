//! Parses the hosts file.

use super::{Addresses, Lookup};
use foldhash::{HashMap, HashMapExt};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// The names of a hosts file, and `localhost` in any case.
pub(super) struct Hosts(HashMap<Box<str>, Arc<Addresses>>);

impl Hosts {
    /// Lines that are not understood are skipped, as the system does. Of a name's addresses those of the family that
    /// `order` prefers answer, if there are any.
    pub(super) fn parse(text: &str, order: &[Lookup]) -> Self {
        let mut ips: HashMap<String, Vec<IpAddr>> = HashMap::new();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_ascii_whitespace();
            let Some(ip) = words.next().and_then(|ip| ip.parse().ok()) else { continue };
            for name in words {
                let known = ips.entry(name.to_ascii_lowercase()).or_default();
                if !known.contains(&ip) {
                    known.push(ip);
                }
            }
        }
        let localhost = || vec![IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
        ips.entry("localhost".into()).or_insert_with(localhost);
        let prefer_v6 =
            order.iter().find(|step| matches!(step, Lookup::A | Lookup::Aaaa)) == Some(&Lookup::Aaaa);
        let fixed = |ips| Arc::new(Addresses::fixed(preferred(ips, prefer_v6)));
        Self(ips.into_iter().map(|(name, ips)| (name.into(), fixed(ips))).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<Addresses>> {
        self.0.get(name).cloned()
    }
}

fn preferred(mut ips: Vec<IpAddr>, v6: bool) -> Vec<IpAddr> {
    if ips.iter().any(|ip| ip.is_ipv6() == v6) {
        ips.retain(|ip| ip.is_ipv6() == v6);
    }
    ips
}
