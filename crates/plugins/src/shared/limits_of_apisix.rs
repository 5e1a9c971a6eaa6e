//! Shared by the limits with APISIX's configuration: limit-count, limit-req and limit-conn.

use std::time::{SystemTime, UNIX_EPOCH};
use weir_plugin::{Fingerprinter, Json, LocalResponse, Uuid, entity};

/// The response to a request beyond a limit.
pub(crate) fn rejection(code: u16, message: Option<&str>) -> LocalResponse {
    let Some(message) = message else { return LocalResponse::raw(code, None, "") };
    let body = format!("{{\"error_msg\":{}}}", Json::from(message));
    LocalResponse::raw(code, Some("application/json"), body)
}

/// Separates the counts of a plugin entity from those of others.
pub(crate) fn scope(key: &Fingerprinter, entity: &entity::Plugin) -> Fingerprinter {
    let scope = [entity.route, entity.service, entity.consumer.or(entity.consumer_group)];
    scope
        .into_iter()
        .fold(key.clone(), |key, id: Option<Uuid>| key.with(&id.map(Uuid::into_bytes).unwrap_or_default()))
}

/// Milliseconds since 1970, by the wall clock.
pub(crate) fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
