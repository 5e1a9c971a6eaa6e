//! Tokens whose signatures were found right, at hand on each worker.
//!
//! The fingerprints are made under a key that is drawn anew with each set of credentials, so that nothing that was found
//! out under one set is believed under another. Nothing but what was verified comes in, and nobody outside can tell which
//! slot a token will take.

use std::cell::RefCell;
use weir_plugin::{ConsumerIndex, Fingerprint, Uuid};

/// What is known of a token with a right signature.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Verified {
    pub(super) signer: Signer,
    /// None where it is no number.
    pub(super) exp: Option<f64>,
    /// None where it is no number.
    pub(super) nbf: Option<f64>,
}

/// Whose key signed a token.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Signer {
    /// That of the credential at this place.
    Secret(u32),
    /// An issuer's, on behalf of this consumer.
    Issuer(ConsumerIndex, Uuid),
}

/// Tokens that each worker keeps at hand; of those that share a slot, the last.
const SLOTS: usize = 2048;

thread_local! {
    static RECENT: RefCell<Vec<Option<(Fingerprint, Verified)>>> = const { RefCell::new(Vec::new()) };
}

/// What is known of the token with this fingerprint.
pub(super) fn get(fingerprint: Fingerprint) -> Option<Verified> {
    RECENT.with_borrow(|slots| {
        let (known, verified) = slots.get(fingerprint as usize % SLOTS)?.as_ref()?;
        (*known == fingerprint).then_some(*verified)
    })
}

/// Remembers a token.
pub(super) fn put(fingerprint: Fingerprint, verified: Verified) {
    RECENT.with_borrow_mut(|slots| {
        if slots.is_empty() {
            slots.resize(SLOTS, None);
        }
        slots[fingerprint as usize % SLOTS] = Some((fingerprint, verified));
    });
}
