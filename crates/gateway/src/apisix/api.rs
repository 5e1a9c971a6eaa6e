//! APISIX's Admin API: a request in, an answer out, whichever listener carries them.
use super::key::AdminKey;
use super::object::{Invalid, Key, Kind, all, id_text, stored};
use super::write::{Moment, Refused, Write, decide};
use crate::admin::warning::{self, WARNING};
use crate::aside::aside;
use crate::control::Control;
use crate::logger::AUDIT;
use crate::registry::{WriteError, Written};
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, header};
use serde_json::{Value as Json, json};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_model::Refusal;
use weir_model::entity::{ApisixObject, Entity};

/// The longest body of a request, as APISIX's.
pub(super) const LONGEST_BODY: usize = 3 << 19;
/// Where the Admin API is.
pub(super) const ADMIN: &str = "/apisix/admin";
/// Where the metrics are.
pub(super) const METRICS: &str = "/apisix/prometheus/metrics";
/// The header that tells which revision a write made.
pub(super) const REVISION: &str = "x-weir-revision";

/// APISIX's Admin API.
pub(crate) struct Api {
    control: Arc<Control>,
    key: AdminKey,
}

/// What is answered.
struct Answer {
    status: StatusCode,
    body: Json,
    revision: Option<u64>,
    /// Of what is accepted without effect.
    warning: Option<String>,
}

impl Answer {
    fn new(status: StatusCode, body: Json) -> Answer {
        Answer { status, body, revision: None, warning: None }
    }

    fn error(status: StatusCode, message: impl Into<String>) -> Answer {
        Answer::new(status, json!({ "error_msg": message.into() }))
    }

    fn not_found() -> Answer {
        Answer::new(StatusCode::NOT_FOUND, json!({ "message": "Key not found" }))
    }
}

impl From<Refused> for Answer {
    fn from(refused: Refused) -> Answer {
        match refused {
            Refused::Invalid(Invalid(message)) => Answer::error(StatusCode::BAD_REQUEST, message),
            Refused::NotFound => Answer::not_found(),
        }
    }
}

