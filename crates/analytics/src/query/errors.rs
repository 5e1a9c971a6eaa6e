//! Errors by route, status and cause.
use super::{Frame, Precision, QueryError, SPARKLINE_POINTS};
use crate::entities::{Entities, Entity, Kind};
use crate::samples::{ERRORS_PER_GROUP, Group, Sample, Samples};
use crate::tiers::View;
use foldhash::{HashMap, HashMapExt};
use std::cmp::Reverse;
use std::sync::Arc;

/// Errors that belong together.
#[derive(Debug, Clone, PartialEq)]
pub struct ErrorGroup {
    /// The route, the status and the cause.
    pub group: Group,
    /// The route's name, `none` or `others`.
    pub route: String,
    /// The cause, with the plugin's name.
    pub cause: String,
    /// How many there were.
    pub count: u64,
    /// The start of the first slot that has one, in seconds since 1970.
    pub first: u64,
    /// The start of the last one.
    pub last: u64,
    /// Errors over the frame.
    pub sparkline: Vec<u64>,
    /// Samples, newest first.
    pub samples: Vec<Arc<Sample>>,
}

/// The errors of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Errors {
    /// The groups, the largest first.
    pub groups: Vec<ErrorGroup>,
    /// How far they can be relied on.
    pub precision: Precision,
}

/// The errors of a frame, of all routes or of one.
pub fn errors(
    view: &View,
    samples: &Samples,
    route: Option<u32>,
    frame: Frame,
    entities: &Entities,
) -> Result<Errors, QueryError> {
    if frame.from >= frame.to {
        return Err(QueryError::EmptyFrame);
    }
    let mut groups: HashMap<Group, ErrorGroup> = HashMap::new();
    for slot in &view.slots {
        let routes = slot.of_kind(Kind::Route).filter(|(entity, _)| route.is_none_or(|id| id == entity.id));
        for (entity, aggregate) in routes {
            for (outcome, count) in aggregate.outcomes().filter(|(outcome, _)| outcome.is_error()) {
                let key = Group { route: entity.id, outcome };
                let group = groups.entry(key).or_insert_with(|| empty(key, slot.start, entities));
                group.count = group.count.saturating_add(count);
                group.last = slot.start;
                let point = &mut group.sparkline[frame.sparkline_point(slot.start)];
                *point = point.saturating_add(count);
            }
        }
    }
    let in_frame = |sample: &&Arc<Sample>| (frame.from..frame.to).contains(&(sample.at / 1_000));
    for sample in samples.before(u64::MAX).filter(in_frame) {
        let group = groups.get_mut(&Group::of(sample));
        if let Some(group) = group.filter(|group| group.samples.len() < ERRORS_PER_GROUP) {
            group.samples.push(Arc::clone(sample));
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| (Reverse(group.count), group.group.route, group.group.outcome.status));
    Ok(Errors { groups, precision: Precision::of(view) })
}

fn empty(group: Group, first: u64, entities: &Entities) -> ErrorGroup {
    ErrorGroup {
        group,
        route: super::top::label(Entity::new(Kind::Route, group.route), entities),
        cause: super::series::cause_label(group.outcome.cause, entities),
        count: 0,
        first,
        last: first,
        sparkline: vec![0; SPARKLINE_POINTS as usize],
        samples: Vec::new(),
    }
}
