//! Forms, made from schemas; what a browser sends back; and what that changes.
use crate::schema::{Field, Kind, value_at};
use crate::texts;
use maud::{Markup, html};
use serde_json::{Map, Number, Value};

/// What a form holds: pairs of names and values, in its order.
pub(crate) type Pairs = Vec<(String, String)>;

/// Errors by the path of the field.
pub(crate) type FieldErrors = Vec<(String, String)>;

/// The first value of a name.
pub(crate) fn first<'p>(pairs: &'p Pairs, name: &str) -> &'p str {
    pairs.iter().find(|(known, _)| known == name).map_or("", |(_, value)| value)
}

/// The inputs for fields, filled with an entity.
pub(crate) fn inputs(fields: &[Field], entity: &Value, errors: &FieldErrors) -> Markup {
    inputs_of(fields, entity, errors, true)
}

/// The inputs of a record, which may be one that `must_be_there` or one that can be left out with all its fields.
fn inputs_of(fields: &[Field], entity: &Value, errors: &FieldErrors, must_be_there: bool) -> Markup {
    html! {
        @for field in fields.iter().filter(|field| !field.is_auto) {
            @match &field.kind {
                Kind::Record(inner) => fieldset {
                    legend { (field.name) }
                    @if let Some(description) = &field.description { p.help { (texts::with_code(description)) } }
                    (inputs_of(inner, entity, errors, must_be_there && field.is_required))
                },
                _ => (labelled(field, value_at(entity, &field.path), errors, must_be_there)),
            }
        }
    }
}

fn labelled(field: &Field, value: &Value, errors: &FieldErrors, must_be_there: bool) -> Markup {
    let is_required = must_be_there && field.is_required && field.default.is_none();
    let id = format!("field-{}", field.path);
    let help = format!("{id}-help");
    let wrong: Vec<_> = errors.iter().filter(|(path, _)| concerns(path, &field.path)).collect();
    html! {
        div.field.wrong[!wrong.is_empty()] {
            label for=(id) { (field.name) @if is_required { " " abbr title=(texts::of("messages.required")) { "*" } } }
            (input(field, value, &id, &help, !wrong.is_empty()))
            p.help id=(help) {
                @for (_, message) in &wrong { strong.error { (texts::with_code(message)) } " " }
                @if let Some(description) = &field.description { (texts::with_code(description)) " " }
                @if let Some(default) = shown_default(field) { span.default { (texts::of("messages.default")) " " (default) } }
            }
        }
    }
}

/// Whether an error is of this field or of an element in it.
fn concerns(error: &str, path: &str) -> bool {
    error.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
}

fn shown_default(field: &Field) -> Option<String> {
    match field.default.as_ref()? {
        Value::String(text) if !text.is_empty() => Some(text.clone()),
        Value::Null | Value::Object(_) | Value::String(_) => None,
        other => Some(other.to_string()),
    }
}

fn input(field: &Field, value: &Value, id: &str, help: &str, invalid: bool) -> Markup {
    let name = &field.path;
    let value = if value.is_null() { field.default.as_ref().unwrap_or(value) } else { value };
    let invalid = invalid.then_some("true");
    match &field.kind {
        Kind::Json if field.is_secret => area(name, id, help, "", invalid),
        _ if field.is_secret => html! {
            input type="password" id=(id) name=(name) autocomplete="new-password" aria-describedby=(help) aria-invalid=[invalid]
                placeholder=(if value.is_null() { "" } else { texts::of("messages.unchanged_secret") });
        },
        Kind::Boolean => options(name, id, help, &[Value::Bool(true), Value::Bool(false)], value, field),
        Kind::Choice(choices) => options(name, id, help, choices, value, field),
        Kind::Choices(choices) => html! {
            span.choices id=(id) role="group" aria-describedby=(help) {
                @for choice in choices {
                    label.choice {
                        input type="checkbox" name=(name) value=(plain(choice)) checked[has(value, choice)];
                        " " (plain(choice))
                    }
                }
            }
        },
        Kind::List { .. } => area(name, id, help, &list(value), invalid),
        Kind::Json => area(name, id, help, &json(value), invalid),
        Kind::Text if plain(value).contains('\n') => area(name, id, help, &plain(value), invalid),
        Kind::Number => html! {
            input type="text" inputmode="decimal" id=(id) name=(name) value=(plain(value)) aria-describedby=(help) aria-invalid=[invalid];
        },
        _ => html! {
            input type="text" id=(id) name=(name) value=(reference(value)) aria-describedby=(help) aria-invalid=[invalid];
        },
    }
}

