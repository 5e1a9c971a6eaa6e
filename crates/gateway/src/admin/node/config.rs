//! `/config`: the whole configuration at once, where it lives in no database.
use super::flattened;
use crate::admin::representation::Representation;
use crate::admin::request_body::Body;
use crate::admin::response::{ApiError, json_response};
use crate::admin::warning::warned;
use crate::configuration;
use crate::control::Control;
use crate::listener::BodyError;
use crate::listener::message;
use crate::store::transfer::{Unset, export};
use crate::threads::spawn_low_priority;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use weir_model::schema::ConfigError;
use weir_model::{Document, EntityLocations, Format, ParsedDocument, PluginSchema};
use weir_proxy::CompileError;

/// The longest configuration that is read.
pub(super) const MAX_BODY_LEN: usize = 256 << 20;

/// Why `/config` did not load a configuration.
enum LoadError {
    /// The node keeps its configuration in a database.
    Database,
    /// The body was not read to its end.
    BodyError(BodyError),
    /// The request holds no configuration.
    Nothing,
    /// The active configuration is the same.
    Same,
    /// What is wrong with the request.
    Request(ApiError),
    /// What is wrong with the configuration.
    Problems(Vec<ConfigError>, SentConfiguration),
    /// It cannot be read now.
    Unavailable(String),
}

/// A configuration as it was sent.
struct SentConfiguration {
    text: String,
    /// What it is written in, if that is known.
    format: Option<Format>,
}

/// A configuration that breaks no rule.
struct Declared {
    read: ParsedDocument,
    written: SentConfiguration,
}

impl SentConfiguration {
    /// A text in YAML or JSON.
    fn of(text: String) -> SentConfiguration {
        SentConfiguration { text, format: None }
    }

    /// What it is written in. Takes long where it is long.
    fn format(&self) -> Format {
        self.format.unwrap_or_else(|| Format::of(&self.text))
    }
}

pub(super) async fn show(State(control): State<Arc<Control>>) -> Response {
    if control.registry().is_stored() {
        return LoadError::Database.answer(false, control.plugins());
    }
    let entities: Vec<_> = control.registry().entities().iter().cloned().collect();
    match spawn_low_priority("weir-config", move || export(&entities, control.plugins(), Unset::Shown)).await
    {
        Ok(text) => json_response(StatusCode::OK, &json!({ "config": text })),
        Err(_) => failed(),
    }
}

fn failed() -> Response {
    message(StatusCode::INTERNAL_SERVER_ERROR, "An unexpected error occurred")
}

pub(super) async fn load(
    State(control): State<Arc<Control>>,
    uri: Uri,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let arguments = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let on: Vec<_> = arguments.filter(|(_, value)| matches!(value.as_ref(), "1" | "true")).collect();
    let asked = |name: &str| on.iter().any(|(argument, _)| argument == name);
    let body = match body {
        Ok(body) => body,
        Err(rejection) => {
            return LoadError::BodyError(BodyError::of(&rejection)).answer(false, control.plugins());
        }
    };
    match replace(&control, &headers, body, asked("check_hash")).await {
        Ok(warnings) => warned(json_response(StatusCode::CREATED, &entities(&control)), &warnings),
        Err(refused) => {
            let flatten = asked("flatten_errors");
            // Rendering the errors of a long configuration takes long.
            let answer =
                spawn_low_priority("weir-config", move || refused.answer(flatten, control.plugins())).await;
            answer.unwrap_or_else(|_| failed())
        }
    }
}

async fn replace(
    control: &Arc<Control>,
    headers: &HeaderMap,
    body: Bytes,
    check_hash: bool,
) -> Result<Vec<String>, LoadError> {
    if control.registry().is_stored() {
        return Err(LoadError::Database);
    }
    let written = written(headers, body).await?;
    let hash = configuration::hash(&written.text);
    if check_hash && hash == control.config_hash() {
        return Err(LoadError::Same);
    }
    let plugins = control.plugins().to_vec();
    let read = spawn_low_priority("weir-config", move || {
        // A client of the Admin API must not read the environment of the process.
        let format = written.format();
        let written = SentConfiguration { format: Some(format), ..written };
        match Document::read(&written.text, format, &plugins, &|_| None) {
            Ok(mut read) => {
                let of_expressions =
                    configuration::expression_warnings(&read.document, &read.places, &written.text, format);
                read.warnings.extend(of_expressions);
                Ok(Declared { read, written })
            }
            Err(problems) => Err(LoadError::Problems(problems, written)),
        }
    });
    let unavailable = |error: std::io::Error| LoadError::Unavailable(error.to_string());
    let Declared { mut read, written } = read.await.map_err(unavailable)??;
    let document = std::mem::take(&mut read.document);
    match control.declare_posted(document, hash, &written.text).await {
        // The new process may have begun without it.
        Ok(()) if control.is_succeeded() => {
            let busy = "the process is being replaced, and the new one may not have it: try again";
            Err(LoadError::Unavailable(busy.to_owned()))
        }
        Ok(()) => Ok(read.warnings.iter().chain(&read.ignored_fields).map(ToString::to_string).collect()),
        Err(errors) => Err(LoadError::Problems(uncompilable(errors, read.places), written)),
    }
}

