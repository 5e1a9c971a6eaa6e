//! Questions to the history, as pure functions of a [`View`]. The caller decides on the text of an answer.
use crate::entities::Kind;
use crate::tiers::View;
use std::fmt;

mod errors;
mod metric;
mod points;
mod requests;
mod rows;
mod series;
mod sparkline;
mod top;
pub use errors::{ErrorGroup, ErrorScope, Errors, errors};
pub use metric::{By, Metric};
pub use points::{Points, points, points_by};
pub use requests::{Arrivals, CauseFilter, Page, RequestFilter, arrivals, requests};
pub use series::{Column, Series, SeriesQuery, cause_label, series};
pub use sparkline::Sparkline;
pub use top::{Row, Top, TopQuery, top};

/// Why a question cannot be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryError {
    /// There is no such metric.
    Metric(String),
    /// There is no such dimension.
    By(String),
    /// The metric cannot be divided by this dimension.
    Indivisible(Metric, By),
    /// The requests of an entity of the second kind cannot be divided by the first.
    NotPaired(Kind, Kind),
    /// This is not counted of entities of a kind.
    NotCounted(String, Kind),
    /// The frame of time is empty or the step is 0.
    EmptyFrame,
}

impl fmt::Display for QueryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Metric(name) => write!(f, "metric: there is no '{name}'; use one of {}", metric::METRICS),
            Self::By(name) => write!(f, "by: there is no '{name}'; use one of {}", metric::DIMENSIONS),
            Self::Indivisible(metric, by) => {
                write!(f, "by: '{metric}' cannot be divided by {by}; use metric=requests, or by=route")
            }
            Self::NotPaired(kind, of) => {
                let (kind, of) = (kind.name(), of.name());
                write!(
                    f,
                    "by, {of}: requests of one {of} are not counted by {kind}; there are: by=route of one consumer, and "
                )?;
                f.write_str("by=consumer of one route")
            }
            Self::NotCounted(what, Kind::Model) => write!(
                f,
                "{what} is not counted of models; there are: requests, errors, error_rate, 4xx, 5xx, mean and percentiles, and what \
                 models alone have"
            ),
            Self::NotCounted(what, _) => {
                write!(f, "{what} is counted of models alone; ask with by=model, or model=NAME")
            }
            Self::EmptyFrame => f.write_str("from, to, step: the frame is empty; 'to' must be after 'from'"),
        }
    }
}

impl std::error::Error for QueryError {}

/// A frame of time in seconds since 1970: from (included) to (excluded).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame {
    /// The begin.
    pub from: u64,
    /// The end.
    pub to: u64,
}

/// Refuses a metric that entities of a kind do not have.
fn check(name: &str, metric: Metric, kind: Kind) -> Result<(), QueryError> {
    match metric.is_counted_of(kind) {
        true => Ok(()),
        false => Err(QueryError::NotCounted(format!("{name}: '{metric}'"), kind)),
    }
}

/// How far an answer can be relied on. It is a part of every answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Precision {
    /// The width of the slots that the answer is made of, in seconds. Edges of the frame are as wide.
    pub resolution: u64,
    /// Where the history of this resolution begins.
    pub oldest: Option<u64>,
    /// Requests in the frame that are not in the answer, because a ring was full.
    pub dropped: u64,
}

impl Precision {
    fn of(view: &View) -> Precision {
        let dropped = view.slots.iter().map(|slot| slot.dropped).sum();
        Precision { resolution: view.width, oldest: view.oldest, dropped }
    }

    /// Whether every request of the frame was counted; else the answer is a sample.
    pub fn is_exact(&self) -> bool {
        self.dropped == 0
    }
}

#[cfg(test)]
mod tests;
