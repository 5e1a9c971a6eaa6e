//! The protocols of Kong 3.9, without sockets: bytes and JSON to values, and back.
pub mod hash;
