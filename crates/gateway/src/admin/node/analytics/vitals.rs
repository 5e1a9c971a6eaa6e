//! `/vitals…`: the measurements in the form that Kong Enterprise gave them until release 3.4, for reading alone.
mod reports;

use super::names::Names;
use super::nodes::members;
use super::{Analytics, Answer, ApiRequest, Refused, configuration, invalid, not_recorded};
use crate::admin::response::{ApiError, json_response};
use crate::analytics::now;
use crate::cluster::Cluster;
use crate::control::Control;
use crate::listener::message;
use crate::threads::spawn_low_priority;
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use reports::{CLASSES, CONSUMER, HEALTH, PAIRS, Report, STATUSES};
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use weir_analytics::entities::{Entities, Entity, Kind};
use weir_analytics::query::{self, Frame, Points, Precision};
use weir_analytics::store::Store;
use weir_analytics::tiers::{SPECS, Spec};
use weir_model::schema::quoted;

/// The intervals that may be asked for, and the tier that has them.
const INTERVALS: [(&str, &Spec); 3] = [("seconds", &SPECS[0]), ("minutes", &SPECS[2]), ("days", &SPECS[4])];

/// Where the paths are: workspaces are not supported, so there is the one that Kong always has.
const PREFIXES: [&str; 2] = ["", "/default"];

/// The routes of vitals.
pub(super) fn router() -> Router<Arc<Control>> {
    let under = |router: Router<Arc<Control>>, prefix: &str| {
        let at = |path: &str| format!("{prefix}/vitals{path}");
        router
            .route(&at(""), get(index))
            .route(&at("/cluster"), get(|call| ask(call, |call, store| of_node(call, store, &HEALTH))))
            .route(
                &at("/cluster/status_codes"),
                get(|call| ask(call, |call, store| of_node(call, store, &CLASSES))),
            )
            .route(
                &at("/status_code_classes"),
                get(|call| ask(call, |call, store| of_node(call, store, &CLASSES))),
            )
            .route(&at("/nodes"), get(|call| ask(call, nodes)))
            .route(&at("/nodes/{id}"), get(|call| ask(call, nodes)))
            .route(&at("/status_codes/by_service"), get(|call| ask(call, by_service)))
            .route(&at("/status_codes/by_route"), get(|call| ask(call, by_route)))
            .route(&at("/status_codes/by_consumer"), get(|call| ask(call, by_consumer)))
            .route(&at("/status_codes/by_consumer_and_route"), get(|call| ask(call, by_consumer_and_route)))
            .route(&at("/consumers/{id}/cluster"), get(|call| ask(call, requests_of_consumer)))
    };
    PREFIXES.into_iter().fold(Router::new(), under)
}

async fn ask(call: ApiRequest, answer: fn(&ApiRequest, &Analytics) -> Answer) -> Result<Response, ApiError> {
    let work = move || match call.control.analytics() {
        Some(analytics) => answer(&call, analytics),
        None => Err(not_recorded()),
    };
    Ok(match spawn_low_priority("weir-history", work).await {
        Ok(Ok(answer)) => json_response(StatusCode::OK, &answer),
        Ok(Err((status, text))) => message(status, &text),
        Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, "An unexpected error occurred"),
    })
}

/// `/vitals`: what can be asked for, and how long it is kept.
async fn index(_: ApiRequest) -> Response {
    let kept =
        |(name, spec): &(&str, &Spec)| ((*name).to_owned(), json!({ "retention_period_seconds": spec.keep }));
    let intervals = json!({ "intervals": INTERVALS.iter().map(kept).collect::<Map<_, _>>() });
    let levels = json!({ "levels": { "cluster": intervals, "nodes": intervals } });
    let labels = HEALTH.labels.iter().chain(CONSUMER.labels).chain(PAIRS.labels);
    let stats: Map<_, _> = labels.map(|label| ((*label).to_owned(), levels.clone())).collect();
    json_response(StatusCode::OK, &json!({ "stats": stats }))
}

/// A report on this node as the whole.
fn of_node(call: &ApiRequest, analytics: &Analytics, report: &Report) -> Answer {
    let asked = Asked::of(call)?;
    let points = asked.points(analytics, Entity::NODE)?;
    Ok(asked.answer("cluster", "cluster", report, &points))
}

/// The health of each node: of this one, or of the data planes that hand in what they count.
fn nodes(call: &ApiRequest, analytics: &Analytics) -> Answer {
    let asked = Asked::of(call)?;
    let mut nodes = known_nodes(call, analytics, &asked)?;
    if let Some(id) = call.ids.first() {
        nodes.retain(|node| node.id == *id);
        if nodes.is_empty() {
            return Err(not_found());
        }
    }
    let mut answer = asked.answer("node", call.control.node_id(), &HEALTH, &asked.no_points());
    (answer["stats"], answer["meta"]["nodes"]) = (json!({}), json!({}));
    for Node { id, hostname, points } in nodes {
        asked.describe(&points, &mut answer);
        answer["meta"]["nodes"][&id] = json!({ "hostname": hostname });
        answer["stats"][&id] = stats(&HEALTH, &points).into();
    }
    Ok(answer)
}
/// A node that is reported on.
struct Node {
    id: String,
    hostname: String,
    points: Points,
}

