//! Which fields may hold references to secrets, and which are encrypted where they are stored, by the schemas of Kong 3.9
//! where it has the plugin.
use serde_json::{Value, json};

/// The fields with a mark below some fields, as `/schemas` shows them.
fn marks(plugin: &str, path: &str, fields: &Value, found: &mut Vec<Value>) {
    for (name, field) in fields.as_array().into_iter().flatten().filter_map(Value::as_object).flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        let is_marked = |mark: &&str| field[*mark] == true || field["values"][*mark] == true;
        let marks: Vec<_> = ["referenceable", "encrypted"].into_iter().filter(is_marked).collect();
        if !marks.is_empty() {
            found.push(json!({ "plugin": plugin, "field": path, "marks": marks }));
        }
        self::marks(plugin, &path, &field["fields"], found);
        self::marks(plugin, &path, &field["elements"]["fields"], found);
    }
}

#[test]
fn fields_have_these_marks() {
    let expected: Vec<Value> = serde_json::from_str(include_str!("marks.json")).unwrap();
    let mut found = Vec::new();
    for definition in crate::PLUGINS {
        let schema = &definition.schema;
        marks(schema.name, "", &schema.config.to_json()["fields"], &mut found);
    }
    let name = |mark: &Value| format!("{} {}", mark["plugin"], mark["field"]);
    found.sort_by_key(name);
    assert_eq!(found, expected);
}
