//! Answers requests with an example, or with random values of a schema, before there is an upstream. Like APISIX's plugin of this
//! name.
//!
//! ```yaml
//! plugins:
//!   - name: mocking
//!     route: shop
//!     config:
//!       response_status: 201
//!       response_schema:
//!         type: object
//!         properties:
//!           id: {type: integer, example: 42}
//!           tags: {type: array, items: {type: string}}
//! ```
//!
//! Set `response_example` or `response_schema`; the example takes precedence, and may contain
//! [variables](../coming-from-apisix.md#variables), such as `$arg_id`. A schema is a JSON Schema, of which `type`, `properties`, `items` and
//! `example` count: a value is its `example`, or random. Arrays have one to three items, and are nested six deep at most. The body is JSON, or XML if `content_type` says so. The response has the
//! header `X-Mock-By` unless `with_mock_header` is false.
//!
//! The plugin runs before authentication, as in APISIX. Other than in APISIX, a schema with an unknown `type` is refused, and so is one
//! for `text/html`.

mod sample;

use crate::shared::variables::Template;
use sample::{Format, Sample};
use std::sync::Arc;
use std::time::Duration;
use weir_plugin::{
    AccessEffect, BuildContext, Exchange, FieldError, Flow, Hooks, Json, LocalResponse, Phases, Plugin,
    Record, Resume,
};

/// The response.
#[derive(Debug, Clone, Record)]
#[record(check = violations, hint(
    "api_specification", "api_specification_filename", "this plugin answers with `response_example` or `response_schema`",
))]
pub(super) struct Config {
    /// Seconds before the response.
    #[field(default = 0, between = [0, 86400])]
    pub delay: u32,
    /// The status.
    #[field(default = 200, between = [200, 599])]
    pub response_status: u16,
    /// The content type: of JSON, XML, or plain or HTML text.
    #[field(default = "application/json;charset=utf8", check = content_type)]
    pub content_type: String,
    /// The body.
    #[field(len_min = 0)]
    pub response_example: Option<String>,
    /// The schema of the body's random values.
    pub response_schema: Option<Json>,
    /// Whether the response has `X-Mock-By`.
    #[field(default = true)]
    pub with_mock_header: bool,
}

const CONTENT_TYPES: [&str; 5] =
    ["application/json", "application/xml", "text/plain", "text/html", "text/xml"];

fn media_type(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

fn content_type(text: &str) -> Result<(), String> {
    if !text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err("has a character that no header may have".to_owned());
    }
    match CONTENT_TYPES.contains(&media_type(text)) {
        true => Ok(()),
        false => Err(format!("unsupported: use one of {}", CONTENT_TYPES.join(", "))),
    }
}

fn violations(config: &Config) -> Vec<FieldError> {
    match (&config.response_example, &config.response_schema) {
        (Some(_), _) => Vec::new(),
        (None, None) => vec![FieldError::new("", "set `response_example` or `response_schema`")],
        (None, Some(schema)) => {
            let found = Sample::read(schema).err();
            let format = format(config).err();
            let found = found.or(format).map(|message| FieldError::new("response_schema", message));
            found.into_iter().collect()
        }
    }
}

fn format(config: &Config) -> Result<Format, String> {
    match media_type(&config.content_type) {
        "application/xml" | "text/xml" => Ok(Format::Xml),
        "text/html" => Err("gives JSON or XML: set another `content_type`, or `response_example`".to_owned()),
        _ => Ok(Format::Json),
    }
}

/// One configured instance; requests that are delayed keep its response alive.
pub(super) struct Mocking {
    delay: Option<Duration>,
    response: Arc<Response>,
}

struct Response {
    status: u16,
    content_type: String,
    has_header: bool,
    body: Body,
}

enum Body {
    Example(Template),
    Sample(Sample, Format),
}

impl Plugin for Mocking {
    const NAME: &'static str = "mocking";
    const PRIORITY: i32 = 10_900;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let body = match (&config.response_example, &config.response_schema) {
            (Some(example), _) => Body::Example(Template::parse(example)),
            (None, schema) => {
                Body::Sample(Sample::read(schema.as_ref().unwrap_or(&Json::Null))?, format(&config)?)
            }
        };
        let delay = (config.delay > 0).then(|| Duration::from_secs(config.delay.into()));
        let response = Response {
            status: config.response_status,
            content_type: config.content_type,
            has_header: config.with_mock_header,
            body,
        };
        Ok(Self { delay, response: Arc::new(response) })
    }
}

impl Hooks for Mocking {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        if self.delay.is_none() { AccessEffect::Predictable } else { AccessEffect::Answers }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let Some(delay) = self.delay else { return Flow::Respond(self.response.make(exchange)) };
        let response = self.response.clone();
        Flow::Wait(Box::pin(async move {
            tokio::time::sleep(delay).await;
            Box::new(move |exchange: &mut Exchange| Flow::Respond(response.make(exchange))) as Resume
        }))
    }
}

impl Response {
    fn make(&self, exchange: &Exchange) -> LocalResponse {
        let body = match &self.body {
            Body::Example(template) => template.render(exchange).into_owned(),
            Body::Sample(sample, format) => sample.text(*format).into_bytes(),
        };
        let response = LocalResponse::raw(self.status, Some(&self.content_type), body);
        match self.has_header {
            true => response.header("X-Mock-By", concat!("Weir/", env!("CARGO_PKG_VERSION"))),
            false => response,
        }
    }
}
