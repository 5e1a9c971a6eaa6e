//! Values that plugins share across configurations, as long as one plugin uses them.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Values by key.
pub(crate) struct InUse<K, V>(Mutex<Vec<(K, Weak<V>)>>);

impl<K, V> Default for InUse<K, V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: PartialEq, V> InUse<K, V> {
    /// The value of this key; it is made if none is in use.
    pub(crate) fn of(&self, key: K, make: impl FnOnce() -> Result<V, String>) -> Result<Arc<V>, String> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.retain(|(_, value)| value.strong_count() > 0);
        let known = values.iter().find(|(known, _)| *known == key);
        if let Some(known) = known.and_then(|(_, value)| value.upgrade()) {
            return Ok(known);
        }
        let made = Arc::new(make()?);
        values.push((key, Arc::downgrade(&made)));
        Ok(made)
    }

    /// Those that are in use.
    pub(crate) fn all(&self) -> Vec<Arc<V>> {
        let values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.iter().filter_map(|(_, value)| value.upgrade()).collect()
    }
}
