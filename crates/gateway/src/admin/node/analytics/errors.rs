//! `/analytics/errors`: who is to blame.
use super::names::Names;
use super::parameters::WantedErrors;
use super::{Answer, ApiRequest, configuration, invalid, nodes, not_recorded, parameters};
use super::{sparkline_step, with_precision};
use crate::analytics::Analytics;
use serde_json::{Value, json};
use weir_analytics::entities::{Entity, Kind};
use weir_analytics::query::{self, ErrorGroup, ErrorScope};

/// The columns of the groups as CSV.
pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("route_id", "/route/id"),
    ("route", "/route/name"),
    ("status", "/status"),
    ("origin", "/origin"),
    ("cause", "/cause"),
    ("count", "/count"),
    ("first", "/first"),
    ("last", "/last"),
];

/// Errors by route, status and cause.
pub(super) fn errors(call: &ApiRequest, analytics: &Analytics) -> Answer {
    let frame = parameters::frame(call)?;
    let (configuration, members) = (configuration(call), nodes::members(call));
    let names = Names::new(&configuration.document, &members);
    let wanted = parameters::errors(call)?;
    let limit = parameters::limit(call)?.unwrap_or(usize::MAX);
    let (precision, total, count, groups) = analytics
        .ask(|store| {
            let entities = store.entities();
            let scope = match wanted {
                WantedErrors::EachRoute => ErrorScope::Routes,
                WantedErrors::Route(asked) => ErrorScope::Route(names.find(Kind::Route, asked, entities)?.id),
                WantedErrors::Node => ErrorScope::Node,
            };
            let view = store.view(frame.from, frame.to, sparkline_step(frame), None);
            let errors = query::errors(&view, &store.samples, scope, frame, entities).map_err(invalid)?;
            let route = |group: &ErrorGroup| match scope {
                ErrorScope::Node => Value::Null,
                _ => names.of(Entity::new(Kind::Route, group.group.route), entities).into(),
            };
            let shown = |group: &ErrorGroup| shown_group(group, route(group));
            let count = errors.groups.iter().fold(0u64, |sum, group| sum.saturating_add(group.count));
            let groups: Vec<_> = errors.groups.iter().take(limit).map(shown).collect();
            Ok((errors.precision, errors.groups.len(), count, groups))
        })
        .ok_or_else(not_recorded)??;
    Ok(with_precision(json!({ "total": total, "count": count, "data": groups }), precision))
}

fn shown_group(group: &ErrorGroup, route: Value) -> Value {
    let outcome = group.group.outcome;
    json!({
        "route": route,
        "status": outcome.status,
        "origin": outcome.cause.origin().name(),
        "cause": group.cause,
        "count": group.count,
        "first": group.first,
        "last": group.last,
        "sparkline": group.sparkline,
        "samples": group.samples.iter().map(|sample| sample.number.to_string()).collect::<Vec<_>>(),
    })
}