fn options(name: &str, id: &str, help: &str, choices: &[Value], value: &Value, field: &Field) -> Markup {
    html! {
        select id=(id) name=(name) aria-describedby=(help) {
            @if !field.is_required || field.default.is_none() { option value="" { (texts::of("messages.not_set")) } }
            @for choice in choices {
                option value=(plain(choice)) selected[choice == value] { (plain(choice)) }
            }
        }
    }
}

fn area(name: &str, id: &str, help: &str, value: &str, invalid: Option<&str>) -> Markup {
    let rows = value.lines().count().clamp(2, 12);
    // Browsers leave out a line break at the beginning.
    html! { textarea id=(id) name=(name) rows=(rows) aria-describedby=(help) aria-invalid=[invalid] { "\n" (value) } }
}

fn has(value: &Value, choice: &Value) -> bool {
    value.as_array().is_some_and(|values| values.contains(choice))
}

/// A scalar as text.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The id or name of an entity that is referred to.
fn reference(value: &Value) -> String {
    match value.get("id") {
        Some(id) => plain(id),
        None => plain(value),
    }
}

/// A line for each element; as JSON if an element is more than its line would say.
fn list(value: &Value) -> String {
    let Some(items) = value.as_array() else { return plain(value) };
    match items.iter().all(|item| item.as_str().is_none_or(is_line)) {
        true => items.iter().map(plain).collect::<Vec<_>>().join("\n"),
        false => json(value),
    }
}

fn is_line(text: &str) -> bool {
    !text.is_empty() && text == text.trim() && !text.contains(['\n', '\r']) && !text.starts_with('[')
}

fn json(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        // What could not be read.
        Value::String(text) => text.clone(),
        other => serde_json::to_string_pretty(other).unwrap_or_default(),
    }
}

/// The entity that a form describes, and what cannot be read, which is in the entity as it was written. A secret that was left
/// empty is absent.
pub(crate) fn read(fields: &[Field], pairs: &Pairs) -> (Value, FieldErrors) {
    let mut errors = Vec::new();
    let entity = read_record(fields, pairs, &mut errors);
    (entity, errors)
}

fn read_record(fields: &[Field], pairs: &Pairs, errors: &mut FieldErrors) -> Value {
    let mut record = Map::new();
    for field in fields.iter().filter(|field| !field.is_auto) {
        let value = match &field.kind {
            Kind::Record(inner) => Ok(read_record(inner, pairs, errors)),
            Kind::Choices(choices) => Ok(chosen(choices, pairs, &field.path)),
            _ => read_field(field, first(pairs, &field.path)),
        };
        match value {
            Ok(Value::Null) if field.is_secret => {}
            Ok(value) => drop(record.insert(field.name.clone(), value)),
            Err(message) => {
                errors.push((field.path.clone(), message));
                record.insert(field.name.clone(), first(pairs, &field.path).into());
            }
        }
    }
    Value::Object(record)
}

fn chosen(choices: &[Value], pairs: &Pairs, path: &str) -> Value {
    let is_chosen =
        |choice: &&Value| pairs.iter().any(|(name, value)| name == path && *value == plain(choice));
    match choices.iter().filter(is_chosen).cloned().collect::<Vec<_>>() {
        none if none.is_empty() => Value::Null,
        some => Value::Array(some),
    }
}

