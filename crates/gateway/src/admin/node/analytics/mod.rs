//! `/analytics/…`: what this node has measured; at a control plane, what its data planes have.
mod csv;
mod errors;
mod filter;
mod from_prometheus;
mod names;
mod nodes;
mod parameters;
mod promql;
mod requests;
mod sample;
mod tail;
mod vitals;

use crate::admin::request::ApiRequest;
use crate::admin::response::{ApiError, json_response};
use crate::analytics::{Analytics, Need};
use crate::control::Control;
use crate::listener::message;
use crate::registry::ActiveConfiguration;
use crate::threads::spawn_low_priority;
use axum::Router;
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use csv::Table;
use names::Names;
use parameters::check_arguments;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use weir_analytics::aggregate::Aggregate;
use weir_analytics::entities::{Entities, Entity, Kind};
use weir_analytics::query::{
    self, By, Column, Frame, Metric, Precision, QueryError, Row, Series, SeriesQuery, TopQuery,
};

/// Points of a sparkline.
const SPARKLINE_POINTS: u64 = 30;
/// Why nothing is measured.
const NOT_RECORDED: &str =
    "this node records no analytics: set analytics=on; in a fleet, on its data planes and control planes";
/// The metrics of a row, beside the one that rows are ordered by.
const ROW_METRICS: [&str; 14] = [
    "requests",
    "errors",
    "error_rate",
    "4xx",
    "5xx",
    "bytes_in",
    "bytes_out",
    "mean",
    "p50",
    "p99",
    "p50_gateway",
    "p99_gateway",
    "p50_upstream",
    "p99_upstream",
];

/// The metrics of a row that is a language model.
const MODEL_METRICS: [&str; 14] = [
    "requests",
    "errors",
    "error_rate",
    "4xx",
    "5xx",
    "prompt_tokens",
    "completion_tokens",
    "mean",
    "p50",
    "p99",
    "p50_first_token",
    "p99_first_token",
    "mean_tokens_per_second",
    "p50_tokens_per_second",
];

/// The status and message that say why a question is not answered.
type Refused = (StatusCode, String);

/// A question that can be answered, or why not.
type Answer = Result<Value, Refused>;

/// A question: how it is answered, the arguments that it takes, and the answer as a table.
struct Question {
    name: &'static str,
    arguments: &'static [&'static [&'static str]],
    answer: fn(&ApiRequest, &Analytics) -> Answer,
    /// None for an answer that is JSON alone.
    table: Option<Table>,
}

const SERIES: Question = Question {
    name: "series",
    arguments: &[&[
        "metric", "by", "from", "to", "step", "route", "service", "consumer", "upstream", "model", "node",
        "source", "format",
    ]],
    answer: series,
    table: Some(Table::Series),
};
const TOP: Question = Question {
    name: "top",
    arguments: &[&["by", "of", "from", "to", "limit", "route", "consumer", "source", "format"]],
    answer: top,
    table: Some(Table::Rows(TOP_COLUMNS)),
};
const TOP_MODELS: Question = Question { table: Some(Table::Rows(MODEL_COLUMNS)), ..TOP };
const ERRORS: Question = Question {
    name: "errors",
    arguments: &[&["from", "to", "route", "by", "limit", "format"]],
    answer: errors::errors,
    table: Some(Table::Rows(errors::COLUMNS)),
};
const NODES: Question =
    Question { name: "nodes", arguments: &[&["from", "to"]], answer: nodes::nodes, table: None };
const CHANGES: Question = Question {
    name: "changes",
    arguments: &[&["from", "to", "format"]],
    answer: changes,
    table: Some(Table::Rows(CHANGE_COLUMNS)),
};
const REQUESTS: Question = Question {
    name: "requests",
    arguments: requests::ARGUMENTS,
    answer: requests::list,
    table: Some(Table::Rows(requests::COLUMNS)),
};
const REQUEST: Question = Question { name: "request", arguments: &[], answer: requests::one, table: None };

const TOP_COLUMNS: &[(&str, &str)] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("requests", "/requests"),
    ("errors", "/errors"),
    ("error_rate", "/error_rate"),
    ("4xx", "/4xx"),
    ("5xx", "/5xx"),
    ("bytes_in", "/bytes_in"),
    ("bytes_out", "/bytes_out"),
    ("mean", "/mean"),
    ("p50", "/p50"),
    ("p99", "/p99"),
    ("p50_gateway", "/p50_gateway"),
    ("p99_gateway", "/p99_gateway"),
    ("p50_upstream", "/p50_upstream"),
    ("p99_upstream", "/p99_upstream"),
];
const MODEL_COLUMNS: &[(&str, &str)] = &[
    ("id", "/id"),
    ("name", "/name"),
    ("requests", "/requests"),
    ("errors", "/errors"),
    ("error_rate", "/error_rate"),
    ("4xx", "/4xx"),
    ("5xx", "/5xx"),
    ("prompt_tokens", "/prompt_tokens"),
    ("completion_tokens", "/completion_tokens"),
    ("mean", "/mean"),
    ("p50", "/p50"),
    ("p99", "/p99"),
    ("p50_first_token", "/p50_first_token"),
    ("p99_first_token", "/p99_first_token"),
    ("mean_tokens_per_second", "/mean_tokens_per_second"),
    ("p50_tokens_per_second", "/p50_tokens_per_second"),
];
const CHANGE_COLUMNS: &[(&str, &str)] =
    &[("at", "/at"), ("revision", "/revision"), ("source", "/source"), ("what", "/what")];

