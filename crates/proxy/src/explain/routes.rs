//! Explains which route matches, and why the others do not.
use super::Named;
use crate::exchange::Exchange;
use crate::pipeline::serve::with_query;
use crate::snapshot::Snapshot;
use serde::Serialize;
use std::collections::{BTreeMap, HashSet};
use weir_model::Document;
use weir_model::entity::Route;
use weir_model::schema::Choice;
use weir_router::expressions::{DecidingPredicate, FieldValue};
use weir_router::{self as route, Criterion, Decided, Judged, Part, Router};

/// How many of the other routes are reported.
pub(super) const MAX_OTHERS: usize = 20;

/// How many values of a criterion are reported.
const FEW: usize = 4;

/// The route that is found.
#[derive(Debug, Clone, Serialize)]
pub struct Winner {
    /// The route.
    #[serde(flatten)]
    pub route: Named,
    /// The criteria that it has, all of them met: `host`, `header x-version`.
    pub criteria: Vec<String>,
    /// The one of its paths that matches.
    pub path: Option<String>,
    /// The part of the request's path that it matches, which `strip_path` takes off.
    pub matched_path: String,
    /// What decides among routes that match.
    pub priority: Priority,
}

/// What decides among routes that match.
#[derive(Debug, Clone, Serialize)]
pub struct Priority {
    /// Compared as a number, in hexadecimal: more digits than every reader of JSON keeps.
    pub value: String,
    /// What it is composed of; what is 0 is left out.
    pub parts: Vec<Share>,
}

/// One part of a priority.
#[derive(Debug, Clone, Serialize)]
pub struct Share {
    /// Which part.
    pub part: &'static str,
    /// Its value.
    pub value: i64,
}

/// A route that is not found.
#[derive(Debug, Clone, Serialize)]
pub struct Rival {
    /// The route.
    #[serde(flatten)]
    pub route: Named,
    /// The kind of the reason.
    pub lost: LossReason,
    /// The criteria that are not met, or the part of the priority that decides.
    pub by: Vec<String>,
    /// The predicates of its expression that the request does not meet.
    pub predicates: Vec<FailedPredicate>,
    /// The reason in words.
    pub reason: String,
}

/// A predicate of an expression that keeps the request from the route.
#[derive(Debug, Clone, Serialize)]
pub struct FailedPredicate {
    /// The predicate, as written.
    pub predicate: String,
    /// Whether it holds, which keeps the request from the route behind `!`.
    pub holds: bool,
    /// What the request has in the field: nothing, or what is not repeated of headers and arguments.
    pub value: Option<String>,
}

impl From<&DecidingPredicate> for FailedPredicate {
    fn from(deciding: &DecidingPredicate) -> FailedPredicate {
        let value = match &deciding.value {
            FieldValue::Is(value) => Some(value.clone()),
            FieldValue::Absent | FieldValue::Hidden => None,
        };
        FailedPredicate { predicate: deciding.predicate.clone(), holds: deciding.holds, value }
    }
}

/// Why a route is not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LossReason {
    /// The request does not meet all criteria.
    Criterion,
    /// Another that matches has a higher priority.
    Priority,
    /// Another that matches has the same priority and is older.
    Age,
    /// Another that matches has the same priority and a higher id.
    Id,
}

/// The route that was found, and those that come near, the closest first.
pub(super) fn judge(
    exchange: &Exchange,
    snapshot: &Snapshot,
    document: &Document,
) -> (Option<Winner>, Vec<Rival>) {
    let served: Vec<&Route> = snapshot.routes.iter().map(|route| &*route.entity).collect();
    let mut judged = closest(with_query(exchange, |query| snapshot.router.judge(&served, query)));
    let place = judged.iter().position(|judged| Some(judged.index) == exchange.engine.route);
    let winner = place.map(|place| judged.remove(place));
    let reason = |judged: &Judged| rival(judged, served[judged.index as usize], exchange, winner.as_ref());
    let mut rivals: Vec<(usize, Rival)> =
        judged.iter().map(|judged| (distance(judged), reason(judged))).collect();
    rivals.extend(unserved(exchange, snapshot, document, &served));
    rivals.sort_by_key(|(failed, _)| *failed);
    let winner = winner.map(|winner| {
        let route = served[winner.index as usize];
        self::winner(&winner, route, exchange)
    });
    (winner, rivals.into_iter().map(|(_, rival)| rival).collect())
}

