//! Schemas as Kong's Admin API shows them under `/schemas`.
use super::{FieldSchema, Json, JsonMap, Kind, Literal, RecordSchema, old_names};
use serde_json::json;

impl RecordSchema {
    /// What `/schemas/NAME` answers: an ordered array of single-member objects.
    pub fn to_json(&self) -> Json {
        let mut described =
            json!({ "fields": self.fields.iter().filter(|it| !it.extension).map(field).collect::<Vec<_>>() });
        if !self.old_names.is_empty() {
            described["shorthand_fields"] = old_names::described(self).into();
        }
        described
    }
}

impl Literal {
    /// The value as JSON.
    pub fn to_json(&self) -> Json {
        match self {
            Literal::Bool(value) => (*value).into(),
            Literal::Int(value) => (*value).into(),
            Literal::Float(value) => number(*value),
            Literal::Str(value) => (*value).into(),
            Literal::List(items) => items.iter().map(Literal::to_json).collect(),
            Literal::Map(members) => members
                .iter()
                .map(|(name, value)| ((*name).to_owned(), value.to_json()))
                .collect::<JsonMap>()
                .into(),
        }
    }
}

/// The type of a field alone.
pub(super) fn type_of(field: &FieldSchema) -> JsonMap {
    JsonMap::from_iter([("type".to_owned(), kind(&field.kind)["type"].take())])
}

/// One field: `{"name": {"type": …}}`.
pub(crate) fn field(field: &FieldSchema) -> Json {
    let mut described = match (field.foreign, field.kind) {
        (Some(reference), Kind::Uuid) => json!({ "type": "foreign", "reference": reference }),
        _ => kind(&field.kind),
    };
    if field.set {
        described["type"] = "set".into();
    }
    if let Some(value) = value_of(&mut described).as_object_mut() {
        if !field.one_of.is_empty() {
            value.remove("between");
        }
        value.extend(rules(field).map(|(name, rule)| (name.to_owned(), rule)));
    }
    field_members(field).into_iter().for_each(|(name, member)| described[name] = member);
    json!({ field.name: described })
}

/// What rules on values are for: the elements of a list, the values of a map, else the field itself.
fn value_of(described: &mut Json) -> &mut Json {
    match ["elements", "values"].into_iter().find(|inner| described.get(inner).is_some()) {
        Some(inner) => value_of(&mut described[inner]),
        None => described,
    }
}

/// The type of a value: `{"type": …}`.
pub(crate) fn kind(kind: &Kind) -> Json {
    match kind {
        Kind::Boolean => json!({ "type": "boolean" }),
        // A type without a sign is narrower than Kong's integers, for which bounds are not shown.
        Kind::Integer(0, most) => json!({ "type": "integer", "between": [0, most] }),
        Kind::Integer(..) => json!({ "type": "integer" }),
        Kind::Number => json!({ "type": "number" }),
        Kind::String => json!({ "type": "string" }),
        Kind::Choice(names) => json!({ "type": "string", "one_of": names }),
        Kind::Uuid => json!({ "type": "string", "uuid": true }),
        Kind::Array(element) => json!({ "type": "array", "elements": self::kind(element) }),
        Kind::Map(value) => {
            json!({ "type": "map", "keys": { "type": "string" }, "values": self::kind(value) })
        }
        Kind::Record(schema) => {
            let mut described = schema.to_json();
            described["type"] = "record".into();
            described
        }
        Kind::Any => json!({ "type": "any" }),
    }
}

/// What is said of the field whatever its type.
fn field_members(field: &FieldSchema) -> Vec<(&'static str, Json)> {
    let mut members = Vec::new();
    let mut add = |name, value: Option<Json>| members.extend(value.map(|value| (name, value)));
    add("description", (!field.doc.is_empty()).then(|| field.doc.into()));
    // What fills itself in need not be given.
    add("required", (field.required && !field.auto).then_some(Json::Bool(true)));
    add("default", field.default.map(|default| default_of(field, &default)));
    add("auto", field.auto.then_some(Json::Bool(true)));
    add("unique", field.unique.then_some(Json::Bool(true)));
    if !matches!(field.kind, Kind::Map(_)) {
        add("encrypted", (field.secret || field.encrypted).then_some(Json::Bool(true)));
        add("referenceable", field.takes_references().then_some(Json::Bool(true)));
    }
    add("len_min", field.len_min.map(Json::from));
    add("len_max", field.len_max.map(Json::from));
    members
}

/// The default, records in a list with every field: decK compares them as they are.
fn default_of(field: &FieldSchema, default: &Literal) -> Json {
    let mut shown = default.to_json();
    if let (Kind::Array(Kind::Record(schema)), Some(records)) = (field.kind, shown.as_array_mut()) {
        for record in records.iter_mut().filter_map(Json::as_object_mut) {
            for field in schema.fields {
                record
                    .entry(field.name)
                    .or_insert_with(|| field.default.map_or(Json::Null, |it| it.to_json()));
            }
        }
    }
    shown
}

/// What is said of its value, or of its elements.
fn rules(field: &FieldSchema) -> impl Iterator<Item = (&'static str, Json)> {
    let of_kong = field.one_of.iter().filter(|literal| !is_extension(literal, field));
    let one_of = of_kong.map(Literal::to_json).collect::<Json>();
    let is_map_of_references = field.takes_references() && matches!(field.kind, Kind::Map(_));
    let rules = [
        ("one_of", (!field.one_of.is_empty()).then_some(one_of)),
        ("gt", field.gt.map(number)),
        ("between", field.between.map(|(low, high)| Json::Array(vec![number(low), number(high)]))),
        ("starts_with", field.starts_with.map(Json::from)),
        // References stand in the place of a map's values.
        ("referenceable", is_map_of_references.then_some(Json::Bool(true))),
    ];
    rules.into_iter().filter_map(|(name, rule)| Some((name, rule?)))
}

/// Whether Kong lacks an allowed value.
fn is_extension(literal: &Literal, field: &FieldSchema) -> bool {
    matches!(literal, Literal::Str(text) if field.extension_values.contains(text))
}

/// A number as JSON, without a fraction where it has none.
pub(super) fn number(value: f64) -> Json {
    if value.fract() == 0.0 && value.abs() < 1e15 { (value as i64).into() } else { value.into() }
}
