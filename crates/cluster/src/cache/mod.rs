//! The configuration that a data plane received last, on disk: what it serves when it starts and no control plane is there.
//!
//! A generation is a file of [transfers](crate::sync::transfer), as they arrived: one of everything, then the changes since.
//! Each is written before it is acknowledged, and counts once its last block is there. When the changes have grown longer
//! than what they change, [`Compaction`] writes the next generation; the one before is kept until the next but one.
//!
//! A file that cannot be read is renamed, and the generation before is used. The files hold secrets: only their owner may
//! read them.
mod block;
mod compaction;
mod error;
mod files;
mod load;
#[cfg(test)]
mod tests;

pub use compaction::{Compacted, Compaction};
pub use error::{CacheError, CacheWarning};

use crate::sync::identity::{Digest, Identity};
use crate::sync::inventory::Inventory;
use crate::sync::message::{Message, TransferHeader};
use crate::sync::record::{Record, body_of};
use crate::sync::transfer::Encoder;
use block::{BEGIN, BlockWriter, CHUNK, COMMIT};
use files::Files;
use std::path::Path;
use std::sync::Arc;
use weir_model::{Document, PluginSchema};

/// Shorter changes are not worth a new generation.
const MIN_COMPACTED_LEN: u64 = 1 << 20;

/// The cache of a data plane. Only one process has it open.
#[derive(Debug)]
pub struct Cache {
    files: Files,
    current: Option<CurrentGeneration>,
    /// The transfer that is being written.
    writing: Option<Result<Writing, CacheError>>,
}

/// The generation that changes are appended to.
#[derive(Debug)]
struct CurrentGeneration {
    number: u64,
    writer: BlockWriter,
    digest: Digest,
    /// Up to where the file is committed.
    committed: u64,
    /// Where the changes begin.
    whole_len: u64,
}

#[derive(Debug)]
struct Writing {
    to: Identity,
    /// The generation that it begins; none if it changes the current one.
    new: Option<CurrentGeneration>,
}

/// What a cache held.
#[derive(Debug)]
pub struct Loaded {
    /// What it is called.
    pub identity: Identity,
    /// The entities.
    pub document: Document,
    /// Their digests.
    pub inventory: Inventory,
}

/// A cache that was opened.
#[derive(Debug)]
pub struct Opened {
    /// The cache.
    pub cache: Cache,
    /// What it holds, if it holds something.
    pub loaded: Option<Loaded>,
    /// What is to be logged.
    pub warnings: Vec<CacheWarning>,
}

impl Cache {
    /// Opens the cache in a folder, which is created if it does not exist.
    ///
    /// # Errors
    /// Another process uses it, or the folder cannot be used. A data plane can start without a cache.
    pub fn open(folder: &Path, plugins: Arc<[PluginSchema]>) -> Result<Opened, CacheError> {
        let mut files = Files::open(folder)?;
        let mut warnings = Vec::new();
        for (number, path) in files.generations()? {
            match load::load(&path, &plugins) {
                Ok(generation) => {
                    let current = files.resume(number, &generation)?;
                    let sequence = generation.loaded.identity.sequence;
                    warnings.extend(generation.is_torn.then_some(CacheWarning::Torn { path, sequence }));
                    let cache = Cache { files, current: Some(current), writing: None };
                    return Ok(Opened { cache, loaded: Some(generation.loaded), warnings });
                }
                Err(load::Unusable::Because(why)) => warnings.push(files.set_aside(path, why)?),
                Err(load::Unusable::Io(error)) => warnings.push(files.set_aside(path, error.to_string())?),
            }
        }
        Ok(Opened { cache: Cache { files, current: None, writing: None }, loaded: None, warnings })
    }

    /// Begins to write a transfer, as it arrives. [`commit`](Self::commit) reports what goes wrong.
    pub fn begin(&mut self, header: &TransferHeader) {
        self.abort();
        self.writing = Some(self.try_begin(header));
    }

    fn try_begin(&mut self, header: &TransferHeader) -> Result<Writing, CacheError> {
        let mut writing = Writing { to: header.to, new: None };
        match (header.from, &self.current) {
            (None, _) => writing.new = Some(self.files.create()?),
            (Some(from), Some(current)) if current.digest == from => {}
            (Some(_), _) => return Err(CacheError::Behind(self.files.folder().to_owned())),
        }
        // What cannot be written as JSON cannot be read either.
        let header = serde_json::to_vec(header).unwrap_or_default();
        self.write_to(&mut writing, BEGIN, &header)?;
        Ok(writing)
    }

    /// Writes the next chunk of the transfer.
    pub fn chunk(&mut self, chunk: &[u8]) {
        self.writing = self.writing.take().map(|writing| {
            let mut writing = writing?;
            self.write_to(&mut writing, CHUNK, chunk).map(|()| writing)
        });
    }

