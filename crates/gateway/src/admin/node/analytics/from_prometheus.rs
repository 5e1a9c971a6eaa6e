//! Answers from a Prometheus server: for frames that begin before what this node remembers, and for whole fleets.
use super::promql::Question;
use super::{
    Answer, ApiError, ApiRequest, Names, ROW_METRICS, StatusCode, configuration, invalid, parameters,
    sparkline_step,
};
use crate::analytics::{Need, PrometheusError, Questions, Samples, now};
use crate::threads::spawn_low_priority;
use futures_util::future::try_join_all;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use weir_analytics::entities::Kind;
use weir_analytics::query::{By, Frame, Metric, Sparkline};
use weir_model::schema::quoted;

/// Points are at least as far apart, so that each has several scrapes.
const MIN_STEP: u64 = 60;
/// A series has at most so many points.
const MAX_POINTS: u64 = 2_000;
/// A frame that begins later is answered by this node, however little it remembers. Pages that show the last hour begin
/// it some seconds earlier.
const RECENT: u64 = 3_660;

/// The server that has the answer: the one that is asked for, or the one that remembers what this node does not.
pub(super) async fn wanted(call: &ApiRequest) -> Result<Option<Questions<'_>>, ApiError> {
    let known = call.control.prometheus();
    match call.argument("source") {
        Some("prometheus") => match known {
            Some(prometheus) => Ok(Some(prometheus.asked(Need::Required))),
            None => Err(ApiError::Malformed(
                "source: there is no Prometheus; set analytics_prometheus to its URL".to_owned(),
            )),
        },
        Some("node") => Ok(None),
        Some(other) => {
            let shown = quoted(other);
            Err(ApiError::Malformed(format!("source: there is no `{shown}`; use node or prometheus")))
        }
        None => match known {
            Some(prometheus) if begins_before_history(call).await => {
                // Without analytics, there is no other answer.
                let need = if call.control.analytics().is_none() { Need::Required } else { Need::Optional };
                Ok(Some(prometheus.asked(need)))
            }
            _ => Ok(None),
        },
    }
}

/// Whether a frame begins before what this node remembers.
async fn begins_before_history(call: &ApiRequest) -> bool {
    let Ok(frame) = parameters::frame(call) else { return false };
    if call.control.analytics().is_none() {
        return true;
    }
    if frame.from + RECENT >= now() / 1_000 {
        return false;
    }
    let control = call.control.clone();
    let work = move || {
        let analytics = control.analytics()?;
        analytics.ask(|store| store.view(frame.from, frame.to, frame.to - frame.from, None).oldest).flatten()
    };
    let oldest = spawn_low_priority("weir-history", work).await;
    oldest.is_ok_and(|oldest| oldest.is_none_or(|oldest| oldest > frame.from))
}

/// Whether Prometheus knows nothing of what is asked for.
pub(super) fn is_empty(answer: &Value) -> bool {
    ["columns", "data"].iter().all(|name| answer[*name].as_array().is_none_or(Vec::is_empty))
}

fn failed(error: PrometheusError) -> (StatusCode, String) {
    (error.status(), error.to_string())
}

/// A metric over time.
pub(super) async fn series(call: &ApiRequest, prometheus: Questions<'_>) -> Answer {
    let frame = parameters::frame(call)?;
    let metric: Metric = call.argument("metric").unwrap_or("requests").parse().map_err(invalid)?;
    let by: By = call.argument("by").unwrap_or_default().parse().map_err(invalid)?;
    let step = parameters::step(call, frame)?.max(MIN_STEP).max((frame.to - frame.from).div_ceil(MAX_POINTS));
    let configuration = configuration(call);
    let names = Names::new(&configuration.document, &[]);
    let named = named(call, &names)?;
    let question = Question::new(by, &named)?;
    let expression = question.expression(metric, step)?;
    let of_frame = question.expression(metric, frame.to - frame.from)?;
    let times: Vec<u64> = (frame.from..frame.to).step_by(step as usize).collect();
    // A value is about the time before it, and a point about the time after it.
    let ends = (frame.from + step, times.last().unwrap_or(&frame.from) + step);
    let found = (prometheus.range(&expression, ends, step), prometheus.at(&of_frame, frame.to));
    let (found, totals) = tokio::try_join!(found.0, found.1).map_err(failed)?;
    let column = |samples: &Samples| {
        let label = samples.label(question.label());
        let total = totals.iter().find(|total| total.label(question.label()) == label);
        let total = total.and_then(|total| total.points().next()).map(|(_, value)| value);
        let values: BTreeMap<u64, f64> = samples.points().collect();
        let values: Vec<_> = times.iter().map(|time| values.get(&(time + step))).collect();
        let mut column = shown_label(label, by, &names);
        column.insert("values".to_owned(), json!(values));
        column.insert("total".to_owned(), json!(total));
        column
    };
    let columns: Vec<_> = found.iter().map(column).collect();
    let (metric, of) = (metric.to_string(), shown_entities(&named));
    let answer = json!({ "metric": metric, "of": of, "step": step, "times": times, "columns": columns });
    Ok(with_precision(answer, step))
}

/// The entities that a question is about, and what the metrics call them.
fn named(call: &ApiRequest, names: &Names<'_>) -> Result<Vec<(Kind, String)>, (StatusCode, String)> {
    let asked = parameters::entities(call)?;
    asked.into_iter().map(|(kind, asked)| called(names, kind, asked)).collect()
}

