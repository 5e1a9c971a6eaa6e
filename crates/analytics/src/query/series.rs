//! A metric over time: columns, ready for a chart.
use super::rows::Rows;
use super::{By, Frame, Metric, Precision, QueryError, points};
use crate::aggregate::{Aggregate, Latency};
use crate::bucket;
use crate::cause::Cause;
use crate::entities::{Entities, Entity, Kind, OTHERS};
use crate::slot::Slot;
use crate::tiers::View;
use std::collections::BTreeMap;

/// Entities that have a column of their own.
const MAX_ENTITIES: usize = 32;
/// A series has at most so many points; a smaller step is widened.
const MAX_POINTS: u64 = 2_000;

/// What a chart asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeriesQuery {
    /// The numbers.
    pub metric: Metric,
    /// What the columns are.
    pub by: By,
    /// Of which entity; the node if none is named. Columns by route may be of one consumer, and the other way round.
    pub of: Entity,
    /// The frame.
    pub frame: Frame,
    /// The distance of points in seconds. It is widened to a multiple of the resolution.
    pub step: u64,
}

/// One line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// What it is; empty if there is one column only. Of a bucket its upper boundary in seconds.
    pub label: String,
    /// A number for each time; none where there is nothing to divide, or nothing is known.
    pub values: Vec<Option<f64>>,
    /// The number for the whole frame.
    pub total: Option<f64>,
}

/// A chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The starts of the points, without a gap.
    pub times: Vec<u64>,
    /// The distance of points in seconds.
    pub step: u64,
    /// The lines.
    pub columns: Vec<Column>,
    /// Of each point whether anything is known of its time.
    pub known: Vec<bool>,
    /// How far it can be relied on.
    pub precision: Precision,
}

/// A metric over time.
pub fn series(view: &View, query: &SeriesQuery, entities: &Entities) -> Result<Series, QueryError> {
    let Frame { from, to } = query.frame;
    if from >= to || query.step == 0 {
        return Err(QueryError::EmptyFrame);
    }
    if query.metric != Metric::Requests && !matches!(query.by, By::Nothing | By::Entity(_)) {
        return Err(QueryError::Indivisible(query.metric, query.by));
    }
    match query.by {
        By::Entity(kind) => super::check("metric", query.metric, kind)?,
        By::Protocol if query.of.kind == Kind::Model => {
            return Err(QueryError::NotCounted("by: 'protocol'".to_owned(), Kind::Model));
        }
        _ => super::check("metric", query.metric, query.of.kind)?,
    }
    let step = query.step.max((to - from).div_ceil(MAX_POINTS)).next_multiple_of(view.width);
    let times: Vec<u64> = (from / step * step..to).step_by(step as usize).collect();
    let place = |slot: &Slot| (slot.start.max(from) / step - from / step) as usize;
    let mut columns = match query.by {
        By::Entity(kind) => {
            let rows = Rows::new(kind, query.of, entities)?;
            by_entity(view, query.metric, (kind, &rows), times.len(), place, entities)
        }
        By::Nothing => vec![one(view, query, step)?],
        by => divided(view, by, query.of, times.len(), place, entities),
    };
    let known = super::points::known(view, &times, step);
    for column in &mut columns {
        let values = column.values.iter_mut().zip(&known);
        values.filter(|(_, known)| !**known).for_each(|(value, _)| *value = None);
    }
    Ok(Series { times, step, columns, known, precision: Precision::of(view) })
}

fn column(label: String, metric: Metric, points: &[Aggregate]) -> Column {
    let mut whole = Aggregate::default();
    points.iter().for_each(|aggregate| whole.merge(aggregate));
    let values = points.iter().map(|aggregate| metric.of(aggregate)).collect();
    Column { label, values, total: metric.of(&whole) }
}

fn one(view: &View, query: &SeriesQuery, step: u64) -> Result<Column, QueryError> {
    let found = points(view, query.of, query.frame, step)?;
    Ok(column(String::new(), query.metric, &found.aggregates))
}

