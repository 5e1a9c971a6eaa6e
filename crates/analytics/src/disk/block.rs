//! The bytes of a segment: a header, then blocks with checksums.
//!
//! ```text
//! segment: magic (8 bytes) │ format (2, big-endian) │ block …
//! block:   length of the payload (4, big-endian) │ tag (1) │ payload │ CRC-32C of tag and payload (4, big-endian)
//! ```
use crate::dictionary::Dictionary;
use crate::entities::{Entities, Entity};
use crate::frame::{FrameId, TakenFrame};
use crate::known::Known;
use crate::slot::Slot;
use crate::varint::{self, DecodeError, Reader};
use crc::{CRC_32_ISCSI, Crc};

const MAGIC: &[u8; 8] = b"weirstat";
/// This release reads segments of this format and of those before.
const FORMAT: u16 = 1;
const HEADER_LEN: usize = 10;

const NAMES: u8 = 1;
const SLOT: u8 = 2;
/// Another process continues the segment, so its numbers of entities begin anew.
const RESET: u8 = 3;
/// A control plane has this frame.
const HANDED: u8 = 4;
/// Frames of data planes, which the slots before have.
const TAKEN: u8 = 5;
/// The time that is known.
const KNOWN: u8 = 6;

pub(crate) static CHECKSUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISCSI);

pub(super) fn header() -> Vec<u8> {
    [&MAGIC[..], &FORMAT.to_be_bytes()].concat()
}

fn put_block(bytes: &mut Vec<u8>, tag: u8, payload: &[&[u8]]) {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    bytes.extend_from_slice(&(length as u32).to_be_bytes());
    let start = bytes.len();
    bytes.push(tag);
    payload.iter().for_each(|part| bytes.extend_from_slice(part));
    let checksum = CHECKSUM.checksum(&bytes[start..]);
    bytes.extend_from_slice(&checksum.to_be_bytes());
}

/// The block that begins the part of another process.
pub(super) fn reset() -> Vec<u8> {
    let mut bytes = Vec::new();
    put_block(&mut bytes, RESET, &[]);
    bytes
}

/// A slot and the names it needs.
pub(super) fn slot(slot: &Slot, names: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    if !names.is_empty() {
        put_block(&mut bytes, NAMES, &[names]);
    }
    let mut head = Vec::new();
    varint::put(&mut head, slot.start);
    varint::put(&mut head, slot.dropped);
    put_block(&mut bytes, SLOT, &[&head, slot.bytes()]);
    bytes
}

/// The block of a frame that was handed in.
pub(super) fn handed(id: FrameId) -> Vec<u8> {
    let (mut payload, mut bytes) = (Vec::new(), Vec::new());
    varint::put(&mut payload, id.start);
    varint::put(&mut payload, id.part);
    put_block(&mut bytes, HANDED, &[&payload]);
    bytes
}

/// The block of frames that were taken, and the names it needs.
pub(super) fn taken(frames: &[TakenFrame], names: &[u8]) -> Vec<u8> {
    let (mut payload, mut bytes) = (Vec::new(), Vec::new());
    for TakenFrame { node, id, checksum } in frames {
        let numbers = [node.key(), id.start, id.part, u64::from(*checksum)];
        numbers.into_iter().for_each(|number| varint::put(&mut payload, number));
    }
    if !names.is_empty() {
        put_block(&mut bytes, NAMES, &[names]);
    }
    put_block(&mut bytes, TAKEN, &[&payload]);
    bytes
}

/// A file that says what is known: a header and one block.
pub(super) fn known(known: &Known) -> Vec<u8> {
    let (mut payload, mut bytes) = (Vec::new(), header());
    known.encode(&mut payload);
    put_block(&mut bytes, KNOWN, &[&payload]);
    bytes
}

/// What such a file says.
pub(super) fn read_known(bytes: &[u8]) -> Result<Known, DecodeError> {
    let mut reader = Reader::new(bytes);
    read_header(&mut reader)?;
    match take_block(&mut reader)? {
        (KNOWN, payload) => Known::decode(payload),
        _ => Err(DecodeError::OutOfRange),
    }
}

/// What a segment has.
#[derive(Debug, Default)]
pub(crate) struct Content {
    /// The slots, each complete and with the reader's numbers.
    pub(crate) slots: Vec<Slot>,
    /// The starts and the requests of older slots, for which there is no memory.
    pub(crate) older: Vec<(u64, u64)>,
    /// The frames of this node that its control plane has.
    pub(crate) handed: Vec<FrameId>,
    /// The frames of data planes that the slots have.
    pub(crate) taken: Vec<TakenFrame>,
    /// Where the last good block ends. What follows is torn.
    pub(super) good_len: u64,
}

/// Reads a segment up to the first block that is damaged. An error means that it is not a segment of this format.
pub(super) fn read(bytes: &[u8], entities: &Entities) -> Result<Content, DecodeError> {
    let mut reader = Reader::new(bytes);
    read_header(&mut reader)?;
    let mut content = Content { good_len: HEADER_LEN as u64, ..Content::default() };
    let mut dictionary = Dictionary::default();
    while read_block(&mut reader, &mut dictionary, entities, &mut content).is_ok() {
        content.good_len = (bytes.len() - reader.rest().len()) as u64;
    }
    Ok(content)
}

fn read_header(reader: &mut Reader<'_>) -> Result<(), DecodeError> {
    let header = reader.take(HEADER_LEN)?;
    let format = u16::from_be_bytes([header[8], header[9]]);
    match &header[..8] {
        magic if magic != MAGIC => Err(DecodeError::OutOfRange),
        _ if format > FORMAT => Err(DecodeError::Format(u64::from(format))),
        _ => Ok(()),
    }
}

/// The tag and the payload of the next block.
fn take_block<'b>(reader: &mut Reader<'b>) -> Result<(u8, &'b [u8]), DecodeError> {
    let length = reader.take(4)?;
    let length = u32::from_be_bytes([length[0], length[1], length[2], length[3]]) as usize;
    let content = reader.take(length.checked_add(1).ok_or(DecodeError::OutOfRange)?)?;
    if CHECKSUM.checksum(content).to_be_bytes() != *reader.take(4)? {
        return Err(DecodeError::OutOfRange);
    }
    Ok((content[0], &content[1..]))
}

fn read_block(
    reader: &mut Reader<'_>,
    dictionary: &mut Dictionary,
    entities: &Entities,
    found: &mut Content,
) -> Result<(), DecodeError> {
    let (tag, payload) = take_block(reader)?;
    match tag {
        RESET => *dictionary = Dictionary::default(),
        NAMES => dictionary.learn(payload, entities)?,
        SLOT => {
            let mut payload = Reader::new(payload);
            let (start, dropped) = (payload.number()?, payload.number()?);
            found.slots.push(dictionary.translate(&Slot::decode(start, dropped, payload.rest())?)?);
        }
        HANDED => found.handed.push(frame_id(&mut Reader::new(payload))?),
        TAKEN => {
            let mut payload = Reader::new(payload);
            while !payload.is_empty() {
                let node = Entity::from_key(payload.number()?).ok_or(DecodeError::OutOfRange)?;
                let (node, id) = (dictionary.local(node)?, frame_id(&mut payload)?);
                found.taken.push(TakenFrame { node, id, checksum: payload.small()? });
            }
        }
        // A later release may add blocks that this one does not need.
        _ => {}
    }
    Ok(())
}

fn frame_id(reader: &mut Reader<'_>) -> Result<FrameId, DecodeError> {
    Ok(FrameId { start: reader.number()?, part: reader.number()? })
}
