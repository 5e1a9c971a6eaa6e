//! Chunks → records.
use super::TransferError;
use crate::sync::message::TransferHeader;
use crate::sync::record::Record;
use flate2::{Decompress, FlushDecompress, Status};

/// How much is decompressed at once.
const STEP: usize = 64 << 10;

const DAMAGED: TransferError = TransferError::Damaged("it cannot be decompressed");
const EARLY: TransferError = TransferError::Damaged("it ends early");

/// The records of a transfer, as its chunks arrive.
pub(crate) struct Records {
    /// None if the chunks are not compressed.
    inflate: Option<Decompress>,
    /// What has arrived of the next record.
    buffer: Vec<u8>,
    /// How many chunks are to come.
    missing: u32,
    has_ended: bool,
}

impl Records {
    pub(crate) fn new(header: &TransferHeader) -> Records {
        let inflate = header.deflate.then(|| Decompress::new(false));
        Records { inflate, buffer: Vec::new(), missing: header.chunks, has_ended: !header.deflate }
    }

    /// Whether every chunk has arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.missing == 0
    }

    /// Takes the next chunk, and calls `each` with every record that has arrived whole.
    pub(crate) fn chunk(
        &mut self,
        chunk: &[u8],
        mut each: impl FnMut(&Record<'_>),
    ) -> Result<(), TransferError> {
        let more = TransferError::Damaged("it has more chunks than announced");
        self.missing = self.missing.checked_sub(1).ok_or(more)?;
        match self.inflate.take() {
            Some(mut inflate) => {
                self.inflate(&mut inflate, chunk, &mut each)?;
                self.inflate = Some(inflate);
                Ok(())
            }
            None => {
                self.buffer.extend_from_slice(chunk);
                self.parse(&mut each)
            }
        }
    }

    fn inflate(
        &mut self,
        inflate: &mut Decompress,
        mut chunk: &[u8],
        each: &mut impl FnMut(&Record<'_>),
    ) -> Result<(), TransferError> {
        loop {
            self.buffer.reserve(STEP);
            let (taken, written) = (inflate.total_in(), inflate.total_out());
            let status = inflate.decompress_vec(chunk, &mut self.buffer, FlushDecompress::None);
            let status = status.map_err(|_| DAMAGED)?;
            chunk = &chunk[(inflate.total_in() - taken) as usize..];
            let has_room = self.buffer.len() < self.buffer.capacity();
            self.parse(each)?;
            if status == Status::StreamEnd {
                self.has_ended = true;
                return if chunk.is_empty() && self.is_complete() { Ok(()) } else { Err(EARLY) };
            }
            if chunk.is_empty() && has_room {
                return Ok(());
            }
            if inflate.total_out() == written && has_room {
                return Err(DAMAGED);
            }
        }
    }

    fn parse(&mut self, each: &mut impl FnMut(&Record<'_>)) -> Result<(), TransferError> {
        let mut at = 0;
        while let Some((record, length)) =
            Record::parse(&self.buffer[at..]).map_err(|error| TransferError::Damaged(error.0))?
        {
            each(&record);
            at += length;
        }
        self.buffer.drain(..at);
        Ok(())
    }

    /// Ends the transfer.
    pub(crate) fn finish(&self) -> Result<(), TransferError> {
        let is_whole = self.is_complete() && self.has_ended && self.buffer.is_empty();
        if is_whole { Ok(()) } else { Err(EARLY) }
    }
}
