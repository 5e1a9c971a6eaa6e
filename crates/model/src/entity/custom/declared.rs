//! Entities without a struct of their own: those that a plugin declares while the program runs.
use super::{AnyEntity, CustomEntitySchema};
use crate::schema::{FieldValue, Json, Kind};
use std::any::Any;
use std::sync::Arc;

/// One such entity.
pub(super) struct DeclaredEntity {
    schema: &'static CustomEntitySchema,
    value: Json,
    tags: Option<Vec<String>>,
}

impl DeclaredEntity {
    /// Of a value with every field of the declaration.
    pub(super) fn new(schema: &'static CustomEntitySchema, value: Json) -> Self {
        let tags = value.get("tags").and_then(Json::as_array);
        let tags = tags.map(|tags| tags.iter().filter_map(Json::as_str).map(str::to_owned).collect());
        Self { schema, value, tags }
    }
}

impl AnyEntity for DeclaredEntity {
    fn schema(&self) -> &'static CustomEntitySchema {
        self.schema
    }

    fn field_value(&self, name: &str) -> FieldValue<'_> {
        let Some(field) = self.schema.record.field(name) else { return FieldValue::Other };
        let value = self.value.get(name).unwrap_or(&Json::Null);
        match (field.kind, value) {
            (_, Json::Null) => FieldValue::Unset,
            (Kind::Uuid, Json::String(id)) => id.parse().map_or(FieldValue::Other, FieldValue::Uuid),
            (Kind::String | Kind::Choice(_), Json::String(text)) => FieldValue::Text(text),
            (Kind::Integer(..), Json::Number(number)) => {
                number.as_i64().map_or(FieldValue::Other, FieldValue::Integer)
            }
            (Kind::Array(_), _) if name == "tags" => {
                self.tags.as_deref().map_or(FieldValue::Other, FieldValue::Texts)
            }
            _ => FieldValue::Other,
        }
    }

    fn to_value(&self) -> Json {
        self.value.clone()
    }

    fn equals(&self, other: &dyn AnyEntity) -> bool {
        let other = other.as_any().downcast_ref::<Self>();
        other.is_some_and(|other| self.schema.name == other.schema.name && self.value == other.value)
    }

    fn as_any(&self) -> &dyn Any {
        self
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

#[cfg(test)]
mod tests {
    use crate::entity::{CustomEntitySchema, CustomRecord};
    use crate::node::Node;
    use crate::schema::{FieldError, FieldSchema, Json, Kind, Literal, Reader, RecordContext, RecordSchema};
    use serde_json::json;
    use std::sync::LazyLock;
    use uuid::Uuid;

    static LIMITS: RecordSchema = RecordSchema {
        doc: "",
        fields: &[FieldSchema { between: Some((1.0, 9.0)), ..FieldSchema::new::<i64>("least", "") }],
        old_names: &[],
        hints: &[],
    };

    static NOTES: RecordSchema = RecordSchema {
        doc: "",
        fields: &[
            FieldSchema { auto: true, ..FieldSchema::new::<Uuid>("id", "") },
            FieldSchema { unique: true, ..FieldSchema::new::<String>("title", "") },
            FieldSchema { foreign: Some("consumers"), ..FieldSchema::new::<Option<Uuid>>("consumer", "") },
            FieldSchema { default: Some(Literal::Int(3)), ..FieldSchema::new::<Option<i64>>("size", "") },
            FieldSchema { kind: Kind::Record(&LIMITS), ..FieldSchema::new::<Option<Json>>("limits", "") },
            FieldSchema { kind: Kind::Map(&Kind::Boolean), ..FieldSchema::new::<Option<Json>>("flags", "") },
            FieldSchema::new::<Option<Vec<String>>>("tags", ""),
        ],
        old_names: &[],
        hints: &[],
    };

    static SCHEMA: LazyLock<CustomEntitySchema> =
        LazyLock::new(|| CustomEntitySchema::declared("notes", &NOTES, &check));

    fn check(note: &Json) -> Vec<FieldError> {
        match note["title"] == "wrong" {
            true => vec![FieldError::new("title", "is wrong")],
            false => Vec::new(),
        }
    }

    fn read(value: Json) -> Result<CustomRecord, String> {
        let mut reader = Reader::new(&());
        let schema: &'static CustomEntitySchema = &SCHEMA;
        let entity = schema.read(&Node::from(&value), &RecordContext::NONE, false, &mut reader);
        let found: Vec<_> =
            reader.into_errors().iter().map(|it| format!("{}: {}", it.path, it.message)).collect();
        if found.is_empty() { entity.ok_or_else(String::new) } else { Err(found.join("; ")) }
    }

    #[test]
    fn an_entity_has_every_field_and_its_defaults() {
        let id = "00000000-0000-4000-8000-000000000001";
        let note =
            read(json!({ "title": "a", "consumer": { "id": id }, "tags": ["t"], "flags": { "x": true } }));
        let note = note.unwrap();
        let mut value = note.to_value();
        assert_eq!(value["id"].take().as_str().and_then(|id| id.parse().ok()), Some(note.id()));
        assert_eq!(
            value,
            json!({ "id": null, "title": "a", "consumer": id, "size": 3, "limits": null, "flags": { "x": true },
                    "tags": ["t"] })
        );
        assert_eq!((note.text("title"), note.tags()), (Some("a"), &["t".to_owned()][..]));
        assert_eq!(note.references()[0].id.to_string(), id);
        assert_eq!(note.with("size", json!(4)).unwrap().to_value()["size"], 4);
        assert_ne!(note.with("size", json!(4)), Some(note));
    }

    #[test]
    fn what_is_wrong_is_reported_where_it_stands() {
        for (value, expected) in [
            (json!({}), ": required: set `title`"),
            (json!({ "title": 5 }), "title: expected a string"),
            (json!({ "title": "a", "titel": "b" }), "titel"),
            (json!({ "title": "a", "consumer": "x" }), "consumer: \"x\" is none of the consumers"),
            (
                json!({ "title": "a", "limits": { "least": 10 } }),
                "limits.least: expected a number between 1 and 9",
            ),
            (json!({ "title": "a", "flags": { "x": 1 } }), "flags.x: expected true or false"),
            (json!({ "title": "a", "tags": ["b", 1] }), "tags[1]: expected a string"),
            (json!({ "title": "wrong" }), "title: is wrong"),
        ] {
            let found = read(value.clone()).unwrap_err();
            assert!(found.contains(expected), "{value}: {found}");
        }
    }
}
