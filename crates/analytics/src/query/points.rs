//! Everything counted of one entity, or of each of a kind, over time.
use super::rows::Rows;
use super::{Frame, Precision, QueryError};
use crate::aggregate::Aggregate;
use crate::entities::{Entities, Entity, Kind};
use crate::tiers::View;
use std::collections::BTreeMap;

/// What was counted of an entity from point to point.
#[derive(Debug, Clone, PartialEq)]
pub struct Points {
    /// The starts of the points, without a gap.
    pub times: Vec<u64>,
    /// The distance of points in seconds.
    pub step: u64,
    /// What was counted from each start to the next.
    pub aggregates: Vec<Aggregate>,
    /// Whether anything is known of that time. If not, the counts are empty.
    pub known: Vec<bool>,
    /// How far they can be relied on.
    pub precision: Precision,
}

/// Points of a frame at which nothing is counted yet, this many seconds apart; further if the slots are wider.
fn no_points(view: &View, frame: Frame, step: u64) -> Result<Points, QueryError> {
    let Frame { from, to } = frame;
    if from >= to || step == 0 {
        return Err(QueryError::EmptyFrame);
    }
    let step = step.next_multiple_of(view.width);
    let times: Vec<u64> = (from / step * step..to).step_by(step as usize).collect();
    let known = known(view, &times, step);
    Ok(Points { times, step, aggregates: Vec::new(), known, precision: Precision::of(view) })
}

/// What was counted of an entity, at points this many seconds apart; further if the slots are wider.
pub fn points(view: &View, of: Entity, frame: Frame, step: u64) -> Result<Points, QueryError> {
    let mut points = no_points(view, frame, step)?;
    points.aggregates = vec![Aggregate::default(); points.times.len()];
    for slot in &view.slots {
        let place = points.place(slot.start);
        if let (Some(sum), Some(aggregate)) = (points.aggregates.get_mut(place), slot.get(of)) {
            sum.merge(&aggregate);
        }
    }
    Ok(points)
}

/// What was counted of each entity of a kind, by entity. Of a consumer that is by route, of a route by consumer.
pub fn points_by(
    view: &View,
    (by, within): (Kind, Entity),
    frame: Frame,
    step: u64,
    entities: &Entities,
) -> Result<impl Iterator<Item = (Entity, Points)>, QueryError> {
    let empty = no_points(view, frame, step)?;
    let rows = Rows::new(by, within, entities)?;
    let mut found: BTreeMap<Entity, BTreeMap<usize, Aggregate>> = BTreeMap::new();
    for slot in &view.slots {
        let place = empty.place(slot.start);
        for (entity, aggregate) in rows.of(slot) {
            found.entry(entity).or_default().entry(place).or_default().merge(&aggregate);
        }
    }
    Ok(found.into_iter().map(move |(entity, mut counted)| {
        let places = 0..empty.times.len();
        let aggregates = places.map(|place| counted.remove(&place).unwrap_or_default()).collect();
        (entity, Points { aggregates, ..empty.clone() })
    }))
}

impl Points {
    /// The point of a slot. One that begins before the frame is in the first.
    fn place(&self, start: u64) -> usize {
        self.times.partition_point(|time| *time <= start).saturating_sub(1)
    }
}

/// Whether anything is known of the time of each point. What has a slot is known.
pub(super) fn known(view: &View, times: &[u64], step: u64) -> Vec<bool> {
    let mut known: Vec<_> = times.iter().map(|time| view.known.overlaps(*time, time + step)).collect();
    for slot in &view.slots {
        let place = times.partition_point(|time| *time <= slot.start).saturating_sub(1);
        known.get_mut(place).into_iter().for_each(|known| *known = true);
    }
    known
}
