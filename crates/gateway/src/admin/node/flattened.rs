//! The errors of a whole configuration in Kong's form: nested as the configuration is, or entity by entity.
use crate::admin::kong_words::WrittenEntity;
use crate::admin::response::json_response;
use crate::admin::violations::{ENTITY, Violation, Violations, members};
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::HashMap;
use weir_model::entity::EntityKind;
use weir_model::schema::{ConfigError, FieldError, JsonMap};
use weir_model::{EntityKinds, PluginSchema};

/// More errors are only counted, because a file with so many has one cause.
const MAX_LISTED_ERRORS: usize = 100;

/// The field that may contain a certificate instead of a reference to one.
const CLIENT_CERTIFICATE: &str = "client_certificate";

/// Kong's response to an invalid configuration. `root` is what was sent; entities are named from it.
pub(super) fn invalid(
    problems: &[ConfigError],
    root: &Value,
    flatten: bool,
    plugins: &[PluginSchema],
) -> Response {
    json_response(StatusCode::BAD_REQUEST, &response_body(problems, root, flatten, plugins))
}

fn response_body(problems: &[ConfigError], root: &Value, flatten: bool, plugins: &[PluginSchema]) -> Value {
    let (problems, others) = problems.split_at(problems.len().min(MAX_LISTED_ERRORS));
    let mut lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    if !others.is_empty() {
        lines.push(format!("and {} more", others.len()));
    }
    let kinds = EntityKinds::of(plugins);
    let errors = problems.iter().map(|problem| FieldError::new(&problem.path, &problem.message)).collect();
    let Flattened { entities, mut rest } = Flattened::of(errors, root, &kinds);
    let mut body = json!({ "code": 14, "name": "invalid declarative configuration" });
    if flatten {
        body["flattened_errors"] = entities.iter().map(|invalid| invalid.to_json(&kinds, plugins)).collect();
    } else {
        rest.extend(entities.iter().flat_map(|invalid| invalid.in_place(plugins)));
    }
    let fields = Violations::of(&rest).fields;
    body["message"] = format!("declarative config is invalid: {}", on_one_line(&fields)).into();
    body["fields"] = fields;
    body["hint"] = lines.join("; ").into();
    body
}

/// Messages as Kong writes a table on one line.
fn on_one_line(fields: &Value) -> String {
    let Value::String(text) = fields else {
        let is_list = fields.is_array();
        let mut next = 1;
        let each = members(fields).into_iter().map(|(name, value)| {
            let is_next = is_list && name == next.to_string();
            next += 1;
            let key = match is_list {
                true if is_next => String::new(),
                true => format!("[{name}]="),
                false if name.starts_with('@') => format!("[{name:?}]="),
                false => format!("{name}="),
            };
            format!("{key}{}", on_one_line(value))
        });
        return format!("{{{}}}", each.collect::<Vec<_>>().join(","));
    };
    format!("{text:?}")
}

/// Errors, entity by entity.
struct Flattened<'r> {
    entities: Vec<InvalidEntity<'r>>,
    /// Those outside any entity.
    rest: Vec<Violation>,
}

/// The errors of one entity.
struct InvalidEntity<'r> {
    at: Place<'r>,
    errors: Vec<FieldError>,
}

/// An entity of a configuration.
struct Place<'r> {
    kind: EntityKind,
    entity: &'r Value,
    /// Its path, as in `services[0].routes[1]`.
    path: String,
    /// The entity that it is nested in, and the field that names that one.
    parent: Option<(&'r Value, &'static str)>,
}

impl<'r> Flattened<'r> {
    fn of(errors: Vec<FieldError>, root: &'r Value, kinds: &EntityKinds) -> Self {
        let mut found = Flattened { entities: Vec::new(), rest: Vec::new() };
        // An entity is identified by its address in memory, because two may be equal.
        let mut indices: HashMap<*const Value, usize> = HashMap::new();
        for error in errors {
            let Some(place) = place_of(&error, root, kinds) else {
                found.rest.push(outside(&error));
                continue;
            };
            let below = error.path.get(place.path.len()..).unwrap_or_default().trim_start_matches('.');
            let error = FieldError::new(below, error.message);
            let next = found.entities.len();
            let index = *indices.entry(std::ptr::from_ref(place.entity)).or_insert(next);
            match found.entities.get_mut(index) {
                Some(faulty) => faulty.errors.push(error),
                None => found.entities.push(InvalidEntity { at: place, errors: vec![error] }),
            }
        }
        found
    }
}

/// An error outside any entity.
fn outside(error: &FieldError) -> Violation {
    match Violation::of(error) {
        violation if violation.message.starts_with("expected a list") => {
            Violation { message: "expected an array".to_owned(), ..violation }
        }
        violation => violation,
    }
}