/// The routes of analytics.
pub(super) fn router() -> Router<Arc<Control>> {
    Router::new()
        .route("/analytics/series", get(ask_series))
        .route("/analytics/top", get(ask_top))
        .route("/analytics/errors", get(|call| ask(call, ERRORS)))
        .route("/analytics/nodes", get(|call| ask(call, NODES)))
        .route("/analytics/changes", get(|call| ask(call, CHANGES)))
        .route("/analytics/requests", get(|call| ask(call, REQUESTS)))
        .route("/analytics/requests/tail", get(watch))
        .route("/analytics/requests/{id}", get(|call| ask(call, REQUEST)))
        .merge(vitals::router())
}

async fn ask_series(call: ApiRequest) -> Result<Response, ApiError> {
    check_arguments(&call, SERIES.arguments)?;
    let Some(prometheus) = from_prometheus::wanted(&call).await? else { return ask(call, SERIES).await };
    let (need, answer) = (prometheus.need, from_prometheus::series(&call, prometheus).await);
    ask_unless_answered(call, SERIES, (need, answer)).await
}

async fn ask_top(call: ApiRequest) -> Result<Response, ApiError> {
    check_arguments(&call, TOP.arguments)?;
    let question = if call.argument("by") == Some(Kind::Model.name()) { TOP_MODELS } else { TOP };
    let Some(prometheus) = from_prometheus::wanted(&call).await? else { return ask(call, question).await };
    let (need, answer) = (prometheus.need, from_prometheus::top(&call, prometheus).await);
    ask_unless_answered(call, question, (need, answer)).await
}

/// The answer of Prometheus; that of this node if Prometheus has none and need not answer.
async fn ask_unless_answered(
    call: ApiRequest,
    question: Question,
    (need, answer): (Need, Answer),
) -> Result<Response, ApiError> {
    match answer {
        Ok(answer) if need == Need::Required || !from_prometheus::is_empty(&answer) => {
            Ok(answered(Ok(shown(&call, question, &answer))))
        }
        Ok(_) => ask(call, question).await,
        Err(error) if need == Need::Required => Ok(answered(Ok(Err(error)))),
        Err((status, why)) => {
            // What Prometheus does not have by design is no failure.
            let why = Some(why).filter(|_| status.is_server_error());
            ask_instead(call, question, why).await
        }
    }
}

async fn ask(call: ApiRequest, question: Question) -> Result<Response, ApiError> {
    ask_instead(call, question, None).await
}

