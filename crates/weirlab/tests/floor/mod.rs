//! The laboratory's own servers, as the binary runs them: upstream, floor and front.
#![allow(clippy::unwrap_used)]

mod bad_peers;
mod front;
mod relay;
mod upstream;
pub(crate) mod wire;
