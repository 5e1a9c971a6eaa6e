//! Statuses below 200 end no exchange. Kong takes them; Weir takes them too, and responds with 500.
use weir_plugin::{FieldWarning, Json};

/// Warns of a `status_code` that no client can be sent.
pub(crate) fn warnings(config: &Json) -> Vec<FieldWarning> {
    let is_interim = config["status_code"].as_u64().is_some_and(|status| status < 200);
    let message = "ends no exchange, so that clients get 500; write a status from 200 on";
    if is_interim { vec![FieldWarning::new("status_code", message)] } else { Vec::new() }
}
