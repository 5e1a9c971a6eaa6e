//! HTTP/3, by the crates `quinn` and `h3`: each stream is one exchange, served as every other is.

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
