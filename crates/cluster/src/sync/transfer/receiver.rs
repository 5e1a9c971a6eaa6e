//! Chunks → entities. Each record becomes an entity as soon as it has arrived, so that the text of a whole configuration is
//! never in memory.
use crate::sync::identity::{Digest, Identity};
use crate::sync::inventory::{Inventory, Key};
use crate::sync::message::TransferHeader;
use crate::sync::record::Record;
use crate::sync::{Refusal, Update};
use flate2::{Decompress, FlushDecompress, Status};
use std::fmt;
use std::sync::Arc;
use weir_model::{Change, Document, PluginSchema};

/// More refusals of one transfer are not reported, because so many have one cause.
pub const MAX_REFUSALS: usize = 20;

/// How much is decompressed at once.
const STEP: usize = 64 << 10;

/// A transfer that is damaged, or that this node refuses.
#[derive(Debug, Clone, PartialEq)]
pub enum TransferError {
    /// It is not what its sender wrote.
    Damaged(&'static str),
    /// It holds entities that this node cannot read.
    Refused(Vec<Refusal>),
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TransferError::Damaged(why) => write!(f, "the transfer is damaged: {why}"),
            TransferError::Refused(refusals) => {
                let refusals: Vec<_> = refusals.iter().map(Refusal::to_string).collect();
                f.write_str(&refusals.join("; "))
            }
        }
    }
}

impl std::error::Error for TransferError {}

/// Receives one transfer.
pub struct Receiver {
    header: TransferHeader,
    plugins: Arc<[PluginSchema]>,
    inflate: Option<Decompress>,
    /// What has arrived of the next record.
    buffer: Vec<u8>,
    chunks: u32,
    has_ended: bool,
    content: Content,
    refusals: Vec<Refusal>,
}

enum Content {
    Whole(Document, Inventory),
    Changes(Vec<Change>, Vec<(Key, Option<Digest>)>),
}

/// A transfer that has arrived.
#[derive(Debug)]
pub struct Received {
    /// What it changes.
    pub update: Update,
    /// What is left to note once the update is active.
    pub staged: Staged,
}

/// A transfer that is not active yet, without its entities.
#[derive(Debug)]
pub struct Staged {
    /// What it leads to.
    pub to: Identity,
    digests: Digests,
}

#[derive(Debug)]
enum Digests {
    Whole(Inventory),
    Changes(Vec<(Key, Option<Digest>)>),
}

impl Staged {
    /// Whether a node with this inventory has the right content afterwards.
    pub fn fits(&self, inventory: &Inventory) -> bool {
        let after = match &self.digests {
            Digests::Whole(inventory) => inventory.digest(),
            Digests::Changes(changes) => inventory.digest_after(changes),
        };
        after == self.to.digest
    }

    /// Whether it replaces everything.
    pub fn is_whole(&self) -> bool {
        matches!(self.digests, Digests::Whole(_))
    }

    /// Brings an inventory up to date.
    pub fn apply(self, inventory: &mut Inventory) {
        match self.digests {
            Digests::Whole(whole) => *inventory = whole,
            Digests::Changes(changes) => {
                changes.into_iter().for_each(|(key, digest)| inventory.set(key, digest));
            }
        }
    }
}

impl Receiver {
    /// Begins to receive a transfer on a node with these plugins.
    pub fn new(header: TransferHeader, plugins: Arc<[PluginSchema]>) -> Receiver {
        let content = match header.from {
            None => Content::Whole(Document::default(), Inventory::default()),
            Some(_) => Content::Changes(Vec::new(), Vec::new()),
        };
        let inflate = header.deflate.then(|| Decompress::new(false));
        let (buffer, refusals) = (Vec::new(), Vec::new());
        Receiver { header, plugins, inflate, buffer, chunks: 0, has_ended: false, content, refusals }
    }

    /// What the transfer leads to.
    pub fn to(&self) -> Identity {
        self.header.to
    }

    /// Whether every chunk has arrived.
    pub fn is_complete(&self) -> bool {
        self.chunks >= self.header.chunks
    }

    /// Takes the next chunk.
    ///
    /// # Errors
    /// The transfer is damaged.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), TransferError> {
        if self.is_complete() {
            return Err(TransferError::Damaged("it has more chunks than announced"));
        }
        self.chunks += 1;
        let Some(mut inflate) = self.inflate.take() else {
            self.buffer.extend_from_slice(chunk);
            return self.read_records();
        };
        self.inflate(&mut inflate, chunk)?;
        self.inflate = Some(inflate);
        Ok(())
    }

    fn inflate(&mut self, inflate: &mut Decompress, mut chunk: &[u8]) -> Result<(), TransferError> {
        loop {
            self.buffer.reserve(STEP);
            let (taken, length) = (inflate.total_in(), self.buffer.len());
            let status = inflate.decompress_vec(chunk, &mut self.buffer, FlushDecompress::None);
            let status = status.map_err(|_| TransferError::Damaged("it cannot be decompressed"))?;
            chunk = &chunk[(inflate.total_in() - taken) as usize..];
            let has_room = self.buffer.len() < self.buffer.capacity();
            let has_written = self.buffer.len() > length;
            self.read_records()?;
            if status == Status::StreamEnd {
                self.has_ended = true;
                let is_whole = chunk.is_empty() && self.is_complete();
                return if is_whole { Ok(()) } else { Err(TransferError::Damaged("it ends early")) };
            }
            if chunk.is_empty() && has_room {
                return Ok(());
            }
            if !has_written && has_room {
                return Err(TransferError::Damaged("it cannot be decompressed"));
            }
        }
    }

    /// Reads the records that have arrived whole.
    fn read_records(&mut self) -> Result<(), TransferError> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut at = 0;
        while let Some((record, length)) =
            Record::parse(&buffer[at..]).map_err(|error| TransferError::Damaged(error.0))?
        {
            self.read(&record);
            at += length;
        }
        buffer.drain(..at);
        self.buffer = buffer;
        Ok(())
    }

    fn read(&mut self, record: &Record<'_>) {
        if self.refusals.len() >= MAX_REFUSALS {
            return;
        }
        let change = match record.read(&self.plugins) {
            Ok(Some(change)) => change,
            Ok(None) => return,
            Err(refusals) => return self.refusals.extend(refusals),
        };
        let (key, digest) = ((change.kind, change.id), record.digest());
        match &mut self.content {
            Content::Whole(document, inventory) => {
                change.entity.into_iter().for_each(|entity| document.push(entity));
                inventory.set(key, digest);
            }
            Content::Changes(changes, digests) => {
                changes.push(change);
                digests.push((key, digest));
            }
        }
    }

    /// Ends the transfer, whose chunks have all arrived.
    ///
    /// # Errors
    /// It is damaged, or holds entities that this node cannot read.
    pub fn finish(mut self) -> Result<Received, TransferError> {
        let has_ended = self.has_ended || !self.header.deflate;
        if !self.is_complete() || !self.buffer.is_empty() || !has_ended {
            return Err(TransferError::Damaged("it ends early"));
        }
        if !self.refusals.is_empty() {
            self.refusals.truncate(MAX_REFUSALS);
            return Err(TransferError::Refused(self.refusals));
        }
        let (update, digests) = match self.content {
            Content::Whole(mut document, mut inventory) => {
                document.sort();
                inventory.shrink();
                (Update::Whole(document), Digests::Whole(inventory))
            }
            Content::Changes(changes, digests) => (Update::Changes(changes), Digests::Changes(digests)),
        };
        Ok(Received { update, staged: Staged { to: self.header.to, digests } })
    }
}
