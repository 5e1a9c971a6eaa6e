//! The entities of a kind, the first ones by a metric.
use super::{Frame, Metric, Precision, QueryError, SPARKLINE_POINTS};
use crate::aggregate::Aggregate;
use crate::entities::{Entities, Entity, Kind, NONE, OTHERS};
use crate::tiers::View;
use std::collections::BTreeMap;

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
    pub sparkline: Vec<u64>,
}

/// A table.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// The first rows.
    pub rows: Vec<Row>,
    /// The number of all rows.
    pub total: usize,
    /// How far it can be relied on.
    pub precision: Precision,
}

/// The entities of a kind, those with the most of a metric first.
pub fn top(
    view: &View,
    kind: Kind,
    of: Metric,
    frame: Frame,
    limit: usize,
    entities: &Entities,
) -> Result<Top, QueryError> {
    if frame.from >= frame.to {
        return Err(QueryError::EmptyFrame);
    }
    let mut sums: BTreeMap<Entity, (Aggregate, Vec<u64>)> = BTreeMap::new();
    for slot in &view.slots {
        for (entity, aggregate) in slot.rows(kind) {
            let empty = || (Aggregate::default(), vec![0; SPARKLINE_POINTS as usize]);
            let (sum, sparkline) = sums.entry(entity).or_insert_with(empty);
            sum.merge(&aggregate);
            sparkline[frame.sparkline_point(slot.start)] += aggregate.requests();
        }
    }
    let total = sums.len();
    let mut order: Vec<_> = sums.into_iter().map(|(entity, sum)| (of.of(&sum.0), entity, sum)).collect();
    order.sort_by(|a, b| b.0.unwrap_or(-1.0).total_cmp(&a.0.unwrap_or(-1.0)).then(a.1.cmp(&b.1)));
    let row = |(_, entity, (aggregate, sparkline))| Row {
        entity,
        label: label(entity, entities),
        aggregate,
        sparkline,
    };
    let rows = order.into_iter().take(limit).map(row).collect();
    Ok(Top { rows, total, precision: Precision::of(view) })
}

/// The name of an entity as an answer has it.
pub(super) fn label(entity: Entity, entities: &Entities) -> String {
    match entity.id {
        NONE => "none".to_owned(),
        OTHERS => "others".to_owned(),
        _ => entities.name(entity).map_or_else(|| "unknown".to_owned(), |name| name.to_string()),
    }
}
