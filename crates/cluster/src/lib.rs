//! A fleet: a control plane sends the configuration to data planes, and knows which of them serve it.
//!
//! The crate speaks three protocols on one port: those of Kong 3.9 (`/v1/outlet`, the whole configuration as JSON;
//! `/v2/outlet`, JSON-RPC with increments), and Weir's own, which sends only what differs.

mod admission;
pub mod cache;
pub mod sync;

pub use admission::Admission;
