//! The blocks of a generation's file, each with a checksum.
//!
//! ```text
//! file:  magic (8 bytes) │ format (2, big-endian) │ block …
//! block: length of the payload (4, big-endian) │ tag (1) │ payload │ checksum (8)
//! ```
//! The checksum covers the block's position as well, so that a block counts only where it was written. A reader skips
//! blocks whose tag it does not know.
use super::CacheError;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

pub(super) const MAGIC: &[u8; 8] = b"weirsync";
/// This release reads files of this format and of those before.
pub(super) const FORMAT: u16 = 1;
const FILE_HEADER_LEN: u64 = 10;

/// The longest payload.
const MAX_PAYLOAD_LEN: usize = 32 << 20;

/// A transfer begins: its header as JSON.
pub(super) const BEGIN: u8 = 1;
/// A chunk of the transfer.
pub(super) const CHUNK: u8 = 2;
/// The transfer is complete and active.
pub(super) const COMMIT: u8 = 3;

fn checksum(position: u64, tag: u8, payload: &[u8]) -> [u8; 8] {
    let mut sha = Sha256::new();
    sha.update(position.to_be_bytes());
    sha.update([tag]);
    sha.update(payload);
    let mut first = [0; 8];
    first.copy_from_slice(&sha.finalize()[..8]);
    first
}

/// Appends blocks to a file.
#[derive(Debug)]
pub(super) struct BlockWriter {
    path: PathBuf,
    file: BufWriter<File>,
    position: u64,
}

impl BlockWriter {
    /// Begins a file.
    pub(super) fn create(path: PathBuf, file: File) -> Result<BlockWriter, CacheError> {
        let mut writer = BlockWriter { path, file: BufWriter::new(file), position: FILE_HEADER_LEN };
        let written =
            writer.file.write_all(MAGIC).and_then(|()| writer.file.write_all(&FORMAT.to_be_bytes()));
        written.map_err(|error| CacheError::write(&writer.path, error))?;
        Ok(writer)
    }

    /// Continues a file, whose content up to this position is good. The rest is cut off.
    pub(super) fn continuing(
        path: PathBuf,
        mut file: File,
        position: u64,
    ) -> Result<BlockWriter, CacheError> {
        let cut = file.set_len(position).and_then(|()| file.seek(SeekFrom::Start(position)));
        cut.map_err(|error| CacheError::write(&path, error))?;
        Ok(BlockWriter { path, file: BufWriter::new(file), position })
    }

    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Closes the file without writing what waits to be written.
    pub(super) fn forget(self) {
        drop(self.file.into_parts());
    }

    /// Appends a block.
    pub(super) fn write(&mut self, tag: u8, payload: &[u8]) -> Result<(), CacheError> {
        let parts: [&[u8]; 4] =
            [&(payload.len() as u32).to_be_bytes(), &[tag], payload, &checksum(self.position, tag, payload)];
        for part in parts {
            self.file.write_all(part).map_err(|error| CacheError::write(&self.path, error))?;
            self.position += part.len() as u64;
        }
        Ok(())
    }

    /// Returns once everything is on the disk.
    pub(super) fn sync(&mut self) -> Result<(), CacheError> {
        let synced = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        synced.map_err(|error| CacheError::write(&self.path, error))
    }
}

/// A block of a file.
pub(super) struct Block {
    pub(super) tag: u8,
    pub(super) payload: Vec<u8>,
}

/// Why a file has no further block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// It ends after a block.
    Clean,
    /// The next block is cut off or damaged.
    Torn,
}

/// Why a file is not of this cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alien {
    /// It begins differently.
    Magic,
    /// A later release wrote it.
    Format(u16),
}

/// Reads the blocks of a file.
pub(super) struct BlockReader {
    file: BufReader<File>,
    position: u64,
}

impl BlockReader {
    /// Opens a file; an inner error if it is of something else.
    pub(super) fn open(path: &Path) -> io::Result<Result<BlockReader, Alien>> {
        let mut file = BufReader::with_capacity(128 << 10, File::open(path)?);
        let mut header = [0; FILE_HEADER_LEN as usize];
        let is_whole = fill(&mut file, &mut header)?;
        let format = u16::from_be_bytes([header[8], header[9]]);
        if !is_whole || &header[..8] != MAGIC {
            return Ok(Err(Alien::Magic));
        }
        if format > FORMAT {
            return Ok(Err(Alien::Format(format)));
        }
        Ok(Ok(BlockReader { file, position: FILE_HEADER_LEN }))
    }

    /// Continues at a position where a block begins.
    pub(super) fn seek(&mut self, position: u64) -> io::Result<()> {
        self.position = position;
        self.file.seek(SeekFrom::Start(position)).map(drop)
    }

    /// Where the next block begins.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The next block.
    pub(super) fn next(&mut self) -> io::Result<Result<Block, End>> {
        let mut head = [0; 5];
        if self.file.fill_buf()?.is_empty() {
            return Ok(Err(End::Clean));
        }
        if !fill(&mut self.file, &mut head)? {
            return Ok(Err(End::Torn));
        }
        let (length, tag) = (u32::from_be_bytes([head[0], head[1], head[2], head[3]]) as usize, head[4]);
        if length > MAX_PAYLOAD_LEN {
            return Ok(Err(End::Torn));
        }
        let (mut payload, mut sum) = (vec![0; length], [0; 8]);
        let is_whole = fill(&mut self.file, &mut payload)? && fill(&mut self.file, &mut sum)?;
        if !is_whole || sum != checksum(self.position, tag, &payload) {
            return Ok(Err(End::Torn));
        }
        self.position += (head.len() + length + sum.len()) as u64;
        Ok(Ok(Block { tag, payload }))
    }
}

/// Fills a buffer; false if the file ends before.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
