//! The waterfall of a chain: what each plugin of a route costs a request, as the gateway itself measures it under load.
pub mod command;
mod config;
mod read;
mod text;

pub use read::read;
pub use text::text;