/// Asks this node. `source_error` is why another source did not answer.
async fn ask_instead(
    call: ApiRequest,
    question: Question,
    source_error: Option<String>,
) -> Result<Response, ApiError> {
    check_arguments(&call, question.arguments)?;
    let work = move || {
        let analytics = call.control.analytics().ok_or_else(not_recorded)?;
        let mut answer = (question.answer)(&call, analytics)?;
        if let Some(why) = source_error {
            answer["source_error"] = why.into();
        }
        if let Some(coverage) = nodes::coverage(&call, analytics) {
            answer["fleet"] = coverage;
        }
        shown(&call, question, &answer)
    };
    Ok(answered(spawn_low_priority("weir-history", work).await))
}

/// An answer as JSON, or as a table in CSV if that is asked for.
fn shown(call: &ApiRequest, question: Question, answer: &Value) -> Result<Response, Refused> {
    let wants_table = csv::is_asked(call)?;
    Ok(match question.table.filter(|_| wants_table) {
        Some(table) => csv::response(question.name, answer, table),
        None => json_response(StatusCode::OK, answer),
    })
}

/// Shows requests as they end.
async fn watch(call: ApiRequest) -> Result<Response, ApiError> {
    check_arguments(&call, tail::ARGUMENTS)?;
    let control = call.control.clone();
    let work = move || tail::listen(&call, call.control.analytics().ok_or_else(not_recorded)?);
    let listener = spawn_low_priority("weir-history", work).await;
    Ok(answered(listener.map(|listener| listener.map(|listener| tail::response(control, listener)))))
}

/// The response of work that has ended.
fn answered(outcome: std::io::Result<Result<Response, Refused>>) -> Response {
    match outcome {
        Ok(Ok(response)) => response,
        Ok(Err((status, text))) => message(status, &text),
        Err(_) => message(StatusCode::INTERNAL_SERVER_ERROR, "An unexpected error occurred"),
    }
}

fn not_recorded() -> (StatusCode, String) {
    (StatusCode::NOT_FOUND, NOT_RECORDED.to_owned())
}

fn invalid(message: impl ToString) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, message.to_string())
}

/// The active configuration, which has the names of entities.
fn configuration(call: &ApiRequest) -> Arc<ActiveConfiguration> {
    call.control.registry().configuration()
}

/// A metric over time.
fn series(call: &ApiRequest, analytics: &Analytics) -> Answer {
    let frame = parameters::frame(call)?;
    let metric: Metric = call.argument("metric").unwrap_or("requests").parse().map_err(invalid)?;
    let by: By = call.argument("by").unwrap_or_default().parse().map_err(invalid)?;
    let step = parameters::step(call, frame)?;
    let (configuration, members) = (configuration(call), nodes::members(call));
    let names = Names::new(&configuration.document, &members);
    let asked = parameters::entities(call)?;
    let (found, label) = analytics
        .ask(|store| {
            let entities = store.entities();
            let (of, named) = names.wanted(&asked, entities)?;
            let needed = (!matches!(by, By::Entity(_))).then_some(of);
            let view = store.view(frame.from, frame.to, step, needed);
            let query = SeriesQuery { metric, by, of, frame, step };
            let label = shown_entities(&named, &names, entities);
            query::series(&view, &query, entities).map(|found| (found, label)).map_err(invalid)
        })
        .ok_or_else(not_recorded)??;
    let columns = found.columns.iter().map(|column| shown_column(column, by, &names)).collect::<Vec<_>>();
    Ok(with_precision(
        json!({
            "metric": metric.to_string(),
            "of": label,
            "step": found.step,
            "times": found.times,
            "columns": columns,
            "gaps": gaps(&found),
        }),
        found.precision,
    ))
}

/// The entities that a question is about; null for the whole node.
fn shown_entities(named: &[Entity], names: &Names<'_>, entities: &Entities) -> Value {
    let shown = |of: &Entity| (of.kind.name().to_owned(), names.of(*of, entities).into());
    if named.is_empty() { Value::Null } else { named.iter().map(shown).collect::<Map<_, _>>().into() }
}

