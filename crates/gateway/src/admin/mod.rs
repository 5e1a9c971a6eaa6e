//! The Admin API: Kong's, over HTTP.
pub(crate) mod auth;
mod collection;
mod conditions;
mod edit;
mod form;
mod item;
mod list;
mod members;
mod merge;
mod node;
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
use crate::{logger, status};
use axum::Router;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get};
use collection::{Nesting, Place};
use request::Call;
use response::{Denied, Verb};
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;
use weir_model::entity::EntityKind;

/// Where Kong once listed only those targets that count, and here is no difference.
const TARGETS: Place =
    Place::Children(Nesting { parent: EntityKind::Upstreams, kind: EntityKind::Targets, field: "upstream" });

type AccessLog = Arc<BoxMakeWriter>;

/// Everything the Admin API serves.
pub(crate) fn router(control: Arc<Control>) -> Router {
    let of_node = node::router(control.plugin_definitions());
    let paths = status::shared().merge(entities()).merge(of_node).with_state(control);
    // What a path allows is only known around the router of paths.
    Router::new().fallback_service(paths).layer(middleware::from_fn(finish))
}

/// Every path of entities, with and without a slash at its end.
fn entities() -> Router<Arc<Control>> {
    let mut router = Router::new();
    for (path, place) in collection::places() {
        let methods = match place {
            Place::Members(_) => many(place).delete(move |call: Call| item::write(Verb::Delete, place, call)),
            Place::Member(_) => get(move |call: Call| item::read(place, call))
                .delete(move |call: Call| item::write(Verb::Delete, place, call)),
            _ if place.is_collection() => many(place),
            _ => one(place),
        };
        router = router.route(&path, methods.clone()).route(&format!("{path}/"), methods);
    }
    router
        .route("/upstreams/{id}/targets/all", get(move |call: Call| list::read(TARGETS, call)))
        .method_not_allowed_fallback(|| async { Denied::Method })
        .layer(DefaultBodyLimit::max(request_body::LONGEST))
}

fn many(place: Place) -> MethodRouter<Arc<Control>> {
    get(move |call: Call| list::read(place, call))
        .post(move |call: Call| item::write(Verb::Create, place, call))
}

fn one(place: Place) -> MethodRouter<Arc<Control>> {
    get(move |call: Call| item::read(place, call))
        .put(move |call: Call| item::write(Verb::Replace, place, call))
        .patch(move |call: Call| item::write(Verb::Update, place, call))
        .delete(move |call: Call| item::write(Verb::Delete, place, call))
}

/// What every answer has; and the methods of a path, for those who ask.
async fn finish(request: Request, next: Next) -> Response {
    let asks_for_methods = request.method() == Method::OPTIONS;
    let mut response = next.run(request).await;
    let allowed = response.headers().get(header::ALLOW).and_then(|allowed| allowed.to_str().ok());
    if let Some(allowed) = allowed.map(with_options) {
        if asks_for_methods {
            response = StatusCode::NO_CONTENT.into_response();
        }
        if let Ok(allowed) = HeaderValue::from_str(&allowed) {
            response.headers_mut().insert(header::ALLOW, allowed);
        }
    }
    let server = HeaderValue::from_static(concat!("weir/", env!("CARGO_PKG_VERSION")));
    response.headers_mut().insert(header::SERVER, server);
    response
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
pub(crate) fn logged(router: Router, path: &Path) -> io::Result<Router> {
    let access_log: AccessLog = Arc::new(logger::open(path)?);
    Ok(router.layer(middleware::from_fn_with_state(access_log, log_access)))
}

async fn log_access(
    State(access_log): State<AccessLog>,
    ConnectInfo(client): ConnectInfo<Client>,
    request: Request,
    next: Next,
) -> Response {
    // Neither keys in paths nor arguments: either may be a credential.
    let path = auth::shown(request.uri().path());
    let asked = format!("{} {path} {:?}", request.method(), request.version());
    let response = next.run(request).await;
    let line = format!(
        "{} {} \"{asked}\" {}\n",
        client.address.ip(),
        logger::timestamp(),
        response.status().as_u16()
    );
    // A full disk must not keep the Admin API from answering.
    let _ = access_log.make_writer().write_all(line.as_bytes());
    response
}
