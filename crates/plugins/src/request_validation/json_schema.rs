//! JSON Schema, as far as APISIX's users write it: the keywords of draft 4 to 7 without references. Messages are those of
//! APISIX's validator.

use regex::Regex;
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use weir_plugin::Json;
use weir_plugin::schema::{did_you_mean, quoted};

/// A schema, compiled.
#[derive(Debug, Default)]
pub(super) struct Schema {
    types: Vec<String>,
    allowed: Option<Vec<Json>>,
    exact: Option<Json>,
    properties: BTreeMap<String, Schema>,
    patterns: Vec<(Regex, Schema)>,
    /// What other members must be; none are allowed if there is no schema.
    additional: Option<Option<Box<Schema>>>,
    required: Vec<String>,
    items: Option<Box<Schema>>,
    /// The schemas of the first elements.
    tuple: Vec<Schema>,
    unique: bool,
    pattern: Option<Regex>,
    counts: Counts,
    range: Range,
    all: Vec<Schema>,
    any: Vec<Schema>,
    one: Vec<Schema>,
    not: Option<Box<Schema>>,
    condition: Option<Box<Condition>>,
    /// Nothing is valid: the schema `false`.
    never: bool,
}

/// The least and the greatest number of characters, elements and members.
#[derive(Debug, Default)]
struct Counts {
    length: [Option<u64>; 2],
    items: [Option<u64>; 2],
    properties: [Option<u64>; 2],
}

/// Bounds of numbers.
#[derive(Debug, Default)]
struct Range {
    least: Option<f64>,
    most: Option<f64>,
    above: Option<f64>,
    below: Option<f64>,
    multiple: Option<f64>,
}

/// `if`, `then` and `else`.
#[derive(Debug)]
struct Condition {
    of: Schema,
    then: Option<Schema>,
    otherwise: Option<Schema>,
}

impl Condition {
    /// Without `if`, `then` and `else` have no meaning.
    fn compile(keywords: &serde_json::Map<String, Json>) -> Result<Option<Self>, SchemaError> {
        let compile = |name: &str| {
            let compiled = keywords.get(name).map(Schema::compile).transpose();
            compiled.map_err(|error| error.within(name))
        };
        let Some(of) = compile("if")? else { return Ok(None) };
        Ok(Some(Self { of, then: compile("then")?, otherwise: compile("else")? }))
    }
}

/// What is wrong with a schema, and where in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SchemaError {
    /// Such as `properties.id.type`.
    pub(super) path: String,
    pub(super) message: String,
}

impl SchemaError {
    /// The same, of a schema that is a part of another one.
    pub(super) fn within(mut self, part: &str) -> Self {
        let dot = if self.path.is_empty() || self.path.starts_with('[') { "" } else { "." };
        self.path = format!("{part}{dot}{}", self.path);
        self
    }
}

impl From<String> for SchemaError {
    fn from(message: String) -> Self {
        Self { path: String::new(), message }
    }
}

impl From<&str> for SchemaError {
    fn from(message: &str) -> Self {
        message.to_owned().into()
    }
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

impl std::error::Error for SchemaError {}

/// The types that values may have.
const TYPES: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];

/// Keywords that describe and do not restrict, or whose meaning is read with another one.
const DESCRIPTIONS: [&str; 17] = [
    "$schema",
    "$id",
    "id",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "format",
    "if",
    "then",
    "else",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "additionalItems",
];

impl Schema {
    /// Compiles a schema, or says which keyword is wrong.
    pub(super) fn compile(written: &Json) -> Result<Self, SchemaError> {
        match written {
            Json::Bool(allows) => Ok(Self { never: !allows, ..Self::default() }),
            Json::Object(keywords) => {
                let mut schema = Self::default();
                for (keyword, value) in keywords {
                    schema.add(keyword, value, written).map_err(|error| error.within(keyword))?;
                }
                schema.condition = Condition::compile(keywords)?.map(Box::new);
                Ok(schema)
            }
            other => Err(format!("expected a schema, got {other}").into()),
        }
    }

