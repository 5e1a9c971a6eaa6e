//! The Admin API: Kong's, over HTTP.
pub(crate) mod auth;
mod collection;
mod conditions;
mod edit;
pub(crate) mod entity_access;
mod form;
mod immutable;
mod item;
pub(crate) mod kong_manager;
mod kong_words;
mod list;
mod members;
mod merge;
mod node;
pub(crate) mod plugin_conflicts;
mod representation;
mod request;
mod request_body;
mod resolve;
mod response;
mod snis;
mod tree;
mod violations;
pub(crate) mod warning;

use crate::control::Control;
use crate::listener::Client;
use crate::settings::Headers;
use crate::{logger, status};
use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use collection::{EntityPath, Nesting};
use request::ApiRequest;
use response::{ApiError, Verb};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use weir_model::PluginSchema;
use weir_model::entity::EntityKind;

/// Kong once listed inactive targets here too; now it is the same list.
const TARGETS: EntityPath = EntityPath::Children(Nesting {
    parent: EntityKind::Upstreams,
    kind: EntityKind::Targets,
    field: "upstream",
});

struct AccessLog {
    file: BoxMakeWriter,
    secret_paths: Vec<&'static str>,
}

/// Everything the Admin API serves.
pub(crate) fn router(control: Arc<Control>) -> Router {
    let of_node = node::router(control.plugin_definitions());
    let paths = status::shared().merge(entities(&control)).merge(of_node).with_state(control.clone());
    // The methods that a path allows are known only outside the router of paths, where a path can still be changed too.
    let paths = Router::new().fallback_service(paths).layer(middleware::from_fn(finish));
    paths.layer(middleware::from_fn_with_state(control, keep_up))
}

async fn keep_up(State(control): State<Arc<Control>>, request: Request, next: Next) -> Response {
    control.keep_up().await;
    next.run(request).await
}

/// `/services/` is answered as `/services`.
fn without_end_slash(mut request: Request) -> Request {
    let Some(path) = request.uri().path().strip_suffix('/').filter(|path| !path.is_empty()) else {
        return request;
    };
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let mut parts = request.uri().clone().into_parts();
    if let Ok(shorter) = format!("{path}{query}").parse() {
        parts.path_and_query = Some(shorter);
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
        }
    }
    request
}

/// Every path that the gateway has, and those of the entities that these plugins declare.
pub(crate) fn paths(plugins: &[PluginSchema]) -> Vec<String> {
    let of_entities = collection::entity_paths(plugins).into_iter().map(|(path, _)| path);
    of_entities.chain(node::OTHER_PATHS.iter().map(|path| (*path).to_owned())).collect()
}

/// Every path of entities.
fn entities(control: &Control) -> Router<Arc<Control>> {
    let mut router = Router::new();
    for (path, entity_path) in collection::entity_paths(control.plugins()) {
        let methods = match entity_path {
            EntityPath::Members(_) => {
                many(entity_path).delete(move |call: ApiRequest| item::write(Verb::Delete, entity_path, call))
            }
            EntityPath::Member(_) => get(move |call: ApiRequest| item::read(entity_path, call))
                .delete(move |call: ApiRequest| item::write(Verb::Delete, entity_path, call)),
            _ if entity_path.is_collection() => many(entity_path),
            _ => one(entity_path),
        };
        router = router.route(&path, methods);
    }
    router
        .route("/upstreams/{id}/targets/all", get(move |call: ApiRequest| list::read(TARGETS, call)))
        .method_not_allowed_fallback(|| async { ApiError::Method })
        .layer(DefaultBodyLimit::max(request_body::MAX_BODY_LEN))
}

fn many(entity_path: EntityPath) -> MethodRouter<Arc<Control>> {
    get(move |call: ApiRequest| list::read(entity_path, call))
        .post(move |call: ApiRequest| item::write(Verb::Create, entity_path, call))
}

