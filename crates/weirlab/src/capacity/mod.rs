//! The highest rate that holds a service level, and latency below it.
pub(crate) mod judge;
pub mod search;
