//! The waterfall of a chain: what each plugin of a route costs a request, as the gateway itself measures it under load.
pub(crate) mod config;
mod read;

pub use read::read;
