//! A generation's file → what it holds.
use super::block::{Alien, BEGIN, Block, BlockReader, CHUNK, COMMIT, End};
use super::{CacheError, Loaded};
use crate::sync::Update;
use crate::sync::identity::Identity;
use crate::sync::inventory::{Inventory, Key};
use crate::sync::message::TransferHeader;
use crate::sync::transfer::{Receiver, TransferError};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use weir_model::entity::Entity;
use weir_model::{Document, PluginSchema};

/// A generation that was read.
pub(super) struct Generation {
    pub(super) loaded: Loaded,
    /// Up to where the file is intact.
    pub(super) position: u64,
    /// The length of what is not change sets.
    pub(super) whole_len: u64,
    /// Whether there is something damaged after that.
    pub(super) is_torn: bool,
}

/// Why a file holds nothing.
pub(super) enum Unusable {
    /// This text completes "because …".
    Because(String),
    /// It cannot be read.
    Io(CacheError),
}

/// Reads a file.
pub(super) fn load(path: &Path, plugins: &Arc<[PluginSchema]>) -> Result<Generation, Unusable> {
    let io = |error| Unusable::Io(CacheError::io("read", path, error));
    let mut reader = BlockReader::open(path).map_err(io)?.map_err(|alien| match alien {
        Alien::Magic => Unusable::Because("it is not a cache of weir".to_owned()),
        Alien::Format(format) => {
            Unusable::Because(format!("a later version of weir wrote it (format {format})"))
        }
    })?;
    let mut content = Content::new(plugins.clone());
    let (mut position, mut whole_len) = (None, 0);
    let end = loop {
        let block = match reader.next().map_err(io)? {
            Ok(block) => block,
            Err(end) => break end,
        };
        let is_commit = block.tag == COMMIT;
        match content.take(block) {
            Ok(()) if is_commit => {
                position = Some(reader.position());
                whole_len = if content.overrides.is_empty() { reader.position() } else { whole_len };
            }
            Ok(()) => {}
            Err(Invalid::Torn) => break End::Torn,
            Err(Invalid::Refused(why)) => return Err(Unusable::Because(why)),
        }
    };
    let Some(position) = position else {
        return Err(Unusable::Because("it is damaged, and holds nothing that is complete".to_owned()));
    };
    let is_torn = end == End::Torn || reader.position() != position;
    Ok(Generation { loaded: content.into_loaded(), position, whole_len, is_torn })
}

/// A block that does not continue what was read.
enum Invalid {
    Torn,
    Refused(String),
}

/// What was read so far.
struct Content {
    plugins: Arc<[PluginSchema]>,
    receiver: Option<Receiver>,
    identity: Identity,
    inventory: Inventory,
    document: Document,
    /// What change sets put in the place of the document's entities.
    overrides: HashMap<Key, Option<Entity>>,
}

impl Content {
    fn new(plugins: Arc<[PluginSchema]>) -> Content {
        let (inventory, document) = (Inventory::default(), Document::default());
        let (identity, overrides) = (Identity::default(), HashMap::new());
        Content { plugins, receiver: None, identity, inventory, document, overrides }
    }

    fn take(&mut self, block: Block) -> Result<(), Invalid> {
        match (block.tag, &mut self.receiver) {
            (BEGIN, receiver) => {
                let header: TransferHeader =
                    serde_json::from_slice(&block.payload).map_err(|_| Invalid::Torn)?;
                let continues = header.from.is_none_or(|from| from == self.inventory.digest());
                *receiver = continues.then(|| Receiver::new(header, self.plugins.clone()));
                if continues { Ok(()) } else { Err(Invalid::Torn) }
            }
            (CHUNK, Some(receiver)) => receiver.chunk(&block.payload).map_err(|_| Invalid::Torn),
            (COMMIT, receiver) => receiver.take().ok_or(Invalid::Torn).and_then(|it| self.commit(it)),
            (CHUNK, None) => Err(Invalid::Torn),
            // Of a later release.
            _ => Ok(()),
        }
    }

    fn commit(&mut self, receiver: Receiver) -> Result<(), Invalid> {
        let received = receiver.finish().map_err(|error| match error {
            TransferError::Damaged(_) => Invalid::Torn,
            refused @ TransferError::Refused(_) => Invalid::Refused(refused.to_string()),
        })?;
        if !received.staged.fits(&self.inventory) {
            return Err(Invalid::Torn);
        }
        self.identity = received.staged.to;
        received.staged.apply(&mut self.inventory);
        match received.update {
            Update::Whole(document) => (self.document, self.overrides) = (*document, HashMap::new()),
            Update::Changes(changes) => {
                let changes = changes.into_iter().map(|change| ((change.kind, change.id), change.entity));
                self.overrides.extend(changes);
            }
        }
        Ok(())
    }

    fn into_loaded(self) -> Loaded {
        let Content { identity, inventory, document, overrides, .. } = self;
        let document = if overrides.is_empty() { document } else { overridden(document, overrides) };
        Loaded { identity, document, inventory }
    }
}

fn overridden(document: Document, overrides: HashMap<Key, Option<Entity>>) -> Document {
    let mut merged = Document::default();
    let is_kept = |entity: &Entity| !overrides.contains_key(&(entity.kind(), entity.id()));
    document.into_entities().into_iter().filter(is_kept).for_each(|entity| merged.push(entity));
    overrides.into_values().flatten().for_each(|entity| merged.push(entity));
    merged.sort();
    merged
}
