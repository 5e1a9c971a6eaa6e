//! Which requests call which method, by the annotations `google.api.http` of a `.proto` file.

use super::template::Template;
use prost_reflect::{DescriptorPool, DynamicMessage, ExtensionDescriptor, MethodDescriptor, Value};

/// A kind of requests, and the method that they call.
#[derive(Debug)]
pub(super) struct Endpoint {
    /// The method of HTTP.
    pub(super) http_method: &'static str,
    pub(super) template: Template,
    pub(super) body: Body,
    /// The field of the response that the client gets; all of it if none.
    pub(super) response_body: Option<String>,
    pub(super) method: MethodDescriptor,
}

/// What the body of a request is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Body {
    /// It is not read.
    Nothing,
    /// All fields that the path does not name.
    Whole,
    /// One field.
    Field(String),
}

/// The endpoints of all services, in the order of the files and of their methods.
pub(super) fn endpoints(pool: &DescriptorPool) -> Result<Vec<Endpoint>, String> {
    let Some(http) = pool.get_extension_by_name("google.api.http") else { return Ok(Vec::new()) };
    let methods = pool.services().flat_map(|service| service.methods().collect::<Vec<_>>());
    let found = methods.map(|method| of_method(&method, &http)).collect::<Result<Vec<_>, _>>();
    Ok(found?.into_iter().flatten().collect())
}

fn of_method(method: &MethodDescriptor, http: &ExtensionDescriptor) -> Result<Vec<Endpoint>, String> {
    let options = method.options();
    if !options.has_extension(http) {
        return Ok(Vec::new());
    }
    let rule = options.get_extension(http);
    let Some(rule) = rule.as_message() else { return Ok(Vec::new()) };
    let more = rule.get_field_by_name("additional_bindings");
    let more =
        more.as_deref().and_then(Value::as_list).unwrap_or_default().iter().filter_map(Value::as_message);
    let rules = std::iter::once(rule).chain(more);
    let endpoints = rules.map(|rule| of_rule(rule, method)).collect::<Result<Vec<_>, _>>()?;
    Ok(endpoints.into_iter().flatten().collect())
}

/// None for a rule of a method of HTTP that is not known.
fn of_rule(rule: &DynamicMessage, method: &MethodDescriptor) -> Result<Option<Endpoint>, String> {
    let text = |name: &str| {
        let value = rule.get_field_by_name(name)?;
        value.as_str().filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let verbs = [("get", "GET"), ("put", "PUT"), ("post", "POST"), ("delete", "DELETE"), ("patch", "PATCH")];
    let pattern = verbs.iter().find_map(|(field, verb)| Some((*verb, text(field)?)));
    let Some((http_method, path)) = pattern else { return Ok(None) };
    let explained = |why: String| format!("config.proto: {}: {why}", method.full_name());
    let template = Template::parse(&path).map_err(explained)?;
    if let Some(field) = template.fields().find(|field| !super::message::has_field(&method.input(), field)) {
        return Err(explained(format!("the path {path:?} names {field:?}, which the message does not have")));
    }
    let body = match text("body") {
        None => Body::Nothing,
        Some(body) if body == "*" => Body::Whole,
        Some(field) => Body::Field(field),
    };
    let response_body = text("response_body");
    Ok(Some(Endpoint { http_method, template, body, response_body, method: method.clone() }))
}
