//! The memory of the gateway's own measurements: what happened, for whom, how fast, and who decided the outcome.
//!
//! ```text
//! worker ─► record ─► ring ─► store: live ─► tiers ─► query
//!                               │              ├────► disk
//!        sample ─► samples ◄────┘              └────► outbox ─► frame ─► inbox ─► store (of the control plane)
//! ```
//! Calls of language models come beside that ([`model`]), because a record has no room for them.
//!
//! A worker writes one [`record::Record`] of 32 bytes for each request into a [`ring`] of its own. One thread of low
//! priority owns the [`store::Store`], drains all rings and answers questions ([`query`]). The crate has no sockets, no
//! thread and no clock: the caller gives the time. It knows entities by name and number only ([`entities`]).
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
pub mod inbox;
pub mod known;
mod live;
pub mod model;
pub mod outbox;
mod pairs;
pub mod query;
pub mod record;
pub mod ring;
pub mod samples;
pub mod slot;
pub mod store;
mod sync;
#[cfg(test)]
mod testing;
pub mod tiers;
pub mod totals;
mod varint;

pub use varint::DecodeError;
