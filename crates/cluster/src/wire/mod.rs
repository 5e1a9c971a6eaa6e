//! The protocols of Kong 3.9, without sockets: bytes and JSON to values, and back.
//!
//! | module | what it knows |
//! |---|---|
//! | [`payload`] | the configuration as rows, `config_table`, and back |
//! | [`hash`] | Kong's hash of it |
//! | [`compat`] | which data planes may have it, and what is changed for older ones |
//! | [`v1`] | the messages of `/v1/outlet`: the whole configuration at each change |
//! | [`v2`] | the messages of `/v2/outlet`: JSON-RPC, and increments over it |
//! | [`data_plane`] | the row of a data plane in `/clustering/data-planes` |
pub mod compat;
pub mod data_plane;
pub mod hash;
mod lua;
pub mod payload;
#[cfg(test)]
mod sample;
#[cfg(test)]
mod tests;
pub mod v1;
pub mod v2;

pub use crate::sync::Refusal;
