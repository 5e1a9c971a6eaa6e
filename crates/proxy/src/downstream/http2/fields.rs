//! Converts the heads of tunnels over HTTP/2 (CONNECT, RFC 8441).

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use h2::ext::Protocol;
use http::request::Parts;
use weir_http1::{Known, Limits, ParseError, RequestHead, Version};
use weir_model::Uuid;
use weir_net::multiplex::{self, Arrived};

/// Fills the head with a request, whose body is over already or follows.
pub(super) fn read_request(
    head: &mut RequestHead,
    parts: &Parts,
    is_over: bool,
    limits: &Limits,
) -> Result<(), ParseError> {
    let protocol = parts.extensions.get::<Protocol>();
    let path = || parts.uri.path_and_query().map(|path| ("GET", path.as_str()));
    let line = protocol.and_then(|_| path());
    multiplex::read_request(head, &Arrived { parts, version: Version::Http2, line }, limits)?;
    match protocol {
        Some(protocol) => ask_for(head, protocol.as_str()),
        None => multiplex::framing(head, &parts.headers, is_over)?,
    }
    Ok(())
}

/// Converts an extended CONNECT (RFC 8441) to the GET with Upgrade of HTTP/1.1. The response to the key that HTTP/1.1
/// requires is ignored.
fn ask_for(head: &mut RequestHead, protocol: &str) {
    head.upgrade = true;
    head.headers.append_known(Known::Upgrade, "Upgrade", protocol.as_bytes());
    if protocol.eq_ignore_ascii_case("websocket") {
        let key = STANDARD.encode(Uuid::new_v4().as_bytes());
        head.headers.append("Sec-WebSocket-Key", key.as_bytes());
    }
}
