//! What both sides of HTTP/2 share: the transport under the `h2` crate, bodies, and keep-alive pings.

mod body;
mod hpack;
mod keep_alive;
mod transport;

pub use body::{Incoming, Outgoing, broken, gone, reset_reason};
pub use keep_alive::KeepAlivePing;
pub use transport::{Failure, Sender, Transport};

/// The length of the connection preface.
const PREFACE_LENGTH: usize = 24;