/// The innermost entity on an error's path, such as `services[0].routes[1].paths[0]`.
fn place_of<'r>(error: &FieldError, root: &'r Value, kinds: &EntityKinds) -> Option<Place<'r>> {
    let path = error.path.as_str();
    let (mut at, mut rest, mut found) = (root, path, None::<Place<'r>>);
    while let Some((name, after)) = rest.split_once('[') {
        let Some((kind, (index, after))) = kinds.find(name).zip(after.split_once(']')) else {
            break;
        };
        let Some(entity) = index.parse().ok().and_then(|index: usize| at.get(name)?.get(index)) else {
            break;
        };
        let nested = |parent: Place<'r>| {
            let field = kinds.children(parent.kind).iter().find(|(child, _)| *child == kind)?.1;
            Some((parent.entity, field))
        };
        let path = path[..path.len() - after.len()].to_owned();
        found = Some(Place { kind, entity, path, parent: found.and_then(nested) });
        (at, rest) = (entity, after.trim_start_matches('.'));
    }
    let found = found?;
    // That a service must not have one is the service's error.
    if rest == CLIENT_CERTIFICATE && error.message.starts_with("needs protocol") {
        return Some(found);
    }
    Some(client_certificate(&found, rest).unwrap_or(found))
}

/// The certificate that an entity contains instead of a reference to it.
fn client_certificate<'r>(of: &Place<'r>, below: &str) -> Option<Place<'r>> {
    let below = below.strip_prefix(CLIENT_CERTIFICATE).filter(|it| it.is_empty() || it.starts_with('.'))?;
    let entity = of.entity.get(CLIENT_CERTIFICATE)?;
    let is_certificate = !below.is_empty() || entity.get("cert").is_some();
    let path = format!("{}.{CLIENT_CERTIFICATE}", of.path);
    is_certificate.then_some(Place { kind: EntityKind::Certificates, entity, path, parent: None })
}

/// The id of an entity, if it has a valid one.
fn id(entity: &Value) -> Option<&str> {
    entity.get("id")?.as_str().filter(|id| weir_model::rule::id(id).is_some())
}

impl InvalidEntity<'_> {
    fn violations(&self, plugins: &[PluginSchema]) -> Vec<Violation> {
        let written = WrittenEntity { kind: self.at.kind, members: self.at.entity, plugins };
        written.violations(&self.errors)
    }

    /// Its violations, at their paths in the whole configuration.
    fn in_place(&self, plugins: &[PluginSchema]) -> Vec<Violation> {
        self.violations(plugins).into_iter().map(|violation| violation.below(&self.at.path)).collect()
    }

    fn to_json(&self, kinds: &EntityKinds, plugins: &[PluginSchema]) -> Value {
        let Place { kind, entity, .. } = self.at;
        let mut errors = Vec::new();
        flatten(&Violations::of(&self.violations(plugins)).fields, "", &mut errors);
        let mut described = json!({
            "entity_type": kind.as_str().trim_end_matches('s'),
            "entity": self.own_fields(kinds),
            "errors": errors,
        });
        // Clients fail on values of other types.
        let tags = entity.get("tags").and_then(Value::as_array);
        let tags = tags.filter(|tags| tags.iter().all(Value::is_string)).map(|tags| json!(tags));
        let name = entity.get("name").and_then(Value::as_str).filter(|name| !name.is_empty());
        for (field, value) in [
            ("entity_id", id(entity).map(Value::from)),
            ("entity_name", name.map(Value::from)),
            ("entity_tags", tags),
        ] {
            if let Some(value) = value {
                described[field] = value;
            }
        }
        described
    }

    /// The entity without those nested in it, and without what is secret; with the ids of those that it is nested in, or
    /// refers to.
    fn own_fields(&self, kinds: &EntityKinds) -> Value {
        let Place { kind, entity, parent, .. } = &self.at;
        let schema = kind.schema();
        let Some(members) = entity.as_object() else { return (*entity).clone() };
        let own = |name: &str| {
            let is_child = kinds.children(*kind).iter().any(|(child, _)| child.as_str() == name);
            let is_secret = schema.field(name).is_some_and(|field| field.secret);
            !is_child && !is_secret
        };
        let mut shown = Value::Object(JsonMap::new());
        for (name, value) in members.iter().filter(|(name, _)| own(name)) {
            let is_entity = name == CLIENT_CERTIFICATE && value.is_object();
            match id(value).filter(|_| is_entity) {
                Some(id) => shown[name] = json!({ "id": id }),
                None if is_entity => {}
                None => shown[name] = value.clone(),
            }
        }
        if let Some((parent, field)) = parent
            && let Some(id) = id(parent)
            && !members.contains_key(*field)
        {
            shown[*field] = json!({ "id": id });
        }
        shown
    }
}

