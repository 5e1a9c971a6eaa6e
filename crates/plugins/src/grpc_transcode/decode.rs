//! Messages as JSON, as APISIX writes them.

use crate::shared::grpc::bounds::{MAX_JSON, too_long};
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, ReflectMessage, Syntax, Value};
use serde_json::{Map, Number, Value as Json};
use std::borrow::Cow;

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct JsonOptions {
    has_enum_numbers: bool,
    integers: Integers,
    defaults: Defaults,
}

/// How numbers of 64 bits are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Integers {
    Numbers,
    /// Those that 32 bits cannot hold are texts.
    Texts,
    /// The same, hexadecimal.
    HexadecimalTexts,
}

/// Which fields without a value have their default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Defaults {
    None,
    All,
    /// Those of messages in proto3.
    Proto3,
}

impl JsonOptions {
    /// What `pb_option` says.
    pub(super) fn of(words: &[String]) -> Self {
        let mut options =
            Self { has_enum_numbers: false, integers: Integers::Numbers, defaults: Defaults::Proto3 };
        for word in words {
            match word.as_str() {
                "enum_as_name" => options.has_enum_numbers = false,
                "enum_as_value" => options.has_enum_numbers = true,
                "int64_as_number" => options.integers = Integers::Numbers,
                "int64_as_string" => options.integers = Integers::Texts,
                "int64_as_hexstring" => options.integers = Integers::HexadecimalTexts,
                "auto_default_values" => options.defaults = Defaults::Proto3,
                "use_default_values" => options.defaults = Defaults::All,
                "no_default_values" | "use_default_metatable" => options.defaults = Defaults::None,
                _ => {}
            }
        }
        options
    }
}

/// What a member takes beside its texts.
const MEMBER: usize = 100;

/// A message as an object.
pub(super) fn object(message: &DynamicMessage, options: JsonOptions) -> Result<Json, String> {
    Writer { options, left: MAX_JSON }.object(message)
}

/// Makes JSON of messages, as long as it does not become too long.
struct Writer {
    options: JsonOptions,
    left: usize,
}

impl Writer {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.left.checked_sub(bytes);
        self.left = left.ok_or_else(too_long)?;
        Ok(())
    }

    fn object(&mut self, message: &DynamicMessage) -> Result<Json, String> {
        let descriptor = message.descriptor();
        let is_proto3 = descriptor.parent_file().syntax() == Syntax::Proto3;
        let has_defaults = match self.options.defaults {
            Defaults::None => false,
            Defaults::All => true,
            Defaults::Proto3 => is_proto3,
        };
        let mut members = Map::new();
        for field in descriptor.fields() {
            let is_shown = message.has_field(&field) || has_defaults && has_default(&field, is_proto3);
            if is_shown {
                self.take(field.name().len())?;
                let value = self.value(&message.get_field(&field), &field.kind())?;
                members.insert(field.name().to_owned(), value);
            }
        }
        Ok(Json::Object(members))
    }

    fn value(&mut self, value: &Value, kind: &Kind) -> Result<Json, String> {
        self.take(MEMBER)?;
        let options = self.options;
        Ok(match value {
            Value::Bool(value) => Json::Bool(*value),
            Value::I32(number) => Json::from(*number),
            Value::U32(number) => Json::from(*number),
            Value::I64(number) => integer(i128::from(*number), Json::from(*number), options.integers),
            Value::U64(number) => integer(i128::from(*number), Json::from(*number), options.integers),
            // Through its text, because the digits of the nearest double would be others.
            Value::F32(number) => number.to_string().parse().map_or(Json::Null, double),
            Value::F64(number) => double(*number),
            Value::String(text) => self.text(text.as_str().into())?,
            Value::Bytes(bytes) => self.text(String::from_utf8_lossy(bytes))?,
            Value::EnumNumber(number) => {
                let named = kind.as_enum().and_then(|names| names.get_value(*number));
                let name = named.filter(|_| !options.has_enum_numbers).map(|value| value.name().to_owned());
                name.map_or_else(|| Json::from(*number), Json::from)
            }
            Value::Message(message) => self.object(message)?,
            Value::List(items) => {
                let items = items.iter().map(|item| self.value(item, kind));
                items.collect::<Result<Vec<_>, _>>()?.into()
            }
            Value::Map(items) => {
                let entry = kind.as_message().map(|entry| entry.map_entry_value_field().kind());
                let kind = entry.as_ref().unwrap_or(kind);
                let items = items.iter().map(|(key, item)| Ok((text(key), self.value(item, kind)?)));
                Json::Object(items.collect::<Result<_, String>>()?)
            }
        })
    }

    fn text(&mut self, text: Cow<'_, str>) -> Result<Json, String> {
        self.take(text.len())?;
        Ok(text.into())
    }
}

/// Whether a field without a value is written with its default.
fn has_default(field: &FieldDescriptor, is_proto3: bool) -> bool {
    if field.is_list() || field.is_map() {
        return is_proto3;
    }
    let is_single = field.containing_oneof().is_none() && field.kind().as_message().is_none();
    is_single && (is_proto3 || field.field_descriptor_proto().default_value.is_some())
}