/// How much of a route the request does not meet.
fn distance(judged: &Judged) -> usize {
    judged.failed.len().max(judged.predicates.len())
}

/// Of each route the part that comes closest, if it comes near at all, in order of rank. The predicates of an expression
/// say how near it comes, so a route with one is always among them.
fn closest(judged: Vec<Judged>) -> Vec<Judged> {
    let mut best: BTreeMap<u32, (usize, Judged)> = BTreeMap::new();
    for (rank, judged) in judged.into_iter().enumerate() {
        let near = judged.failed.is_empty() || !judged.met.is_empty() || !judged.predicates.is_empty();
        let better = best.get(&judged.index).is_none_or(|(_, best)| judged.failed.len() < best.failed.len());
        if near && better {
            best.insert(judged.index, (rank, judged));
        }
    }
    let mut best: Vec<_> = best.into_values().collect();
    best.sort_by_key(|(rank, _)| *rank);
    best.into_iter().map(|(_, judged)| judged).collect()
}

fn winner(judged: &Judged, route: &Route, exchange: &Exchange) -> Winner {
    let shares = judged.standing.shares.iter().filter(|share| share.bits != 0);
    Winner {
        route: Named::new(route.id, &route.name),
        criteria: judged.met.iter().map(criterion_name).collect(),
        path: judged.path.clone(),
        matched_path: exchange
            .path()
            .get(..exchange.engine.matched_path as usize)
            .unwrap_or_default()
            .to_owned(),
        priority: Priority {
            value: format!("{:#x}", judged.standing.priority),
            parts: shares.map(|share| Share { part: part_name(share.part), value: share.value }).collect(),
        },
    }
}

fn rival(judged: &Judged, route: &Route, exchange: &Exchange, winner: Option<&Judged>) -> Rival {
    let named = Named::new(route.id, &route.name);
    let decided = winner.filter(|_| judged.failed.is_empty()).map(|it| it.standing.above(&judged.standing));
    match decided {
        None => Rival {
            route: named,
            lost: LossReason::Criterion,
            by: judged.failed.iter().map(criterion_name).collect(),
            predicates: judged.predicates.iter().map(FailedPredicate::from).collect(),
            reason: reasons(judged, route, exchange),
        },
        Some(Decided::Priority(part, better, own)) => Rival {
            route: named,
            lost: LossReason::Priority,
            by: vec![part_name(part).to_owned()],
            predicates: Vec::new(),
            reason: format!("matches, but {}", comparison(part, better, own)),
        },
        Some(Decided::Age) => Rival {
            route: named,
            lost: LossReason::Age,
            by: vec!["created_at".to_owned()],
            predicates: Vec::new(),
            reason: "matches with the same priority, but it is younger".to_owned(),
        },
        Some(Decided::Id) => Rival {
            route: named,
            lost: LossReason::Id,
            by: vec!["id".to_owned()],
            predicates: Vec::new(),
            reason: "matches with the same priority, but its id is smaller".to_owned(),
        },
    }
}

/// Routes that this gateway does not serve, as far as the request meets them.
fn unserved(
    exchange: &Exchange,
    snapshot: &Snapshot,
    document: &Document,
    served: &[&Route],
) -> Vec<(usize, Rival)> {
    let served: HashSet<_> = served.iter().map(|route| route.id).collect();
    let unserved: Vec<&Route> =
        document.routes.iter().map(|route| &**route).filter(|route| !served.contains(&route.id)).collect();
    let Ok(router) = Router::build_with(&unserved, snapshot.router.order()) else { return Vec::new() };
    let judged = closest(with_query(exchange, |query| router.judge(&unserved, query)));
    let rival = |judged: Judged| {
        let route = unserved[judged.index as usize];
        // Routes of streams meet no request, so only their service can keep these from being served.
        let mut reason = "service: disabled".to_owned();
        if !judged.failed.is_empty() {
            reason = format!("{reason}; {}", reasons(&judged, route, exchange));
        }
        let by = ["service".to_owned()].into_iter().chain(judged.failed.iter().map(criterion_name)).collect();
        let predicates = judged.predicates.iter().map(FailedPredicate::from).collect();
        let route = Named::new(route.id, &route.name);
        (distance(&judged) + 1, Rival { route, lost: LossReason::Criterion, by, predicates, reason })
    };
    judged.into_iter().map(rival).collect()
}

