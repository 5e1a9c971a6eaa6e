//! The aggregates of one interval, as bytes: what tiers keep, disks store and frames carry.
//!
//! ```text
//! slot:  entry …, sorted by entity
//! entry: distance to the entity's key │ length │ aggregate
//! ```
use crate::aggregate::Aggregate;
use crate::entities::{Entity, Kind, OTHERS};
use crate::varint::{self, DecodeError, Reader};

/// The aggregates of an interval.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Slot {
    /// When it begins, in seconds since 1970.
    pub start: u64,
    /// Records that were dropped in it, because a ring was full. They are in no aggregate.
    pub dropped: u64,
    entries: Vec<u8>,
}

/// Appends entries to a slot, in ascending order of their entities.
#[derive(Debug, Default)]
pub(crate) struct SlotWriter {
    entries: Vec<u8>,
    previous: u64,
    /// An aggregate while its length is not known yet.
    scratch: Vec<u8>,
}

impl SlotWriter {
    pub(crate) fn push(&mut self, entity: Entity, aggregate: &Aggregate) {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        aggregate.encode(&mut scratch);
        self.push_encoded(entity, &scratch);
        self.scratch = scratch;
    }

    fn push_encoded(&mut self, entity: Entity, aggregate: &[u8]) {
        varint::put(&mut self.entries, entity.key() - self.previous);
        varint::put(&mut self.entries, aggregate.len() as u64);
        self.entries.extend_from_slice(aggregate);
        self.previous = entity.key();
    }

    pub(crate) fn finish(mut self, start: u64, dropped: u64) -> Slot {
        self.entries.shrink_to_fit();
        Slot { start, dropped, entries: self.entries }
    }
}

/// The entries of a slot: entities and the bytes of their aggregates.
#[derive(Debug, Clone)]
pub(crate) struct Entries<'a> {
    reader: Reader<'a>,
    previous: Option<u64>,
}

impl<'a> Entries<'a> {
    fn read(&mut self) -> Result<(Entity, &'a [u8]), DecodeError> {
        let distance = self.reader.number()?;
        if distance == 0 && self.previous.is_some() {
            return Err(DecodeError::Unordered);
        }
        let key = self.previous.unwrap_or(0).checked_add(distance).ok_or(DecodeError::OutOfRange)?;
        let entity = Entity::from_key(key).ok_or(DecodeError::OutOfRange)?;
        self.previous = Some(key);
        let length = self.reader.small()?;
        Ok((entity, self.reader.take(length)?))
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<(Entity, &'a [u8]), DecodeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.reader.is_empty() {
            return None;
        }
        let entry = self.read();
        if entry.is_err() {
            self.reader = Reader::new(&[]);
        }
        Some(entry)
    }
}

impl Slot {
    /// A slot of bytes from elsewhere. Every entry is decoded, so that none fails later.
    pub(crate) fn decode(start: u64, dropped: u64, entries: &[u8]) -> Result<Slot, DecodeError> {
        let slot = Slot { start, dropped, entries: entries.to_vec() };
        for entry in slot.entries() {
            Aggregate::decode(entry?.1)?;
        }
        Ok(slot)
    }

    /// The same slot as one that begins at another time.
    pub(crate) fn at(&self, start: u64) -> Slot {
        Slot { start, ..self.clone() }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.entries
    }