impl From<Invalid> for Answer {
    fn from(invalid: Invalid) -> Answer {
        Refused::Invalid(invalid).into()
    }
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
        let answer = match self.admit(&request) {
            Err(refusal) => refusal,
            Ok(()) => self.admin(&request).await.unwrap_or_else(|answer| answer),
        };
        audit(peer, request.method(), request.uri().path(), answer.status, answer.revision);
        let mut response = text(answer.status, "application/json", answer.body.to_string());
        if let Some(revision) = answer.revision {
            response.headers_mut().insert(REVISION, revision.into());
        }
        if let Some(warning) = answer.warning.as_deref().and_then(warning::header) {
            response.headers_mut().insert(WARNING, warning);
        }
        response
    }

    async fn metrics(&self) -> Response<String> {
        let control = self.control.clone();
        match aside("weir-metrics", move || super::metrics::render(&control)).await {
            Ok(body) => text(StatusCode::OK, "text/plain; charset=UTF-8", body),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", error.to_string()),
        }
    }

    /// Whether the request has the key, wherever APISIX looks for it.
    fn admit(&self, request: &Request<Bytes>) -> Result<(), Answer> {
        let refuse = |description| {
            let body = json!({ "error_msg": "failed to check token", "description": description });
            Answer::new(StatusCode::UNAUTHORIZED, body)
        };
        let query = argument(request, "api_key");
        let given = query.or_else(|| header(request.headers(), "x-api-key").map(str::to_owned));
        match given.or_else(|| cookie(request.headers(), "x_api_key")) {
            None => Err(refuse("missing apikey")),
            Some(given) if self.key.is(&given) => Ok(()),
            Some(_) => Err(refuse("wrong apikey")),
        }
    }

    async fn admin(&self, request: &Request<Bytes>) -> Result<Answer, Answer> {
        let path = request.uri().path().strip_prefix(ADMIN).unwrap_or_default();
        let mut segments = path.split('/').filter(|segment| !segment.is_empty());
        let name = segments.next().unwrap_or_default();
        let unknown = || Answer::error(StatusCode::NOT_FOUND, format!("Unsupported resource type: {name}"));
        let kind = Kind::from_name(name).ok_or_else(unknown)?;
        let key = segments.next().map(|id| Key::new(kind, id)).transpose()?;
        let below: Vec<String> = segments.map(str::to_owned).collect();
        // Only PATCH has paths within an object; elsewhere what follows the id would be taken for nothing.
        if !below.is_empty() && *request.method() != Method::PATCH {
            return Err(Answer::not_found());
        }
        if matches!(*request.method(), Method::GET | Method::HEAD) {
            return self.read(request, kind, key);
        }
        self.write(request, wanted(request, kind, key, below)?).await
    }

    fn read(&self, request: &Request<Bytes>, kind: Kind, key: Option<Key>) -> Result<Answer, Answer> {
        let entities = self.control.registry().entities();
        if let Some(key) = key {
            let object = stored(&entities, &key).ok_or_else(Answer::not_found)?;
            return Ok(Answer::new(StatusCode::OK, item(object)));
        }
        let mut objects: Vec<&ApisixObject> = all(&entities, kind).map(|(_, object)| object).collect();
        objects.sort_by(|a, b| a.key.cmp(&b.key));
        let total = objects.len();
        let list: Vec<Json> = page(request, objects)?.into_iter().map(item).collect();
        Ok(Answer::new(StatusCode::OK, json!({ "total": total, "list": list })))
    }

    async fn write(&self, request: &Request<Bytes>, write: Write) -> Result<Answer, Answer> {
        let registry = self.control.registry();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let moment = Moment {
            now: i64::try_from(now).unwrap_or(i64::MAX),
            index: i64::try_from(registry.revision().0).unwrap_or(i64::MAX).saturating_add(1),
            plugins: self.control.plugins().to_vec(),
        };
        let deleted = if let Write::Delete(key) = &write { Some(key.clone()) } else { None };
        let written = registry
            .write(move |entities| decide(entities, write.clone(), &moment))
            .await
            .map_err(refusal)?;
        if waits(request) {
            let in_force = registry.wait_in_force(written.revision).await;
            in_force.map_err(|not_in_force| {
                let mut answer = Answer::error(StatusCode::INTERNAL_SERVER_ERROR, not_in_force.to_string());
                answer.revision = Some(written.revision.0);
                answer
            })?;
        }
        let mut answer = match deleted {
            Some(key) => {
                let path = format!("/apisix/{key}");
                Answer::new(StatusCode::OK, json!({ "deleted": key.id, "key": path }))
            }
            None => put(&written),
        };
        answer.revision = Some(written.revision.0);
        answer.warning = warning::of(written.entities(), self.control.plugins());
        Ok(answer)
    }
}

