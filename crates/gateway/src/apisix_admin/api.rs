//! APISIX's Admin API: a request in, an answer out, whichever listener carries them.
use super::list::{item, list, path, shown};
use super::request::{ObjectPath, argument, body, cookie, header, no_ttl, segments};
use super::response::{ApiResponse, typed};
use super::write::{Write, WriteContext, decide};
use super::{configs, schemas, validate};
use crate::admin::warning;
use crate::apisix::object::{Invalid, Key, Kind, id_text, stored};
use crate::apisix::translate::{unknown_members, without_effect};
use crate::control::Control;
use crate::logger::AUDIT;
use crate::registry::{ApplyError, CommittedWrite};
use crate::settings::AdminKey;
use crate::threads::spawn_low_priority;
use axum::body::Bytes;
use axum::http::{Method, Request, Response, StatusCode};
use serde_json::{Value as Json, json};
use std::net::IpAddr;
use std::sync::{Arc, RwLockReadGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use weir_model::entity::Entity;
use weir_model::node::Node;
use weir_model::{Entities, PluginSchema};

/// The longest body of a request, as APISIX's.
pub(super) const MAX_BODY_LEN: usize = 3 << 19;
/// Where the Admin API is.
pub(super) const ADMIN: &str = "/apisix/admin";
/// Where the metrics are.
pub(super) const METRICS: &str = "/apisix/prometheus/metrics";

/// APISIX's Admin API.
pub(crate) struct Api {
    control: Arc<Control>,
    key: AdminKey,
}

impl Api {
    /// The Admin API of a node.
    pub(crate) fn new(control: Arc<Control>, key: AdminKey) -> Api {
        Api { control, key }
    }

    /// Answers a request.
    pub(crate) async fn answer(&self, peer: IpAddr, request: Request<Bytes>) -> Response<String> {
        if request.uri().path() == METRICS {
            return self.metrics().await;
        }
        // APISIX's clients ask so, without a key, whether the API is there.
        if *request.method() == Method::HEAD && segments(&request).is_empty() {
            return ApiResponse::ok(Json::Null).into_response();
        }
        let answer = match self.admit(&request) {
            Err(refusal) => refusal,
            Ok(()) => self.admin(&request).await.unwrap_or_else(|answer| answer),
        };
        audit(peer, request.method(), request.uri().path(), answer.status, answer.revision);
        answer.into_response()
    }

    async fn metrics(&self) -> Response<String> {
        let control = self.control.clone();
        match spawn_low_priority("weir-metrics", move || super::metrics::render(&control)).await {
            Ok(body) => typed("text/plain; charset=UTF-8", body),
            Err(error) => {
                ApiResponse::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string().into()).into_response()
            }
        }
    }

    /// Whether the request has the key, wherever APISIX looks for it.
    fn admit(&self, request: &Request<Bytes>) -> Result<(), ApiResponse> {
        let refuse = |description| {
            let body = json!({ "error_msg": "failed to check token", "description": description });
            ApiResponse::new(StatusCode::UNAUTHORIZED, body)
        };
        let query = argument(request, "api_key");
        let given = query.or_else(|| header(request.headers(), "x-api-key").map(str::to_owned));
        match given.or_else(|| cookie(request.headers(), "x_api_key")) {
            None => Err(refuse("missing apikey")),
            Some(given) if self.key.is(&given) => Ok(()),
            Some(_) => Err(refuse("wrong apikey")),
        }
    }

    async fn admin(&self, request: &Request<Bytes>) -> Result<ApiResponse, ApiResponse> {
        self.control.keep_up().await;
        let segments = segments(request);
        match segments.as_slice() {
            ["plugins", rest @ ..] | ["schema", "plugins", rest @ ..] => {
                return schemas::plugins(request, rest, self.control.plugins());
            }
            ["configs"] => return configs::answer(self, request).await,
            ["configs", "validate"] => return validate::answer(request, self.control.plugins()),
            ["schema", rest @ ..] => return schemas::schema(request, rest, self.control.plugins()),
            _ => {}
        }
        let place = ObjectPath::find(&segments)?;
        if place.kind == Kind::StreamRoutes && self.control.settings().stream_listen.0.is_empty() {
            return Err(ApiResponse::bad("stream mode is disabled, can not add stream routes"));
        }
        // Only PATCH has paths within an object; elsewhere what follows the id would be taken for nothing.
        if !place.below.is_empty() && *request.method() != Method::PATCH {
            return Err(ApiResponse::not_found());
        }
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return self.read(request, &place);
        }
        self.write(request, wanted(request, place)?).await
    }

    /// The entities as they are now.
    pub(super) fn entities(&self) -> RwLockReadGuard<'_, Entities> {
        self.control.registry().entities()
    }

    /// Decides a write, and stores it.
    pub(super) async fn commit(&self, write: Write) -> Result<CommittedWrite, ApiResponse> {
        let registry = self.control.registry();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let context = WriteContext {
            now: i64::try_from(now).unwrap_or(i64::MAX),
            index: i64::try_from(registry.revision().0).unwrap_or(i64::MAX).saturating_add(1),
            plugins: self.control.plugins().to_vec(),
        };
        Ok(registry.write(move |entities| decide(entities, write.clone(), &context)).await?)
    }

    /// Waits until a write is active.
    pub(super) async fn wait_active(&self, written: &CommittedWrite) -> Result<(), ApplyError> {
        self.control.registry().wait_active(written.revision).await
    }

    fn read(&self, request: &Request<Bytes>, place: &ObjectPath) -> Result<ApiResponse, ApiResponse> {
        let entities = self.control.registry().entities();
        let Some(id) = &place.id else { return list(&entities, request, place) };
        let object = stored(&entities, &place.key(id)?).ok_or_else(ApiResponse::not_found)?;
        Ok(ApiResponse::ok(item(object)))
    }

    async fn write(&self, request: &Request<Bytes>, write: Write) -> Result<ApiResponse, ApiResponse> {
        let deleted = if let Write::Delete(key) = &write { Some(key.clone()) } else { None };
        let written = self.commit(write).await?;
        if waits(request) {
            let applied = self.wait_active(&written).await;
            applied.map_err(|error| {
                let mut answer = ApiResponse::error(StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
                answer.revision = Some(written.revision.0);
                answer
            })?;
        }
        let mut answer = match deleted {
            Some(key) => {
                let path = format!("/apisix/{key}");
                ApiResponse::ok(json!({ "deleted": key.id, "key": path }))
            }
            None => put(&written),
        };
        answer.revision = Some(written.revision.0);
        answer.warnings = without_effect_of(&written, self.control.plugins());
        let registry = self.control.registry();
        answer.warnings.extend(warning::of(&written, &[], registry, self.control.plugins()));
        Ok(answer)
    }
}

