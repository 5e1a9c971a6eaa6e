//! The data planes of a control plane in answers: how each one does, and how much of the fleet an answer has.
use super::{Answer, invalid, parameters, sparkline_step, with_precision};
use crate::admin::request::ApiRequest;
use crate::analytics::Analytics;
use crate::cluster::Cluster;
use serde_json::{Value, json};
use std::collections::HashMap;
use weir_analytics::entities::{Entity, Kind};
use weir_analytics::inbox::Arrival;
use weir_analytics::query::{self, Frame, Metric, Row, TopQuery};
use weir_cluster::control_plane::{Member, State};

/// The metrics of a data plane.
const METRICS: [&str; 7] = ["requests", "errors", "error_rate", "bytes_in", "bytes_out", "p50", "p99"];

/// The data planes that a control plane knows; none on other nodes.
pub(super) fn members(call: &ApiRequest) -> Vec<Member> {
    match call.control.cluster() {
        Cluster::ControlPlane(fleet) => fleet.members(),
        Cluster::Alone | Cluster::DataPlane(_) => Vec::new(),
    }
}

/// Each data plane with what it has handed in.
pub(super) fn nodes(call: &ApiRequest, analytics: &Analytics) -> Answer {
    if !matches!(call.control.cluster(), Cluster::ControlPlane(_)) {
        return Err(invalid("this node is not a control plane, and its analytics are its own"));
    }
    let frame = parameters::frame(call)?;
    let members = members(call);
    let (top, arrivals) = analytics
        .ask(|store| {
            let view = store.view(frame.from, frame.to, sparkline_step(frame), None);
            let (by, within) = (Kind::Node, Entity::NODE);
            let query = TopQuery { by, within, of: Metric::Requests, frame, limit: usize::MAX };
            let top = query::top(&view, &query, store.entities());
            let arrivals = members.iter().map(|member| store.arrival(&member.id.to_string()));
            (top, arrivals.collect::<Vec<_>>())
        })
        .ok_or_else(super::not_recorded)?;
    let top = top.map_err(invalid)?;
    // A rate is one of the time that is remembered.
    let known = Frame { from: frame.from.max(top.precision.oldest.unwrap_or(0)), ..frame };
    let rows: HashMap<&str, &Row> = top.rows.iter().map(|row| (row.label.as_str(), row)).collect();
    let shown = members.iter().zip(&arrivals).map(|(member, arrival)| {
        let row = rows.get(member.id.to_string().as_str()).copied();
        shown_node(member, row, arrival.as_ref(), known)
    });
    Ok(with_precision(json!({ "data": shown.collect::<Vec<_>>() }), top.precision))
}

fn shown_node(member: &Member, row: Option<&Row>, arrival: Option<&Arrival>, frame: Frame) -> Value {
    let mut shown = json!({
        "id": member.id,
        "name": member.hostname,
        "state": member.state,
        "control_plane": member.control_plane,
        "until": arrival.map(|arrival| arrival.until),
        "pending": arrival.map(|arrival| arrival.pending),
        "lost": arrival.map(|arrival| arrival.lost),
        "sparkline": row.map(|row| &row.sparkline),
    });
    for metric in METRICS.iter().filter_map(|name| name.parse::<Metric>().ok()) {
        shown[metric.to_string()] = row.map_or(Value::Null, |row| super::number(metric, &row.aggregate));
    }
    let until = arrival.map_or(frame.to, |arrival| arrival.until.min(frame.to));
    let seconds = until.saturating_sub(frame.from).max(1);
    shown["requests_per_second"] = json!(row.map(|row| row.aggregate.requests() as f64 / seconds as f64));
    shown
}

/// How much of the fleet an answer has; none on nodes that answer for themselves.
pub(super) fn coverage(call: &ApiRequest, analytics: &Analytics) -> Option<Value> {
    let Cluster::ControlPlane(fleet) = call.control.cluster() else { return None };
    let members = fleet.members();
    let arrivals = analytics
        .ask(|store| members.iter().map(|member| store.arrival(&member.id.to_string())).collect::<Vec<_>>());
    let known: Vec<_> = members.iter().zip(arrivals.unwrap_or_default()).collect();
    let own = call.control.node_id();
    let is_here = |member: &Member| member.control_plane.to_string() == own;
    let connected = || known.iter().filter(|(member, _)| member.state != State::Offline);
    let here = || connected().filter(|(member, _)| is_here(member));
    let elsewhere = connected().count() - here().count();
    let silent = here().filter(|(_, arrival)| arrival.is_none()).count();
    let offline = known.len() - connected().count();
    let counts = |count: fn(&Arrival) -> u64| known.iter().filter_map(|(_, it)| it.as_ref()).map(count);
    // These are what data planes say, so they may be anything.
    let sum = |count| counts(count).fold(0, u64::saturating_add);
    let (pending, lost) = (sum(|arrival| arrival.pending), sum(|arrival| arrival.lost));
    Some(json!({
        "until": here().filter_map(|(_, arrival)| arrival.map(|arrival| arrival.until)).min(),
        "complete": elsewhere == 0 && silent == 0 && offline == 0 && pending == 0 && lost == 0,
        "data_planes": here().count() - silent,
        "elsewhere": elsewhere,
        "silent": silent,
        "offline": offline,
        "pending": pending,
        "lost": lost,
    }))
}