/// What a request that writes asks for.
fn wanted(
    request: &Request<Bytes>,
    kind: Kind,
    key: Option<Key>,
    below: Vec<String>,
) -> Result<Write, Answer> {
    let method = request.method();
    let missing = || Answer::error(StatusCode::BAD_REQUEST, format!("missing {} id", kind.singular()));
    if *method == Method::DELETE {
        return Ok(Write::Delete(key.ok_or_else(missing)?));
    }
    let is_named = matches!(kind, Kind::Consumers | Kind::GlobalRules);
    if is_named && *method == Method::POST || kind == Kind::Consumers && *method == Method::PATCH {
        let message = format!("not supported `{method}` method for {}", kind.singular().replace(' ', "_"));
        return Err(Answer::error(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    match *method {
        Method::PUT => {
            let body = body(request)?;
            let key = match key {
                Some(key) => key,
                None => Key::new(kind, id_text(&body[kind.id_field()]).ok_or_else(missing)?)?,
            };
            Ok(Write::Put(key, body))
        }
        Method::POST => Ok(Write::Post(kind, body(request)?)),
        Method::PATCH => Ok(Write::Patch(key.ok_or_else(missing)?, below, body(request)?)),
        _ => Err(Answer::error(StatusCode::NOT_FOUND, "not found")),
    }
}

fn body(request: &Request<Bytes>) -> Result<Json, Answer> {
    let refused = |message: String| Answer::error(StatusCode::BAD_REQUEST, message);
    if request.body().trim_ascii().is_empty() {
        return Err(refused("missing configurations".to_owned()));
    }
    serde_json::from_slice(request.body()).map_err(|error| refused(format!("invalid request body: {error}")))
}

/// The answer to an object that was put.
fn put(written: &Written) -> Answer {
    let mut objects = written.changes.iter().filter_map(|change| match &change.entity {
        Some(Entity::ApisixObjects(object)) => Some(object),
        _ => None,
    });
    let Some(object) = objects.next_back() else { return Answer::new(StatusCode::OK, json!({})) };
    let is_new = object.created_index == object.modified_index;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Answer::new(status, json!({ "key": path(object), "value": shown(object) }))
}

/// An object as clients see it: private keys stay here, as with APISIX.
fn shown(object: &ApisixObject) -> Json {
    let mut value = object.value.clone();
    let is_ssl = Key::of(object).is_some_and(|key| key.kind == Kind::Ssls);
    if let (true, Json::Object(members)) = (is_ssl, &mut value) {
        members.remove("key");
        members.remove("keys");
    }
    value
}

fn path(object: &ApisixObject) -> String {
    format!("/apisix/{}", object.key)
}

fn item(object: &ApisixObject) -> Json {
    json!({
        "key": path(object),
        "value": shown(object),
        "createdIndex": object.created_index,
        "modifiedIndex": object.modified_index,
    })
}

/// The objects of the page that is asked for; all of them, if none is.
fn page<'o>(
    request: &Request<Bytes>,
    mut objects: Vec<&'o ApisixObject>,
) -> Result<Vec<&'o ApisixObject>, Answer> {
    let number = |name: &str| argument(request, name).map(|text| text.parse::<usize>().unwrap_or(0));
    let (Some(page), Some(size)) = (number("page"), number("page_size")) else { return Ok(objects) };
    if !(10..=500).contains(&size) {
        return Err(Answer::error(StatusCode::BAD_REQUEST, "page_size must be between 10 and 500"));
    }
    objects.sort_by_key(|object| object.created_index);
    Ok(objects.into_iter().skip(page.max(1).saturating_sub(1).saturating_mul(size)).take(size).collect())
}

fn refusal(error: WriteError<Refused>) -> Answer {
    match error {
        WriteError::Decided(refused) => refused.into(),
        WriteError::Refused(refusal) => Answer::error(StatusCode::BAD_REQUEST, told(&refusal)),
        WriteError::Uncompilable(error) => Invalid::configuration(error).into(),
        WriteError::Unavailable(message) => Answer::error(StatusCode::SERVICE_UNAVAILABLE, message),
        WriteError::ReadOnly => Answer::error(
            StatusCode::METHOD_NOT_ALLOWED,
            "the configuration is a declarative file: change the file, or start without one to write here",
        ),
    }
}

fn told(refusal: &Refusal) -> String {
    match refusal {
        // Its value may be a secret.
        Refusal::Taken { unique, .. } => {
            let fields: Vec<_> = unique.0.iter().map(|(field, _)| *field).collect();
            format!("duplicate {} found", fields.join(", "))
        }
        Refusal::Unknown(reference) => format!("the {} that it names is gone", reference.field),
        Refusal::Referenced(kind) => {
            use weir_model::schema::Choice;
            format!("it is still named by {}", kind.as_str())
        }
    }
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

fn argument(request: &Request<Bytes>, name: &str) -> Option<String> {
    let query = request.uri().query().unwrap_or_default();
    form_urlencoded::parse(query.as_bytes()).find(|(key, _)| key == name).map(|(_, value)| value.into_owned())
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn cookie(headers: &HeaderMap, name: &str) -> Option<String> {
    let pairs = header(headers, "cookie")?.split(';').filter_map(|pair| pair.trim().split_once('='));
    pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.to_owned()).next()
}

fn text(status: StatusCode, content_type: &'static str, body: String) -> Response<String> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}