/// The times of which nothing is known, each with its begin and its end.
fn gaps(series: &Series) -> Vec<(u64, u64)> {
    let points = series.times.iter().zip(&series.known);
    let unknown = points.filter(|(_, known)| !**known).map(|(time, _)| (*time, time + series.step));
    unknown.fold(Vec::new(), |mut gaps: Vec<(u64, u64)>, (from, to)| {
        match gaps.last_mut() {
            Some((_, end)) if *end == from => *end = to,
            _ => gaps.push((from, to)),
        }
        gaps
    })
}

fn shown_column(column: &Column, by: By, names: &Names<'_>) -> Value {
    let mut shown = json!({ "label": column.label, "values": column.values, "total": column.total });
    if let By::Entity(kind) = by {
        shown["name"] = json!(names.name(kind, &column.label));
    }
    shown
}

/// How far the points of a sparkline are apart: fine enough for each to have an interval.
fn sparkline_step(frame: Frame) -> u64 {
    frame.to.saturating_sub(frame.from) / SPARKLINE_POINTS
}

/// The entities of a kind, the first ones by a metric.
fn top(call: &ApiRequest, analytics: &Analytics) -> Answer {
    let frame = parameters::frame(call)?;
    let kind = parameters::kind(call)?;
    let of: Metric = call.argument("of").unwrap_or("requests").parse().map_err(|error| match error {
        QueryError::Metric(_) => invalid(format!("of, as a {error}")),
        error => invalid(error),
    })?;
    let limit = parameters::rows(call)?;
    let (configuration, members) = (configuration(call), nodes::members(call));
    let names = Names::new(&configuration.document, &members);
    let asked = parameters::entities(call)?;
    let (top, rows, label) = analytics
        .ask(|store| {
            let entities = store.entities();
            let (within, named) = names.wanted(&asked, entities)?;
            let view = store.view(frame.from, frame.to, sparkline_step(frame), None);
            let query = TopQuery { by: kind, within, of, frame, limit };
            let top = query::top(&view, &query, entities).map_err(invalid)?;
            let rows: Vec<_> =
                top.rows.iter().map(|row| shown_row(row, of, names.of(row.entity, entities))).collect();
            Ok((top, rows, shown_entities(&named, &names, entities)))
        })
        .ok_or_else(not_recorded)??;
    let mut answer = json!({ "by": kind.name(), "of": of.to_string(), "total": top.total, "data": rows });
    if !asked.is_empty() {
        answer["within"] = label;
        answer["missing"] = top.missing.into();
    }
    Ok(with_precision(answer, top.precision))
}

fn shown_row(row: &Row, of: Metric, mut shown: Map<String, Value>) -> Value {
    let metrics = if row.entity.kind == Kind::Model { &MODEL_METRICS } else { &ROW_METRICS };
    let metrics = metrics.iter().filter_map(|name| name.parse::<Metric>().ok());
    for metric in metrics.chain([of]) {
        shown.insert(metric.to_string(), number(metric, &row.aggregate));
    }
    shown.insert("sparkline".to_owned(), json!(row.sparkline));
    shown.into()
}

/// A whole number where the metric is a count.
fn number(metric: Metric, aggregate: &Aggregate) -> Value {
    let value = metric.of(aggregate);
    if metric.is_count() { json!(value.map(|count| count as u64)) } else { json!(value) }
}

/// The changes of the configuration.
fn changes(call: &ApiRequest, analytics: &Analytics) -> Answer {
    let frame = parameters::frame(call)?;
    let (changes, forgotten) = analytics.changes(frame.from * 1_000, frame.to * 1_000);
    let oldest = changes.first().map(|change| change.at as f64 / 1_000.0);
    let shown = changes.iter().map(|change| {
        json!({
            "at": change.at as f64 / 1_000.0,
            "revision": change.revision,
            "source": change.who,
            "what": change.what,
        })
    });
    let data: Vec<_> = shown.collect();
    Ok(json!({ "data": data, "resolution": 1, "oldest": oldest, "sampled": false, "dropped": forgotten }))
}

/// The answer with how far it can be relied on.
fn with_precision(mut answer: Value, precision: Precision) -> Value {
    answer["resolution"] = json!(precision.resolution);
    answer["oldest"] = json!(precision.oldest);
    answer["sampled"] = json!(!precision.is_exact());
    answer["dropped"] = json!(precision.dropped);
    answer
}
