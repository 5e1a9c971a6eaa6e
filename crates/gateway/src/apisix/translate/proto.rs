//! Protos: what grpc-transcode knows of services. They are only kept; the plugins of the objects that name one have its content.
use super::schema::Proto;
use super::{Invalid, Json, fill, mistakes};
use weir_model::ConfigError;
use weir_model::node::Node;
use weir_plugins::check_proto;

/// Checks a proto, and fills its defaults in.
pub(super) fn check(value: &mut Json) -> Result<(), Invalid> {
    let proto: Proto = fill(value)?;
    check_proto(&proto.content).map_err(|error| Invalid(format!("invalid content: {error}")))
}

/// All errors of one in a file.
pub(super) fn mistakes_of(node: &Node<'_>) -> Vec<ConfigError> {
    let mut found = mistakes::fields::<Proto>(node);
    let content = node.get("content").map(Node::to_json);
    if let Some(Err(message)) = content.as_ref().and_then(Json::as_str).map(check_proto) {
        found.push(ConfigError { at: node.position_of("content"), path: "content".to_owned(), message });
    }
    found
}
