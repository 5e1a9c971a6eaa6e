//! Where requests go: endpoints, balancing among them, their health, connecting, and connections kept for reuse.

pub(crate) mod balance;
pub(crate) mod connect;
pub(crate) mod endpoint;
pub mod health;
pub mod pool;
pub mod resolve;
