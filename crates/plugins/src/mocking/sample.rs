//! Random values of a JSON Schema, as JSON or XML.

use std::fmt::Write;
use weir_plugin::Json;

/// How deep arrays may be nested, because each has up to three items.
const MAX_NESTED_ARRAYS: usize = 6;

/// What a body is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Json,
    Xml,
}

/// What values are made of.
#[derive(Debug, Clone)]
pub(super) enum Sample {
    /// The value itself.
    Example(Json),
    String,
    Number,
    Integer,
    Boolean,
    /// One to three items.
    Array(Box<Sample>),
    Object(Vec<(String, Sample)>),
}

impl Sample {
    /// Reads a schema, whose outermost value is an object.
    pub(super) fn read(schema: &Json) -> Result<Sample, String> {
        let sample = if schema.get("type").is_some() { one(schema, "")? } else { object(schema, "")? };
        match sample {
            Sample::Object(_) => Ok(sample),
            _ => Err("is not the schema of an object: write `type: object` with `properties`".to_owned()),
        }
    }

    pub(super) fn text(&self, format: Format) -> String {
        let value = self.value();
        match format {
            Format::Json => value.to_string(),
            Format::Xml => {
                let mut out = String::new();
                write_xml(&mut out, "data", &value);
                out
            }
        }
    }

    fn value(&self) -> Json {
        match self {
            Sample::Example(example) => example.clone(),
            Sample::String => {
                let letters = std::iter::repeat_with(fastrand::lowercase).take(fastrand::usize(1..=10));
                letters.collect::<String>().into()
            }
            Sample::Number => (fastrand::f64() * 10_000.0).into(),
            Sample::Integer => fastrand::u32(1..=10_000).into(),
            Sample::Boolean => fastrand::bool().into(),
            Sample::Array(item) => {
                std::iter::repeat_with(|| item.value()).take(fastrand::usize(1..=3)).collect()
            }
            Sample::Object(members) => {
                members.iter().map(|(name, member)| (name.clone(), member.value())).collect()
            }
        }
    }
}

/// Reads the schema at a path, for errors.
fn one(schema: &Json, path: &str) -> Result<Sample, String> {
    let kind = schema.get("type").and_then(Json::as_str).map(str::to_lowercase);
    let example = schema.get("example");
    let example_if = |fits: fn(&Json) -> bool, sample| match example {
        Some(example) if fits(example) => Sample::Example(example.clone()),
        _ => sample,
    };
    Ok(match kind.as_deref() {
        Some("string") => example_if(Json::is_string, Sample::String),
        Some("number") => example_if(Json::is_number, Sample::Number),
        Some("integer") => example_if(Json::is_i64, Sample::Integer),
        Some("boolean") => example_if(Json::is_boolean, Sample::Boolean),
        Some("array") => {
            if path.matches("[]").count() >= MAX_NESTED_ARRAYS {
                return Err(format!("{path}: arrays may be nested {MAX_NESTED_ARRAYS} deep"));
            }
            let items = schema.get("items").ok_or_else(|| format!("{path}: an array needs `items`"))?;
            Sample::Array(Box::new(one(items, &format!("{path}[]"))?))
        }
        Some("object") => object(schema, path)?,
        other => {
            let found = other.map_or("no `type`".to_owned(), |other| format!("the type {other:?}"));
            let place = if path.is_empty() { "the schema" } else { path };
            return Err(format!(
                "{place} has {found}: use string, number, integer, boolean, array or object"
            ));
        }
    })
}

fn object(schema: &Json, path: &str) -> Result<Sample, String> {
    let members = schema.get("properties").and_then(Json::as_object);
    let members = members.into_iter().flatten().map(|(name, member)| {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        Ok((name.clone(), one(member, &path)?))
    });
    members.collect::<Result<_, String>>().map(Sample::Object)
}

fn write_xml(out: &mut String, name: &str, value: &Json) {
    if let Json::Array(items) = value {
        return items.iter().for_each(|item| write_xml(out, name, item));
    }
    let _ = write!(out, "<{name}>");
    match value {
        Json::Object(members) => members.iter().for_each(|(name, member)| write_xml(out, name, member)),
        Json::String(text) => push_escaped(out, text),
        other => {
            let _ = write!(out, "{other}");
        }
    }
    let _ = write!(out, "</{name}>");
}

fn push_escaped(out: &mut String, text: &str) {
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            _ => out.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Format, Sample};
    use serde_json::json;
    use weir_plugin::Json;

    #[test]
    fn values_are_of_their_types() {
        let sample = Sample::read(&json!({ "properties": {
            "s": { "type": "string" }, "n": { "type": "number" }, "i": { "type": "Integer" }, "b": { "type": "boolean" },
            "l": { "type": "array", "items": { "type": "object", "properties": { "x": { "type": "string" } } } } } }));
        let sample = sample.unwrap();
        for _ in 0..100 {
            let value: Json = serde_json::from_str(&sample.text(Format::Json)).unwrap();
            assert!((1..=10).contains(&value["s"].as_str().unwrap().len()));
            assert!((0.0..10_000.0).contains(&value["n"].as_f64().unwrap()));
            assert!((1..=10_000).contains(&value["i"].as_i64().unwrap()));
            assert!(value["b"].is_boolean());
            let items = value["l"].as_array().unwrap();
            assert!((1..=3).contains(&items.len()) && items.iter().all(|item| item["x"].is_string()));
        }
    }

    #[test]
    fn examples_stand_for_themselves() {
        let schema = json!({ "type": "object", "properties": {
            "a": { "type": "string", "example": "1 < 2 & 3" }, "b": { "type": "integer", "example": 7 },
            "c": { "type": "object" } } });
        let sample = Sample::read(&schema).unwrap();
        assert_eq!(sample.text(Format::Json), r#"{"a":"1 < 2 & 3","b":7,"c":{}}"#);
        assert_eq!(sample.text(Format::Xml), "<data><a>1 &lt; 2 &amp; 3</a><b>7</b><c></c></data>");
    }

    #[test]
    fn errors_name_the_place() {
        let error = |schema| Sample::read(&schema).unwrap_err();
        let nested = json!({ "properties": { "a": { "type": "array", "items": { "type": "date" } } } });
        assert_eq!(
            error(nested),
            "a[] has the type \"date\": use string, number, integer, boolean, array or object"
        );
        assert_eq!(error(json!({ "properties": { "a": { "type": "array" } } })), "a: an array needs `items`");
        assert!(error(json!({ "type": "string" })).contains("type: object"));
        assert!(error(json!({ "properties": { "a": {} } })).contains("a has no `type`"));
        let nested = |depth| {
            let list = |items, _| json!({ "type": "array", "items": items });
            json!({ "properties": { "a": (0..depth).fold(json!({ "type": "string" }), list) } })
        };
        assert!(Sample::read(&nested(6)).is_ok());
        assert_eq!(error(nested(40)), "a[][][][][][]: arrays may be nested 6 deep");
    }
}
