//! Everything counted of one entity, over time.
use super::{Frame, Precision, QueryError};
use crate::aggregate::Aggregate;
use crate::entities::Entity;
use crate::tiers::View;

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

/// What was counted of an entity, at points this many seconds apart; further if the slots are wider.
pub fn points(view: &View, of: Entity, frame: Frame, step: u64) -> Result<Points, QueryError> {
    let Frame { from, to } = frame;
    if from >= to || step == 0 {
        return Err(QueryError::EmptyFrame);
    }
    let step = step.next_multiple_of(view.width);
    let times: Vec<u64> = (from / step * step..to).step_by(step as usize).collect();
    let mut aggregates = vec![Aggregate::default(); times.len()];
    for slot in &view.slots {
        let place = (slot.start.max(from) / step - from / step) as usize;
        if let (Some(sum), Some(aggregate)) = (aggregates.get_mut(place), slot.get(of)) {
            sum.merge(&aggregate);
        }
    }
    let known = known(view, &times, step);
    Ok(Points { times, step, aggregates, known, precision: Precision::of(view) })
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
