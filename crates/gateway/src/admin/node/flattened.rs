//! The errors of a whole configuration in Kong's form: nested as the configuration is, or entity by entity.
use crate::admin::response::json_response;
use crate::admin::violations::Violations;
use axum::http::StatusCode;
use axum::response::Response;
use serde_json::{Value, json};
use std::collections::HashMap;
use weir_model::EntityKinds;
use weir_model::entity::EntityKind;
use weir_model::schema::{ConfigError, FieldError};

/// More errors are only counted, because a file with so many has one cause.
const MAX_LISTED_ERRORS: usize = 100;

/// Kong's response to an invalid configuration. `root` is what was sent; entities are named from it.
pub(super) fn invalid(
    problems: &[ConfigError],
    root: &Value,
    flatten: bool,
    kinds: &EntityKinds,
) -> Response {
    json_response(StatusCode::BAD_REQUEST, &response_body(problems, root, flatten, kinds))
}

fn response_body(problems: &[ConfigError], root: &Value, flatten: bool, kinds: &EntityKinds) -> Value {
    let (problems, others) = problems.split_at(problems.len().min(MAX_LISTED_ERRORS));
    let mut lines: Vec<_> = problems.iter().map(ToString::to_string).collect();
    if !others.is_empty() {
        lines.push(format!("and {} more", others.len()));
    }
    let mut body = json!({
        "code": 14,
        "name": "invalid declarative configuration",
        "message": format!("declarative config is invalid: {}", lines.join("; ")),
    });
    let mut rest: Vec<FieldError> =
        problems.iter().map(|problem| FieldError::new(&problem.path, &problem.message)).collect();
    if flatten {
        let found = Flattened::of(rest, root, kinds);
        body["flattened_errors"] = found.entities.iter().map(|invalid| invalid.to_json(kinds)).collect();
        rest = found.rest;
    }
    body["fields"] = Violations::of(&rest).fields;
    body
}

/// Violations, entity by entity.
struct Flattened<'r> {
    entities: Vec<InvalidEntity<'r>>,
    /// Those outside any entity.
    rest: Vec<FieldError>,
}

/// The errors of one entity.
struct InvalidEntity<'r> {
    kind: EntityKind,
    entity: &'r Value,
    violations: Vec<FieldError>,
}

impl<'r> Flattened<'r> {
    fn of(violations: Vec<FieldError>, root: &'r Value, kinds: &EntityKinds) -> Self {
        let mut found = Flattened { entities: Vec::new(), rest: Vec::new() };
        // An entity is identified by its address in memory, because two may be equal.
        let mut indices: HashMap<*const Value, usize> = HashMap::new();
        for violation in violations {
            let Some((kind, entity, below)) = entity_at(&violation.path, root, kinds) else {
                found.rest.push(violation);
                continue;
            };
            let violation = FieldError::new(below, violation.message);
            let next = found.entities.len();
            let index = *indices.entry(std::ptr::from_ref(entity)).or_insert(next);
            match found.entities.get_mut(index) {
                Some(faulty) => faulty.violations.push(violation),
                None => found.entities.push(InvalidEntity { kind, entity, violations: vec![violation] }),
            }
        }
        found
    }
}

/// The innermost entity on a path such as `services[0].routes[1].paths[0]`, and the path below it.
fn entity_at<'p, 'r>(
    path: &'p str,
    root: &'r Value,
    kinds: &EntityKinds,
) -> Option<(EntityKind, &'r Value, &'p str)> {
    let (mut at, mut rest, mut found) = (root, path, None);
    while let Some((name, after)) = rest.split_once('[') {
        let Some((kind, (index, after))) = kinds.find(name).zip(after.split_once(']')) else {
            break;
        };
        let Some(entity) = index.parse().ok().and_then(|index: usize| at.get(name)?.get(index)) else {
            break;
        };
        (at, rest) = (entity, after.trim_start_matches('.'));
        found = Some((kind, entity, rest));
    }
    found
}

