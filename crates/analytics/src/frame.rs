//! What a data plane hands to its control plane every ten seconds, as bytes.
//!
//! ```text
//! frame: format │ start │ part │ until │ pending │ lost │ dropped │ length of the names │ names │ entries of a slot
//! ```
//! A name is sent once for each connection; afterwards its number stands for it. The slot's start and the part name the
//! frame, so that a control plane adds it once, however often it comes.
use crate::aggregate::Aggregate;
use crate::dictionary::{self, Dictionary, Named};
use crate::entities::{Entities, Entity, Kind};
use crate::slot::Slot;
use crate::varint::{self, DecodeError, Reader};
use foldhash::HashSet;
use std::fmt;

/// This release reads frames of this format.
const FORMAT: u64 = 1;
/// The longest frame in bytes: about 10,000 entities that are all busy.
pub const MAX_FRAME_LEN: usize = 4 << 20;
/// The most entities of a frame: all that are counted one by one, and the others of each kind.
const MAX_ENTITIES: usize =
    4 * 4_096 + Kind::Consumer.limit() + Kind::Pair.limit() + Kind::Model.limit() + 2 * Kind::ALL.len();
/// The most combinations of status and cause of one entity.
pub(crate) const MAX_OUTCOMES: usize = 1_024;
/// The most names that one connection introduces.
const MAX_NAMES: usize = 1 << 17;
/// The part is less than this. Parts beyond the first are of records that came late.
pub(crate) const MAX_PARTS: u64 = 1 << 16;

/// Which frame of a data plane this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameId {
    /// When the interval begins, in seconds since 1970.
    pub start: u64,
    /// Distinguishes frames of the same interval.
    pub part: u64,
}

/// What a frame says beside its counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// Which frame it is.
    pub id: FrameId,
    /// Once it is added, everything that was recorded before this time has arrived, in seconds since 1970.
    pub until: u64,
    /// The frames that the data plane still has after it.
    pub pending: u64,
    /// The requests that the data plane could not hand in since it started.
    pub lost: u64,
}

/// A frame with the numbers of this node.
#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    /// What it says beside the counts.
    pub head: FrameHead,
    pub(crate) slot: Slot,
}

/// A frame that has passed every check for which it suffices alone. It has the numbers of its data plane.
#[derive(Debug)]
pub(crate) struct Received<'f> {
    pub(crate) head: FrameHead,
    slot: Slot,
    names: Vec<(Entity, &'f str)>,
}

/// A frame that a control plane has taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TakenFrame {
    /// Its data plane.
    pub(crate) node: Entity,
    /// Which frame it is.
    pub(crate) id: FrameId,
    /// Distinguishes its counts from those of another frame of this name.
    pub(crate) checksum: u32,
}

/// Why a control plane does not add a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameError {
    /// It is damaged, or of another release.
    Decode(DecodeError),
    /// It is longer than [`MAX_FRAME_LEN`].
    TooLong(usize),
    /// It has more of something than is ever counted one by one.
    TooMany(&'static str),
    /// Its connection has named more entities than are kept of one.
    TooManyNames,
    /// It names entities as other data planes.
    OtherNodes,
    /// It has a name that none of its counts needs.
    UnusedName,
    /// Another frame of the same interval and part was taken of the data plane with this id.
    Different(String),
    /// The control plane has no number left for its data plane.
    NoNumber,
    /// Its interval begins so many seconds in the future.
    Early(u64),
    /// Its interval ended so many seconds ago, longer than data planes keep frames.
    Late(u64),
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::TooLong(length) => write!(f, "{length} bytes are more than {MAX_FRAME_LEN}"),
            Self::TooMany(what) => write!(f, "it has more {what} than are counted one by one"),
            Self::TooManyNames => write!(f, "its connection has named more than {MAX_NAMES} entities, so names begin anew"),
            Self::OtherNodes => f.write_str("it counts for another data plane"),
            Self::UnusedName => f.write_str("it has a name that none of its counts needs"),
            Self::Different(id) => write!(
                f,
                "another frame of this interval was taken of {id}; if two data planes have this id, one has a cloned \
                 prefix: remove its kong.id file"
            ),
            Self::NoNumber => f.write_str(
                "the control plane has met too many data planes; restart it, and keep the data planes' prefixes",
            ),
            Self::Early(seconds) => write!(
                f,
                "its interval begins in {seconds} s; set the clocks of both nodes, for example by NTP"
            ),
            Self::Late(seconds) => {
                write!(f, "its interval ended {seconds} s ago, and frames are taken for two hours")
            }
        }
    }
}