    /// The memory of the slot, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        self.entries.capacity() + size_of::<Slot>()
    }

    /// The entries, each not yet decoded.
    pub(crate) fn entries(&self) -> Entries<'_> {
        Entries { reader: Reader::new(&self.entries), previous: None }
    }

    /// The entities of a kind and their aggregates. Bytes of ours always decode.
    pub fn of_kind(&self, kind: Kind) -> impl Iterator<Item = (Entity, Aggregate)> + '_ {
        self.of_kind_where(kind, |_| true)
    }

    /// Those entities of a kind that fulfil a condition, and their aggregates. No other is decoded.
    pub(crate) fn of_kind_where<'s>(
        &'s self,
        kind: Kind,
        condition: impl Fn(Entity) -> bool + 's,
    ) -> impl Iterator<Item = (Entity, Aggregate)> + 's {
        let entries = self.entries().map_while(Result::ok);
        let entries = entries.skip_while(move |(entity, _)| entity.kind < kind);
        let entries = entries.take_while(move |(entity, _)| entity.kind == kind);
        let entries = entries.filter(move |(entity, _)| condition(*entity));
        entries.filter_map(|(entity, bytes)| Some((entity, Aggregate::decode(bytes).ok()?)))
    }

    /// The aggregate of an entity.
    pub fn get(&self, entity: Entity) -> Option<Aggregate> {
        let mut entries = self.entries().map_while(Result::ok).skip_while(|(other, _)| *other < entity);
        let (found, bytes) = entries.next()?;
        if found == entity { Aggregate::decode(bytes).ok() } else { None }
    }

    /// The sum of two slots, with the start of the first. Entries that only one has are copied undecoded.
    pub(crate) fn merge(&self, other: &Slot) -> Result<Slot, DecodeError> {
        let mut writer = SlotWriter::default();
        writer.entries.reserve(self.entries.len() + other.entries.len() / 4);
        let (mut sum, mut scratch) = (Vec::new(), Vec::new());
        let (mut left, mut right) = (self.entries(), other.entries());
        let (mut a, mut b) = (left.next().transpose()?, right.next().transpose()?);
        loop {
            match (a, b) {
                (None, None) => break,
                (Some((entity, bytes)), None) => {
                    writer.push_encoded(entity, bytes);
                    a = left.next().transpose()?;
                }
                (Some((entity, bytes)), Some((next, _))) if entity < next => {
                    writer.push_encoded(entity, bytes);
                    a = left.next().transpose()?;
                }
                (Some((entity, mine)), Some((same, theirs))) if entity == same => {
                    sum.clear();
                    Aggregate::merge_bytes(mine, theirs, &mut sum, &mut scratch)?;
                    writer.push_encoded(entity, &sum);
                    (a, b) = (left.next().transpose()?, right.next().transpose()?);
                }
                (_, Some((entity, bytes))) => {
                    writer.push_encoded(entity, bytes);
                    b = right.next().transpose()?;
                }
            }
        }
        Ok(writer.finish(self.start, self.dropped.saturating_add(other.dropped)))
    }

    /// The slot with only those entities.
    pub(crate) fn filter(&self, mut keep: impl FnMut(Entity) -> bool) -> Slot {
        let mut writer = SlotWriter::default();
        for (entity, bytes) in self.entries().map_while(Result::ok).filter(|(entity, _)| keep(*entity)) {
            writer.push_encoded(entity, bytes);
        }
        writer.finish(self.start, self.dropped)
    }

    /// The slot with at most [`Kind::limit`] entities of each kind: those with the fewest requests become others.
    pub(crate) fn fold(self) -> Slot {
        let mut excess = Vec::new();
        let mut others = SlotWriter::default();
        let counts = self.named_by_kind();
        for kind in Kind::ALL.into_iter().filter(|kind| counts[*kind as usize] > kind.limit()) {
            let entities = self.excess(kind);
            let mut sum = Aggregate::default();
            let is_excess = |entity: &Entity| entities.binary_search(entity).is_ok();
            let folded = self.of_kind(kind).filter(|(entity, _)| is_excess(entity));
            folded.for_each(|(_, aggregate)| sum.merge(&aggregate));
            others.push(Entity::new(kind, OTHERS), &sum);
            excess.extend(entities);
        }
        if excess.is_empty() {
            return self;
        }
        let kept = self.filter(|entity| excess.binary_search(&entity).is_err());
        kept.merge(&others.finish(self.start, 0)).unwrap_or(kept)
    }

    /// How many entities of each kind have a name.
    fn named_by_kind(&self) -> [usize; Kind::ALL.len()] {
        let mut counts = [0; Kind::ALL.len()];
        let entities = self.entries().map_while(Result::ok).map(|(entity, _)| entity);
        entities.filter(|entity| entity.is_named()).for_each(|entity| counts[entity.kind as usize] += 1);
        counts
    }

    /// The entities of a kind beyond its limit, sorted. There are some.
    fn excess(&self, kind: Kind) -> Vec<Entity> {
        let named = self.of_kind(kind).filter(|(entity, _)| entity.is_named());
        let mut sizes: Vec<_> = named.map(|(entity, aggregate)| (aggregate.requests(), entity)).collect();
        let excess = sizes.len() - kind.limit();
        sizes.select_nth_unstable(excess - 1);
        let mut entities: Vec<_> = sizes[..excess].iter().map(|(_, entity)| *entity).collect();
        entities.sort_unstable();
        entities
    }
}