    fn add(&mut self, keyword: &str, value: &Json, schema: &Json) -> Result<(), SchemaError> {
        let boxed = |value: &Json| Self::compile(value).map(Box::new);
        match keyword {
            "type" => self.types = types(value)?,
            "enum" => self.allowed = Some(list(value)?.clone()),
            "const" => self.exact = Some(value.clone()),
            "properties" => self.properties = members(value)?,
            "patternProperties" => {
                let patterns = members(value)?.into_iter();
                let compiled = patterns.map(|(pattern, schema)| Ok((regex(&pattern)?, schema)));
                self.patterns = compiled.collect::<Result<_, SchemaError>>()?;
            }
            "additionalProperties" if *value == Json::Bool(false) => self.additional = Some(None),
            "additionalProperties" => self.additional = Some(Some(boxed(value)?)),
            "required" => self.required = texts(value)?,
            "items" if value.is_array() => self.tuple = schemas(value)?,
            "items" => self.items = Some(boxed(value)?),
            "additionalItems" if schema["items"].is_array() => self.items = Some(boxed(value)?),
            "uniqueItems" => self.unique = *value == Json::Bool(true),
            "pattern" => self.pattern = Some(regex(&text(value)?)?),
            "allOf" => self.all = schemas(value)?,
            "anyOf" => self.any = schemas(value)?,
            "oneOf" => self.one = schemas(value)?,
            "not" => self.not = Some(boxed(value)?),
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" => {
                *self.counts.of(keyword) = Some(value.as_u64().ok_or("expected a whole number")?);
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" | "multipleOf" => {
                self.range.set(keyword, value, schema)?;
            }
            _ if DESCRIPTIONS.contains(&keyword) => {}
            _ => return Err("this keyword is not available here; leave it out".into()),
        }
        Ok(())
    }

    /// Why a value is invalid, if it is.
    pub(super) fn check(&self, value: &Json) -> Result<(), String> {
        if self.never {
            return Err("nothing is valid here".to_owned());
        }
        self.check_type(value)?;
        let is_allowed = |allowed: &[Json]| allowed.iter().any(|one| is_same(one, value));
        let lists = [self.allowed.as_deref(), self.exact.as_ref().map(std::slice::from_ref)];
        if !lists.into_iter().flatten().all(is_allowed) {
            return Err("matches none of the enum values".to_owned());
        }
        match value {
            Json::Object(members) => self.check_members(members)?,
            Json::Array(elements) => self.check_elements(elements)?,
            Json::String(text) => self.check_text(text)?,
            Json::Number(number) => self.range.check(number.as_f64().unwrap_or(f64::NAN))?,
            _ => {}
        }
        self.check_combinations(value)
    }

    fn check_type(&self, value: &Json) -> Result<(), String> {
        let is = |name: &String| match (name.as_str(), value) {
            ("integer", Json::Number(number)) => number.as_f64().is_some_and(|number| number.fract() == 0.0),
            (name, value) => name == name_of(value),
        };
        if self.types.is_empty() || self.types.iter().any(is) {
            return Ok(());
        }
        let (expected, found) = (self.types.join(" or "), name_of(value));
        Err(format!("wrong type: expected {expected}, got {found}"))
    }

    fn check_members(&self, members: &serde_json::Map<String, Json>) -> Result<(), String> {
        Counts::check(members.len(), self.counts.properties, "object", "properties")?;
        if let Some(name) = self.required.iter().find(|name| !members.contains_key(*name)) {
            return Err(format!("property \"{name}\" is required"));
        }
        for (name, value) in members {
            let own = self.properties.get(name);
            let matching = self.patterns.iter().filter(|(regex, _)| regex.is_match(name)).map(|(_, s)| s);
            let known: Vec<&Schema> = own.into_iter().chain(matching).collect();
            let additional = match &self.additional {
                Some(None) if known.is_empty() => {
                    return Err(format!("additional properties forbidden, found {name}"));
                }
                Some(Some(additional)) if known.is_empty() => Some(&**additional),
                _ => None,
            };
            for schema in known.into_iter().chain(additional) {
                let failed = |why| format!("property \"{name}\" validation failed: {why}");
                schema.check(value).map_err(failed)?;
            }
        }
        Ok(())
    }

    fn check_elements(&self, elements: &[Json]) -> Result<(), String> {
        Counts::check(elements.len(), self.counts.items, "array", "items")?;
        let of = |at: usize| self.tuple.get(at).or(self.items.as_deref());
        for (at, element) in elements.iter().enumerate() {
            let failed = |why| format!("failed to validate item {}: {why}", at + 1);
            of(at).map_or(Ok(()), |schema| schema.check(element)).map_err(failed)?;
        }
        match self.unique.then(|| first_repeated(elements)).flatten() {
            Some((first, second)) => {
                Err(format!("expected unique items but items {first} and {second} are equal"))
            }
            None => Ok(()),
        }
    }

    fn check_text(&self, text: &str) -> Result<(), String> {
        let (length, [least, most]) = (text.chars().count() as u64, self.counts.length);
        if let Some(least) = least.filter(|least| length < *least) {
            return Err(format!("string too short, expected at least {least}, got {length}"));
        }
        if let Some(most) = most.filter(|most| length > *most) {
            return Err(format!("string too long, expected at most {most}, got {length}"));
        }
        match &self.pattern {
            Some(pattern) if !pattern.is_match(text) => Err(format!("failed to match pattern \"{pattern}\"")),
            _ => Ok(()),
        }
    }

    fn check_combinations(&self, value: &Json) -> Result<(), String> {
        let is_valid = |schema: &Schema| schema.check(value).is_ok();
        for (at, schema) in self.all.iter().enumerate() {
            schema.check(value).map_err(|why| format!("allOf {} failed: {why}", at + 1))?;
        }
        if !self.any.is_empty() && !self.any.iter().any(is_valid) {
            return Err("object matches none of the required".to_owned());
        }
        if !self.one.is_empty() {
            match self.one.iter().filter(|schema| is_valid(schema)).count() {
                1 => {}
                0 => return Err("value should match only one schema, but matches none".to_owned()),
                _ => return Err("value should match only one schema, but matches several".to_owned()),
            }
        }
        if self.not.as_ref().is_some_and(|schema| is_valid(schema)) {
            return Err("value wasn't supposed to match schema".to_owned());
        }
        let Some(condition) = &self.condition else { return Ok(()) };
        let branch = if is_valid(&condition.of) { &condition.then } else { &condition.otherwise };
        branch.as_ref().map_or(Ok(()), |schema| schema.check(value))
    }
}

