//! Questions to the node's analytics, all for one frame of time.
use crate::api::{Api, ApiError};
use crate::form::plain;
use crate::frame::Frame;
use crate::url::query;
use axum::http::StatusCode;
use serde_json::Value;

/// How the Admin API's message begins if the node records nothing.
const NOT_RECORDED: &str = "this node records no analytics";

/// The history of a frame.
pub(crate) struct History<'v> {
    pub(crate) api: &'v Api,
    pub(crate) frame: &'v Frame,
}

/// What a series is of: a kind such as `route`, and the entity's id, name or address. None stands for the node.
pub(crate) type Of<'a> = Option<(&'a str, &'a str)>;

/// A metric over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Series {
    pub(crate) times: Vec<u64>,
    pub(crate) step: u64,
    pub(crate) columns: Vec<Column>,
    /// The times of which nothing is known, each with its begin and its end; none if the source does not say.
    pub(crate) gaps: Option<Vec<(u64, u64)>>,
    /// Where the history begins; 0 if it is that of a Prometheus server, which does not say.
    pub(crate) oldest: Option<u64>,
    /// How many requests are missing.
    pub(crate) dropped: u64,
    /// Why a Prometheus that remembers more did not answer.
    pub(crate) source_error: Option<String>,
}

/// One line of a series.
#[derive(Clone, Debug, Default)]
pub(crate) struct Column {
    pub(crate) label: String,
    pub(crate) values: Vec<Option<f64>>,
    /// The metric for the whole frame.
    pub(crate) total: Option<f64>,
}

/// The first rows of a table.
#[derive(Clone, Debug)]
pub(crate) struct Top {
    pub(crate) rows: Vec<Value>,
    /// The number of all rows.
    pub(crate) total: usize,
    /// At most so many requests of the entity that rows are about are in no row.
    pub(crate) missing: u64,
    /// The part of the frame that the history covers, in seconds.
    pub(crate) seconds: f64,
    /// Why a Prometheus that remembers more did not answer.
    pub(crate) source_error: Option<String>,
}

/// The first groups of errors.
#[derive(Clone, Debug, Default)]
pub(crate) struct Errors {
    pub(crate) groups: Vec<Value>,
    /// The number of all groups.
    pub(crate) total: usize,
    /// The number of errors in all groups.
    pub(crate) count: u64,
}

/// A change of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// In seconds since 1970.
    pub(crate) at: f64,
    pub(crate) revision: String,
    pub(crate) source: String,
    pub(crate) what: String,
}

/// Whether an error says that the node records nothing.
pub(crate) fn is_off(error: &ApiError) -> bool {
    error.status == StatusCode::NOT_FOUND && error.message().starts_with(NOT_RECORDED)
}

impl History<'_> {
    async fn ask(&self, path: &str, members: &[(&str, &str)]) -> Result<Value, ApiError> {
        let (from, to) = (self.frame.from.to_string(), self.frame.to.to_string());
        let frame = [("from", &*from), ("to", &*to)];
        let question = query(frame.into_iter().chain(members.iter().copied()));
        Ok(self.api.get(&format!("/analytics/{path}{question}")).await?.body)
    }

    /// A metric over time, divided by a property unless `by` is empty, in at most about so many points.
    pub(crate) async fn series(
        &self,
        metric: &str,
        by: &str,
        of: Of<'_>,
        points: u64,
    ) -> Result<Series, ApiError> {
        let step = self.frame.step(points).to_string();
        let (kind, entity) = of.unwrap_or(("route", ""));
        let members = [("metric", metric), ("by", by), ("step", &*step), (kind, entity)];
        match self.ask("series", &members).await {
            Ok(answer) => Ok(Series::of(&answer).until(self.frame.now / 1_000)),
            // Nothing has been recorded of this entity.
            Err(error) if error.status == StatusCode::NOT_FOUND && !is_off(&error) => Ok(Series::default()),
            Err(error) => Err(error),
        }
    }

    /// The rows of a table, those with the most of a metric first: of one entity, or of the node.
    pub(crate) async fn top(
        &self,
        by: &str,
        of: &str,
        limit: usize,
        within: Of<'_>,
    ) -> Result<Top, ApiError> {
        let limit = limit.to_string();
        let (kind, entity) = within.unwrap_or(("route", ""));
        let members = [("by", by), ("of", of), ("limit", &*limit), (kind, entity)];
        let mut answer = match self.ask("top", &members).await {
            // Nothing has been recorded of this entity.
            Err(error) if error.status == StatusCode::NOT_FOUND && !is_off(&error) => Value::Null,
            answer => answer?,
        };
        let count = |name: &str| answer[name].as_u64().unwrap_or_default();
        let (total, missing) = (count("total") as usize, count("missing"));
        let seconds = self.frame.seconds_since(answer["oldest"].as_u64());
        Ok(Top { source_error: source_error(&answer), rows: rows(&mut answer), total, missing, seconds })
    }

    /// Groups of errors, the largest first; of one route unless it is empty, and all unless there is a limit.
    pub(crate) async fn errors(&self, route: &str, limit: Option<usize>) -> Result<Errors, ApiError> {
        let limit = limit.map(|limit| limit.to_string()).unwrap_or_default();
        match self.ask("errors", &[("route", route), ("limit", &*limit)]).await {
            Ok(mut answer) => Ok(Errors {
                total: answer["total"].as_u64().unwrap_or_default() as usize,
                count: answer["count"].as_u64().unwrap_or_default(),
                groups: rows(&mut answer),
            }),
            Err(error) if error.status == StatusCode::NOT_FOUND && !is_off(&error) => Ok(Errors::default()),
            Err(error) => Err(error),
        }
    }

    /// Errors by status and cause, of all routes together.
    pub(crate) async fn outcomes(&self) -> Result<Vec<Value>, ApiError> {
        Ok(rows(&mut self.ask("errors", &[("by", "outcome")]).await?))
    }

    /// The changes of the configuration, the newest first.
    pub(crate) async fn changes(&self) -> Result<Vec<Change>, ApiError> {
        let mut answer = self.ask("changes", &[]).await?;
        Ok(rows(&mut answer).iter().rev().map(Change::of).collect())
    }
}

