//! How bytes reach a peer, whoever the peer is.
//!
//! [`resolve`] turns names into addresses, [`connect`] opens connections, and [`dialer`] does for
//! plugins; [`tls`] secures them on both sides. [`io::Io`] is the
//! byte stream that comes of it: a [`socket::Socket`], TLS on one, or memory. On it, [`wire::Wire`] frames the messages of
//! HTTP/1.1, and [`http2`] is what the `h2` crate reads from and writes to; [`multiplex`] reads and writes the fields of
//! HTTP/2 and HTTP/3. Bytes wait in the [`buffer`]s of their worker's thread, and a [`deadline::Deadline`] says when that
//! took too long.
//!
//! This crate knows framing and no meaning: no route, no plugin, no exchange, no choice among targets.

pub mod buffer;
pub mod connect;
pub mod deadline;
pub mod dialer;
pub mod http2;
pub mod io;
pub mod multiplex;
pub mod resolve;
pub mod socket;
pub mod tls;
pub mod wire;