fn shown_entities(named: &[(Kind, String)]) -> Value {
    let shown = |(kind, name): &(Kind, String)| (kind.name().to_owned(), json!({ "name": name }));
    if named.is_empty() { Value::Null } else { named.iter().map(shown).collect::<Map<_, _>>().into() }
}

/// An entity, and what the metrics call it.
fn called(names: &Names<'_>, kind: Kind, asked: &str) -> Result<(Kind, String), (StatusCode, String)> {
    let name = names.in_metrics(kind, asked);
    if name.is_err() {
        Question::check(kind, asked)?;
    }
    Ok((kind, name?))
}

/// The entity of a label's value, or the value itself.
fn shown_label(value: &str, by: By, names: &Names<'_>) -> Map<String, Value> {
    let By::Entity(kind) = by else { return Map::from_iter([("label".to_owned(), value.into())]) };
    let (id, name) = names.of_metric(kind, value);
    Map::from_iter([("label".to_owned(), json!(id)), ("name".to_owned(), json!(name))])
}

/// The entities of a kind, the first ones by a metric.
pub(super) async fn top(call: &ApiRequest, prometheus: Questions<'_>) -> Answer {
    let frame = parameters::frame(call)?;
    let kind = parameters::kind(call)?;
    let of: Metric = call.argument("of").unwrap_or("requests").parse().map_err(invalid)?;
    let limit = parameters::rows(call)?;
    let configuration = configuration(call);
    let names = Names::new(&configuration.document, &[]);
    let named = named(call, &names)?;
    let question = Question::new(By::Entity(kind), &named)?;
    let mut rows = rows(prometheus, &question, frame, of).await?;
    let rank = |row: &Row| row.metrics.get(&of.to_string()).copied().unwrap_or(-1.0);
    rows.sort_by(|a, b| rank(b).total_cmp(&rank(a)).then_with(|| a.name.cmp(&b.name)));
    let total = rows.len();
    let rows: Vec<_> = rows.into_iter().take(limit).map(|row| row.shown(kind, &names)).collect();
    let mut answer = json!({ "by": kind.name(), "of": of.to_string(), "total": total, "data": rows });
    if !named.is_empty() {
        answer["within"] = shown_entities(&named);
    }
    Ok(with_precision(answer, sparkline_step(frame).max(MIN_STEP)))
}

/// What is known of an entity.
#[derive(Default)]
struct Row {
    name: String,
    metrics: BTreeMap<String, f64>,
    sparkline: Sparkline,
}

/// The rows of all entities. Metrics that Prometheus does not have of this kind are left out, unless it is the one that
/// orders them.
async fn rows(
    prometheus: Questions<'_>,
    question: &Question,
    frame: Frame,
    of: Metric,
) -> Result<Vec<Row>, (StatusCode, String)> {
    let mut rows = BTreeMap::<String, Row>::new();
    question.expression(of, frame.to - frame.from)?;
    let metrics = ROW_METRICS.iter().filter_map(|name| name.parse::<Metric>().ok()).chain([of]);
    let ask = |metric| {
        let expression = question.expression(metric, frame.to - frame.from).ok()?;
        Some(async move { prometheus.at(&expression, frame.to).await.map(|found| (metric, found)) })
    };
    let step = sparkline_step(frame).max(MIN_STEP);
    let expression = question.expression(Metric::Requests, step)?;
    let sparklines = prometheus.range(&expression, (frame.from + step, frame.to), step);
    // All at once, so that one timeout is enough.
    let (answers, sparklines) =
        tokio::try_join!(try_join_all(metrics.filter_map(ask)), sparklines).map_err(failed)?;
    for (metric, found) in answers {
        for samples in found {
            let name = samples.label(question.label());
            let row = rows
                .entry(name.to_owned())
                .or_insert_with(|| Row { name: name.to_owned(), ..Row::default() });
            row.metrics.extend(samples.points().map(|(_, value)| (metric.to_string(), value)));
        }
    }
    for samples in sparklines {
        if let Some(row) = rows.get_mut(samples.label(question.label())) {
            let values: BTreeMap<u64, f64> = samples.points().collect();
            let ends = (frame.from + step..=frame.to).step_by(step as usize);
            row.sparkline = ends.map(|end| values.get(&end).map(|value| value.round() as u64)).collect();
        }
    }
    Ok(rows.into_values().collect())
}

impl Row {
    fn shown(self, kind: Kind, names: &Names<'_>) -> Value {
        let (id, name) = names.of_metric(kind, &self.name);
        let mut shown = Map::from_iter([("id".to_owned(), json!(id)), ("name".to_owned(), json!(name))]);
        for (metric, value) in self.metrics {
            let is_count = matches!(metric.as_str(), "requests" | "errors" | "bytes_in" | "bytes_out");
            shown.insert(metric, if is_count { json!(value.round() as u64) } else { json!(value) });
        }
        shown.insert("sparkline".to_owned(), json!(self.sparkline));
        shown.into()
    }
}

/// Counts are estimates, because Prometheus extrapolates between scrapes.
fn with_precision(mut answer: Value, resolution: u64) -> Value {
    answer["source"] = json!("prometheus");
    answer["resolution"] = json!(resolution);
    answer["oldest"] = Value::Null;
    answer["sampled"] = json!(true);
    answer["dropped"] = json!(0);
    answer
}