/// Columns by entity: the busiest ones, then the others.
fn by_entity(
    view: &View,
    metric: Metric,
    (kind, rows): (Kind, &Rows),
    length: usize,
    place: impl Fn(&Slot) -> usize,
    entities: &Entities,
) -> Vec<Column> {
    let busiest = busiest(view, rows);
    let mut columns: BTreeMap<u32, Vec<Aggregate>> = BTreeMap::new();
    for slot in &view.slots {
        for (entity, aggregate) in rows.of(slot) {
            let id = if busiest.contains(&entity.id) { entity.id } else { OTHERS };
            let points = columns.entry(id).or_insert_with(|| vec![Aggregate::default(); length]);
            if let Some(point) = points.get_mut(place(slot)) {
                point.merge(&aggregate);
            }
        }
    }
    let order = busiest.iter().copied().chain(std::iter::once(OTHERS));
    let known = order.filter_map(|id| Some((id, columns.remove(&id)?)));
    let label = |id| super::top::label(Entity::new(kind, id), entities);
    known.map(|(id, points)| column(label(id), metric, &points)).collect()
}

fn busiest(view: &View, rows: &Rows) -> Vec<u32> {
    let mut requests: BTreeMap<u32, u64> = BTreeMap::new();
    for (entity, aggregate) in view.slots.iter().flat_map(|slot| rows.of(slot)) {
        if entity.id != OTHERS {
            *requests.entry(entity.id).or_default() += aggregate.requests();
        }
    }
    let mut ids: Vec<_> = requests.into_iter().collect();
    ids.sort_by_key(|(id, requests)| (std::cmp::Reverse(*requests), *id));
    ids.into_iter().take(MAX_ENTITIES).map(|(id, _)| id).collect()
}

/// Columns by a property of requests.
fn divided(
    view: &View,
    by: By,
    of: Entity,
    length: usize,
    place: impl Fn(&Slot) -> usize,
    entities: &Entities,
) -> Vec<Column> {
    let mut columns: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    for slot in &view.slots {
        let Some(aggregate) = slot.get(of) else { continue };
        for (key, count) in parts(&aggregate, by) {
            let points = columns.entry(key).or_insert_with(|| vec![0; length]);
            if let Some(point) = points.get_mut(place(slot)) {
                *point = point.saturating_add(count);
            }
        }
    }
    let column = |(key, points): (u32, Vec<u64>)| Column {
        label: part_label(by, key, entities),
        total: Some(points.iter().map(|count| *count as f64).sum()),
        values: points.into_iter().map(|count| Some(count as f64)).collect(),
    };
    columns.into_iter().map(column).collect()
}

/// The requests of an aggregate by a property.
fn parts(aggregate: &Aggregate, by: By) -> Vec<(u32, u64)> {
    let outcomes = aggregate.outcomes();
    match by {
        By::Status => outcomes.map(|(outcome, count)| (u32::from(outcome.status), count)).collect(),
        By::Class => outcomes.map(|(outcome, count)| (u32::from(outcome.status / 100), count)).collect(),
        By::Origin => outcomes.map(|(outcome, count)| (outcome.cause.origin() as u32, count)).collect(),
        By::Cause => outcomes.map(|(outcome, count)| (u32::from(outcome.cause.code()), count)).collect(),
        By::Protocol => {
            let protocol = |traits: crate::record::Traits| traits.protocol().map_or(u32::MAX, |p| p as u32);
            aggregate.traits().map(|(traits, count)| (protocol(traits), count)).collect()
        }
        By::Bucket => {
            let buckets = aggregate.latency(Latency::Total).iter();
            buckets.map(|(bucket, count)| (u32::from(bucket.0), count)).collect()
        }
        By::Nothing | By::Entity(_) => Vec::new(),
    }
}

fn part_label(by: By, key: u32, entities: &Entities) -> String {
    match by {
        By::Class => format!("{key}xx"),
        By::Origin => {
            ["client", "gateway", "upstream"].get(key as usize).copied().unwrap_or_default().to_owned()
        }
        By::Cause => cause_label(Cause::from_code(key as u16), entities),
        By::Protocol => protocol_label(key).to_owned(),
        By::Bucket => bucket::seconds(bucket::Bucket(key as u16).upper()).to_string(),
        By::Status | By::Nothing | By::Entity(_) => key.to_string(),
    }
}

/// The name of a cause, with the plugin's.
pub fn cause_label(cause: Cause, entities: &Entities) -> String {
    match cause {
        Cause::Plugin(id) => {
            let plugin = entities.name(Entity::new(Kind::Plugin, u32::from(id)));
            plugin.map_or_else(|| "plugin".to_owned(), |name| format!("plugin {name}"))
        }
        cause => cause.to_string(),
    }
}

fn protocol_label(key: u32) -> &'static str {
    let protocol = u8::try_from(key).ok().and_then(|bits| crate::record::Traits::from_bits(bits).protocol());
    protocol.map_or("unknown", |protocol| protocol.name())
}
