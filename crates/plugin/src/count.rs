//! A number with one writer and any number of readers.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What one worker counts, and others read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// For the one writer alone: not a read-modify-write, which would lock the cache line.
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }

    /// The same for less.
    pub fn sub(&self, less: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(less), Relaxed);
    }

    /// The number.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}