fn one(entity_path: EntityPath) -> MethodRouter<Arc<Control>> {
    get(move |call: ApiRequest| item::read(entity_path, call))
        .put(move |call: ApiRequest| item::write(Verb::Replace, entity_path, call))
        .patch(move |call: ApiRequest| item::write(Verb::Update, entity_path, call))
        .delete(move |call: ApiRequest| item::write(Verb::Delete, entity_path, call))
}

/// Answers `OPTIONS` with the methods of the path.
async fn finish(request: Request, next: Next) -> Response {
    let asks_for_methods = request.method() == Method::OPTIONS;
    let mut response = next.run(without_end_slash(request)).await;
    let allowed = response.headers().get(header::ALLOW).and_then(|allowed| allowed.to_str().ok());
    if let Some(allowed) = allowed.map(with_options) {
        if asks_for_methods {
            response = StatusCode::NO_CONTENT.into_response();
        }
        if let Ok(allowed) = HeaderValue::from_str(&allowed) {
            response.headers_mut().insert(header::ALLOW, allowed);
        }
    }
    response
}

/// Adds the headers of the setting `headers` to every response, also of a router that guards the API.
pub(crate) fn with_server_headers(router: Router, added: &Headers) -> Router {
    router.layer(middleware::from_fn_with_state(*added, add_server_headers))
}

async fn add_server_headers(State(added): State<Headers>, request: Request, next: Next) -> Response {
    let since = Instant::now();
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    if added.server {
        let server = HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));
        headers.insert(header::SERVER, server);
    }
    if added.admin_latency {
        let latency = since.elapsed().as_millis() as u64;
        headers.insert(HeaderName::from_static("x-kong-admin-latency"), latency.into());
    }
    response
}

/// What the status API serves of upstreams, for reading alone.
pub(crate) fn upstreams() -> Router<Arc<Control>> {
    const TARGET: EntityPath = EntityPath::Child(Nesting {
        parent: EntityKind::Upstreams,
        kind: EntityKind::Targets,
        field: "upstream",
    });
    let targets = || get(move |call: ApiRequest| list::read(TARGETS, call));
    Router::new()
        .route("/upstreams/{id}/targets", targets())
        .route("/upstreams/{id}/targets/all", targets())
        .route("/upstreams/{id}/targets/{child}", get(move |call: ApiRequest| item::read(TARGET, call)))
        .route("/upstreams/{id}/health", get(node::health_of_upstream))
        .method_not_allowed_fallback(|| async { ApiError::Method })
}

/// `GET,HEAD` as `GET, HEAD, OPTIONS`.
fn with_options(allowed: &str) -> String {
    let methods = allowed.split(',').map(str::trim).filter(|method| !method.is_empty());
    let mut methods: Vec<&str> = methods.chain(["OPTIONS"]).collect();
    methods.sort_unstable();
    methods.dedup();
    methods.join(", ")
}

/// Writes a line to a file for each request.
pub(crate) fn logged(router: Router, path: &Path, plugins: &[PluginSchema]) -> io::Result<Router> {
    let (file, secret_paths) = (logger::open("admin_access_log", path)?, collection::secret_paths(plugins));
    let access_log = Arc::new(AccessLog { file, secret_paths });
    Ok(router.layer(middleware::from_fn_with_state(access_log, log_access)))
}

async fn log_access(
    State(access_log): State<Arc<AccessLog>>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
    next: Next,
) -> Response {
    // Without keys in paths and without arguments, because both may be credentials.
    let path = auth::shown(request.uri().path(), &access_log.secret_paths);
    let asked = format!("{} {path} {:?}", request.method(), request.version());
    let response = next.run(request).await;
    let line = format!(
        "{} {} \"{asked}\" {}\n",
        client.address.ip(),
        logger::timestamp(),
        response.status().as_u16()
    );
    // A full disk must not keep the Admin API from answering.
    let _ = access_log.file.make_writer().write_all(line.as_bytes());
    response
}
