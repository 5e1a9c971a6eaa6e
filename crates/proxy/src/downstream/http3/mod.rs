//! HTTP/3 clients, with the crates `quinn` and `h3`: each stream is one exchange, served like every other.

mod body;
mod control;
mod endpoint;
mod frames;
mod one_way;
mod qpack;
mod quic;
mod receiving;
mod request;
mod sending;
mod server;
mod stream;

pub(crate) use endpoint::{Arriving, Quic, QuicListener, receive};
pub(crate) use server::serve;
