//! Errors by route, status and cause.
use super::sparkline::{Parts, Sparkline};
use super::{Frame, Precision, QueryError};
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
    pub sparkline: Sparkline,
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

/// Whose errors are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorScope {
    /// Those of each route.
    Routes,
    /// Those of one route.
    Route(u32),
    /// Those of all routes together; such groups have no samples.
    Node,
}

impl ErrorScope {
    fn kind(self) -> Kind {
        if self == ErrorScope::Node { Entity::NODE.kind } else { Kind::Route }
    }

    fn has(self, entity: Entity) -> bool {
        match self {
            ErrorScope::Routes => true,
            ErrorScope::Route(id) => id == entity.id,
            ErrorScope::Node => entity == Entity::NODE,
        }
    }
}

/// The errors of a frame.
pub fn errors(
    view: &View,
    samples: &Samples,
    scope: ErrorScope,
    frame: Frame,
    entities: &Entities,
) -> Result<Errors, QueryError> {
    if frame.from >= frame.to {
        return Err(QueryError::EmptyFrame);
    }
    let parts = Parts::new(view, frame);
    let mut groups: HashMap<Group, ErrorGroup> = HashMap::new();
    for slot in &view.slots {
        for (entity, aggregate) in slot.of_kind(scope.kind()).filter(|(entity, _)| scope.has(*entity)) {
            for (outcome, count) in aggregate.outcomes().filter(|(outcome, _)| outcome.is_error()) {
                let key = Group { route: entity.id, outcome };
                let group = groups.entry(key).or_insert_with(|| empty(key, slot.start, &parts, entities));
                group.count = group.count.saturating_add(count);
                group.last = slot.start;
                parts.add(&mut group.sparkline, slot.start, count);
            }
        }
    }
    let in_frame = |sample: &&Arc<Sample>| (frame.from..frame.to).contains(&(sample.at / 1_000));
    let samples = (scope != ErrorScope::Node).then(|| samples.before(u64::MAX)).into_iter().flatten();
    for sample in samples.filter(in_frame) {
        let group = groups.get_mut(&Group::of(sample));
        if let Some(group) = group.filter(|group| group.samples.len() < ERRORS_PER_GROUP) {
            group.samples.push(Arc::clone(sample));
        }
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    groups.sort_by_key(|group| (Reverse(group.count), group.group.route, group.group.outcome.status));
    Ok(Errors { groups, precision: Precision::of(view) })
}

fn empty(group: Group, first: u64, parts: &Parts, entities: &Entities) -> ErrorGroup {
    ErrorGroup {
        group,
        route: super::top::label(Entity::new(Kind::Route, group.route), entities),
        cause: super::series::cause_label(group.outcome.cause, entities),
        count: 0,
        first,
        last: first,
        sparkline: parts.empty(),
        samples: Vec::new(),
    }
}
