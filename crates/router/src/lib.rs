//! The router: finds the route of a request. It indexes the routes in the order of Kong's `traditional_compatible`
//! flavor.
//!
//! A route matches when the request meets one value of each criterion (hosts, paths, methods, headers, SNIs).
//! Among the matching routes, the highest priority wins ([`Calculation`]), then the highest UUID.
//! `protocols` is not a criterion, because the caller decides whether to redirect or reject a request.
//!
//! [`Router::build`] compiles the routes of a configuration; [`Router::find`] takes a [`Query`] and returns a [`Match`].
//!
//! ```text
//! host ─► exact names, wildcards, any      (hosts.rs)
//!           └► path ─► longest prefix, then its shorter ones   (paths.rs, lengths.rs)
//!                        └► method, header, or few   (candidates.rs)
//!                             └► the rest, by rank   (summary.rs, entry.rs, pattern.rs)
//! ```
//! A regex path is indexed by its literal prefix. A look-up reads few cache lines, whatever the number of routes: one for
//! each probe of a table (table.rs), one for what it finds, which has the criteria of most routes in place. The rank of a candidate is its position in the global order;
//! a search stops as soon as no better candidate can follow.
mod candidates;
mod entry;
pub mod expressions;
mod hosts;
mod judge;
mod keys;
mod lengths;
mod methods;
mod paths;
mod pattern;
mod priority;
mod subroute;
mod summary;
mod table;
#[cfg(test)]
pub(crate) mod tests;
mod text;
mod traditional;
mod uri;
mod vars;

pub use entry::{header_name, parse_sni};
pub use hosts::NamePattern;
pub use judge::{Criterion, Decided, Judged, Standing};
pub use pattern::Captures;
pub use pattern::Patterns;
pub use priority::{Calculation, Flavor, Order, Part, Share, expression_priority};
pub use subroute::are_alike;
pub use uri::push_encoded;
pub use uri::{normalize_path, upstream_path, upstream_path_v1};
pub use vars::{Condition, Variables, check_vars};

use entry::{Compiler, Entry};
use expressions::Request;
use hosts::{HostIndex, Name};
use std::net::{IpAddr, SocketAddr};
use weir_model::Uuid;
use weir_model::entity::Route;

/// Visits the values of the header with this name (lower case, with dashes) until the predicate returns true; returns
/// whether it did.
pub type HeaderLookup<'a> = dyn Fn(&str, &mut dyn FnMut(&[u8]) -> bool) -> bool + 'a;

/// The protocol between the client and the gateway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    /// In clear; SNIs are not considered.
    Http,
    /// Over TLS.
    Https,
}

/// The parts of a request that routes match on.
#[derive(Clone, Copy)]
pub struct Query<'a> {
    /// The method, as sent.
    pub method: &'a str,
    /// The authority as sent: in any case, perhaps with a port, perhaps empty.
    pub host: &'a str,
    /// The path without its query, as [`normalize_path`] gives it.
    pub path: &'a str,
    /// Whether routes match on the SNI.
    pub scheme: Scheme,
    /// The server name of the TLS handshake, in lower case.
    pub sni: Option<&'a str>,
    /// The query, without the question mark.
    pub query: &'a str,
    /// The client.
    pub source: SocketAddr,
    /// The address that the client connected to.
    pub destination: IpAddr,
    /// The port that the client connected to; a port in `host` takes precedence.
    pub dst_port: u16,
    /// Called only for routes that require headers.
    pub header: &'a HeaderLookup<'a>,
}

/// The route found, and how its path matched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    /// The route's position in the slice given to [`Router::build`].
    pub index: u32,
    /// Bytes of the path to strip: the length of the prefix, or of the text that the regex matched. A route
    /// without paths counts as matching `/`.
    pub matched_path: u32,
    /// What the groups of the regex captured, when it has any.
    pub captures: Option<Box<Captures>>,
}

/// A route that can't be compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RouteError {
    /// The route's position in the slice given to [`Router::build`].
    pub index: u32,
    /// Its id.
    pub route: Uuid,
    /// What is wrong, and how to fix it.
    pub message: String,
}

impl std::fmt::Display for RouteError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for RouteError {}

/// An immutable index over the routes of one configuration.
#[derive(Debug, Default)]
pub struct Router {
    /// Best first: a position here is a rank.
    entries: Vec<Entry>,
    /// How many of the best the index would find for every request. They are tried before it, and are not in it.
    leading: usize,
    hosts: HostIndex,
    order: Order,
}

impl Router {
    /// Compiles the routes in Kong's default order. Stream routes are left out.
    pub fn build(routes: &[&Route]) -> Result<Router, Vec<RouteError>> {
        Router::build_with(routes, Order::default())
    }

    /// Compiles the routes.
    pub fn build_with(routes: &[&Route], order: Order) -> Result<Router, Vec<RouteError>> {
        Router::rebuild(routes, order, &mut Patterns::default())
    }

    /// Like [`build_with`](Self::build_with), but reuses the regexes that the previous router has compiled.
    pub fn rebuild(
        routes: &[&Route],
        order: Order,
        patterns: &mut Patterns,
    ) -> Result<Router, Vec<RouteError>> {
        let subroutes = subroute::ranked(routes, order);
        let mut compiler = Compiler::new(order.flavor, patterns);
        let (entries, keys): (Vec<Entry>, Vec<_>) =
            subroutes.iter().map(|subroute| compiler.entry(subroute)).unzip();
        let mut errors = compiler.errors;
        patterns.finish();
        if !errors.is_empty() {
            errors.sort_by_key(|error| error.index);
            return Err(errors);
        }
        let leading = keys.iter().take_while(|keys| keys.are_none()).count();
        Ok(Router { hosts: HostIndex::build(&keys, &entries, leading), entries, leading, order })
    }

    /// What decides the order of its routes.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The route for a request.
    pub fn find(&self, query: &Query<'_>) -> Option<Match> {
        let mut name = Name::default();
        let request = Request::new(query, name.parse(query.host, query.dst_port));
        for entry in &self.entries[..self.leading] {
            if let Some(hit) = entry.check(&request) {
                return Some(entry.to_match(&request, hit));
            }
        }
        let mut search = Search { entries: &self.entries, request: &request, found: None };
        self.hosts.visit(request.host.name, &mut |paths| paths.search(&mut search));
        search.found.map(|found| self.entries[found.rank as usize].to_match(&request, found.hit))
    }
}

/// The state of one search: the best candidate so far.
struct Search<'a> {
    entries: &'a [Entry],
    request: &'a Request<'a>,
    found: Option<Found>,
}

#[derive(Clone, Copy)]
struct Found {
    rank: u32,
    hit: summary::Hit,
}

impl Search<'_> {
    /// Whether a candidate of this rank is better than the best match so far.
    fn wants(&self, rank: u32) -> bool {
        self.found.is_none_or(|found| rank < found.rank)
    }

    /// Takes a candidate whose summary says all, if it matches and is better than the best match so far.
    fn offer_plain(&mut self, rank: u32, summary: summary::Summary) {
        if self.wants(rank)
            && let Some(hit) = summary.check(self.request.query)
        {
            self.found = Some(Found { rank, hit });
        }
    }

    /// Takes the first of these ranks, best first, that matches and is better than the best match so far.
    fn offer(&mut self, ranks: &[u32]) {
        for &rank in ranks {
            if !self.wants(rank) {
                return;
            }
            if let Some(hit) = self.entries[rank as usize].check(self.request) {
                self.found = Some(Found { rank, hit });
                return;
            }
        }
    }
}