impl Counts {
    fn of(&mut self, keyword: &str) -> &mut Option<u64> {
        let Self { length, items, properties } = self;
        let bounds = match &keyword[3..] {
            "Length" => length,
            "Items" => items,
            _ => properties,
        };
        &mut bounds[usize::from(keyword.starts_with("max"))]
    }

    fn check(count: usize, [least, most]: [Option<u64>; 2], of: &str, what: &str) -> Result<(), String> {
        let count = count as u64;
        match (least, most) {
            (Some(least), _) if count < least => Err(format!("expect {of} to have at least {least} {what}")),
            (_, Some(most)) if count > most => Err(format!("expect {of} to have at most {most} {what}")),
            _ => Ok(()),
        }
    }
}

impl Range {
    /// In draft 4, `exclusiveMinimum` says of `minimum` that it is exclusive.
    fn set(&mut self, keyword: &str, value: &Json, schema: &Json) -> Result<(), String> {
        let bound = match value {
            Json::Bool(true) if keyword == "exclusiveMinimum" => schema["minimum"].as_f64(),
            Json::Bool(true) if keyword == "exclusiveMaximum" => schema["maximum"].as_f64(),
            Json::Bool(false) if keyword.starts_with("exclusive") => return Ok(()),
            value => value.as_f64(),
        };
        let bound = Some(bound.ok_or("expected a number")?);
        match keyword {
            "minimum" => self.least = bound,
            "maximum" => self.most = bound,
            "exclusiveMinimum" => self.above = bound,
            "exclusiveMaximum" => self.below = bound,
            _ => self.multiple = bound.filter(|of| *of > 0.0),
        }
        Ok(())
    }

