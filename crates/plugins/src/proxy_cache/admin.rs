//! `/proxy-cache`: the responses in this node's cache, and in those that nodes share.

use super::redis::{Purge, RedisCaches};
use super::store::{purge, purge_all, shown};
use weir_plugin::{AdminHandler, AdminMethod, AdminRequest, AdminResponse, AdminRoute};

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
    AdminRoute { method, path, operation, summary, handle: AdminHandler::Now(handle) }
}

fn show(request: &AdminRequest<'_>) -> AdminResponse {
    let kept = shown(request.retained, request.parameter("cache_key"));
    kept.map_or_else(AdminResponse::not_found, |kept| AdminResponse::json(200, kept))
}

/// What is in Redis is removed some time soon: whether there was anything is not known.
fn remove(request: &AdminRequest<'_>) -> AdminResponse {
    let key = request.parameter("cache_key");
    let was_there = purge(request.retained, key);
    match purge_shared(request, &Purge::Key(key.to_owned())) || was_there {
        true => AdminResponse::no_content(),
        false => AdminResponse::not_found(),
    }
}

fn remove_all(request: &AdminRequest<'_>) -> AdminResponse {
    let (tag, prefix) = (request.argument("tag"), request.argument("prefix"));
    if let Some(fault) = fault(request, tag, prefix) {
        return AdminResponse::message(400, &fault);
    }
    purge_all(request.retained, tag, prefix);
    let owned = |text: Option<&str>| text.map(str::to_owned);
    purge_shared(request, &Purge::Some { tag: owned(tag), prefix: owned(prefix) });
    AdminResponse::no_content()
}

/// What is wrong with a purge: what is misspelt would remove everything.
fn fault(request: &AdminRequest<'_>, tag: Option<&str>, prefix: Option<&str>) -> Option<String> {
    let unknown = request.arguments().find(|name| !["tag", "prefix"].contains(name));
    match (unknown, tag, prefix) {
        (Some(name), ..) => Some(format!("unknown argument `{name}`; there are: tag, prefix")),
        (_, Some(""), _) => Some("tag: must not be empty".to_owned()),
        (.., Some(prefix)) if !prefix.starts_with('/') => Some("prefix: must begin with /".to_owned()),
        _ => None,
    }
}

/// Purges responses that nodes share; returns whether there are any such.
fn purge_shared(request: &AdminRequest<'_>, what: &Purge) -> bool {
    let caches = request.retained.get::<RedisCaches>().all();
    caches.iter().for_each(|cache| cache.purge(what.clone()));
    !caches.is_empty()
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
