//! Transport: sockets, TLS, name resolution and message framing, towards clients, upstreams and other servers.
//!
//! [`resolve`] turns names into addresses, [`connect`] opens connections, and [`dialer`] opens those of plugins;
//! [`tls`] secures connections on both sides. The result is an [`io::Io`], the byte stream of a connection: a
//! [`socket::Socket`], TLS on one, or memory. On it, [`wire::Wire`] frames the messages of HTTP/1.1, and [`http2`] is
//! the transport under the `h2` crate; [`multiplex`] converts the fields of HTTP/2 and HTTP/3. The worker's thread lends
//! the [`buffer`]s, and a [`deadline::Deadline`] is the timeout of a connection.
//!
//! This crate knows framing but no meaning: no route, no plugin, no exchange, no load balancing.

pub mod buffer;
pub mod connect;
pub mod deadline;
pub mod dialer;
pub mod http2;
pub mod io;
pub mod multiplex;
pub mod resolve;
pub mod socket;
pub mod thread;
pub mod tls;
pub mod wire;
