//! The memory of the gateway's own measurements: what happened, for whom, how fast, and who was to blame.
pub mod bucket;
pub mod cause;
pub mod histogram;
pub mod record;
pub mod ring;
#[cfg(test)]
mod testing;
mod varint;

pub use varint::DecodeError;
