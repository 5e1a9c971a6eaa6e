//! Explains why a route matches and others do not: evaluates every criterion of every route, in the router's order.
//! Requests use the index instead.
use super::expressions::{DecidingPredicate, Request, deciding};
use super::hosts::{HostPattern, Name};
use super::priority::{Order, Part, Share};
use super::subroute::{self, PathKind, Subroute};
use super::{Entry, Query, Router, Scheme};
use std::cmp::Reverse;
use weir_model::entity::Route;

/// Something that a route asks of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Criterion {
    /// Its methods.
    Method,
    /// Its hosts.
    Host,
    /// The header of this name.
    Header(String),
    /// Its paths.
    Path,
    /// Its SNIs.
    Sni,
    /// Its condition on variables.
    Vars,
    /// Its expression.
    Expression,
    /// Its protocols, which are a criterion in the flavor `expressions`.
    Protocol,
}

/// A route, or the part of one whose paths share a priority, before one request.
#[derive(Debug)]
pub struct Judged {
    /// The route's position in the slice that the router was built of.
    pub index: u32,
    /// What the request meets.
    pub met: Vec<Criterion>,
    /// What it does not.
    pub failed: Vec<Criterion>,
    /// The predicates of its expression that the request does not meet.
    pub predicates: Vec<DecidingPredicate>,
    /// The path of the route that the request's path matches.
    pub path: Option<String>,
    /// What decides between it and others that match.
    pub standing: Standing,
}

/// What decides among routes that match.
#[derive(Debug, Clone)]
pub struct Standing {
    /// The whole priority.
    pub priority: u64,
    /// When the route was created, where that counts.
    pub created_at: i64,
    /// What it is composed of.
    pub shares: Vec<Share>,
}

/// Why one standing is above another.
#[derive(Debug, Clone, Copy)]
pub enum Decided {
    /// By this part of the priority: the better value, and the other.
    Priority(Part, i64, i64),
    /// By the age, which counts in the flavor `traditional`.
    Age,
    /// By the id alone.
    Id,
}

impl Router {
    /// Judges every route, best first. `routes` are those that the router was built of.
    pub fn judge(&self, routes: &[&Route], query: &Query<'_>) -> Vec<Judged> {
        let mut name = Name::default();
        let request = Request::new(query, name.parse(query.host, query.dst_port));
        let subroutes = subroute::ranked(routes, self.order);
        let judge = |(subroute, entry)| judge(subroute, entry, &request, self.order);
        subroutes.iter().zip(&self.entries).map(judge).collect()
    }
}

fn judge(subroute: &Subroute<'_>, entry: &Entry, request: &Request<'_>, order: Order) -> Judged {
    let (route, query) = (subroute.route, request.query);
    let (mut met, mut failed) = (Vec::new(), Vec::new());
    let mut note =
        |criterion, is_met: bool| if is_met { met.push(criterion) } else { failed.push(criterion) };
    let asks = |values: &Option<Vec<String>>| values.as_ref().is_some_and(|values| !values.is_empty());
    if let Some(is_met) = entry.matches_scheme(query) {
        note(Criterion::Protocol, is_met);
    }
    if subroute.kind == PathKind::Expression {
        note(Criterion::Expression, entry.matches_expression(request));
    }
    if asks(&route.methods) {
        note(Criterion::Method, entry.matches_method(query));
    }
    if asks(&route.hosts) {
        let hosts = route.hosts.iter().flatten();
        note(
            Criterion::Host,
            hosts.into_iter().any(|pattern| HostPattern::parse(pattern).matches(request.host)),
        );
    }
    for (name, is_met) in entry.headers(query) {
        note(Criterion::Header(name.to_owned()), is_met);
    }
    if route.vars.is_some() {
        note(Criterion::Vars, entry.matches_vars(request));
    }
    let path = matching_path(subroute, entry, query.path);
    if matches!(subroute.kind, PathKind::Prefix(_) | PathKind::Regex) {
        note(Criterion::Path, path.is_some());
    }
    if asks(&route.snis) && query.scheme == Scheme::Https {
        note(Criterion::Sni, entry.matches_sni(query));
    }
    let (priority, Reverse(created_at), ..) = subroute.order;
    let standing = Standing { priority, created_at, shares: order.shares(route, subroute.kind) };
    let predicates = route.expression.iter().flat_map(|text| deciding(text, request)).collect();
    Judged { index: subroute.index, met, failed, predicates, path: path.map(str::to_owned), standing }
}

fn matching_path<'a>(subroute: &Subroute<'a>, entry: &Entry, path: &str) -> Option<&'a str> {
    match subroute.kind {
        PathKind::None | PathKind::Expression => None,
        PathKind::Prefix(_) => subroute.paths.iter().find(|prefix| path.starts_with(**prefix)).copied(),
        PathKind::Regex => entry.matching_regex(path).and_then(|at| subroute.paths.get(at).copied()),
    }
}

impl Standing {
    /// Why this standing is above a lower one: by what puts the highest bit that differs into the priority.
    pub fn above(&self, lower: &Standing) -> Decided {
        let difference = self.priority & !lower.priority;
        let Some(bit) = difference.checked_ilog2() else {
            return if self.created_at == lower.created_at { Decided::Id } else { Decided::Age };
        };
        let decides = |(better, other): &(&Share, &Share)| (better.bits & !other.bits) >> bit & 1 == 1;
        match self.shares.iter().zip(&lower.shares).find(decides) {
            Some((better, other)) => Decided::Priority(better.part, better.value, other.value),
            None => Decided::Id,
        }
    }
}