impl InvalidEntity<'_> {
    fn to_json(&self, kinds: &EntityKinds) -> Value {
        let mut errors = Vec::new();
        flatten(&Violations::of(&self.violations).fields, "", &mut errors);
        // Clients expect strings here, and fail on anything else.
        let text = |name: &str| {
            self.entity.get(name).filter(|value| value.as_str().is_some_and(|text| !text.is_empty()))
        };
        let tags = self.entity.get("tags").and_then(Value::as_array);
        let tags = tags.filter(|tags| tags.iter().all(Value::is_string)).map(|tags| json!(tags));
        let mut entity = json!({
            "entity_type": self.kind.as_str().trim_end_matches('s'),
            "entity": self.own_fields(kinds),
            "errors": errors,
        });
        let name = text("name").or_else(|| text("username")).cloned();
        for (field, value) in
            [("entity_id", text("id").cloned()), ("entity_name", name), ("entity_tags", tags)]
        {
            if let Some(value) = value {
                entity[field] = value;
            }
        }
        entity
    }

    /// The entity without those nested in it, and without what is secret.
    fn own_fields(&self, kinds: &EntityKinds) -> Value {
        let schema = self.kind.schema();
        let Some(members) = self.entity.as_object() else { return self.entity.clone() };
        let own = |name: &str| {
            let is_child = kinds.children(self.kind).iter().any(|(child, _)| child.as_str() == name);
            let is_secret = schema.field(name).is_some_and(|field| field.secret);
            !is_child && !is_secret
        };
        members
            .iter()
            .filter(|(name, _)| own(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect()
    }
}

/// Messages at their fields, as a list of messages with the paths of their fields.
fn flatten(fields: &Value, path: &str, errors: &mut Vec<Value>) {
    match fields {
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), member) {
                    ("@entity", Value::Array(messages)) => errors.extend(
                        messages.iter().map(|message| json!({ "type": "entity", "message": message })),
                    ),
                    _ if path.is_empty() => flatten(member, name, errors),
                    _ => flatten(member, &format!("{path}.{name}"), errors),
                }
            }
        }
        Value::Array(elements) => {
            let (messages, deeper): (Vec<_>, Vec<_>) =
                elements.iter().enumerate().filter(|(_, e)| !e.is_null()).partition(|(_, e)| e.is_string());
            if !messages.is_empty() {
                let messages: Value = messages.into_iter().map(|(_, message)| message.clone()).collect();
                errors.push(json!({ "type": "field", "field": path, "messages": messages }));
            }
            // Kong counts from 1.
            deeper.into_iter().for_each(|(index, e)| flatten(e, &format!("{path}.{}", index + 1), errors));
        }
        message => errors.push(json!({ "type": "field", "field": path, "message": message })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds() -> EntityKinds {
        EntityKinds::of(&[])
    }

    fn flattened(problems: &[(&str, &str)], root: &Value) -> (Vec<Value>, usize) {
        let violations = problems.iter().map(|(path, message)| FieldError::new(*path, *message)).collect();
        let found = Flattened::of(violations, root, &kinds());
        (found.entities.iter().map(|invalid| invalid.to_json(&kinds())).collect(), found.rest.len())
    }

    #[test]
    fn each_entity_is_told_once_with_all_its_errors() {
        let root = json!({ "services": [{
            "name": "s", "tags": ["t"], "routes": [{ "id": "r", "paths": ["x", "/y"] }],
        }] });
        let problems = [
            ("services[0].retries", "too many"),
            ("services[0].routes[0].paths[0]", "no slash"),
            ("services[0].routes[0]", "matches nothing"),
            ("services[0].routes[0].sources[1].ip", "no address"),
            ("_format_version", "unknown"),
        ];
        let (entities, rest) = flattened(&problems, &root);
        assert_eq!(rest, 1);
        assert_eq!(
            entities,
            [
                json!({
                    "entity_type": "service", "entity_name": "s", "entity_tags": ["t"],
                    "entity": { "name": "s", "tags": ["t"] },
                    "errors": [{ "type": "field", "field": "retries", "message": "too many" }],
                }),
                json!({
                    "entity_type": "route", "entity_id": "r",
                    "entity": { "id": "r", "paths": ["x", "/y"] },
                    "errors": [
                        { "type": "entity", "message": "matches nothing" },
                        { "type": "field", "field": "paths", "messages": ["no slash"] },
                        { "type": "field", "field": "sources.2.ip", "message": "no address" },
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
        let whole = response_body(&problems, &root, true, &kinds());
        assert_eq!(whole["flattened_errors"].as_array().unwrap().len(), MAX_LISTED_ERRORS);
        assert!(whole["message"].as_str().unwrap().ends_with("; and 299900 more"), "{whole}");
        let unflattened = response_body(&problems, &root, false, &kinds());
        assert_eq!(unflattened["fields"]["services"].as_array().unwrap().len(), MAX_LISTED_ERRORS);
        assert_eq!(unflattened["message"], whole["message"]);
        let violations = problems.iter().map(|problem| FieldError::new(&problem.path, &problem.message));
        assert_eq!(Flattened::of(violations.collect(), &root, &kinds()).entities.len(), 300_000);
    }

    #[test]
    fn what_is_secret_is_not_repeated() {
        let root = json!({ "certificates": [{ "cert": "x", "key": "hush", "snis": [] }] });
        let (entities, _) = flattened(&[("certificates[0].cert", "no certificate")], &root);
        assert_eq!(entities[0]["entity_type"], "certificate");
        assert!(!entities[0].to_string().contains("hush"));
    }
}
