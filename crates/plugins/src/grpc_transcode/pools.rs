//! What texts of `.proto` files define. Plugins with the same text share it.

use crate::shared::grpc::proto;
use prost_reflect::DescriptorPool;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What one text defines.
pub(super) struct Pool(pub(super) DescriptorPool);

/// What the texts in use define, by their hashes.
#[derive(Default)]
pub(super) struct Pools(Mutex<HashMap<[u8; 32], Weak<Pool>>>);

impl Pools {
    /// What a text defines.
    pub(super) fn of(&self, content: &str) -> Result<Arc<Pool>, String> {
        let hash = Sha256::digest(content).into();
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&hash).and_then(Weak::upgrade);
        if let Some(known) = known {
            return Ok(known);
        }
        let pool = proto::compile(content).map_err(|error| format!("config.proto: {error}"))?;
        let pool = Arc::new(Pool(pool));
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|_, pool| pool.strong_count() > 0);
        pools.insert(hash, Arc::downgrade(&pool));
        Ok(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_compiled_once_as_long_as_it_is_in_use() {
        let pools = Pools::default();
        let text = "syntax = \"proto3\"; message A {}";
        let (one, other) = (pools.of(text).unwrap(), pools.of(text).unwrap());
        assert!(Arc::ptr_eq(&one, &other));
        drop((one, other));
        pools.of("syntax = \"proto3\"; message B {}").unwrap();
        assert_eq!(pools.0.lock().unwrap().len(), 1);
    }
}