    fn check(&self, number: f64) -> Result<(), String> {
        let Self { least, most, above, below, multiple } = *self;
        let rules = [
            (least.filter(|least| number < *least), "at least"),
            (most.filter(|most| number > *most), "at most"),
            (above.filter(|above| number <= *above), "greater than"),
            (below.filter(|below| number >= *below), "smaller than"),
            (multiple.filter(|of| (number / of).fract() != 0.0), "a multiple of"),
        ];
        match rules.iter().find_map(|(bound, rule)| Some(((*bound)?, rule))) {
            Some((bound, rule)) => Err(format!("expected {number} to be {rule} {bound}")),
            None => Ok(()),
        }
    }
}

/// What elements are distinguished by: numbers by their value.
#[derive(PartialEq, Eq, Hash)]
enum Distinct<'j> {
    Number(u64),
    Other(&'j Json),
}

/// The numbers, counted from 1, of the first element that is the same as one before it, and of that one. Clients choose how
/// many elements there are, so that not each is compared with each.
fn first_repeated(elements: &[Json]) -> Option<(usize, usize)> {
    let mut seen = HashMap::new();
    elements.iter().zip(1..).find_map(|(element, at)| {
        let distinct = match element.as_f64() {
            // -0 becomes 0.
            Some(number) => Distinct::Number((number + 0.0).to_bits()),
            None => Distinct::Other(element),
        };
        match seen.entry(distinct) {
            Entry::Occupied(first) => Some((*first.get(), at)),
            Entry::Vacant(free) => {
                free.insert(at);
                None
            }
        }
    })
}

/// Numbers are the same by value, however they are written.
fn is_same(one: &Json, other: &Json) -> bool {
    one == other || one.is_number() && other.is_number() && one.as_f64() == other.as_f64()
}

fn name_of(value: &Json) -> &'static str {
    match value {
        Json::Null => "null",
        Json::Bool(_) => "boolean",
        Json::Number(_) => "number",
        Json::String(_) => "string",
        Json::Array(_) => "array",
        Json::Object(_) => "object",
    }
}

fn list(value: &Json) -> Result<&Vec<Json>, String> {
    value.as_array().ok_or_else(|| "expected a list".to_owned())
}

fn text(value: &Json) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| "expected a string".to_owned())
}

fn texts(value: &Json) -> Result<Vec<String>, String> {
    list(value)?.iter().map(text).collect()
}

/// The types that `type` names: a typing error would refuse every value.
fn types(value: &Json) -> Result<Vec<String>, SchemaError> {
    let named = if value.is_array() { texts(value)? } else { vec![text(value)?] };
    if named.is_empty() {
        return Err("expected at least one type".into());
    }
    match named.iter().find(|name| !TYPES.contains(&name.as_str())) {
        Some(name) => {
            let (hint, all) = (did_you_mean(name, TYPES), TYPES.join(", "));
            Err(format!("`{}` is not one of the types {all}{hint}", quoted(name)).into())
        }
        None => Ok(named),
    }
}

fn schemas(value: &Json) -> Result<Vec<Schema>, SchemaError> {
    let schema = |(at, schema)| Schema::compile(schema).map_err(|error| error.within(&format!("[{at}]")));
    list(value)?.iter().enumerate().map(schema).collect()
}

fn members(value: &Json) -> Result<BTreeMap<String, Schema>, SchemaError> {
    let members = value.as_object().ok_or("expected an object")?;
    let member = |(name, schema): (&String, &Json)| {
        let schema = Schema::compile(schema).map_err(|error| error.within(name))?;
        Ok((name.clone(), schema))
    };
    members.iter().map(member).collect()
}

