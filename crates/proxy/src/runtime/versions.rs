//! The versions of what workers serve: the active one, and earlier ones that requests still use.

use crate::sync::{Arc, Mutex, PoisonError};

/// The active version, and earlier ones that are in use. They are kept here because the last owner of a version pays for freeing
/// it, which must not be a worker.
pub(crate) struct Versions<T>(Mutex<Kept<T>>);

struct Kept<T> {
    active: Arc<T>,
    earlier: Vec<Arc<T>>,
}

impl<T> Versions<T> {
    pub(crate) fn new(active: Arc<T>) -> Self {
        Self(Mutex::new(Kept { active, earlier: Vec::new() }))
    }

    /// The active version.
    pub(crate) fn active(&self) -> Arc<T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).active.clone()
    }

    /// Makes another version the active one, which workers have already. Returns earlier ones that nothing uses: freeing them takes
    /// a while, and others read the active version meanwhile.
    pub(crate) fn replace(&self, active: Arc<T>) -> Vec<Arc<T>> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut kept.active, active);
        kept.earlier.push(replaced);
        kept.earlier.extract_if(.., |earlier| Arc::strong_count(earlier) == 1).collect()
    }
}
