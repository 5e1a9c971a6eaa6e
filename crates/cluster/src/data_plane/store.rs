//! What a data plane keeps on disk: the configuration that it received last, as its next start begins with it.
use crate::cache::{Cache, CacheError};
use crate::sync::identity::Identity;
use crate::sync::inventory::Inventory;
use crate::sync::message::Message;
use weir_model::Document;

/// The cache, if there is one, and what it held when the process started.
#[derive(Debug, Default)]
pub struct Stored {
    /// The cache.
    pub cache: Option<Cache>,
    /// What the active configuration is called, and its digests, if it came from the cache.
    pub active: Option<(Identity, Inventory)>,
}

/// Writes what arrives.
#[derive(Debug)]
pub(crate) struct Writer(Option<Cache>);

impl Writer {
    pub(crate) fn new(cache: Option<Cache>) -> Writer {
        Writer(cache)
    }

    /// Writes what a message carries of a transfer.
    pub(super) fn write(&mut self, message: &Message) {
        let Some(cache) = &mut self.0 else { return };
        match message {
            Message::Transfer(header, chunk) => {
                cache.begin(header);
                cache.chunk(chunk);
            }
            Message::Chunk(chunk) => cache.chunk(chunk),
            _ => {}
        }
    }

    /// Forgets the transfer that is being written.
    pub(super) fn abort(&mut self) {
        if let Some(cache) = &mut self.0 {
            cache.abort();
        }
    }

    /// Makes the transfer what the next start begins with; returns why that fails. Where the cache lacks an earlier change,
    /// everything that is active is written.
    pub(super) fn commit(
        &mut self,
        to: Identity,
        active: impl FnOnce() -> Option<Document>,
    ) -> Option<String> {
        let cache = self.0.as_mut()?;
        let committed = match cache.commit() {
            Err(CacheError::Behind(folder)) => {
                active().map_or(Err(CacheError::Behind(folder)), |document| cache.store(to, &document))
            }
            committed => committed,
        };
        let committed = committed.and_then(|()| match cache.compaction() {
            Some(compaction) => compaction.run().and_then(|compacted| cache.finish_compaction(compacted)),
            None => Ok(()),
        });
        reported(committed)
    }

    /// Writes a whole configuration that did not come as a transfer.
    pub(super) fn store(&mut self, document: &Document) -> Option<String> {
        // Its history is unknown: only its content says what it is.
        reported(self.0.as_mut()?.store(Identity::default(), document))
    }
}

fn reported(outcome: Result<(), CacheError>) -> Option<String> {
    let error = outcome.err()?.to_string();
    tracing::error!("the configuration is active but not stored: {error}");
    Some(error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Opened;
    use crate::sync::message::TransferHeader;
    use crate::sync::tests::{document, service};
    use bytes::Bytes;

    #[test]
    fn a_cache_that_lacks_a_change_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Cache::open(folder.path(), [].into()).unwrap();
        let Opened { cache, loaded: None, .. } = open() else { panic!("it holds nothing yet") };
        let mut writer = Writer::new(Some(cache));
        let (to, active) = (Identity::default(), document([service(1, "orders")]));
        let header = TransferHeader { to, from: Some(to.digest), chunks: 1, deflate: false };
        writer.write(&Message::Transfer(header, Bytes::new()));
        assert_eq!(writer.commit(to, || Some(active.clone())), None);
        drop(writer);
        assert_eq!(open().loaded.map(|loaded| loaded.document), Some(active));
    }
}
