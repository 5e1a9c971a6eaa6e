//! The arguments of a request, which become the fields of a message.

use crate::shared::body_arguments;
use serde_json::{Map, Value as Json};
use weir_plugin::Exchange;

/// Those of a body of JSON, of a form, or of the query, as in APISIX.
pub(super) fn of(exchange: &Exchange) -> Result<Map<String, Json>, String> {
    let (method, body) = (exchange.request.method_str(), exchange.body().unwrap_or_default());
    let content_type = exchange.request.headers.get("Content-Type").unwrap_or_default();
    let is_json = String::from_utf8_lossy(content_type).to_ascii_lowercase().contains("application/json");
    if is_json && matches!(method, "POST" | "PUT" | "PATCH") && !body.is_empty() {
        return match serde_json::from_slice(body) {
            Ok(Json::Object(members)) => Ok(members),
            Ok(_) => Err("the body is no object of JSON".to_owned()),
            Err(error) => Err(format!("the body is not JSON: {error}")),
        };
    }
    Ok(if method == "POST" { body_arguments::form(body) } else { body_arguments::query(exchange) })
}