fn source_error(answer: &Value) -> Option<String> {
    answer["source_error"].as_str().map(str::to_owned)
}

fn rows(answer: &mut Value) -> Vec<Value> {
    match answer.get_mut("data").map(Value::take) {
        Some(Value::Array(rows)) => rows,
        _ => Vec::new(),
    }
}

impl Change {
    fn of(row: &Value) -> Change {
        Change {
            at: row["at"].as_f64().unwrap_or_default(),
            revision: plain(&row["revision"]),
            source: plain(&row["source"]),
            what: plain(&row["what"]),
        }
    }
}

impl Series {
    fn of(answer: &Value) -> Series {
        let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let is_unbounded = answer["source"] == "prometheus";
        Series {
            times: items(&answer["times"]).iter().filter_map(Value::as_u64).collect(),
            step: answer["step"].as_u64().unwrap_or(1).max(1),
            columns: items(&answer["columns"]).iter().map(Column::of).collect(),
            gaps: answer["gaps"].as_array().map(|gaps| gaps.iter().filter_map(pair).collect()),
            oldest: answer["oldest"].as_u64().or(is_unbounded.then_some(0)),
            dropped: answer["dropped"].as_u64().unwrap_or_default(),
            source_error: source_error(answer),
        }
    }

    /// The same without gaps in the future, of which nobody knows anything.
    fn until(mut self, now: u64) -> Series {
        if let Some(gaps) = &mut self.gaps {
            gaps.retain(|(from, _)| *from < now);
            gaps.iter_mut().for_each(|(_, to)| *to = now.min(*to));
        }
        self
    }

    /// Whether nothing is known of a point, as far as the source says it.
    pub(crate) fn is_gap(&self, start: u64) -> bool {
        self.gaps.iter().flatten().any(|(from, to)| (*from..*to).contains(&start))
    }

    /// The metric for the whole frame of all columns together.
    pub(crate) fn sum(&self) -> f64 {
        self.columns.iter().filter_map(|column| column.total).sum()
    }

    /// The metric for the whole frame of the column with this label; of the only one if that is empty.
    pub(crate) fn total(&self, label: &str) -> Option<f64> {
        self.columns.iter().find(|column| column.label == label)?.total
    }

    /// Counts as rates: what happened in each interval, for each second of it that has passed.
    pub(crate) fn per_second(mut self, frame: &Frame) -> Series {
        let elapsed: Vec<_> = self.times.iter().map(|start| frame.elapsed(*start, self.step)).collect();
        for column in &mut self.columns {
            for (value, elapsed) in column.values.iter_mut().zip(&elapsed) {
                // Too little of a second says nothing about it.
                *value = value.filter(|_| *elapsed >= 1.0).map(|count| count / elapsed);
            }
        }
        self
    }
}

fn pair(value: &Value) -> Option<(u64, u64)> {
    Some((value[0].as_u64()?, value[1].as_u64()?))
}

impl Column {
    fn of(column: &Value) -> Column {
        let values = column["values"].as_array().map(Vec::as_slice).unwrap_or_default();
        Column {
            label: plain(&column["label"]),
            values: values.iter().map(Value::as_f64).collect(),
            total: column["total"].as_f64(),
        }
    }
}