fn known_nodes(call: &ApiRequest, analytics: &Analytics, asked: &Asked) -> Result<Vec<Node>, Refused> {
    if !matches!(call.control.cluster(), Cluster::ControlPlane(_)) {
        let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let points = asked.points(analytics, Entity::NODE)?;
        return Ok(vec![Node { id: call.control.node_id().to_owned(), hostname, points }]);
    }
    let members = members(call).into_iter().map(|member| (member.id.to_string(), member.hostname));
    let hostnames: HashMap<_, _> = members.collect();
    let found = asked.points_by(analytics, Kind::Node, |_| Some(Entity::NODE))?;
    let node =
        |(id, points): (String, Points)| Some(Node { hostname: hostnames.get(&id)?.clone(), id, points });
    Ok(found.into_iter().filter_map(node).collect())
}

fn by_service(call: &ApiRequest, analytics: &Analytics) -> Answer {
    of_entity(call, analytics, Kind::Service, argument(call, "service_id")?, &STATUSES[0])
}

fn by_route(call: &ApiRequest, analytics: &Analytics) -> Answer {
    of_entity(call, analytics, Kind::Route, argument(call, "route_id")?, &STATUSES[1])
}

fn by_consumer(call: &ApiRequest, analytics: &Analytics) -> Answer {
    of_entity(call, analytics, Kind::Consumer, argument(call, "consumer_id")?, &STATUSES[2])
}

/// The requests of a consumer by route.
fn by_consumer_and_route(call: &ApiRequest, analytics: &Analytics) -> Answer {
    let asked = Asked::of(call)?;
    let id = known_id(call, analytics, Kind::Consumer, argument(call, "consumer_id")?)?;
    let consumer = |entities: &Entities| entities.find(Kind::Consumer, &id);
    let within = |entities: &Entities| Some(Entity::new(Kind::Consumer, consumer(entities)?));
    let routes = asked.points_by(analytics, Kind::Route, within)?;
    let mut answer = asked.answer("cluster", "cluster", &PAIRS, &asked.no_points());
    let stats = routes.iter().map(|(route, points)| (route.clone(), stats(&PAIRS, points).into()));
    answer["stats"] = stats.collect::<Map<_, _>>().into();
    if let Some((_, points)) = routes.first() {
        asked.describe(points, &mut answer);
    }
    answer["meta"]["entity_type"] = "consumer_route".into();
    answer["meta"]["entity_id"] = id.into();
    Ok(answer)
}

fn requests_of_consumer(call: &ApiRequest, analytics: &Analytics) -> Answer {
    let consumer = call.ids.first().map(String::as_str).unwrap_or_default();
    of_entity(call, analytics, Kind::Consumer, consumer, &CONSUMER)
}

fn argument<'c>(call: &'c ApiRequest, name: &str) -> Result<&'c str, Refused> {
    call.argument(name).ok_or_else(|| invalid(format!("Invalid query params: {name} is required")))
}

/// A report on an entity that is configured, or was when something was counted of it.
fn of_entity(call: &ApiRequest, analytics: &Analytics, kind: Kind, named: &str, report: &Report) -> Answer {
    let asked = Asked::of(call)?;
    let id = known_id(call, analytics, kind, named)?;
    let number = analytics.ask(|store| store.entities().find(kind, &id)).ok_or_else(not_recorded)?;
    let points = match number {
        Some(number) => asked.points(analytics, Entity::new(kind, number))?,
        None => asked.no_points(),
    };
    let mut answer = asked.answer("cluster", "cluster", report, &points);
    answer["meta"]["entity_type"] = kind.name().into();
    answer["meta"]["entity_id"] = id.into();
    Ok(answer)
}

/// The id of an entity that is configured, or was when something was counted of it.
fn known_id(call: &ApiRequest, analytics: &Analytics, kind: Kind, named: &str) -> Result<String, Refused> {
    let configuration = configuration(call);
    let configured = Names::new(&configuration.document, &[]).configured(kind, named);
    if let Some(id) = configured {
        return Ok(id.to_string());
    }
    let number = analytics.ask(|store| store.entities().find(kind, named)).ok_or_else(not_recorded)?;
    number.map(|_| named.to_owned()).ok_or_else(not_found)
}

fn not_found() -> Refused {
    (StatusCode::NOT_FOUND, "Not found".to_owned())
}

