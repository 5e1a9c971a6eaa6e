//! Chunks → entities. Each record becomes an entity as soon as it has arrived, so that the text of a whole configuration is
//! never in memory.
use super::records::Records;
use crate::sync::identity::{Digest, Identity};
use crate::sync::inventory::{Inventory, Key};
use crate::sync::message::TransferHeader;
use crate::sync::record::Record;
use crate::sync::{Refusal, Update};
use std::fmt;
use std::sync::Arc;
use weir_model::{Change, Document, PluginSchema};

/// More refusals of one transfer are not reported, because so many have one cause.
pub const MAX_REFUSALS: usize = 20;

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
    records: Records,
    entities: ReadEntities,
}

/// What was read of it.
struct ReadEntities {
    content: Content,
    refusals: Vec<Refusal>,
}

enum Content {
    Whole(Box<Document>, Inventory),
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
            None => Content::Whole(Box::default(), Inventory::default()),
            Some(_) => Content::Changes(Vec::new(), Vec::new()),
        };
        let records = Records::new(&header);
        Receiver { header, plugins, records, entities: ReadEntities { content, refusals: Vec::new() } }
    }

    /// What the transfer leads to.
    pub fn to(&self) -> Identity {
        self.header.to
    }

    /// Whether every chunk has arrived.
    pub fn is_complete(&self) -> bool {
        self.records.is_complete()
    }

    /// Takes the next chunk.
    ///
    /// # Errors
    /// The transfer is damaged.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), TransferError> {
        self.records.chunk(chunk, |record| self.entities.read(record, &self.plugins))
    }

    /// Ends the transfer, whose chunks have all arrived.
    ///
    /// # Errors
    /// It is damaged, or holds entities that this node cannot read.
    pub fn finish(self) -> Result<Received, TransferError> {
        self.records.finish()?;
        let ReadEntities { content, mut refusals } = self.entities;
        if !refusals.is_empty() {
            refusals.truncate(MAX_REFUSALS);
            return Err(TransferError::Refused(refusals));
        }
        let (update, digests) = match content {
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

impl ReadEntities {
    fn read(&mut self, record: &Record<'_>, plugins: &[PluginSchema]) {
        if self.refusals.len() >= MAX_REFUSALS {
            return;
        }
        let change = match record.read(plugins) {
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
}
