//! Entities for tests.

use serde_json::Value;
use std::sync::Arc;
use weir_model::Uuid;
use weir_model::schema::Record;

/// Reads an entity, whose defaults are filled in.
pub(crate) fn entity<T: Record>(json: Value) -> Arc<T> {
    Arc::new(T::from_value(&json).unwrap_or_else(|found| panic!("{found:?}")))
}

/// An id that ends in this number.
pub(crate) fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}
