//! Where requests go: endpoints, balancing among them, connecting, and connections kept for reuse.

pub(crate) mod balance;
pub(crate) mod connect;
pub(crate) mod endpoint;
pub mod pool;
pub mod resolve;