    fn write_to(&mut self, writing: &mut Writing, tag: u8, payload: &[u8]) -> Result<(), CacheError> {
        let generation = writing.new.as_mut().or(self.current.as_mut());
        let generation = generation.ok_or_else(|| CacheError::Behind(self.files.folder().to_owned()))?;
        let written = generation.writer.write(tag, payload);
        if written.is_err() {
            self.discard(writing);
        }
        written
    }

    /// Makes the transfer what the next start begins with. It is on the disk when this returns.
    ///
    /// # Errors
    /// It could not be written; the next start begins with what was committed before. After an error, a change cannot be
    /// added: [`store`](Self::store) everything.
    pub fn commit(&mut self) -> Result<(), CacheError> {
        let Some(writing) = self.writing.take() else { return Ok(()) };
        let mut writing = writing?;
        self.write_to(&mut writing, COMMIT, b"{}")?;
        let generation = writing.new.as_mut().or(self.current.as_mut());
        let Some(generation) = generation else { return Ok(()) };
        if let Err(error) = generation.writer.sync() {
            self.discard(&mut writing);
            return Err(error);
        }
        generation.committed = generation.writer.position();
        generation.digest = writing.to.digest;
        match writing.new {
            Some(mut generation) => {
                generation.whole_len = generation.committed;
                self.replace(generation)
            }
            None => Ok(()),
        }
    }

    /// Forgets the transfer that is being written.
    pub fn abort(&mut self) {
        if let Some(Ok(mut writing)) = self.writing.take() {
            self.discard(&mut writing);
        }
    }

    /// Removes what a transfer has written so far.
    fn discard(&mut self, writing: &mut Writing) {
        match (&writing.new, self.current.take()) {
            (Some(_), current) => {
                self.files.remove_partial();
                self.current = current;
            }
            // A generation that cannot be cut back is not continued.
            (None, Some(current)) => self.current = self.files.cut(current).ok(),
            (None, None) => {}
        }
    }

    /// Makes a new generation the current one.
    fn replace(&mut self, generation: CurrentGeneration) -> Result<(), CacheError> {
        let previous = self.current.as_ref().map(|current| current.number);
        self.files.publish(generation.number, previous)?;
        self.current = Some(generation);
        Ok(())
    }

    /// Writes a whole document as a new generation: after an error, or if what is active did not come from a control plane.
    ///
    /// # Errors
    /// It could not be written; the next start begins with what was committed before.
    pub fn store(&mut self, identity: Identity, document: &Document) -> Result<(), CacheError> {
        let (mut encoder, mut inventory) = (Encoder::new(document.len()), Inventory::default());
        for entity in document.entities() {
            let body = body_of(&entity);
            let record = Record { kind: entity.kind().as_str(), id: entity.id(), body: Some(&body) };
            inventory.set((entity.kind(), entity.id()), record.digest());
            encoder.push(&record);
        }
        let to = Identity { digest: inventory.digest(), ..identity };
        for message in encoder.finish(None, to).messages {
            match Message::decode(message) {
                Ok(Message::Transfer(header, chunk)) => {
                    self.begin(&header);
                    self.chunk(&chunk);
                }
                Ok(Message::Chunk(chunk)) => self.chunk(&chunk),
                _ => {}
            }
        }
        self.commit()
    }

    /// The next generation, if the changes have grown longer than what they change. Run it on another thread, then give the
    /// result to [`finish_compaction`](Self::finish_compaction).
    pub fn compaction(&mut self) -> Option<Compaction> {
        let current = self.current.as_ref()?;
        let changes = current.committed - current.whole_len;
        let is_due = self.writing.is_none() && changes > current.whole_len.max(MIN_COMPACTED_LEN);
        is_due.then(|| Compaction::new(self.files.path_of(current.number), current.committed))
    }

    /// Makes a compacted generation the current one, with the changes that were committed meanwhile. A result that came
    /// too late, because everything was replaced, is ignored.
    ///
    /// # Errors
    /// It could not be written; the generation before is continued.
    pub fn finish_compaction(&mut self, compacted: Compacted) -> Result<(), CacheError> {
        self.abort();
        let Some(current) = &self.current else { return Ok(()) };
        if self.files.path_of(current.number) != compacted.source {
            return Ok(());
        }
        let (digest, committed) = (current.digest, current.committed);
        let mut generation = self.files.create()?;
        let written = compacted.write(&mut generation.writer, committed);
        match written.and_then(|whole_len| generation.writer.sync().map(|()| whole_len)) {
            Ok(whole_len) => {
                generation.committed = generation.writer.position();
                (generation.whole_len, generation.digest) = (whole_len, digest);
                self.replace(generation)
            }
            Err(error) => {
                self.files.remove_partial();
                Err(error)
            }
        }
    }
}
