//! The entities of a kind, the first ones by a metric.
use super::rows::Rows;
use super::sparkline::{Parts, Sparkline};
use super::{Frame, Metric, Precision, QueryError};
use crate::aggregate::Aggregate;
use crate::entities::{Entities, Entity, Kind, NONE, OTHERS};
use crate::tiers::View;
use std::collections::BTreeMap;

/// What a table asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopQuery {
    /// What the rows are.
    pub by: Kind,
    /// Of whose requests: of the node, of one consumer by route, or of one route by consumer.
    pub within: Entity,
    /// What rows are ordered by.
    pub of: Metric,
    /// The frame.
    pub frame: Frame,
    /// The most rows.
    pub limit: usize,
}

/// An entity in a table.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The entity.
    pub entity: Entity,
    /// Its name, `none` or `others`.
    pub label: String,
    /// Everything that was counted of it.
    pub aggregate: Aggregate,
    /// Requests over the frame.
    pub sparkline: Sparkline,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// The first rows.
    pub rows: Vec<Row>,
    /// The number of all rows.
    pub total: usize,
    /// At most so many requests of the entity within which rows are counted are in no row.
    pub missing: u64,
    /// How far it can be relied on.
    pub precision: Precision,
}

/// The entities of a kind, those with the most of a metric first.
pub fn top(view: &View, query: &TopQuery, entities: &Entities) -> Result<Top, QueryError> {
    let frame = query.frame;
    if frame.from >= frame.to {
        return Err(QueryError::EmptyFrame);
    }
    super::check("of", query.of, query.by)?;
    let rows = Rows::new(query.by, query.within, entities)?;
    let parts = Parts::new(view, frame);
    let mut sums: BTreeMap<Entity, (Aggregate, Sparkline)> = BTreeMap::new();
    let mut missing = 0u64;
    for slot in &view.slots {
        let mut in_rows = 0u64;
        for (entity, aggregate) in rows.of(slot) {
            let (sum, sparkline) =
                sums.entry(entity).or_insert_with(|| (Aggregate::default(), parts.empty()));
            sum.merge(&aggregate);
            parts.add(sparkline, slot.start, aggregate.requests());
            in_rows = in_rows.saturating_add(aggregate.requests());
        }
        missing = missing.saturating_add(rows.missing(slot, in_rows));
    }
    let total = sums.len();
    let mut order: Vec<_> =
        sums.into_iter().map(|(entity, sum)| (query.of.of(&sum.0), entity, sum)).collect();
    order.sort_by(|a, b| b.0.unwrap_or(-1.0).total_cmp(&a.0.unwrap_or(-1.0)).then(a.1.cmp(&b.1)));
    let row = |(_, entity, (aggregate, sparkline))| Row {
        entity,
        label: label(entity, entities),
        aggregate,
        sparkline,
    };
    let rows = order.into_iter().take(query.limit).map(row).collect();
    Ok(Top { rows, total, missing, precision: Precision::of(view) })
}

/// The name of an entity as an answer has it.
pub(super) fn label(entity: Entity, entities: &Entities) -> String {
    match entity.id {
        NONE => "none".to_owned(),
        OTHERS => "others".to_owned(),
        _ => entities.name(entity).map_or_else(|| "unknown".to_owned(), |name| name.to_string()),
    }
}
