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
//! otherwise. Headers are strings under names in lower case. Several values of one header or of one field of a form are a
//! list, and JSON whose objects name a member twice is refused: the upstream may take another one than was checked. A
//! request whose body is too long to be held is refused.
//!
//! The keywords of JSON Schema's drafts 4 to 7 are available but for references (`$ref`, `definitions`), `contains`,
//! `dependencies` and `propertyNames`; `format` has no effect. A schema with another keyword, or with a `type` that does not
//! exist, is refused. Regexes have no look-around and no backreferences. Unlike APISIX, the plugin leaves the body as it was
//! written.
//!
//! ## Responses
//!
//! `rejected_code` (400) with the first violation, such as `property "id" is required`, or the `rejected_msg`.

mod json_schema;
mod unrepeated;

use json_schema::Schema;
use serde_json::map::{Entry, Map};
use unrepeated::Unrepeated;
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
        let error = Schema::compile(schema.as_ref()?).err()?.within(field);
        Some(FieldError::new(error.path, error.message))
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
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let compile = |schema: &Option<Json>| {
            schema.as_ref().map(Schema::compile).transpose().map_err(|error| error.to_string())
        };
        Ok(Self {
            headers: compile(&config.header_schema)?,
            body: compile(&config.body_schema)?,
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
    let mut found =
        members(fields.map(|field| (text(field.name).to_ascii_lowercase(), Json::from(text(field.value)))));
    // In HTTP/2, browsers write one line for each.
    let lines = found.get("cookie").and_then(Json::as_array);
    let cookies = lines.map(|lines| lines.iter().filter_map(Json::as_str).collect::<Vec<_>>().join("; "));
    if let Some(cookies) = cookies {
        found["cookie"] = cookies.into();
    }
    found
}

/// The members of an object; several of one name are a list, as in OpenResty.
fn members(pairs: impl Iterator<Item = (String, Json)>) -> Json {
    let mut members = Map::new();
    for (name, value) in pairs {
        match members.entry(name) {
            Entry::Vacant(free) => {
                free.insert(value);
            }
            Entry::Occupied(mut first) => match first.get_mut() {
                Json::Array(values) => values.push(value),
                first => {
                    let values = vec![first.take(), value];
                    *first = Json::Array(values);
                }
            },
        }
    }
    Json::Object(members)
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
        return Ok(members(pairs));
    }
    let read = serde_json::from_slice(body).map(|Unrepeated(body)| body);
    read.map_err(|error| format!("the body is not JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_plugin::testing::Gateway;

    #[test]
    fn a_mistake_is_reported_where_it_is() {
        for (schema, path) in [
            (json!(5), "body_schema"),
            (json!({ "type": "Objct" }), "body_schema.type"),
            (json!({ "allOf": [5] }), "body_schema.allOf[0]"),
        ] {
            let errors = Config::from_value(&json!({ "body_schema": schema })).unwrap_err();
            let paths: Vec<_> = errors.iter().map(|error| error.path.as_str()).collect();
            assert_eq!(paths, [path]);
        }
    }

    #[test]
    fn several_values_of_one_name_are_a_list() {
        let exchange =
            Gateway::new(&[]).exchange("GET /\nX-A: 1\nx-a: 2\nX-A: 3\nX-B: 4\nCookie: a=1\nCookie: b=2");
        let found = headers(&exchange);
        assert_eq!((&found["x-a"], &found["x-b"]), (&json!(["1", "2", "3"]), &json!("4")));
        assert_eq!(found["cookie"], "a=1; b=2");
    }
}
