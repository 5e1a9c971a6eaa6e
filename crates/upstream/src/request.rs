//! The interface between the engine and an upstream connection: the request to send, and the slot for the head of the
//! response. It depends on neither side.

use weir_http1::{Framing, Headers, KnownSet, Method, ResponseHead};

/// A request to an upstream. The implementation writes it directly into the connection's buffer, so that nothing is
/// copied in between.
pub trait UpstreamRequest {
    /// Fields of [`headers`](Self::headers) that are not sent: those that end at this hop, and those that
    /// [`write_forwarded`](Self::write_forwarded) writes itself.
    const REWRITTEN: KnownSet;

    /// The method.
    fn method(&self) -> &str;
    /// The host that the upstream is asked for.
    fn authority(&self) -> &str;
    /// Whether the upstream is spoken to over TLS.
    fn is_tls(&self) -> bool;
    /// Whether it is a call of gRPC.
    fn is_grpc(&self) -> bool;
    /// Whether the client takes trailers.
    fn takes_trailers(&self) -> bool;
    /// Appends the target: path and query.
    fn write_target(&self, out: &mut Vec<u8>);
    /// The client's fields, with what plugins made of them.
    fn headers(&self) -> &Headers;
    /// Appends the fields that the gateway adds, each as a line of HTTP/1.1.
    fn write_forwarded(&self, out: &mut Vec<u8>);
    /// The protocol that it asks to change to.
    fn upgrade(&self) -> Option<&str>;
    /// How its body is framed.
    fn framing(&self) -> Framing;
}

/// Where the head of the response goes, and what of the request decides how it is read.
pub struct ResponseSlot<'a> {
    /// Filled with the head.
    pub head: &'a mut ResponseHead,
    /// The request's method.
    pub method: Method,
    /// The protocol that the request asks to change to.
    pub upgrade: Option<&'a str>,
}
