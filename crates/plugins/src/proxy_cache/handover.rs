//! The responses that a process hands to the one that replaces it.

use super::record::{self, Found};
use super::store::Cache;
use super::stored::{self, Stored};
use std::io::{self, Write};
use std::sync::Arc;
use weir_plugin::{Fingerprint, Handover};

/// The cache of the node.
pub(super) const HANDOVER: Handover = Handover {
    name: "proxy-cache",
    export: |retained, to| export(&retained.get(), to),
    import: |retained, bytes| import(&retained.get(), bytes),
};

fn export(cache: &Cache, to: &mut dyn Write) -> io::Result<()> {
    for (fingerprint, stored) in cache.all() {
        let record = record::write(&stored);
        to.write_all(&fingerprint.to_le_bytes())?;
        to.write_all(&stored.subject.resource.fingerprint.to_le_bytes())?;
        to.write_all(&(record.len() as u64).to_le_bytes())?;
        to.write_all(&record)?;
    }
    Ok(())
}

fn import(cache: &Cache, mut bytes: &[u8]) {
    while let Some((fingerprint, stored, rest)) = take(bytes) {
        bytes = rest;
        cache.insert(fingerprint, stored);
    }
}

/// The first response, and the bytes behind it.
fn take(bytes: &[u8]) -> Option<(Fingerprint, Arc<Stored>, &[u8])> {
    let (fingerprint, rest) = bytes.split_first_chunk()?;
    let (resource, rest) = rest.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
    let (record, rest) = rest.split_at_checked(length)?;
    let Found::Response(stored) = record::read(record.to_vec(), stored::now())? else { return None };
    let stored = Arc::new(Arc::into_inner(stored)?.of_resource(Fingerprint::from_le_bytes(*resource)));
    Some((Fingerprint::from_le_bytes(*fingerprint), stored, rest))
}
