//! Splits a route with several paths into sub-routes, each with its own priority: one for all its regexes, one for
//! each length of prefix.
use super::priority::{Flavor, Order};
use std::cmp::Reverse;
use uuid::{Uuid, uuid};
use weir_model::entity::{Protocol, Route};

/// The namespace in which Kong derives the ids of sub-routes, which break ties.
const NAMESPACE: Uuid = uuid!("7f145bf9-0dce-4f91-98eb-debbce4b9f6b");

/// What the paths of a part have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathKind {
    /// The route has no paths.
    None,
    /// Prefixes, all of this length.
    Prefix(u32),
    /// Regexes.
    Regex,
    /// The route has an expression instead of criteria.
    Expression,
}

/// What routes are ordered by: the priority, then the age where that counts, then the id, then the part of the route.
pub(super) type Rank = (u64, Reverse<i64>, Uuid, u32);

/// A route, or the part of it whose paths share a priority.
#[derive(Debug)]
pub(super) struct Subroute<'a> {
    pub(super) index: u32,
    pub(super) route: &'a Route,
    pub(super) kind: PathKind,
    pub(super) paths: Vec<&'a str>,
    /// Higher is better.
    pub(super) order: Rank,
}

/// Whether two routes match the same requests, with the same priority.
pub fn are_alike(a: &Route, b: &Route) -> bool {
    (a.id, &a.protocols, a.regex_priority) == (b.id, &b.protocols, b.regex_priority)
        && (&a.expression, a.priority, a.created_at) == (&b.expression, b.priority, b.created_at)
        && (&a.hosts, &a.paths, &a.methods, &a.headers) == (&b.hosts, &b.paths, &b.methods, &b.headers)
        && a.vars == b.vars
        && (&a.snis, &a.sources, &a.destinations) == (&b.snis, &b.sources, &b.destinations)
}

/// The parts of all routes, best first.
pub(super) fn ranked<'a>(routes: &[&'a Route], order: Order) -> Vec<Subroute<'a>> {
    let mut all: Vec<_> = (0..).zip(routes).flat_map(|(index, route)| split(index, route, order)).collect();
    all.sort_unstable_by_key(|subroute| Reverse(subroute.order));
    all
}

/// The parts of a route; none of a stream route.
fn split(index: u32, route: &Route, order: Order) -> Vec<Subroute<'_>> {
    if is_stream(route) {
        return Vec::new();
    }
    if route.expression.is_some() {
        return vec![part(index, route, PathKind::Expression, Vec::new(), order, (route.id, 0))];
    }
    let groups = group(route.paths.as_deref().unwrap_or_default());
    let whole = groups.len() == 1;
    let part = |(position, (kind, paths))| {
        let tie = match (order.flavor, kind) {
            (Flavor::Traditional, PathKind::Prefix(length)) => (route.id, length),
            (Flavor::Traditional, _) => (route.id, u32::MAX),
            _ if whole => (route.id, 0),
            _ => (part_id(route.id, position), 0),
        };
        part(index, route, kind, paths, order, tie)
    };
    (1..).zip(groups).map(part).collect()
}

fn part<'a>(
    index: u32,
    route: &'a Route,
    kind: PathKind,
    paths: Vec<&'a str>,
    order: Order,
    (id, part): (Uuid, u32),
) -> Subroute<'a> {
    let age = if order.flavor == Flavor::Traditional { route.created_at.unwrap_or(i64::MAX) } else { 0 };
    let rank = (order.priority(route, kind), Reverse(age), id, part);
    Subroute { index, route, kind, paths, order: rank }
}

fn is_stream(route: &Route) -> bool {
    use Protocol::{Tcp, Tls, TlsPassthrough, Udp};
    matches!(route.protocols.first(), Some(Tcp | Tls | TlsPassthrough | Udp))
}

fn part_id(route: Uuid, position: u32) -> Uuid {
    Uuid::new_v5(&NAMESPACE, format!("{route}#{position}").as_bytes())
}

/// Groups paths by kind, in order of first appearance.
fn group(paths: &[String]) -> Vec<(PathKind, Vec<&str>)> {
    let mut groups: Vec<(PathKind, Vec<&str>)> = Vec::new();
    for path in paths {
        let kind = if path.starts_with('~') { PathKind::Regex } else { PathKind::Prefix(path.len() as u32) };
        match groups.iter_mut().find(|(other, _)| *other == kind) {
            Some((_, paths)) => paths.push(path),
            None => groups.push((kind, vec![path])),
        }
    }
    if groups.is_empty() {
        groups.push((PathKind::None, Vec::new()));
    }
    groups
}
