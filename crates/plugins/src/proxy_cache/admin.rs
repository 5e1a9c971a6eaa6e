//! `/proxy-cache`: the responses in this node's cache.

use super::store::{purge, purge_all, shown};
use weir_plugin::{AdminMethod, AdminRequest, AdminResponse, AdminRoute};

const KEPT: &str = "/proxy-cache/{cache_key}";
const KEPT_BY_PLUGIN: &str = "/proxy-cache/{plugins}/caches/{cache_key}";

pub(super) const ROUTES: &[AdminRoute] = &[
    route(AdminMethod::Get, KEPT, "get-cached", "A response that is kept", show),
    route(
        AdminMethod::Get,
        KEPT_BY_PLUGIN,
        "get-cached-by-plugin",
        "A response that is kept",
        show_by_plugin,
    ),
    route(AdminMethod::Delete, KEPT, "purge-cached", "Remove a response that is kept", remove),
    route(
        AdminMethod::Delete,
        KEPT_BY_PLUGIN,
        "purge-cached-by-plugin",
        "Remove a response that is kept",
        remove_by_plugin,
    ),
    route(
        AdminMethod::Delete,
        "/proxy-cache",
        "purge",
        "Remove every response that is kept, or those with a `tag` and a `prefix` of their path",
        remove_all,
    ),
];

const fn route(
    method: AdminMethod,
    path: &'static str,
    operation: &'static str,
    summary: &'static str,
    handle: fn(&AdminRequest<'_>) -> AdminResponse,
) -> AdminRoute {
    AdminRoute { method, path, operation, summary, handle }
}

fn show(request: &AdminRequest<'_>) -> AdminResponse {
    let kept = shown(request.retained, request.parameter("cache_key"));
    kept.map_or_else(AdminResponse::not_found, |kept| AdminResponse::json(200, kept))
}

fn remove(request: &AdminRequest<'_>) -> AdminResponse {
    match purge(request.retained, request.parameter("cache_key")) {
        true => AdminResponse::no_content(),
        false => AdminResponse::not_found(),
    }
}

fn remove_all(request: &AdminRequest<'_>) -> AdminResponse {
    purge_all(request.retained, request.argument("tag"), request.argument("prefix"));
    AdminResponse::no_content()
}

fn show_by_plugin(request: &AdminRequest<'_>) -> AdminResponse {
    if names_a_cache(request) { show(request) } else { AdminResponse::not_found() }
}

fn remove_by_plugin(request: &AdminRequest<'_>) -> AdminResponse {
    if names_a_cache(request) { remove(request) } else { AdminResponse::not_found() }
}

/// Whether the plugin in the path is a proxy-cache: all instances share one cache.
fn names_a_cache(request: &AdminRequest<'_>) -> bool {
    request.plugin("proxy-cache", request.parameter("plugins")).is_some()
}