/// Messages at their fields, as a list of messages with the paths of their fields.
fn flatten(fields: &Value, path: &str, errors: &mut Vec<Value>) {
    // In Kong's order.
    for (name, member) in members(fields).into_iter().rev() {
        let field = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match member {
            Value::Array(messages) if name == ENTITY => {
                errors.extend(messages.iter().map(|message| json!({ "type": "entity", "message": message })));
            }
            Value::Object(_) | Value::Array(_) => flatten(member, &field, errors),
            message => errors.push(json!({ "type": "field", "field": field, "message": message })),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flattened(problems: &[(&str, &str)], root: &Value) -> (Vec<Value>, usize) {
        let plugins = crate::plugins::bundled();
        let kinds = EntityKinds::of(&plugins);
        let errors = problems.iter().map(|(path, message)| FieldError::new(*path, *message)).collect();
        let found = Flattened::of(errors, root, &kinds);
        (found.entities.iter().map(|invalid| invalid.to_json(&kinds, &plugins)).collect(), found.rest.len())
    }

    #[test]
    fn each_entity_is_told_once_with_all_its_errors() {
        let id = "6c2c5ea4-7f2b-4a3c-9a5e-0f1f8c3f9d11";
        let root = json!({ "services": [{
            "id": id, "name": "s", "tags": ["t"], "retries": -1, "routes": [{
                "id": "r", "paths": ["x", "/y"], "sources": [{}, { "ip": "x" }],
            }],
        }] });
        let problems = [
            ("services[0].retries", "too many"),
            ("services[0].routes[0].paths[0]", "no slash"),
            ("services[0].routes[0].hosts", "no such host; write another"),
            ("services[0].routes[0].sources[1].ip", "no address"),
            ("_format_version", "unknown"),
        ];
        let (entities, rest) = flattened(&problems, &root);
        assert_eq!(rest, 1);
        let slash = "should start with: / (fixed path) or ~/ (regex path)";
        assert_eq!(
            entities,
            [
                json!({
                    "entity_type": "service", "entity_id": id, "entity_name": "s", "entity_tags": ["t"],
                    "entity": { "id": id, "name": "s", "retries": -1, "tags": ["t"] },
                    "errors": [{ "type": "field", "field": "retries", "message": "value should be between 0 and 32767" }],
                }),
                json!({
                    "entity_type": "route",
                    "entity": {
                        "id": "r", "paths": ["x", "/y"], "sources": [{}, { "ip": "x" }], "service": { "id": id },
                    },
                    "errors": [
                        { "type": "field", "field": "sources.2.ip", "message": "invalid ip or cidr range: 'x'" },
                        { "type": "field", "field": "paths.1", "message": slash },
                        { "type": "field", "field": "hosts", "message": "no such host" },
                    ],
                }),
            ]
        );
    }

    #[test]
    fn many_problems_are_counted_and_take_no_time() {
        let root = json!({ "services": vec![1; 300_000] });
        let problem = |index| ConfigError {
            at: Default::default(),
            path: format!("services[{index}]"),
            message: "no mapping".to_owned(),
        };
        let problems: Vec<_> = (0..300_000).map(problem).collect();
        let whole = response_body(&problems, &root, true, &[]);
        assert_eq!(whole["flattened_errors"].as_array().unwrap().len(), MAX_LISTED_ERRORS);
        assert_eq!(whole["message"], "declarative config is invalid: {}");
        assert!(whole["hint"].as_str().unwrap().ends_with("; and 299900 more"), "{whole}");
        let unflattened = response_body(&problems, &root, false, &[]);
        assert_eq!(unflattened["fields"]["services"].as_array().unwrap().len(), MAX_LISTED_ERRORS);
        assert_eq!(unflattened["hint"], whole["hint"]);
        let errors = problems.iter().map(|problem| FieldError::new(&problem.path, &problem.message));
        let kinds = EntityKinds::of(&[]);
        assert_eq!(Flattened::of(errors.collect(), &root, &kinds).entities.len(), 300_000);
    }

    #[test]
    fn the_message_is_written_as_kong_writes_a_table() {
        let problem = |path: &str, message: &str| ConfigError {
            at: Default::default(),
            path: path.to_owned(),
            message: message.to_owned(),
        };
        let root = json!({ "services": [{ "host": "a" }, { "host": "a:80" }] });
        let problems = [problem("services[1].host", "no"), problem("services[1]", "bad"), problem("x", "y")];
        let body = response_body(&problems, &root, false, &[]);
        let expected = r#"declarative config is invalid: {services={[2]={["@entity"]={"bad"},host="must not have a port"}},x="y"}"#;
        assert_eq!(body["message"], expected);
    }

    #[test]
    fn what_is_secret_is_not_repeated() {
        let root = json!({
            "certificates": [{ "cert": "x", "key": "hush", "snis": [] }],
            "services": [{ "host": "", "client_certificate": { "cert": "y", "key": "hush" } }],
        });
        let problems = [
            ("certificates[0].cert", "no certificate"),
            ("services[0].host", "empty"),
            ("services[0].client_certificate.cert", "no certificate"),
        ];
        let (entities, _) = flattened(&problems, &root);
        let kinds: Vec<_> = entities.iter().map(|entity| entity["entity_type"].clone()).collect();
        assert_eq!(kinds, ["certificate", "service", "certificate"]);
        assert!(!json!(entities).to_string().contains("hush"));
    }
}
