//! Names beside slots, for readers whose numbers of entities differ: the next process, or a control plane.
//!
//! A writer gives the name of an entity once, before the first slot that has it. A reader then replaces the writer's
//! numbers by its own.
use crate::aggregate::Aggregate;
use crate::cause::Cause;
use crate::entities::{Entities, Entity, Kind, OTHERS};
use crate::slot::{Slot, SlotWriter};
use crate::varint::{self, DecodeError, Reader};
use foldhash::{HashMap, HashSet, HashSetExt};
use std::collections::BTreeMap;

/// The entities whose names have been given.
#[derive(Debug, Default)]
pub(crate) struct Named {
    entities: HashSet<Entity>,
}

impl Named {
    /// The names that a reader needs for a slot and does not have, as bytes.
    pub(crate) fn missing(&mut self, slot: &Slot, entities: &Entities) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut is_folded = false;
        for (entity, aggregate) in slot.entries().map_while(Result::ok) {
            self.name(entity, entities, &mut bytes);
            // Every cause of a request is in the node's entry, too, and that is the first. Otherwise it is folded.
            if entity == Entity::NODE || is_folded {
                let outcomes = Aggregate::decode(aggregate).unwrap_or_default();
                is_folded |= outcomes.is_folded();
                let plugins = outcomes.outcomes().filter_map(|(outcome, _)| plugin(outcome.cause));
                plugins.for_each(|plugin| self.name(plugin, entities, &mut bytes));
            }
        }
        bytes
    }

    /// Appends the name of an entity, unless it has been given.
    pub(crate) fn name(&mut self, entity: Entity, entities: &Entities, bytes: &mut Vec<u8>) {
        if !entity.is_named() || !self.entities.insert(entity) {
            return;
        }
        if let Some(name) = entities.name(entity) {
            varint::put(bytes, entity.key());
            varint::put_text(bytes, &name);
        }
    }

    /// Forgets what has been named, because there is a new reader.
    pub(crate) fn clear(&mut self) {
        self.entities = HashSet::new();
    }
}

/// The names that [`Named::missing`] gave.
pub(crate) fn names(bytes: &[u8]) -> Result<Vec<(Entity, &str)>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let mut names = Vec::new();
    while !reader.is_empty() {
        let entity = Entity::from_key(reader.number()?).ok_or(DecodeError::OutOfRange)?;
        names.push((entity, reader.text()?));
    }
    Ok(names)
}

/// The entities of a slot that have names, and the plugins of its causes.
pub(crate) fn used(slot: &Slot) -> Result<HashSet<Entity>, DecodeError> {
    let mut used = HashSet::new();
    for entry in slot.entries() {
        let (entity, bytes) = entry?;
        let aggregate = Aggregate::decode(bytes)?;
        let plugins = aggregate.outcomes().filter_map(|(outcome, _)| plugin(outcome.cause));
        used.extend(plugins.chain([entity]).filter(|entity| entity.is_named()));
    }
    Ok(used)
}

fn plugin(cause: Cause) -> Option<Entity> {
    match cause {
        Cause::Plugin(id) => Some(Entity::new(Kind::Plugin, u32::from(id))),
        _ => None,
    }
}

/// The writer's numbers and the reader's.
#[derive(Debug, Default)]
pub(crate) struct Dictionary {
    ids: HashMap<Entity, u32>,
}

impl Dictionary {
    /// Takes names that [`Named::missing`] gave.
    pub(crate) fn learn(&mut self, bytes: &[u8], entities: &Entities) -> Result<(), DecodeError> {
        self.add(&names(bytes)?, entities, None);
        Ok(())
    }

    /// Takes names. Of those that the reader does not know, so many at most get a number as are given room, and the rest are
    /// others; without that, those that are too many for the reader. Returns how many did; a pair counts as all names that it
    /// needs.
    pub(crate) fn add(
        &mut self,
        names: &[(Entity, &str)],
        entities: &Entities,
        room: Option<usize>,
    ) -> usize {
        let mut added = 0;
        for (entity, name) in names {
            let known = entities.find(entity.kind, name);
            let id = match known {
                Some(id) => id,
                None if room.is_some_and(|room| added + entity.kind.names_needed() > room) => OTHERS,
                None => {
                    added += entity.kind.names_needed();
                    match room {
                        Some(_) => entities.intern_beyond(entity.kind, name),
                        None => entities.intern(entity.kind, name),
                    }
                }
            };
            self.ids.insert(*entity, id);
        }
        added
    }

    /// Whether it has the name of an entity.
    pub(crate) fn has(&self, entity: Entity) -> bool {
        self.ids.contains_key(&entity)
    }

    /// How many names it has.
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// A slot with the reader's numbers.
    pub(crate) fn translate(&self, slot: &Slot) -> Result<Slot, DecodeError> {
        let mut translated: BTreeMap<Entity, Aggregate> = BTreeMap::new();
        for entry in slot.entries() {
            let (entity, bytes) = entry?;
            let sum = translated.entry(self.local(entity)?).or_default();
            sum.merge_encoded(bytes, &mut |code| self.local_cause(code))?;
        }
        let mut writer = SlotWriter::default();
        translated.iter().for_each(|(entity, aggregate)| writer.push(*entity, aggregate));
        Ok(writer.finish(slot.start, slot.dropped))
    }

    /// The reader's number of an entity.
    pub(crate) fn local(&self, entity: Entity) -> Result<Entity, DecodeError> {
        if !entity.is_named() {
            return Ok(entity);
        }
        let id = self.ids.get(&entity).ok_or(DecodeError::OutOfRange)?;
        Ok(Entity::new(entity.kind, *id))
    }

    fn local_cause(&self, code: u16) -> Result<u16, DecodeError> {
        let Some(plugin) = plugin(Cause::from_code(code)) else { return Ok(code) };
        let id = self.local(plugin)?.id;
        Ok(Cause::Plugin(u16::try_from(id).unwrap_or(0)).code())
    }
}
