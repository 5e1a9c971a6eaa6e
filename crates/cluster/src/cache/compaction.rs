//! The next generation: everything as it is now, without the changes that led there.
use super::CacheError;
use super::block::{BEGIN, Block, BlockReader, BlockWriter, CHUNK, COMMIT};
use crate::sync::identity::Identity;
use crate::sync::message::TransferHeader;
use crate::sync::record::Record;
use crate::sync::transfer::{Encoder, Records};
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use weir_model::Uuid;

/// A generation that is to be written anew. What is committed meanwhile is added at the end.
#[derive(Debug)]
pub struct Compaction {
    source: PathBuf,
    committed: u64,
}

/// A generation in memory, compressed.
#[derive(Debug)]
pub struct Compacted {
    pub(super) source: PathBuf,
    /// How much of the source it has.
    committed: u64,
    header: TransferHeader,
    chunks: Vec<Bytes>,
}

/// The bodies that changes put in the place of others.
type Overrides = HashMap<(String, Uuid), Option<Vec<u8>>>;

impl Compaction {
    pub(super) fn new(source: PathBuf, committed: u64) -> Compaction {
        Compaction { source, committed }
    }

    /// Reads the source twice: its changes, then the rest without what they override. Takes long.
    ///
    /// # Errors
    /// The source cannot be read any more.
    pub fn run(self) -> Result<Compacted, CacheError> {
        let (mut overrides, mut to) = (Overrides::new(), Identity::default());
        self.read(|header, record| {
            to = header.to;
            if header.from.is_some() {
                overrides.insert((record.kind.to_owned(), record.id), record.body.map(<[u8]>::to_vec));
            }
        })?;
        // Enough to be compressed in a hurry.
        let mut encoder = Encoder::new(usize::MAX);
        self.read(|header, record| {
            let is_overridden = || overrides.contains_key(&(record.kind.to_owned(), record.id));
            if header.from.is_none() && !is_overridden() {
                encoder.push(record);
            }
        })?;
        for ((kind, id), body) in overrides.iter().filter(|(_, body)| body.is_some()) {
            encoder.push(&Record { kind, id: *id, body: body.as_deref() });
        }
        let (chunks, deflate) = encoder.into_chunks();
        let header = TransferHeader { to, from: None, chunks: chunks.len() as u32, deflate };
        Ok(Compacted { source: self.source, committed: self.committed, header, chunks })
    }

    /// Calls `each` with every record that is committed.
    fn read(&self, mut each: impl FnMut(&TransferHeader, &Record<'_>)) -> Result<(), CacheError> {
        let failed = |error| CacheError::io("read", &self.source, error);
        let mut reader = open(&self.source).map_err(failed)?;
        let mut transfer: Option<(TransferHeader, Records)> = None;
        while reader.position() < self.committed {
            let Block { tag, payload } = next(&mut reader).map_err(failed)?;
            match (tag, &mut transfer) {
                (BEGIN, transfer) => {
                    let header: TransferHeader =
                        serde_json::from_slice(&payload).map_err(|_| failed(damaged()))?;
                    *transfer = Some((header.clone(), Records::new(&header)));
                }
                (CHUNK, Some((header, records))) => {
                    let read = records.chunk(&payload, |record| each(header, record));
                    read.map_err(|_| failed(damaged()))?;
                }
                _ => {}
            }
        }
        Ok(())
    }
}

impl Compacted {
    /// Writes it, and behind it what the source has beyond. Returns where that begins.
    pub(super) fn write(&self, writer: &mut BlockWriter, committed: u64) -> Result<u64, CacheError> {
        // What cannot be written as JSON cannot be read either.
        writer.write(BEGIN, &serde_json::to_vec(&self.header).unwrap_or_default())?;
        self.chunks.iter().try_for_each(|chunk| writer.write(CHUNK, chunk))?;
        writer.write(COMMIT, b"{}")?;
        let whole_len = writer.position();
        let failed = |error| CacheError::io("read", &self.source, error);
        let mut reader = open(&self.source).map_err(failed)?;
        reader.seek(self.committed).map_err(failed)?;
        while reader.position() < committed {
            let block = next(&mut reader).map_err(failed)?;
            writer.write(block.tag, &block.payload)?;
        }
        Ok(whole_len)
    }
}

fn open(path: &std::path::Path) -> io::Result<BlockReader> {
    BlockReader::open(path)?.map_err(|_| damaged())
}

fn next(reader: &mut BlockReader) -> io::Result<Block> {
    reader.next()?.map_err(|_| damaged())
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it has been damaged since it was written")
}