impl std::error::Error for FrameError {}

impl FrameError {
    /// Whether the control plane may take the same frame later.
    pub fn passes(&self) -> bool {
        matches!(self, Self::Early(_) | Self::TooManyNames)
    }
}

impl From<DecodeError> for FrameError {
    fn from(error: DecodeError) -> FrameError {
        FrameError::Decode(error)
    }
}

/// A data plane's side of one connection.
#[derive(Debug, Default)]
pub struct FrameWriter {
    named: Named,
}

impl FrameWriter {
    /// A slot as a frame.
    pub fn write(&mut self, head: FrameHead, slot: &Slot, entities: &Entities) -> Vec<u8> {
        let names = self.named.missing(slot, entities);
        let mut bytes = Vec::with_capacity(names.len() + slot.bytes().len() + 48);
        let FrameHead { id, until, pending, lost } = head;
        let numbers = [FORMAT, id.start, id.part, until, pending, lost, slot.dropped, names.len() as u64];
        numbers.into_iter().for_each(|number| varint::put(&mut bytes, number));
        bytes.extend_from_slice(&names);
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
    /// Forgets all names, as the data plane does when its frame is not taken.
    pub(crate) fn begin(&mut self) {
        self.dictionary = Dictionary::default();
    }

    /// The frame that bytes are.
    pub(crate) fn parse<'f>(&self, bytes: &'f [u8]) -> Result<Received<'f>, FrameError> {
        if bytes.len() > MAX_FRAME_LEN {
            return Err(FrameError::TooLong(bytes.len()));
        }
        let mut reader = Reader::new(bytes);
        let format = reader.number()?;
        if format != FORMAT {
            return Err(DecodeError::Format(format).into());
        }
        let id = FrameId { start: reader.number()?, part: reader.number()? };
        let head =
            FrameHead { id, until: reader.number()?, pending: reader.number()?, lost: reader.number()? };
        let (dropped, names) = (reader.number()?, reader.small()?);
        if id.part >= MAX_PARTS {
            return Err(FrameError::TooMany("parts"));
        }
        let names = reader.take(names)?;
        let slot = Slot::decode(id.start, dropped, reader.rest())?;
        check(&slot)?;
        let names = dictionary::names(names)?;
        self.check_names(&names, &dictionary::used(&slot)?)?;
        Ok(Received { head, slot, names })
    }

    /// A frame with the numbers of this node, and how many names got one. At most `room` do, and what has none is counted
    /// among the others.
    pub(crate) fn accept(
        &mut self,
        received: &Received<'_>,
        entities: &Entities,
        room: usize,
    ) -> Result<(Frame, usize), FrameError> {
        let added = self.dictionary.add(&received.names, entities, Some(room));
        Ok((Frame { head: received.head, slot: self.dictionary.translate(&received.slot)? }, added))
    }

    /// Refuses names before any of them gets a number, because a number is never given back.
    fn check_names(&self, names: &[(Entity, &str)], used: &HashSet<Entity>) -> Result<(), FrameError> {
        if self.dictionary.len() + names.len() > MAX_NAMES {
            return Err(FrameError::TooManyNames);
        }
        if names.iter().any(|(entity, _)| entity.kind == Kind::Node) {
            return Err(FrameError::OtherNodes);
        }
        let named: HashSet<Entity> = names.iter().map(|(entity, _)| *entity).collect();
        if named.len() < names.len() || !named.is_subset(used) {
            return Err(FrameError::UnusedName);
        }
        if used.iter().all(|entity| named.contains(entity) || self.dictionary.has(*entity)) {
            Ok(())
        } else {
            Err(DecodeError::OutOfRange.into())
        }
    }
}

/// Refuses what no data plane counts.
fn check(slot: &Slot) -> Result<(), FrameError> {
    let mut count = 0;
    for entry in slot.entries() {
        let (entity, bytes) = entry?;
        count += 1;
        if entity.kind == Kind::Node && entity.is_named() {
            return Err(FrameError::OtherNodes);
        }
        let aggregate = Aggregate::decode(bytes)?;
        if aggregate.outcomes().count() > MAX_OUTCOMES {
            return Err(FrameError::TooMany("outcomes"));
        }
        if !aggregate.is_countable() {
            return Err(DecodeError::OutOfRange.into());
        }
    }
    if count > MAX_ENTITIES { Err(FrameError::TooMany("entities")) } else { Ok(()) }
}

#[cfg(test)]
mod tests;
