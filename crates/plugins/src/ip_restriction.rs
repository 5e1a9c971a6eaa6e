//! Allows or denies clients by their addresses.
//!
//! ```yaml
//! plugins:
//!   - name: ip-restriction
//!     service: orders
//!     config:
//!       allow: [10.0.0.0/8, "2001:db8::/32", 203.0.113.7]
//!       deny: [10.6.6.0/24]
//! ```
//!
//! A client in `deny` is refused; if there is an `allow`, a client that is not in it is refused, too. The address is
//! the client's according to `trusted_ips` and `real_ip_header`; clients of Unix sockets have 127.0.0.1. Lists of
//! thousands of ranges cost no more than short ones.
//!
//! The plugin also works for streams: unless its `protocols` say otherwise, it runs for `tcp` and `tls`. A session that
//! is refused is closed without a response.
//!
//! ## Responses
//!
//! Status 403 with the message `IP address not allowed: …`, or those of `status` and `message`.

use std::net::IpAddr;
use weir_plugin::{
    AccessEffect, Admission, BuildContext, Exchange, FieldError, Flow, Hooks, LocalResponse, Phases, Plugin,
    Record, Session, Streams,
};

/// Which clients are allowed.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
#[record(hint("whitelist", "Kong calls it `allow` since 3.0"))]
#[record(hint("blacklist", "Kong calls it `deny` since 3.0"))]
pub(super) struct Config {
    /// The allowed addresses and ranges. All others are denied.
    #[field(matches = ip_or_cidr)]
    pub allow: Option<Vec<String>>,
    /// The denied addresses and ranges.
    #[field(matches = ip_or_cidr)]
    pub deny: Option<Vec<String>>,
    /// The status of refusals instead of 403.
    #[field(between = [200, 599])]
    pub status: Option<u16>,
    /// The message of refusals.
    pub message: Option<String>,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let named = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    match named(&config.allow) || named(&config.deny) {
        true => Vec::new(),
        false => vec![FieldError::new("", "name at least one address or range in `allow` or in `deny`")],
    }
}

/// One configured instance.
pub(super) struct IpRestriction {
    allow: Option<Addresses>,
    deny: Addresses,
    status: u16,
    message: Option<String>,
}

impl Plugin for IpRestriction {
    const NAME: &'static str = "ip-restriction";
    const PRIORITY: i32 = 990;
    const FOR_CONSUMER_GROUPS: bool = true;
    const STREAMS: Streams = Streams::ByDefault;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let allow = config.allow.filter(|list| !list.is_empty());
        Ok(Self {
            allow: allow.map(|list| Addresses::of(&list)),
            deny: Addresses::of(&config.deny.unwrap_or_default()),
            status: config.status.unwrap_or(403),
            message: config.message,
        })
    }
}

impl Hooks for IpRestriction {
    fn phases(&self) -> Phases {
        Phases::ACCESS | Phases::PREREAD
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        if self.admits(exchange.client_ip) {
            return Flow::Continue;
        }
        Flow::Respond(match &self.message {
            Some(message) => LocalResponse::error(self.status, message),
            None => {
                LocalResponse::error(self.status, &format!("IP address not allowed: {}", exchange.client_ip))
            }
        })
    }

    fn preread(&self, session: &Session) -> Admission {
        if self.admits(session.client.ip()) { Admission::Admit } else { Admission::Refuse }
    }
}

impl IpRestriction {
    fn admits(&self, client: IpAddr) -> bool {
        !self.deny.hold(client) && self.allow.as_ref().is_none_or(|allow| allow.hold(client))
    }
}

/// Addresses, as sorted ranges that neither touch nor overlap.
struct Addresses {
    v4: Vec<(u128, u128)>,
    v6: Vec<(u128, u128)>,
}

impl Addresses {
    fn of(list: &[String]) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) =
            list.iter().filter_map(|entry| range(entry)).partition(|range| range.is_v4);
        let merged = |mut ranges: Vec<Range>| {
            ranges.sort_unstable_by_key(|range| range.first);
            let mut merged: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
            for range in ranges {
                match merged.last_mut() {
                    Some((_, last)) if range.first <= last.saturating_add(1) => *last = range.last.max(*last),
                    _ => merged.push((range.first, range.last)),
                }
            }
            merged
        };
        Self { v4: merged(v4), v6: merged(v6) }
    }

    /// Whether the address is among them. An IPv4-mapped IPv6 address counts as IPv4.
    fn hold(&self, address: IpAddr) -> bool {
        let (ranges, address) = match address.to_canonical() {
            IpAddr::V4(address) => (&self.v4, u32::from(address).into()),
            IpAddr::V6(address) => (&self.v6, address.into()),
        };
        let after = ranges.partition_point(|(first, _)| *first <= address);
        after > 0 && address <= ranges[after - 1].1
    }
}

struct Range {
    is_v4: bool,
    first: u128,
    last: u128,
}

/// The range that `10.0.0.0/8` or a single address stands for.
fn range(entry: &str) -> Option<Range> {
    let (address, prefix) =
        entry.split_once('/').map_or((entry, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr = address.parse().ok()?;
    let written = if address.is_ipv4() { 32 } else { 128 };
    let free = written - prefix.map_or(Some(written), |prefix| prefix.parse::<u32>().ok())?.min(written);
    // An IPv4-mapped range is an IPv4 range if it is within the mapped prefix.
    let address = if free <= 32 { address.to_canonical() } else { address };
    let host = 1u128.checked_shl(free).map_or(u128::MAX, |size| size - 1);
    let bits = match address {
        IpAddr::V4(address) => u128::from(u32::from(address)),
        IpAddr::V6(address) => address.into(),
    };
    Some(Range { is_v4: address.is_ipv4(), first: bits & !host, last: bits | host })
}

#[cfg(test)]
mod tests;