fn criterion_name(criterion: &Criterion) -> String {
    match criterion {
        Criterion::Method => "method".to_owned(),
        Criterion::Host => "host".to_owned(),
        Criterion::Header(name) => format!("header {name}"),
        Criterion::Path => "path".to_owned(),
        Criterion::Sni => "sni".to_owned(),
        Criterion::Vars => "vars".to_owned(),
        Criterion::Expression => "expression".to_owned(),
        Criterion::Protocol => "protocol".to_owned(),
    }
}

fn reasons(judged: &Judged, route: &Route, exchange: &Exchange) -> String {
    let each = judged.failed.iter().map(|criterion| match criterion {
        Criterion::Expression => predicates(&judged.predicates),
        _ => reason(criterion, route, exchange),
    });
    each.collect::<Vec<_>>().join("; ")
}

fn predicates(deciding: &[DecidingPredicate]) -> String {
    let shown = deciding.iter().take(FEW).map(ToString::to_string).collect::<Vec<_>>().join("; ");
    match deciding.len().saturating_sub(FEW) {
        0 => shown,
        more => format!("{shown} ({more} more)"),
    }
}

/// The values of headers are the client's secrets, so they are not repeated.
fn reason(criterion: &Criterion, route: &Route, exchange: &Exchange) -> String {
    let name = criterion_name(criterion);
    match criterion {
        Criterion::Method => format!("{name}: not {}", list(&route.methods)),
        Criterion::Host => format!("{name}: not {}", list(&route.hosts)),
        Criterion::Path => format!("{name}: not below {}", list(&route.paths)),
        Criterion::Vars | Criterion::Expression => format!("{name}: does not match"),
        Criterion::Protocol => {
            let protocols = route.protocols.iter().map(Choice::as_str).collect::<Vec<_>>();
            format!("{name}: {} is not among {}", exchange.scheme(), protocols.join(", "))
        }
        Criterion::Sni if exchange.sni.is_none() => format!("{name}: none given, not {}", list(&route.snis)),
        Criterion::Sni => format!("{name}: not {}", list(&route.snis)),
        Criterion::Header(header) if exchange.request.headers.get(header).is_none() => {
            format!("{name}: absent")
        }
        Criterion::Header(header) => format!("{name}: not {}", list(&wanted(route, header))),
    }
}

/// The values of a header that a route asks for.
fn wanted(route: &Route, header: &str) -> Option<Vec<String>> {
    let mut headers = route.headers.iter().flatten();
    headers.find(|(name, _)| route::header_name(name) == header).map(|(_, values)| values.clone())
}

fn list(values: &Option<Vec<String>>) -> String {
    let values = values.as_deref().unwrap_or_default();
    let shown = values.iter().take(FEW).map(String::as_str).collect::<Vec<_>>().join(", ");
    match values.len().saturating_sub(FEW) {
        0 => shown,
        more => format!("{shown} ({more} more)"),
    }
}

fn part_name(part: Part) -> &'static str {
    match part {
        Part::Expression => "expression",
        Part::Priority => "priority",
        Part::Kinds => "kinds",
        Part::WildcardPort => "wildcard_port",
        Part::Criteria => "criteria",
        Part::PlainHosts => "plain_hosts",
        Part::Headers => "headers",
        Part::RegexPath => "regex_path",
        Part::RegexPriority => "regex_priority",
        Part::PathLength => "path_length",
    }
}

fn comparison(part: Part, better: i64, own: i64) -> String {
    match part {
        Part::Expression => "has criteria, and routes with an expression come first".to_owned(),
        Part::Priority => format!("has priority {own} against {better}"),
        Part::Kinds => "has criteria that come after: hosts, headers, paths, methods, snis".to_owned(),
        Part::WildcardPort => "has no host with a wildcard and a port".to_owned(),
        Part::Criteria => format!("has fewer criteria, {own} against {better}"),
        Part::PlainHosts => "has no hosts, or one with a wildcard".to_owned(),
        Part::Headers => format!("asks for fewer headers, {own} against {better}"),
        Part::RegexPath => "its path is no regex".to_owned(),
        Part::RegexPriority => format!("has regex_priority {own} against {better}"),
        Part::PathLength => format!("its path is shorter, {own} bytes against {better}"),
    }
}