/// What cannot be compiled, each at the place of its entity.
fn uncompilable(errors: Vec<CompileError>, places: EntityLocations) -> Vec<ConfigError> {
    let places: HashMap<_, _> = places.into_iter().collect();
    let problem = |error: CompileError| match error.of.and_then(|of| places.get(&of)) {
        Some(place) => {
            let (field, message) = error.field();
            ConfigError { at: place.at, path: place.path_of(field), message: message.to_owned() }
        }
        None => ConfigError { at: Default::default(), path: String::new(), message: error.to_string() },
    };
    let mut problems: Vec<_> = errors.into_iter().map(problem).collect();
    problems.sort();
    problems
}

/// The text of the configuration: the body itself, or its argument `config`.
async fn written(headers: &HeaderMap, body: Bytes) -> Result<SentConfiguration, LoadError> {
    let content_type = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_yaml = content_type.is_none_or(|content_type| content_type.contains("yaml"));
    if is_yaml {
        let text = String::from_utf8(body.into()).map_err(|_| LoadError::Nothing)?;
        return if text.trim().is_empty() {
            Err(LoadError::Nothing)
        } else {
            Ok(SentConfiguration::of(text))
        };
    }
    if content_type.is_some_and(|content_type| content_type.starts_with("application/x-www-form-urlencoded"))
    {
        let config = form_urlencoded::parse(&body).find(|(name, _)| name == "config");
        return config.map_or(Err(LoadError::Nothing), |(_, text)| argument(text.into_owned()));
    }
    let mut members = Body::read(content_type, body.clone()).await.map_err(LoadError::Request)?.members;
    match members.remove("config") {
        Some(Value::String(text)) => argument(text),
        Some(config @ Value::Object(_)) => Ok(SentConfiguration::of(config.to_string())),
        _ if members.contains_key("_format_version") => {
            Ok(SentConfiguration::of(String::from_utf8(body.into()).map_err(|_| LoadError::Nothing)?))
        }
        _ => Err(LoadError::Nothing),
    }
}

/// The configuration in an argument. A file's name that was not replaced by what is in the file begins with `@`, as no
/// YAML does.
fn argument(text: String) -> Result<SentConfiguration, LoadError> {
    if text.starts_with('@') { Err(LoadError::Nothing) } else { Ok(SentConfiguration::of(text)) }
}

/// Every entity, by kind and id.
fn entities(control: &Control) -> Value {
    let mut all = json!({});
    let known = control.registry().entities();
    for entity in known.iter() {
        all[entity.kind().as_str()][entity.id().to_string()] = Representation::of(entity, &known).to_json();
    }
    all
}

impl LoadError {
    fn answer(self, flatten: bool, plugins: &[PluginSchema]) -> Response {
        match self {
            LoadError::Database => message(
                StatusCode::BAD_REQUEST,
                "this endpoint is only available when Kong is configured to not use a database",
            ),
            LoadError::BodyError(unread) => message(unread.status(), &unread.message(MAX_BODY_LEN)),
            LoadError::Nothing => message(
                StatusCode::BAD_REQUEST,
                "expected a declarative configuration: send the file with curl's `-F config=@kong.yml`, or as the body \
                 with `Content-Type: text/yaml`",
            ),
            LoadError::Same => StatusCode::NOT_MODIFIED.into_response(),
            LoadError::Request(denied) => denied.into_response(),
            LoadError::Problems(problems, written) => {
                let root = weir_model::declarative::to_json(&written.text, written.format());
                flattened::invalid(&problems, &root.unwrap_or_default(), flatten, plugins)
            }
            LoadError::Unavailable(reason) => message(StatusCode::SERVICE_UNAVAILABLE, &reason),
        }
    }
}