/// What a request that writes asks for.
fn wanted(request: &Request<Bytes>, place: ObjectPath) -> Result<Write, ApiResponse> {
    let (kind, method) = (place.kind, request.method());
    let written = body(request)?;
    no_ttl(request)?;
    let key = place.id.as_deref().map(|id| place.key(id)).transpose()?;
    let missing = || ApiResponse::bad(format!("missing {} id", kind.singular()));
    let nothing = |what: &str| ApiResponse::bad(format!("missing {what}"));
    match *method {
        Method::DELETE => Ok(Write::Delete(key.ok_or_else(missing)?)),
        Method::POST if kind.is_named() => Err(ApiResponse::unsupported("POST", kind.singular())),
        Method::POST => Ok(Write::Post(kind, written.ok_or_else(|| nothing("configurations"))?)),
        Method::PATCH if !kind.supports_patch() => Err(ApiResponse::unsupported("PATCH", kind.singular())),
        Method::PATCH => {
            let key = key.ok_or_else(missing)?;
            let patch = written.ok_or_else(|| nothing("new configuration"))?;
            if place.below.is_empty() && !patch.is_object() {
                return Err(ApiResponse::bad("invalid configuration"));
            }
            Ok(Write::Patch(key, place.below, patch))
        }
        Method::PUT => {
            let value = written.ok_or_else(|| nothing("configurations"))?;
            let key = match key {
                Some(key) => key,
                None => place.key(&id_text(&value[kind.id_field()]).ok_or_else(|| unnamed(kind))?)?,
            };
            Ok(Write::Put(key, value))
        }
        _ => Err(ApiResponse::error(StatusCode::NOT_FOUND, "not found")),
    }
}

/// The answer to an object that has no id in its path, and none in itself.
fn unnamed(kind: Kind) -> ApiResponse {
    match kind {
        Kind::Consumers => Invalid::configuration("property \"username\" is required").into(),
        _ => ApiResponse::bad(format!("missing {} id", kind.singular())),
    }
}

/// What of the object that was put has no effect.
fn without_effect_of(written: &CommittedWrite, plugins: &[PluginSchema]) -> Vec<String> {
    let mut found = Vec::new();
    for change in &written.changes {
        let Some(Entity::ApisixObjects(object)) = &change.entity else { continue };
        let Some(key) = Key::of(object) else { continue };
        found.extend(without_effect(&key, &object.value));
        let unknown = unknown_members(key.kind, &Node::from(&object.value), plugins).into_iter();
        found.extend(unknown.map(|member| format!("{}: {}", member.path, member.message)));
    }
    found
}

/// The answer to an object that was put.
fn put(written: &CommittedWrite) -> ApiResponse {
    let mut objects = written.changes.iter().filter_map(|change| match &change.entity {
        Some(Entity::ApisixObjects(object)) => Some(object),
        _ => None,
    });
    let Some(object) = objects.next_back() else { return ApiResponse::ok(json!({})) };
    let is_new = object.created_index == object.modified_index;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    ApiResponse::new(status, json!({ "key": path(object), "value": shown(object) }))
}

/// Logs a line for each write, as Kong's Admin API does.
pub(super) fn audit(peer: IpAddr, method: &Method, path: &str, status: StatusCode, revision: Option<u64>) {
    if method.is_safe() {
        return;
    }
    tracing::info!(
        target: AUDIT,
        client = %peer.to_canonical(),
        method = %method,
        path,
        status = status.as_u16(),
        revision,
        "apisix admin"
    );
}

fn waits(request: &Request<Bytes>) -> bool {
    argument(request, "wait").is_some_and(|value| value == "true")
        || header(request.headers(), "prefer").is_some_and(|value| value == "wait")
}
