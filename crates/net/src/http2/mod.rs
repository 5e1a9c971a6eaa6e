//! What both sides of HTTP/2 share: the byte stream as the `h2` crate takes it, bodies, and pings.

mod body;
mod hpack;
mod keep_alive;
mod transport;

pub use body::{Incoming, Outgoing, broken, gone, reset_reason};
pub use keep_alive::KeepAlivePing;
pub use transport::{Sender, Transport};

/// How long what begins a connection is.
const PREFACE_LENGTH: usize = 24;
