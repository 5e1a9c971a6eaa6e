//! What `grpc-status-details-bin` says, as JSON.

use super::decode::{JsonOptions, object};
use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};
use serde_json::{Value as Json, json};
use std::sync::LazyLock;

/// With or without padding, as gRPC allows.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// `google.rpc.Status`, whose details stay as they are.
const STATUS: &str =
    "syntax = \"proto3\"; message Status { int32 code = 1; string message = 2; repeated Detail details = 3; }
    message Detail { string type_url = 1; bytes value = 2; }";

static POOL: LazyLock<Result<DescriptorPool, String>> =
    LazyLock::new(|| crate::shared::grpc::proto::compile(STATUS));

/// The body for these details: each is decoded, if their message is known.
pub(super) fn json(
    details: &[u8],
    detail: Option<&MessageDescriptor>,
    options: JsonOptions,
) -> Result<Json, String> {
    let bytes = BASE64.decode(details).map_err(|_| "grpc-status-details-bin is not base64")?;
    let descriptor = POOL.as_ref()?.get_message_by_name("Status").ok_or("no status")?;
    let status = DynamicMessage::decode(descriptor, &*bytes);
    let status = status.map_err(|error| format!("grpc-status-details-bin cannot be decoded: {error}"))?;
    let mut written = object(&status, options)?;
    if let Some(detail) = detail {
        written["details"] = decoded(&status, detail, options)?;
    }
    Ok(json!({ "error": written }))
}

fn decoded(
    status: &DynamicMessage,
    detail: &MessageDescriptor,
    options: JsonOptions,
) -> Result<Json, String> {
    let details = status.get_field_by_name("details");
    let details = details.as_deref().and_then(Value::as_list).unwrap_or_default().iter();
    details.filter_map(Value::as_message).map(|written| one(written, detail, options)).collect()
}

fn one(written: &DynamicMessage, detail: &MessageDescriptor, options: JsonOptions) -> Result<Json, String> {
    let value = written.get_field_by_name("value");
    let bytes = value.as_deref().and_then(Value::as_bytes).cloned().unwrap_or_default();
    match DynamicMessage::decode(detail.clone(), bytes) {
        Ok(message) => object(&message, options),
        Err(error) => {
            let name = detail.full_name();
            Err(format!("a detail in grpc-status-details-bin is no {name}: {error}"))
        }
    }
}
