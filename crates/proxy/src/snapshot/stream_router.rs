//! Which stream route a connection takes, in the order of Kong's `traditional_compatible` flavor. In the flavor
//! `traditional` the older of two equal routes is first; in `expressions`, routes with an expression come first, in the order of
//! their `priority`.
//!
//! A route matches when its protocols have the connection's, and each criterion that it has (SNIs, sources,
//! destinations) is met by one of its values. SNIs are no criterion for what does not speak TLS. Among the routes that
//! match, the highest priority wins, then the highest UUID: SNIs, or sources and destinations together, come before
//! the others; then what the sources are given by, then the destinations: an address before a port before a range.

use crate::listen::Network;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::SocketAddr;
use weir_model::Uuid;
use weir_model::entity::{IpPort, Protocol, Route};
use weir_router::expressions::{Connection, Expression};
use weir_router::{Flavor, NamePattern, Patterns, RouteError, expression_priority, parse_sni};

/// How a client speaks to a stream listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Transport {
    Tcp,
    Tls,
    Udp,
}

/// What a connection says about itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Query<'a> {
    pub(crate) transport: Transport,
    pub(crate) source: SocketAddr,
    pub(crate) destination: SocketAddr,
    /// In lower case.
    pub(crate) sni: Option<&'a str>,
}

impl<'a> Query<'a> {
    /// As expressions see it.
    fn connection(&self) -> Connection<'a> {
        let protocol = match self.transport {
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Udp => "udp",
        };
        Connection { protocol, sni: self.sni, source: self.source, destination: self.destination }
    }
}

/// An index over the stream routes of one configuration.
#[derive(Debug, Default)]
pub(crate) struct StreamRouter {
    /// Best first: a position here is a rank.
    entries: Vec<Entry>,
    /// Ranks of TLS routes that ask for exact names alone, by each of them.
    by_sni: HashMap<Box<str>, Vec<u32>>,
    /// Ranks of the other TLS routes.
    other_tls: Vec<u32>,
    tcp: Vec<u32>,
    udp: Vec<u32>,
}

#[derive(Debug)]
struct Entry {
    /// The route's position in the slice given to [`StreamRouter::build`].
    index: u32,
    snis: Box<[NamePattern]>,
    sources: Box<[Place]>,
    destinations: Box<[Place]>,
    /// Instead of the others.
    expression: Option<Expression>,
}

/// One value of `sources` or `destinations`.
#[derive(Debug)]
struct Place {
    network: Option<Network>,
    port: Option<u16>,
}

impl Place {
    fn of(match_: &IpPort) -> Self {
        Self { network: match_.ip.as_deref().and_then(network), port: match_.port }
    }

    fn holds(&self, address: SocketAddr) -> bool {
        self.network.is_none_or(|network| network.contains(address.ip()))
            && self.port.is_none_or(|port| port == address.port())
    }
}

fn network(text: &str) -> Option<Network> {
    let (address, prefix) = text.split_once('/').map_or((text, None), |(ip, bits)| (ip, Some(bits)));
    let address: std::net::IpAddr = address.parse().ok()?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    Some(Network { address, prefix: prefix.map_or(Some(longest), |bits| bits.parse().ok())? })
}

impl StreamRouter {
    /// Compiles the routes. `patterns` reuses the regexes of the previous router.
    ///
    /// # Errors
    /// Every route that is refused.
    pub(crate) fn build(
        routes: &[&Route],
        flavor: Flavor,
        patterns: &mut Patterns,
    ) -> Result<Self, Vec<RouteError>> {
        let mut ranked: Vec<(u32, &Route)> = (0u32..).zip(routes.iter().copied()).collect();
        ranked.sort_by_key(|(_, route)| Reverse(order(route, flavor)));
        let (mut router, mut errors) = (Self::default(), Vec::new());
        for (rank, (index, route)) in (0u32..).zip(ranked) {
            match Expression::of_route(route, flavor, patterns) {
                Ok(expression) => {
                    router.index(rank, route);
                    router.entries.push(Entry::new(index, route, expression));
                }
                Err(message) => errors.push(RouteError { index, route: route.id, message }),
            }
        }
        if errors.is_empty() { Ok(router) } else { Err(errors) }
    }

