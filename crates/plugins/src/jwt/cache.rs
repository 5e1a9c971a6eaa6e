//! Tokens whose signatures were verified, cached on each worker.
//!
//! The fingerprints are made with a key that is drawn again with each set of credentials, so that no result from one
//! set counts under another. Only verified tokens are cached, and no client can predict which slot a token will take.

use std::cell::RefCell;
use weir_plugin::{ConsumerIndex, Fingerprint, Uuid};

/// What is known about a token with a valid signature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Verified {
    pub(super) signer: Signer,
    /// None if it is not a number.
    pub(super) exp: Option<f64>,
    /// None if it is not a number.
    pub(super) nbf: Option<f64>,
}

/// Whose key signed a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Signer {
    /// The credential at this index.
    Secret(u32),
    /// An issuer's key, for this consumer.
    Issuer(ConsumerIndex, Uuid),
}

/// Tokens in each worker's cache; of those that share a slot, it keeps the last.
const SLOTS: usize = 2048;

thread_local! {
    static RECENT: RefCell<Vec<Option<(Fingerprint, Verified)>>> = const { RefCell::new(Vec::new()) };
}

/// Looks up the token with this fingerprint.
pub(super) fn get(fingerprint: Fingerprint) -> Option<Verified> {
    RECENT.with_borrow(|slots| {
        let (known, verified) = slots.get(fingerprint as usize % SLOTS)?.as_ref()?;
        (*known == fingerprint).then_some(*verified)
    })
}

/// Stores a token.
pub(super) fn put(fingerprint: Fingerprint, verified: Verified) {
    RECENT.with_borrow_mut(|slots| {
        if slots.is_empty() {
            slots.resize(SLOTS, None);
        }
        slots[fingerprint as usize % SLOTS] = Some((fingerprint, verified));
    });
}