/// The interval and the frame of a request.
struct Asked {
    interval: &'static str,
    spec: &'static Spec,
    frame: Frame,
}

impl Asked {
    fn of(call: &ApiRequest) -> Result<Asked, Refused> {
        let name = call.argument("interval").unwrap_or_default();
        let known = INTERVALS.into_iter().find(|(known, _)| *known == name);
        let (interval, spec) = known.ok_or_else(|| {
            let choices = INTERVALS.map(|(name, _)| name).join(", ");
            invalid(format!("Invalid query params: interval must be one of {choices}"))
        })?;
        let now = now() / 1_000;
        let to = time(call, "end_ts")?.unwrap_or(now).min(now) + 1;
        let oldest = now.saturating_sub(spec.keep);
        let from = time(call, "start_ts")?.unwrap_or(oldest);
        if from >= to {
            return Err(invalid(
                "Invalid query params: start_ts must be before end_ts, and not in the future",
            ));
        }
        // A frame that has been forgotten ends where the history begins, and has no points.
        Ok(Asked { interval, spec, frame: Frame { from: from.max(oldest).min(to - 1), to } })
    }

    /// What was counted of an entity without any request.
    fn no_points(&self) -> Points {
        let precision = Precision { resolution: self.spec.width, oldest: None, dropped: 0 };
        Points {
            times: Vec::new(),
            step: self.spec.width,
            aggregates: Vec::new(),
            known: Vec::new(),
            precision,
        }
    }

    /// What was counted of an entity, from where the history begins.
    fn points(&self, analytics: &Analytics, of: Entity) -> Result<Points, Refused> {
        let (frame, width) = (self.frame, self.spec.width);
        let view = analytics.ask(|store| store.view(frame.from, frame.to, width, Some(of)));
        let points = query::points(&view.ok_or_else(not_recorded)?, of, frame, width).map_err(invalid)?;
        Ok(from_the_begin(points))
    }

    /// The same of each entity of a kind by name; nothing where there is nothing within which they are counted. All are
    /// read from one view, and without the store.
    fn points_by(
        &self,
        analytics: &Analytics,
        by: Kind,
        within: impl FnOnce(&Entities) -> Option<Entity>,
    ) -> Result<Vec<(String, Points)>, Refused> {
        let (frame, width) = (self.frame, self.spec.width);
        let view = |store: &Store| {
            let view = store.view(frame.from, frame.to, width, None);
            (view, store.entities().clone())
        };
        let (view, entities) = analytics.ask(view).ok_or_else(not_recorded)?;
        let Some(within) = within(&entities) else { return Ok(Vec::new()) };
        let found = query::points_by(&view, (by, within), frame, width, &entities).map_err(invalid)?;
        let named = found.filter_map(|(entity, points)| {
            Some((entities.name(entity)?.to_string(), from_the_begin(points)))
        });
        Ok(named.collect())
    }

    fn answer(&self, level: &str, of: &str, report: &Report, points: &Points) -> Value {
        let mut answer = json!({
            "meta": { "level": level, "interval": self.interval, "stat_labels": report.labels },
            "stats": { of: stats(report, points) },
        });
        self.describe(points, &mut answer);
        answer
    }

    /// Says how far apart points are, and which are the first and the last.
    fn describe(&self, points: &Points, answer: &mut Value) {
        answer["meta"]["interval_width"] = points.step.into();
        for (member, time) in [("earliest_ts", points.times.first()), ("latest_ts", points.times.last())] {
            answer["meta"][member] = json!(time.unwrap_or(&self.frame.from));
        }
    }
}

/// Points from where the history begins.
fn from_the_begin(mut points: Points) -> Points {
    let oldest = points.precision.oldest.unwrap_or(u64::MAX);
    let before = points.times.partition_point(|time| time + points.step <= oldest);
    points.times.drain(..before);
    points.aggregates.drain(..before);
    points.known.drain(..before);
    points
}

/// What is reported of each point of which anything is known.
fn stats(report: &Report, points: &Points) -> Map<String, Value> {
    let reported = points.times.iter().zip(&points.aggregates).zip(&points.known);
    let known = reported.filter(|(_, known)| **known);
    known.filter_map(|((time, aggregate), _)| Some((time.to_string(), (report.value)(aggregate)?))).collect()
}

/// An argument that is a time in seconds since 1970.
fn time(call: &ApiRequest, name: &str) -> Result<Option<u64>, Refused> {
    let Some(text) = call.argument(name) else { return Ok(None) };
    let time = text.parse().ok().filter(|time| *time <= u64::from(u32::MAX));
    time.map(Some).ok_or_else(|| {
        let shown = quoted(text);
        invalid(format!("Invalid query params: {name} must be seconds since 1970, and `{shown}` is not"))
    })
}
