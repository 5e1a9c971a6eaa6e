//! Refuses requests whose headers or body do not meet a JSON Schema. Like APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: request-validation
//!     route: orders
//!     config:
//!       body_schema:
//!         type: object
//!         required: [id, items]
//!         properties:
//!           id: {type: integer, minimum: 1}
//!           items: {type: array, minItems: 1}
//! ```
//!
//! A body is a form if its `Content-Type` is `application/x-www-form-urlencoded`, whose values are strings, and JSON
//! otherwise. Headers are strings under names in lower case; of several with one name the last counts. A request
//! whose body is too long to be held is refused.
//!
//! The keywords of JSON Schema's drafts 4 to 7 are available but for references (`$ref`, `definitions`), `contains`,
//! `dependencies` and `propertyNames`; `format` has no effect. Regexes have no look-around and no backreferences.
//! Unlike APISIX, the plugin leaves the body as it was written.
//!
//! ## Responses
//!
//! `rejected_code` (400) with the first violation, such as `property "id" is required`, or the `rejected_msg`.

mod json_schema;

use json_schema::Schema;
use weir_plugin::form;
use weir_plugin::{
    BuildContext, Exchange, FieldError, Flow, Hooks, Json, Known, LocalResponse, Phases, Plugin, Record,
    WantsBody,
};

/// What requests must meet.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The schema of the headers.
    pub header_schema: Option<Json>,
    /// The schema of the body.
    pub body_schema: Option<Json>,
    /// The status of refusals.
    #[field(default = 400, between = [200, 599])]
    pub rejected_code: u16,
    /// The body of refusals.
    #[field(len_max = 256)]
    pub rejected_msg: Option<String>,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let Config { header_schema, body_schema, .. } = config;
    if header_schema.is_none() && body_schema.is_none() {
        return vec![FieldError::new("", "set `body_schema` or `header_schema`")];
    }
    let schemas = [("header_schema", header_schema), ("body_schema", body_schema)];
    let errors = schemas.into_iter().filter_map(|(field, schema)| {
        let error = Schema::compile(schema.as_ref()?).err()?;
        Some(FieldError::new(field, error))
    });
    errors.collect()
}

/// One configured instance.
pub(super) struct RequestValidation {
    headers: Option<Schema>,
    body: Option<Schema>,
    code: u16,
    message: Option<String>,
}

impl Plugin for RequestValidation {
    const NAME: &'static str = "request-validation";
    const PRIORITY: i32 = 952;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        Ok(Self {
            headers: config.header_schema.as_ref().map(Schema::compile).transpose()?,
            body: config.body_schema.as_ref().map(Schema::compile).transpose()?,
            code: config.rejected_code,
            message: config.rejected_msg,
        })
    }
}

impl Hooks for RequestValidation {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        match self.check(exchange) {
            Ok(()) => Flow::Continue,
            Err(why) => {
                let body = self.message.clone().unwrap_or(why);
                Flow::Respond(LocalResponse::raw(self.code, Some("text/plain; charset=utf-8"), body))
            }
        }
    }

    fn wants_body(&self) -> WantsBody {
        if self.body.is_some() { WantsBody::Yes } else { WantsBody::No }
    }
}

impl RequestValidation {
    fn check(&self, exchange: &Exchange) -> Result<(), String> {
        if let Some(schema) = &self.headers {
            schema.check(&headers(exchange))?;
        }
        match &self.body {
            Some(schema) => schema.check(&body(exchange)?),
            None => Ok(()),
        }
    }
}

fn headers(exchange: &Exchange) -> Json {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = exchange.request.headers.iter();
    fields.map(|field| (text(field.name).to_ascii_lowercase(), Json::from(text(field.value)))).collect()
}

fn body(exchange: &Exchange) -> Result<Json, String> {
    let body = exchange.body().ok_or("the request's body is too long to be validated")?;
    let content_type = exchange.header(Known::ContentType).unwrap_or_default();
    let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    if media_type.eq_ignore_ascii_case(b"application/x-www-form-urlencoded") {
        let text = form::text(body);
        let decoded = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let pairs = form::pairs(&text).map(|pair| {
            let value = pair.value.as_deref().map_or(Json::Bool(true), |value| decoded(value).into());
            (decoded(&pair.name), value)
        });
        return Ok(pairs.collect());
    }
    serde_json::from_slice(body).map_err(|error| format!("the body is not JSON: {error}"))
}