/// A number of 64 bits: `"#-5000000000"` where it is a text.
fn integer(number: i128, plain: Json, integers: Integers) -> Json {
    let is_short = (i128::from(i32::MIN)..=i128::from(u32::MAX)).contains(&number);
    let (sign, size) = (if number < 0 { "-" } else { "" }, number.unsigned_abs());
    match integers {
        Integers::Texts if !is_short => format!("#{sign}{size}").into(),
        Integers::HexadecimalTexts if !is_short => format!("#{sign}0x{size:X}").into(),
        _ => plain,
    }
}

/// Null for what is no number in JSON.
fn double(number: f64) -> Json {
    Number::from_f64(number).map_or(Json::Null, Json::Number)
}

fn text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(value) => value.to_string(),
        MapKey::I32(number) => number.to_string(),
        MapKey::I64(number) => number.to_string(),
        MapKey::U32(number) => number.to_string(),
        MapKey::U64(number) => number.to_string(),
        MapKey::String(text) => text.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grpc_transcode::encode;
    use crate::shared::grpc::proto;
    use serde_json::json;

    const THREE: &str = "syntax = \"proto3\"; enum Kind { PLAIN = 0; BOLD = 1; } message Inner { int32 age = 1; }\n\
        message M { int64 a = 1; uint64 b = 2; float c = 3; bytes d = 4; Kind kind = 5; Inner inner = 6;\n\
        repeated Kind kinds = 7; map<bool, Inner> by_flag = 8; oneof one { int32 e = 9; string f = 10; } optional bool g = 11; }";
    const TWO: &str = "syntax = \"proto2\"; message M { optional int32 a = 1 [default = 5]; optional int32 b = 2; repeated int32 c = 3; }";

    fn written(proto: &str, members: &Json, words: &[&str]) -> Json {
        let descriptor = proto::compile(proto).unwrap().get_message_by_name("M").unwrap();
        let message = encode::message(&descriptor, members.as_object().unwrap()).unwrap();
        object(&message, JsonOptions::of(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>()))
            .unwrap()
    }

    #[test]
    fn a_short_message_that_is_long_as_json_is_refused() {
        let fields: String = (1..=20).map(|number| format!("string f{number} = {number}; ")).collect();
        let proto = format!(
            "syntax = \"proto3\"; message Inner {{ {fields}}} message M {{ repeated Inner all = 1; }}"
        );
        let descriptor = proto::compile(&proto).unwrap().get_message_by_name("M").unwrap();
        let with = |count: usize| {
            let members = json!({ "all": vec![json!({}); count] });
            let message = encode::message(&descriptor, members.as_object().unwrap()).unwrap();
            object(&message, JsonOptions::of(&[]))
        };
        assert_eq!(with(10).unwrap()["all"].as_array().map(Vec::len), Some(10));
        // Two bytes each on the wire, and two thousand as JSON.
        let refused = with(40_000).unwrap_err();
        assert_eq!(refused, "the message is longer than 67108864 bytes as JSON");
    }

    #[test]
    fn defaults_are_written_as_the_options_say() {
        let all = json!({ "a": 0, "b": 0, "c": 0.0, "d": "", "kind": "PLAIN", "kinds": [], "by_flag": {} });
        for (proto, words, expected) in [
            (THREE, &[][..], all.clone()),
            (THREE, &["use_default_values"], all),
            (THREE, &["no_default_values"], json!({})),
            (THREE, &["auto_default_values", "use_default_metatable"], json!({})),
            (TWO, &[], json!({})),
            (TWO, &["use_default_values"], json!({ "a": 5 })),
        ] {
            assert_eq!(written(proto, &json!({}), words), expected, "{words:?}");
        }
    }

    #[test]
    fn values_are_written_as_the_options_say() {
        let members = json!({ "a": -5_000_000_000_i64, "b": u64::MAX, "c": 1.1, "d": "é", "kind": 1, "inner": {},
            "kinds": [0, 7], "by_flag": { "true": { "age": 3 } }, "f": "", "g": false });
        let as_text = json!({ "a": -5_000_000_000_i64, "b": u64::MAX, "c": 1.1, "d": "é", "kind": "BOLD",
            "inner": { "age": 0 }, "kinds": ["PLAIN", 7], "by_flag": { "true": { "age": 3 } }, "f": "", "g": false });
        assert_eq!(written(THREE, &members, &[]), as_text);
        let words = ["enum_as_value", "int64_as_string"];
        let found = written(THREE, &members, &words);
        assert_eq!((&found["kind"], &found["kinds"]), (&json!(1), &json!([0, 7])));
        assert_eq!((&found["a"], &found["b"]), (&json!("#-5000000000"), &json!("#18446744073709551615")));
        let found = written(THREE, &members, &["int64_as_hexstring"]);
        assert_eq!((&found["a"], &found["b"]), (&json!("#-0x12A05F200"), &json!("#0xFFFFFFFFFFFFFFFF")));
        for short in [i64::from(i32::MIN), i64::from(u32::MAX)] {
            assert_eq!(written(THREE, &json!({ "a": short }), &["int64_as_string"])["a"], short);
        }
    }
}
