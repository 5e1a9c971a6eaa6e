//! A fleet: a control plane sends the configuration to data planes, and knows which of them serve it.
//!
//! The crate speaks three protocols on one port: those of Kong 3.9 (`/v1/outlet`, the whole configuration as JSON;
//! `/v2/outlet`, JSON-RPC with increments), and Weir's own, which sends only what differs.
mod admission;
pub mod cache;
mod configuration;
pub mod connect;
pub mod control_plane;
pub mod data_plane;
mod rpc;
pub mod sync;
pub mod tls;
mod websocket;
pub mod wire;

pub use configuration::{Apply, Source, Version};
pub use sync::{Refusal, Update};
