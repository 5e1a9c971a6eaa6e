//! Fields of plugins that their schema in Lua calls deprecated, with `deprecation`.

use crate::schema::{FieldWarning, Json};

/// The deprecated fields that a configuration sets to something else than their default, by the description of the plugin's schema.
pub(crate) fn deprecated_fields(described: &Json, config: &Json) -> Vec<FieldWarning> {
    let mut found = Vec::new();
    if let Some(field) = field(described, "config") {
        in_record(field, config, "", &mut found);
    }
    found
}

fn in_record(record: &Json, value: &Json, path: &str, found: &mut Vec<FieldWarning>) {
    for (name, member) in value.as_object().into_iter().flatten() {
        if let Some(field) = field(record, name) {
            let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            in_field(field, member, path, found);
        }
    }
}

fn in_field(field: &Json, value: &Json, path: String, found: &mut Vec<FieldWarning>) {
    in_record(field, value, &path, found);
    if let Some(elements) = field.get("elements") {
        for (at, item) in value.as_array().into_iter().flatten().enumerate() {
            in_record(elements, item, &format!("{path}[{at}]"), found);
        }
    }
    if let Some(values) = field.get("values") {
        for (key, item) in value.as_object().into_iter().flatten() {
            in_record(values, item, &format!("{path}.{key}"), found);
        }
    }
    if let Some(deprecation) = field.get("deprecation")
        && !is_usual(field, deprecation, value)
    {
        found.push(FieldWarning::new(path, message(deprecation)));
    }
}

/// Whether a value is one that the field has where none is given. As in Kong, an earlier default is no reason to warn.
fn is_usual(field: &Json, deprecation: &Json, value: &Json) -> bool {
    let usual = [field.get("default"), deprecation.get("old_default"), Some(&Json::Null)];
    usual.into_iter().flatten().any(|usual| usual == value)
}

fn message(deprecation: &Json) -> String {
    let text = |name: &str| deprecation.get(name).and_then(Json::as_str);
    let message = text("message").unwrap_or("use another field");
    let removal = text("removal_in_version").map(|version| format!("; it will be removed in {version}"));
    format!("deprecated: {message}{}", removal.unwrap_or_default())
}

/// The field of this name in a list of tables with one member each.
fn field<'a>(record: &'a Json, name: &str) -> Option<&'a Json> {
    record.get("fields")?.as_array()?.iter().find_map(|field| field.get(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_differs_from_the_default_is_named_with_its_path() {
        let deprecation =
            json!({ "message": "use new", "removal_in_version": "4.0", "old_default": "first" });
        let old = json!({ "type": "string", "default": "usual", "deprecation": deprecation });
        let record = json!({ "type": "record", "fields": [{ "old": old }, { "new": { "type": "string" } }] });
        let list = json!({ "type": "array", "elements": record });
        let map = json!({ "type": "map", "values": record });
        let config =
            json!({ "fields": [{ "old": old }, { "inner": record }, { "items": list }, { "map": map }] });
        let described = json!({ "fields": [{ "protocols": {} }, { "config": config }] });
        let found = |config: Json| -> Vec<String> {
            deprecated_fields(&described, &config)
                .iter()
                .map(|it| format!("{}: {}", it.path, it.message))
                .collect()
        };
        for usual in [json!("usual"), json!("first"), Json::Null] {
            assert_eq!(found(json!({ "old": usual, "other": 1 })), [""; 0]);
        }
        let expected = ["old", "inner.old", "items[1].old", "map.key.old"]
            .map(|path| format!("{path}: deprecated: use new; it will be removed in 4.0"));
        let given = json!({
            "old": "mine", "inner": { "old": "mine", "new": "mine" }, "items": [{ "new": "mine" }, { "old": "mine" }],
            "map": { "key": { "old": "mine" } },
        });
        let mut all = found(given);
        all.sort_by_key(|line| expected.iter().position(|it| it == line));
        assert_eq!(all, expected);
        assert_eq!(found(json!([])), [""; 0]);
    }
}