fn read_field(field: &Field, text: &str) -> Result<Value, String> {
    let text = text.replace("\r\n", "\n");
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    match &field.kind {
        Kind::Number => number(text.trim()),
        Kind::Boolean => Ok(Value::Bool(text == "true")),
        Kind::Choice(choices) => {
            let known = choices.iter().find(|choice| plain(choice) == text).cloned();
            known.ok_or_else(|| texts::not_a_choice(&text))
        }
        Kind::Reference(_) => Ok(referred(text.trim())),
        Kind::List { .. } if is_json_array(&text) => {
            serde_json::from_str(&text).map_err(|error| texts::not_json(&error))
        }
        Kind::List { of_numbers } => {
            let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
            lines.map(|line| if *of_numbers { number(line) } else { Ok(line.into()) }).collect()
        }
        Kind::Json => serde_json::from_str(&text).map_err(|error| texts::not_json(&error)),
        Kind::Text | Kind::Record(_) | Kind::Choices(_) => Ok(Value::String(text)),
    }
}

/// Whether a list was written as JSON, and not as a line for each element, such as `[::1]`.
fn is_json_array(text: &str) -> bool {
    serde_json::from_str::<Vec<Value>>(text).is_ok()
}

fn number(text: &str) -> Result<Value, String> {
    text.parse::<Number>().map(Value::Number).map_err(|_| texts::not_a_number(text))
}

/// Another entity by its id or name, as the Admin API takes it.
fn referred(text: &str) -> Value {
    let is_id = text.len() == 36 && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit());
    let field = if is_id { "id" } else { "name" };
    serde_json::json!({ field: text })
}

/// A field that a form changes.
#[derive(Debug, PartialEq)]
pub(crate) struct Changed {
    pub(crate) path: String,
    pub(crate) before: Value,
    pub(crate) after: Value,
    pub(crate) is_secret: bool,
}

/// What a form changes in an entity. Secrets that were left empty are unchanged.
pub(crate) fn changes(fields: &[Field], before: &Value, after: &Value) -> Vec<Changed> {
    let mut changed = Vec::new();
    for field in crate::schema::leaves(fields).into_iter().filter(|field| !field.is_auto) {
        let (old, new) = (value_at(before, &field.path), value_at(after, &field.path));
        let is_left = field.is_secret && new.is_null();
        if !(is_left || same(field, old, new)) {
            let (path, is_secret) = (field.path.clone(), field.is_secret);
            changed.push(Changed { path, before: old.clone(), after: new.clone(), is_secret });
        }
    }
    changed
}

fn same(field: &Field, old: &Value, new: &Value) -> bool {
    match &field.kind {
        Kind::Reference(_) => {
            reference(old) == reference(new) || new.get("name").is_some_and(|name| old["name"] == *name)
        }
        Kind::Number => {
            old == new || !are_whole(old, new) && old.as_f64().is_some() && old.as_f64() == new.as_f64()
        }
        Kind::Choices(_) if old.is_array() && new.is_array() => sorted(old) == sorted(new),
        Kind::Text if old.is_string() && new.is_string() => plain(old).replace("\r\n", "\n") == plain(new),
        // A form cannot tell an empty list from none.
        Kind::List { .. } | Kind::Choices(_) | Kind::Json | Kind::Text => {
            old == new || is_nothing(old) && is_nothing(new)
        }
        _ => old == new,
    }
}

/// Whether both are written as whole numbers, which are not rounded.
fn are_whole(old: &Value, new: &Value) -> bool {
    [old, new].iter().all(|number| number.is_i64() || number.is_u64())
}

/// The elements of a set, whose order means nothing.
fn sorted(set: &Value) -> Vec<String> {
    let mut texts: Vec<_> = set.as_array().into_iter().flatten().map(plain).collect();
    texts.sort_unstable();
    texts
}

fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// An entity with these changes, as far as its schema knows it: other members repeat fields by older names. What is emptied
/// is left out, so that it gets its default.
pub(crate) fn changed(fields: &[Field], before: &Value, changes: &[Changed]) -> Value {
    let mut entity = Value::Object(Map::new());
    for field in crate::schema::leaves(fields) {
        let change = changes.iter().find(|change| change.path == field.path);
        let value = change.map_or_else(|| value_at(before, &field.path), |change| &change.after);
        if !value.is_null() {
            *place(&mut entity, &field.path) = value.clone();
        }
    }
    entity
}

/// Where a field is in an entity.
fn place<'v>(entity: &'v mut Value, path: &str) -> &'v mut Value {
    path.split('.').fold(entity, |place, name| &mut place[name])
}

