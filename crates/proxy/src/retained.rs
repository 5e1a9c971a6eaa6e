//! What outlives a snapshot: counters, health and pools, under stable keys.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// State that survives every reload, made by whoever asks for it first.
#[derive(Default)]
pub struct Retained(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Retained {
    /// The node's one value of this type. Not for the request path: keep the `Arc`.
    pub fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::<T>::default());
        value.clone().downcast().unwrap_or_default()
    }
}
