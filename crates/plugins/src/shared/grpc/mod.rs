//! gRPC for plugins that translate: messages in frames, messages by a `.proto` file, and calls in the place of requests.

pub(crate) mod bounds;
pub(crate) mod filter;
pub(crate) mod frames;
pub(crate) mod proto;
pub(crate) mod responses;
pub(crate) mod schema;
pub(crate) mod warnings;

use prost_reflect::MethodDescriptor;
use weir_plugin::Exchange;

/// Whether a response is gRPC's by its content type; gRPC-Web has others.
pub(crate) fn is_grpc(content_type: Option<&[u8]>) -> bool {
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    matches!(rest, Some([] | [b'+' | b';' | b' ', ..]))
}

/// Sends a call to the upstream in the place of the request.
pub(crate) fn call(exchange: &mut Exchange, method: &MethodDescriptor, message: &[u8]) {
    exchange.set_body(frames::framed(frames::MESSAGE, message));
    exchange.set_upstream_path(format!("/{}/{}", method.parent_service().full_name(), method.name()));
    exchange.set_query(String::new());
    exchange.set_method("POST");
    let of_client = exchange.request.headers.get("Content-Type").map(<[u8]>::to_vec);
    exchange.request.headers.set("Content-Type", b"application/grpc");
    for encoding in ["Content-Encoding", "grpc-encoding", "grpc-accept-encoding"] {
        exchange.request.headers.remove(encoding);
    }
    exchange.replace_upstream_response(move |exchange, _| {
        // The client's own again: what the gateway answers by itself is no answer of gRPC.
        match of_client {
            Some(content_type) => exchange.request.headers.set("Content-Type", &content_type),
            None => drop(exchange.request.headers.remove("Content-Type")),
        }
        None
    });
}

/// The status of HTTP for a status of gRPC.
pub(crate) fn http_status(code: &[u8]) -> u16 {
    match code {
        b"0" => 200,
        b"1" => 499,
        b"3" | b"9" | b"11" => 400,
        b"4" => 504,
        b"5" => 404,
        b"6" | b"10" => 409,
        b"7" => 403,
        b"8" => 429,
        b"14" => 503,
        b"16" => 401,
        _ => 500,
    }
}