fn regex(pattern: &str) -> Result<Regex, String> {
    Regex::new(pattern).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_meet_schemas_or_the_message_says_why_not() {
        for (schema, value, expected) in [
            (json!({}), json!(1), ""),
            (json!(false), json!(1), "nothing is valid"),
            (json!({ "type": "string" }), json!(1), "wrong type: expected string, got number"),
            (json!({ "type": "integer" }), json!(1.0), ""),
            (json!({ "type": ["integer", "null"] }), json!(1.5), "expected integer or null"),
            (json!({ "enum": [1, "a"] }), json!(1.0), ""),
            (json!({ "const": 1 }), json!(2), "none of the enum"),
            (json!({ "const": 1, "enum": [1, 2] }), json!(2), "none of the enum"),
            (json!({ "required": ["a"] }), json!({}), "property \"a\" is required"),
            (
                json!({ "properties": { "a": { "minLength": 2 } } }),
                json!({ "a": "ü" }),
                "property \"a\" validation failed: string too short, expected at least 2, got 1",
            ),
            (
                json!({ "properties": { "a": {} }, "additionalProperties": false }),
                json!({ "b": 1 }),
                "found b",
            ),
            (json!({ "patternProperties": { "^x": { "type": "number" } } }), json!({ "xy": "" }), "\"xy\""),
            (json!({ "additionalProperties": { "type": "number" } }), json!({ "a": "" }), "wrong type"),
            (json!({ "minProperties": 1 }), json!({}), "at least 1 properties"),
            (json!({ "items": { "maximum": 3 } }), json!([1, 4]), "item 2: expected 4 to be at most 3"),
            (json!({ "items": [{ "type": "string" }] }), json!(["a", 1]), ""),
            (
                json!({ "items": [{ "type": "string" }], "additionalItems": false }),
                json!(["a", 1]),
                "item 2: nothing is valid",
            ),
            (json!({ "items": {}, "additionalItems": false }), json!(["a", 1]), ""),
            (json!({ "maxItems": 1 }), json!([1, 2]), "at most 1 items"),
            (json!({ "uniqueItems": true }), json!([1, 2, 1.0]), "items 1 and 3 are equal"),
            (json!({ "uniqueItems": true }), json!([[1], "1", 1, [2], 0, -0.0]), "items 5 and 6 are equal"),
            (json!({}), json!([1, 1]), ""),
            (json!({ "pattern": "^a+$" }), json!("ab"), "failed to match pattern"),
            (json!({ "minimum": 1, "exclusiveMinimum": true }), json!(1), "greater than 1"),
            (json!({ "exclusiveMaximum": 5, "multipleOf": 2 }), json!(3), "a multiple of 2"),
            (json!({ "allOf": [{ "type": "number" }, { "minimum": 2 }] }), json!(1), "allOf 2 failed"),
            (json!({ "anyOf": [{ "type": "string" }, { "minimum": 2 }] }), json!(1), "none of the required"),
            (json!({ "oneOf": [{ "type": "number" }, { "minimum": 2 }] }), json!(3), "matches several"),
            (json!({ "not": { "type": "number" } }), json!(3), "wasn't supposed"),
            (
                json!({ "if": { "minimum": 2 }, "then": { "maximum": 2 }, "else": true }),
                json!(3),
                "at most 2",
            ),
            (json!({ "then": { "type": "Objct" }, "else": { "$ref": "#/definitions/a" } }), json!(3), ""),
        ] {
            let found = Schema::compile(&schema).unwrap().check(&value).err().unwrap_or_default();
            assert!(found.contains(expected) && found.is_empty() == expected.is_empty(), "{schema}: {found}");
        }
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for schema in [
            json!(1),
            json!({ "$ref": "#/definitions/a" }),
            json!({ "type": 1 }),
            json!({ "pattern": "(" }),
            json!({ "properties": { "a": { "minLength": "x" } } }),
            json!({ "minimum": "1" }),
            json!({ "type": [] }),
        ] {
            assert!(Schema::compile(&schema).is_err(), "{schema}");
        }
    }

    #[test]
    fn a_type_that_does_not_exist_is_refused_where_it_is() {
        for (schema, path) in [
            (json!({ "type": "Objct" }), "type"),
            (json!({ "type": ["string", "Objct"] }), "type"),
            (json!({ "properties": { "a": { "items": { "type": "Objct" } } } }), "properties.a.items.type"),
            (json!({ "anyOf": [{}, { "not": { "type": "Objct" } }] }), "anyOf[1].not.type"),
            (json!({ "if": {}, "then": { "type": "Objct" } }), "then.type"),
        ] {
            let error = Schema::compile(&schema).unwrap_err();
            assert_eq!(error.path, path, "{schema}");
            let types = "string, number, integer, boolean, array, object, null";
            let message = format!("`Objct` is not one of the types {types}; did you mean `object`?");
            assert_eq!(error.message, message, "{schema}");
        }
    }
}
