//! gRPC for plugins that translate: messages in frames, and messages as JSON by a `.proto` file.

pub(crate) mod frames;
pub(crate) mod schema;

/// Whether a response is gRPC's by its content type; gRPC-Web has others.
pub(crate) fn is_grpc(content_type: Option<&[u8]>) -> bool {
    let rest = content_type.and_then(|value| value.strip_prefix(b"application/grpc"));
    matches!(rest, Some([] | [b'+' | b';' | b' ', ..]))
}
