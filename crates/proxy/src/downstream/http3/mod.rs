//! HTTP/3 clients, over QUIC by the crate `quinn`: each stream is one exchange, served like every other.

mod body;
mod code;
mod control;
mod endpoint;
mod frames;
mod generations;
mod one_way;
mod qpack;
mod qpack_encoder;
mod quic;
mod receiving;
mod request;
mod sending;
mod server;
mod static_table;
mod steering;
mod stream;

pub(crate) use endpoint::{Quic, QuicListener, Reception, receive};
pub(crate) use generations::Generations;
pub use generations::{QuicIdentity, QuicInheritance};
pub(crate) use steering::listeners;