    fn index(&mut self, rank: u32, route: &Route) {
        let has = |protocol| route.protocols.contains(&protocol);
        if has(Protocol::Tcp) {
            self.tcp.push(rank);
        }
        if has(Protocol::Udp) {
            self.udp.push(rank);
        }
        if !(has(Protocol::Tls) || has(Protocol::TlsPassthrough)) {
            return;
        }
        let snis = route.snis.as_deref().unwrap_or_default();
        if snis.is_empty() || snis.iter().any(|sni| sni.contains('*')) {
            return self.other_tls.push(rank);
        }
        for sni in snis {
            let name = sni.strip_suffix('.').unwrap_or(sni).to_ascii_lowercase();
            let ranks = self.by_sni.entry(name.into()).or_default();
            if ranks.last() != Some(&rank) {
                ranks.push(rank);
            }
        }
    }

    /// The best route that matches: its position in the slice given to [`build`](Self::build).
    pub(crate) fn find(&self, query: &Query<'_>) -> Option<u32> {
        let first =
            |ranks: &[u32]| ranks.iter().copied().find(|rank| self.entries[*rank as usize].matches(query));
        let rank = match query.transport {
            Transport::Tcp => first(&self.tcp),
            Transport::Udp => first(&self.udp),
            Transport::Tls => {
                let named = query.sni.and_then(|sni| self.by_sni.get(sni)).and_then(|ranks| first(ranks));
                [named, first(&self.other_tls)].into_iter().flatten().min()
            }
        };
        rank.map(|rank| self.entries[rank as usize].index)
    }
}

impl Entry {
    fn new(index: u32, route: &Route, expression: Option<Expression>) -> Self {
        let places = |list: &Option<Vec<IpPort>>| list.iter().flatten().map(Place::of).collect();
        Self {
            index,
            snis: route.snis.iter().flatten().map(|sni| parse_sni(sni)).collect(),
            sources: places(&route.sources),
            destinations: places(&route.destinations),
            expression,
        }
    }

    fn matches(&self, query: &Query<'_>) -> bool {
        if let Some(expression) = &self.expression {
            return expression.matches(&query.connection());
        }
        let among =
            |places: &[Place], address| places.is_empty() || places.iter().any(|place| place.holds(address));
        let named = |sni: &str| self.snis.iter().any(|pattern| pattern.matches(sni));
        let sni = self.snis.is_empty() || query.transport != Transport::Tls || query.sni.is_some_and(named);
        sni && among(&self.sources, query.source) && among(&self.destinations, query.destination)
    }
}

/// What routes are ordered by, the greatest first.
fn order(route: &Route, flavor: Flavor) -> (u64, Reverse<i64>, Uuid) {
    let age = if flavor == Flavor::Traditional { route.created_at.unwrap_or(i64::MAX) } else { 0 };
    let priority = match route.expression {
        Some(_) => expression_priority(route),
        None => priority(route),
    };
    (priority, Reverse(age), route.id)
}

/// Kong's: SNIs, or sources and destinations together; then 4 bits for the sources, then 4 for the destinations.
fn priority(route: &Route) -> u64 {
    let some = |list: &Option<Vec<IpPort>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let named = route.snis.as_ref().is_some_and(|snis| !snis.is_empty());
    let both = some(&route.sources) && some(&route.destinations);
    u64::from(named || both) << 61 | weight(&route.sources) << 4 | weight(&route.destinations)
}

fn weight(places: &Option<Vec<IpPort>>) -> u64 {
    places.iter().flatten().fold(0, |weight, place| {
        let ip = match &place.ip {
            Some(ip) if ip.contains('/') => 1,
            Some(_) => 8,
            None => 0,
        };
        weight | ip | if place.port.is_some() { 4 } else { 0 }
    })
}

#[cfg(test)]
mod tests;
