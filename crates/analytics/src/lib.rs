//! The memory of the gateway's own measurements: what happened, for whom, how fast, and who was to blame.
pub mod aggregate;
pub mod bucket;
pub mod cause;
pub mod changes;
mod counts;
mod dictionary;
pub mod disk;
pub mod entities;
pub mod frame;
pub mod histogram;
mod live;
pub mod record;
pub mod ring;
pub mod samples;
pub mod slot;
pub mod store;
#[cfg(test)]
mod testing;
pub mod tiers;
mod varint;

pub use varint::DecodeError;