/// The body of a request that makes these changes.
pub(crate) fn patch(changes: &[Changed]) -> Value {
    let mut patch = Value::Object(Map::new());
    for Changed { path, after, .. } in changes {
        *place(&mut patch, path) = after.clone();
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::fields;
    use serde_json::json;

    fn example() -> Vec<Field> {
        fields(&json!({ "fields": [
            { "name": { "type": "string" } },
            { "port": { "type": "integer", "default": 80 } },
            { "paths": { "type": "array", "elements": { "type": "string" } } },
            { "service": { "type": "foreign", "reference": "services" } },
            { "config": { "type": "record", "fields": [
                { "password": { "type": "string" } },
                { "on": { "type": "boolean", "default": true, "required": true } },
                { "rules": { "type": "array", "elements": { "type": "record" } } },
            ] } },
        ] }))
    }

    fn pairs(of: &[(&str, &str)]) -> Pairs {
        of.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_form_is_read_by_its_schema() {
        let sent = pairs(&[
            ("name", "a"),
            ("port", "8080"),
            ("paths", "/a\r\n\r\n/b"),
            ("service", "orders"),
            ("config.password", ""),
            ("config.on", "false"),
            ("config.rules", "[{\"a\": 1}]"),
        ]);
        let expected = json!({
            "name": "a", "port": 8080, "paths": ["/a", "/b"], "service": { "name": "orders" },
            "config": { "on": false, "rules": [{ "a": 1 }] },
        });
        assert_eq!(read(&example(), &sent), (expected, Vec::new()));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        let sent = pairs(&[("port", "eighty"), ("paths", "/a"), ("config.rules", "[")]);
        let (entity, errors) = read(&example(), &sent);
        assert_eq!(
            (&entity["port"], &entity["paths"]),
            (&json!("eighty"), &json!(["/a"])),
            "nothing is lost"
        );
        let paths: Vec<_> = errors.iter().map(|(path, _)| path.as_str()).collect();
        assert_eq!(paths, ["port", "config.rules"]);
    }

    #[test]
    fn only_what_differs_is_changed() {
        let before = json!({
            "name": "a", "port": 80, "paths": null, "service": { "id": "s", "name": "orders" },
            "config": { "password": "secret", "on": true, "rules": [] },
        });
        let after = json!({ "name": "b", "port": 80.0, "paths": [], "service": { "name": "orders" }, "config": { "on": false } });
        let changed = changes(&example(), &before, &after);
        assert_eq!(patch(&changed), json!({ "name": "b", "config": { "on": false } }));
        let emptied = changes(
            &example(),
            &before,
            &json!({ "name": null, "port": 80, "service": before["service"], "config": { "on": true } }),
        );
        let before = json!({ "name": "a", "old_name": "a", "config": { "password": "secret" } });
        let after = super::changed(&example(), &before, &emptied);
        assert_eq!(after, json!({ "config": { "password": "secret" } }));
    }

    #[test]
    fn a_field_of_a_record_that_can_be_left_out_is_not_required() {
        let key = json!([{ "key_id": { "type": "string", "required": true, "description": "The `kid`." } }]);
        let starred = |required: bool| {
            let record = json!({ "type": "record", "required": required, "fields": key });
            let fields = fields(&json!({ "fields": [{ "account_key": record }] }));
            inputs(&fields, &Value::Null, &Vec::new()).into_string().contains("<abbr")
        };
        assert_eq!([starred(true), starred(false)], [true, false]);
        let html = inputs(&fields(&json!({ "fields": key })), &Value::Null, &Vec::new()).into_string();
        assert!(html.contains("The <code>kid</code>."), "{html}");
    }

    #[test]
    fn values_are_escaped_and_secrets_left_out() {
        let entity = json!({ "name": "<img src=x onerror=alert(1)>\"", "config": { "password": "canary" } });
        let html = inputs(&example(), &entity, &Vec::new()).into_string();
        assert!(html.contains("&lt;img src=x onerror=alert(1)&gt;&quot;"), "{html}");
        assert!(!html.contains("canary") && !html.contains("<img"), "{html}");
    }
}
