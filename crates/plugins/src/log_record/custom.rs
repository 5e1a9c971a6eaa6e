//! The fields that a configuration adds to records, changes or removes: Kong's `custom_fields_by_lua`. Constants are written
//! as they are, so that Lua runs for other code alone.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_plugin::json_text;
use weir_plugin::{
    BuildContext, Exchange, Json, LogField, Script, ScriptCode, ScriptKind, ScriptValue, Scripts,
};

/// The members of a record. Fields with other names can be added without parsing the record.
const OWN: [&str; 16] = [
    "request",
    "response",
    "session",
    "upstream",
    "upstream_uri",
    "upstream_status",
    "latencies",
    "tries",
    "route",
    "service",
    "consumer",
    "authenticated_entity",
    "client_ip",
    "started_at",
    "source",
    "error",
];

/// The fields that plugins have set.
type Fields = RefCell<Vec<LogField>>;

/// A path into the record, and its new value; none if the member is removed.
type Edit = (Vec<String>, Option<Json>);

/// What a configuration changes in records.
#[derive(Default)]
pub(crate) struct CustomFields {
    /// Members to add, each behind a comma.
    added: Vec<u8>,
    /// Constants that go elsewhere.
    edits: Vec<Edit>,
    /// The paths of what code returns, and the code.
    scripted: Vec<Vec<String>>,
    script: Option<Arc<dyn Script>>,
}

/// What the code of a configuration has returned for one request.
#[derive(Default)]
pub(crate) struct ScriptedFields(Vec<Edit>);

impl CustomFields {
    pub(super) fn new(
        fields: &Option<BTreeMap<String, String>>,
        plugin: &'static str,
        build: &BuildContext<'_>,
    ) -> Result<Self, String> {
        let (mut custom, mut code) = (Self::default(), Vec::new());
        for (path, text) in fields.iter().flatten() {
            match parse(text) {
                Some(Some(value)) if is_new(path) => {
                    custom.added.push(b',');
                    json_text::string(&mut custom.added, path.as_bytes());
                    custom.added.extend_from_slice(format!(":{value}").as_bytes());
                }
                Some(value) => custom.edits.push((segments(path), value)),
                None => {
                    custom.scripted.push(segments(path));
                    let name = format!("{plugin}.custom_fields_by_lua.{path}");
                    code.push(ScriptCode { name, text: text.clone() });
                }
            }
        }
        custom.script = <dyn Scripts>::load_all(plugin, ScriptKind::LogFields, code, build)?;
        Ok(custom)
    }

    /// Runs the code. Fields whose code fails are left as they are.
    pub(super) fn evaluate(&self, exchange: &mut Exchange) -> ScriptedFields {
        let Some(script) = &self.script else { return ScriptedFields::default() };
        let values = script.evaluate(exchange, &|_| true);
        let edits = self.scripted.iter().zip(values).filter_map(|(path, value)| {
            let value = match value.ok()? {
                ScriptValue::Nil => None,
                ScriptValue::Text(text) => Some(String::from_utf8_lossy(&text).into()),
                ScriptValue::Json(json) => Some(json),
            };
            Some((path.clone(), value))
        });
        ScriptedFields(edits.collect())
    }

    /// Writes a record, and applies to it the fields that plugins have set, then the configuration.
    pub(super) fn apply(
        &self,
        out: &mut Vec<u8>,
        (fields, ScriptedFields(scripted)): (Option<&Fields>, &ScriptedFields),
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let start = out.len();
        write(out);
        if let Some(fields) = fields {
            edit(out, start, |record| fields.borrow().iter().for_each(|field| field.apply(record)));
        }
        if !self.added.is_empty() {
            out.pop();
            out.extend_from_slice(&self.added);
            out.push(b'}');
        }
        // A field that both have set must not be there twice.
        let is_edited = !self.edits.is_empty() || !scripted.is_empty();
        if is_edited || (fields.is_some() && !self.added.is_empty()) {
            let edits = self.edits.iter().chain(scripted);
            edit(out, start, |record| edits.for_each(|(path, value)| put(record, path, value.as_ref())));
        }
    }
}

fn segments(path: &str) -> Vec<String> {
    path.split('.').map(str::to_owned).collect()
}

/// Changes the record that is written from `start` on.
fn edit(out: &mut Vec<u8>, start: usize, change: impl FnOnce(&mut Json)) {
    let Ok(mut record) = serde_json::from_slice::<Json>(&out[start..]) else { return };
    change(&mut record);
    out.truncate(start);
    out.extend_from_slice(record.to_string().as_bytes());
}

/// Whether a field is neither one of the record's members nor within one.
fn is_new(path: &str) -> bool {
    !path.contains('.') && !OWN.contains(&path) && !path.starts_with("workspace")
}

/// Creates the objects on the path. A value that is not an object stays as it is.
fn put(record: &mut Json, path: &[String], value: Option<&Json>) {
    let Some(members) = record.as_object_mut() else { return };
    match (path, value) {
        ([last], Some(value)) => drop(members.insert(last.clone(), value.clone())),
        ([last], None) => drop(members.remove(last)),
        ([first, rest @ ..], _) => {
            let inner = members.entry(first.clone()).or_insert_with(|| Json::Object(Default::default()));
            put(inner, rest, value);
        }
        ([], _) => {}
    }
}

/// Whether code can run, for configurations.
pub(crate) fn lua_code(code: &str) -> Result<(), String> {
    match parse(code) {
        Some(_) => Ok(()),
        None => <dyn Scripts>::check(code),
    }
}

/// The constant that Lua code returns: `Some(None)` for nil.
fn parse(code: &str) -> Option<Option<Json>> {
    let expression = code.trim().strip_prefix("return")?;
    let is_apart = expression.starts_with(|first: char| first.is_whitespace() || matches!(first, '"' | '\''));
    let expression = expression.trim().trim_end_matches(';').trim_end();
    match expression {
        _ if !is_apart => None,
        "nil" => Some(None),
        "true" => Some(Some(true.into())),
        "false" => Some(Some(false.into())),
        text if text.starts_with(['"', '\'']) => string(text).map(|text| Some(text.into())),
        number => number.parse::<i64>().map(Json::from).ok().or_else(|| float(number)).map(Some),
    }
}

fn float(text: &str) -> Option<Json> {
    let is_number = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
    let value = text.bytes().all(is_number).then(|| text.parse().ok())??;
    serde_json::Number::from_f64(value).map(Json::Number)
}

/// A quoted text, with the escapes that Lua shares with most languages.
fn string(literal: &str) -> Option<String> {
    let quote = literal.chars().next()?;
    let inner = literal.strip_prefix(quote)?.strip_suffix(quote).filter(|_| literal.len() > 1)?;
    let (mut text, mut characters) = (String::new(), inner.chars());
    while let Some(character) = characters.next() {
        text.push(match character {
            '\\' => match characters.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                escaped @ ('\\' | '"' | '\'') => escaped,
                _ => return None,
            },
            '\n' => return None,
            character if character == quote => return None,
            character => character,
        });
    }
    Some(text)
}
