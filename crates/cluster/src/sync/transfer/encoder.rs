//! Records → chunks.
use crate::sync::identity::{Digest, Identity};
use crate::sync::message::{Message, TransferHeader, transfer_frame};
use crate::sync::record::Record;
use bytes::Bytes;
use flate2::{Compress, Compression, FlushCompress, Status};

/// The longest chunk. A message with its header stays below 16 KiB, because a connection keeps a buffer for its longest message.
pub const CHUNK_LEN: usize = 15 << 10;

/// A transfer of more records is compressed in a hurry.
const MANY_RECORDS: usize = 2_000;

/// A transfer as messages: made once, sent to each data plane that has `from`. A clone shares the bytes.
#[derive(Debug, Clone)]
pub struct Transfer {
    /// The content that it changes; none if it is everything.
    pub from: Option<Digest>,
    /// What it leads to.
    pub to: Identity,
    /// The messages in order: [`Message::Transfer`], then each [`Message::Chunk`].
    pub messages: Vec<Bytes>,
}

/// Writes records into chunks.
#[derive(Debug)]
pub struct Encoder {
    compress: Compress,
    /// Not compressed yet.
    plain: Vec<u8>,
    /// Compressed, and not a chunk yet.
    compressed: Vec<u8>,
    chunks: Vec<Bytes>,
}

impl Encoder {
    /// An encoder for about so many records.
    pub fn new(records: usize) -> Encoder {
        let level = if records > MANY_RECORDS { Compression::fast() } else { Compression::default() };
        let compress = Compress::new(level, false);
        Encoder { compress, plain: Vec::new(), compressed: Vec::new(), chunks: Vec::new() }
    }

    /// Adds a record.
    pub fn push(&mut self, record: &Record<'_>) {
        record.write(&mut self.plain);
        if self.plain.len() > CHUNK_LEN {
            let plain = std::mem::take(&mut self.plain);
            self.compress(&plain, FlushCompress::None);
            self.plain = plain;
            self.plain.clear();
        }
    }

    /// Ends the transfer. `from`: the content that it changes; none if it is everything.
    pub fn finish(self, from: Option<Digest>, to: Identity) -> Transfer {
        let (chunks, deflate) = self.into_chunks();
        let header = TransferHeader { to, from, chunks: chunks.len() as u32, deflate };
        let first = chunks.first().map(|chunk| transfer_frame(&header, chunk));
        let others = chunks.into_iter().skip(1).map(|chunk| Message::Chunk(chunk).encode());
        Transfer { from, to, messages: first.into_iter().chain(others).collect() }
    }

    /// The chunks alone, and whether they are compressed. There is at least one.
    pub(crate) fn into_chunks(mut self) -> (Vec<Bytes>, bool) {
        let plain = std::mem::take(&mut self.plain);
        let is_everything = self.compress.total_in() == 0;
        self.compress(&plain, FlushCompress::Finish);
        if is_everything && self.compressed.len() >= plain.len() && plain.len() <= CHUNK_LEN {
            return (vec![plain.into()], false);
        }
        self.cut(1);
        (self.chunks, true)
    }

    fn compress(&mut self, mut plain: &[u8], flush: FlushCompress) {
        loop {
            self.compressed.reserve(CHUNK_LEN);
            let before = self.compress.total_in();
            let status = self.compress.compress_vec(plain, &mut self.compressed, flush);
            plain = &plain[(self.compress.total_in() - before) as usize..];
            self.cut(CHUNK_LEN);
            let is_finished = match flush {
                FlushCompress::Finish => !matches!(status, Ok(Status::Ok | Status::BufError)),
                _ => plain.is_empty(),
            };
            if is_finished {
                return;
            }
        }
    }

    /// Makes chunks while there are at least so many bytes.
    fn cut(&mut self, least: usize) {
        let compressed = std::mem::take(&mut self.compressed);
        let mut rest = Bytes::from(compressed);
        while rest.len() >= least {
            let chunk = rest.split_to(rest.len().min(CHUNK_LEN));
            // A copy of its own length: the buffer had room for more.
            self.chunks.push(Bytes::copy_from_slice(&chunk));
        }
        self.compressed = rest.into();
    }
}
