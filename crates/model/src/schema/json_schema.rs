//! Schemas as JSON Schema, in the dialect of OpenAPI 3.1.
use super::json::number;
use super::{FieldSchema, Json, JsonMap, Kind, Literal, RecordSchema};
use serde_json::json;

/// Which way a record travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From a client: what has a default may be left out, and null asks for it.
    Request,
    /// To a client: every field is there, but for those that Kong lacks.
    Response,
}

impl RecordSchema {
    /// The JSON Schema of such records.
    pub fn to_json_schema(&self, side: Direction) -> Json {
        let must_be_there = |field: &&FieldSchema| match side {
            Direction::Response => !field.extension,
            Direction::Request => must_be_given(field),
        };
        let required: Vec<_> = self.fields.iter().filter(must_be_there).map(|field| field.name).collect();
        let properties: JsonMap =
            self.fields.iter().map(|field| (field.name.to_owned(), property(field, side))).collect();
        let mut schema = json!({ "type": "object", "properties": properties });
        if !required.is_empty() {
            schema["required"] = required.into();
        }
        if !self.doc.is_empty() {
            schema["description"] = self.doc.into();
        }
        schema
    }
}

/// Whether nothing stands in for the field.
fn must_be_given(field: &FieldSchema) -> bool {
    field.required && !field.auto && field.default.is_none() && !matches!(field.kind, Kind::Record(_))
}

fn property(field: &FieldSchema, side: Direction) -> Json {
    let mut schema = kind(&field.kind, field, side);
    let nullable = match side {
        Direction::Request => !field.required || field.auto,
        Direction::Response => !field.required,
    };
    if nullable {
        allow_null(&mut schema);
    }
    if let (Kind::Array(_), Some(least)) = (field.kind, field.len_min) {
        schema["minItems"] = least.into();
    }
    if !field.doc.is_empty() {
        schema["description"] = field.doc.into();
    }
    if let Some(default) = &field.default {
        schema["default"] = default.to_json();
    }
    schema
}

fn allow_null(schema: &mut Json) {
    if let Some(only) = schema.get("type").cloned() {
        schema["type"] = json!([only, "null"]);
    }
    if let Some(values) = schema.get_mut("enum").and_then(Json::as_array_mut) {
        values.push(Json::Null);
    }
}

/// Rules on values hold for the elements of a list and the values of a map.
fn kind(of: &Kind, field: &FieldSchema, side: Direction) -> Json {
    match of {
        Kind::Boolean => json!({ "type": "boolean" }),
        Kind::Integer(least, most) => integer(*least, *most, field),
        Kind::Number => bounded(json!({ "type": "number" }), field),
        Kind::String => text(field),
        Kind::Choice(names) => json!({ "type": "string", "enum": names }),
        Kind::Uuid => reference(field, side),
        Kind::Array(element) => {
            // Lists of references are lists of ids.
            let rules = FieldSchema { foreign: None, ..field.element() };
            json!({ "type": "array", "items": kind(element, &rules, side) })
        }
        Kind::Map(value) => {
            json!({ "type": "object", "additionalProperties": kind(value, &field.element(), side) })
        }
        Kind::Record(schema) => schema.to_json_schema(side),
        Kind::Any => json!({ "type": "object" }),
    }
}

fn integer(least: i64, most: i64, field: &FieldSchema) -> Json {
    let schema = json!({ "type": "integer" });
    if !field.one_of.is_empty() || field.between.is_some() || most == i64::MAX {
        return bounded(schema, field);
    }
    json!({ "type": "integer", "minimum": least, "maximum": most })
}

fn bounded(mut schema: Json, field: &FieldSchema) -> Json {
    if let Some((least, most)) = field.between {
        schema["minimum"] = number(least);
        schema["maximum"] = number(most);
    }
    if let Some(bound) = field.gt {
        schema["exclusiveMinimum"] = number(bound);
    }
    one_of(schema, field)
}

fn text(field: &FieldSchema) -> Json {
    let mut schema = json!({ "type": "string", "minLength": field.len_min.unwrap_or(1) });
    if let Some(most) = field.len_max {
        schema["maxLength"] = most.into();
    }
    if let Some(start) = field.starts_with {
        schema["pattern"] = format!("^{start}").into();
    }
    one_of(schema, field)
}

fn one_of(mut schema: Json, field: &FieldSchema) -> Json {
    if !field.one_of.is_empty() {
        schema["enum"] = field.one_of.iter().map(Literal::to_json).collect();
    }
    schema
}

/// An id, or what names another entity.
fn reference(field: &FieldSchema, side: Direction) -> Json {
    let id = json!({ "type": "string", "format": "uuid" });
    match (field.foreign, side) {
        (None, _) => id,
        (Some(_), Direction::Response) => {
            json!({ "type": "object", "properties": { "id": id }, "required": ["id"] })
        }
        (Some(_), Direction::Request) => {
            json!({ "type": "object", "properties": { "id": id, "name": { "type": "string" } } })
        }
    }
}
