//! What a data plane hands to its control plane every ten seconds, and how the control plane adds it up.
//!
//! ```text
//! frame: format │ length of the names │ names │ start │ dropped │ entries of a slot
//! ```
//! A name is sent once for each connection; afterwards its number stands for it. Counts are added, so the fleet's sum is
//! the sum of its nodes, also for frames that come late.
use crate::dictionary::{Dictionary, Named};
use crate::entities::{Entities, Kind};
use crate::slot::Slot;
use crate::tiers::{Tiers, View};
use crate::varint::{self, DecodeError, Reader};
use foldhash::HashMap;
use std::sync::Arc;

/// This release reads frames of this format and of those before.
const FORMAT: u64 = 1;
/// The share of a fleet's memory for each node's own totals, in percent; all entities together get the rest.
const NODES_SHARE: usize = 25;
/// A frame from further in the future is refused, because it would close slots that are not over, in seconds.
const MAX_AHEAD: u64 = 60;

/// A data plane's side of one connection.
#[derive(Debug, Default)]
pub struct FrameWriter {
    named: Named,
}

impl FrameWriter {
    /// A slot as a frame.
    pub fn write(&mut self, slot: &Slot, entities: &Entities) -> Vec<u8> {
        let names = self.named.missing(slot, entities);
        let mut bytes = Vec::with_capacity(names.len() + slot.bytes().len() + 16);
        varint::put(&mut bytes, FORMAT);
        varint::put(&mut bytes, names.len() as u64);
        bytes.extend_from_slice(&names);
        varint::put(&mut bytes, slot.start);
        varint::put(&mut bytes, slot.dropped);
        bytes.extend_from_slice(slot.bytes());
        bytes
    }
}

/// A control plane's side of one connection.
#[derive(Debug, Default)]
pub struct FrameReader {
    dictionary: Dictionary,
}

impl FrameReader {
    /// The slot of a frame, with the numbers of this node.
    pub fn read(&mut self, bytes: &[u8], entities: &Entities) -> Result<Slot, DecodeError> {
        let mut reader = Reader::new(bytes);
        let format = reader.number()?;
        if format != FORMAT {
            return Err(DecodeError::Format(format));
        }
        let names = reader.small()?;
        self.dictionary.learn(reader.take(names)?, entities)?;
        let (start, dropped) = (reader.number()?, reader.number()?);
        self.dictionary.translate(&Slot::decode(start, dropped, reader.rest())?)
    }
}

/// What a control plane knows: every entity for the fleet, and for each node its totals.
#[derive(Debug, Default)]
pub struct Fleet {
    all: Tiers,
    nodes: HashMap<Arc<str>, Tiers>,
}

impl Fleet {
    /// Adds a frame of a node, whose time is in seconds since 1970. A frame is added once: not again when a data plane
    /// sends it again.
    pub fn add(&mut self, node: &str, slot: &Slot, now: u64) -> Result<(), DecodeError> {
        if slot.start > now + MAX_AHEAD {
            return Err(DecodeError::OutOfRange);
        }
        let totals = slot.filter(|entity| entity.kind == Kind::Node);
        match self.nodes.get_mut(node) {
            Some(tiers) => tiers.add(&totals)?,
            None => self.nodes.entry(node.into()).or_default().add(&totals)?,
        };
        self.all.add(slot).map(drop)
    }

    /// Closes slots and keeps the memory within a budget of bytes.
    pub fn close(&mut self, now: u64, budget: usize) -> Result<(), DecodeError> {
        let each = budget * NODES_SHARE / 100 / self.nodes.len().max(1);
        for tiers in self.nodes.values_mut() {
            tiers.close(now)?;
            tiers.evict(now, each);
        }
        self.nodes.retain(|_, tiers| !tiers.is_empty());
        self.all.close(now)?;
        self.all.evict(now, budget * (100 - NODES_SHARE) / 100);
        Ok(())
    }

    /// The slots for a query of the whole fleet. Times are in seconds since 1970.
    pub fn view(&self, from: u64, to: u64, step: u64) -> View {
        self.all.query(from, to, step)
    }

    /// The slots for a query of one node's totals.
    pub fn node_view(&self, node: &str, from: u64, to: u64, step: u64) -> Option<View> {
        Some(self.nodes.get(node)?.query(from, to, step))
    }

    /// The nodes that have sent frames.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(|name| &**name)
    }

    /// The memory of all slots, in bytes.
    pub fn bytes(&self) -> usize {
        self.all.bytes() + self.nodes.values().map(Tiers::bytes).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
