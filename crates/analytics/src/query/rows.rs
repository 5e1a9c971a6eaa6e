//! Which entities are the rows of a table or the columns of a chart.
use super::QueryError;
use crate::aggregate::Aggregate;
use crate::entities::{Entities, Entity, Kind, NONE, OTHERS};
use crate::slot::Slot;
use foldhash::HashMap;

/// The entities of a kind: with all of their requests, or with those that are of another entity, too.
pub(super) struct Rows {
    kind: Kind,
    /// The other entity and its pairs.
    within: Option<(Entity, HashMap<u32, u32>)>,
}

impl Rows {
    /// Rows of the whole node, or of a consumer by route, or of a route by consumer.
    pub(super) fn new(kind: Kind, within: Entity, entities: &Entities) -> Result<Rows, QueryError> {
        let is_paired = match (kind, within.kind) {
            _ if within == Entity::NODE => return Ok(Rows { kind, within: None }),
            (Kind::Route, Kind::Consumer) => within.id != NONE && within.id != OTHERS,
            (Kind::Consumer, Kind::Route) => within.id != OTHERS,
            _ => false,
        };
        match is_paired {
            true => Ok(Rows { kind, within: Some((within, entities.pairs_of(within))) }),
            false => Err(QueryError::NotPaired(kind, within.kind)),
        }
    }

    /// The rows of a slot. The whole is no row among the nodes of a fleet.
    pub(super) fn of<'s>(&'s self, slot: &'s Slot) -> impl Iterator<Item = (Entity, Aggregate)> + 's {
        let counted = if self.within.is_some() { Kind::Pair } else { self.kind };
        let is_row = |entity: Entity| self.row(entity).is_some();
        let rows = slot.of_kind_where(counted, is_row);
        rows.filter_map(|(entity, aggregate)| Some((self.row(entity)?, aggregate)))
    }

    /// The row that an entity of a slot is.
    fn row(&self, counted: Entity) -> Option<Entity> {
        match &self.within {
            Some((_, pairs)) => Some(Entity::new(self.kind, *pairs.get(&counted.id)?)),
            None => Some(counted).filter(|entity| *entity != Entity::NODE),
        }
    }

    /// How many requests of the other entity may be in no row, because their pairs are not counted one by one. `in_rows` are
    /// those of the slot that are.
    pub(super) fn missing(&self, slot: &Slot, in_rows: u64) -> u64 {
        let Some((within, _)) = &self.within else { return 0 };
        let requests = |entity| slot.get(entity).map(|aggregate| aggregate.requests());
        let Some(others) = requests(Entity::new(Kind::Pair, OTHERS)) else { return 0 };
        match requests(*within) {
            Some(all) => others.min(all.saturating_sub(in_rows)),
            None if requests(Entity::new(within.kind, OTHERS)).is_some() => others,
            None => 0,
        }
    }
}
