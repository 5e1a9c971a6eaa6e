//! State that survives reloads: counters, health and pools, under stable keys.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use weir_model::Uuid;

/// State that survives every reload, by type. The first use of a type makes its value.
#[derive(Default)]
pub struct Retained(Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl Retained {
    /// The node's one value of this type. Not for the request path: keep the `Arc`.
    pub fn get<T: Default + Send + Sync + 'static>(&self) -> Arc<T> {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(TypeId::of::<T>()).or_insert_with(|| Arc::<T>::default());
        value.clone().downcast().unwrap_or_default()
    }

    /// Sets the node's one value of this type, before its first use.
    pub fn provide<T: Send + Sync + 'static>(&self, value: T) {
        let mut values = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        values.insert(TypeId::of::<T>(), Arc::new(value));
    }
}

/// What names the process among the nodes that a monitor sees.
#[derive(Debug)]
pub struct NodeId(pub Uuid);

impl Default for NodeId {
    fn default() -> Self {
        Self(Uuid::new_v4())
    }
}
