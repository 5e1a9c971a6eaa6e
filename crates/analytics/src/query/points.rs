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
    Ok(Points { times, step, aggregates, precision: Precision::of(view) })
}
