//! What the product takes from the standard library.

pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};
pub(crate) use std::sync::PoisonError;

pub(crate) mod atomic {
    pub(crate) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};

    /// A number whose sequentially consistent loads see the last store, as they do. `loom` takes them for weaker ones, and reports
    /// orders that cannot be.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicUsize(loom::sync::atomic::AtomicUsize);

    impl AtomicUsize {
        pub(crate) fn new(value: usize) -> Self {
            Self(loom::sync::atomic::AtomicUsize::new(value))
        }

        pub(crate) fn load(&self, order: Ordering) -> usize {
            if order == Ordering::SeqCst { self.0.fetch_add(0, order) } else { self.0.load(order) }
        }

        pub(crate) fn store(&self, value: usize, order: Ordering) {
            self.0.store(value, order);
        }

        pub(crate) fn swap(&self, value: usize, order: Ordering) -> usize {
            self.0.swap(value, order)
        }

        pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            self.0.fetch_add(value, order)
        }

        pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            self.0.fetch_sub(value, order)
        }

        pub(crate) fn fetch_max(&self, value: usize, order: Ordering) -> usize {
            self.0.fetch_max(value, order)
        }

        pub(crate) fn fetch_update(
            &self,
            set: Ordering,
            fetch: Ordering,
            mut change: impl FnMut(usize) -> Option<usize>,
        ) -> Result<usize, usize> {
            let mut before = self.load(fetch);
            while let Some(after) = change(before) {
                match self.0.compare_exchange(before, after, set, fetch) {
                    Ok(before) => return Ok(before),
                    Err(other) => before = other,
                }
            }
            Err(before)
        }
    }
}
