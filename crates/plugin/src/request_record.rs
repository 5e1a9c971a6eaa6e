//! The record of a request that log plugins write, for plugins of other crates.

use crate::exchange::Exchange;

/// What writes the record of a request as JSON: the one that Kong's log plugins send. The node provides it.
#[derive(Clone, Copy)]
pub struct RequestRecord(pub fn(&Exchange) -> Vec<u8>);

impl RequestRecord {
    /// The record.
    pub fn of(&self, exchange: &Exchange) -> Vec<u8> {
        (self.0)(exchange)
    }
}

/// A record without members.
impl Default for RequestRecord {
    fn default() -> Self {
        Self(|_| b"{}".to_vec())
    }
}
