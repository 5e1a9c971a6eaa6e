//! Changes responses before they go to the client: headers, and the members of JSON bodies.
//!
//! ```yaml
//! plugins:
//!   - name: response-transformer
//!     config:
//!       remove:
//!         headers: [x-powered-by]
//!         json: [internal]
//!       rename:
//!         json: ["usr:user"]
//!       add:
//!         headers: ["Strict-Transport-Security:max-age=31536000"]
//!         json: ["version:2"]
//!         json_types: [number]
//! ```
//!
//! `remove` is applied first, then `rename`, `replace`, `add` and `append`. `replace` changes an existing value, `add`
//! adds a missing one, `append` adds one more value. Whether a header exists is decided by the response as it arrived.
//! The first colon separates the name from the value. The gateway's own responses are changed as well.
//!
//! ## JSON
//!
//! The plugin changes objects whose `Content-Type` is `application/json`, up to 8 MiB and unless they are encoded;
//! other bodies pass unchanged, and so do gRPC streams. What is not named stays as it was written. `json_types` lists
//! the type of the value of each entry in `json`: `number`, `boolean` (all but `true` is false) or `string`, the
//! default. An invalid number adds nothing. If the response to a GET would be changed, the response to a HEAD has no
//! `Content-Length`.

use crate::shared::members::{Members, quoted};
use crate::shared::transformer::{
    ignored_fields, is_settable, rename, renamed_header, split, valued, valued_header, values,
};
use weir_plugin::{
    BuildContext, Exchange, FieldWarning, Headers, Hooks, Json, Known, Phases, Plugin, Record,
};

/// What is changed.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// What is removed.
    #[field(default = {})]
    pub remove: Remove,
    /// What is renamed: `old:new`.
    #[field(default = {})]
    pub rename: Rename,
    /// Existing values that are replaced: `name:value`.
    #[field(default = {})]
    pub replace: Set,
    /// Values that are added if they are missing: `name:value`.
    #[field(default = {})]
    pub add: Set,
    /// Values that are appended: `name:value`.
    #[field(default = {})]
    pub append: Set,
}

/// Names.
#[derive(Debug, Clone, Record)]
pub(super) struct Remove {
    /// Members of the body.
    #[field(nullable, default = [])]
    pub json: Vec<String>,
    /// Headers.
    #[field(nullable, default = [])]
    pub headers: Vec<String>,
}

/// Old and new names.
#[derive(Debug, Clone, Record)]
pub(super) struct Rename {
    /// Members of the body: `old:new`.
    #[field(nullable, default = [], check = valued)]
    pub json: Vec<String>,
    /// Headers: `old:new`.
    #[field(nullable, default = [], check = renamed_header)]
    pub headers: Vec<String>,
}

/// Names and values.
#[derive(Debug, Clone, Record)]
pub(super) struct Set {
    /// Members of the body: `name:value`.
    #[field(nullable, default = [], check = member)]
    pub json: Vec<String>,
    /// The types of the values in `json`.
    #[field(nullable, default = [], one_of = ["boolean", "number", "string"])]
    pub json_types: Vec<String>,
    /// Headers: `name:value`.
    #[field(nullable, default = [], check = valued_header)]
    pub headers: Vec<String>,
}

/// `name:value`, which may be empty.
fn member(entry: &str) -> Result<(), String> {
    match entry.split_once(':') {
        Some((name, _)) if !name.is_empty() => Ok(()),
        _ => Err(format!("key '{}' has no value; write name:value", split(entry).0)),
    }
}

/// Names and values: texts of headers, or JSON.
type Entries = Vec<(Box<str>, String)>;

/// One configured instance.
pub(super) struct ResponseTransformer {
    headers: Operations,
    json: Operations,
}

/// The operations on headers, or on members.
struct Operations {
    remove: Vec<String>,
    rename: Entries,
    replace: Entries,
    add: Entries,
    append: Entries,
}

impl Plugin for ResponseTransformer {
    const NAME: &'static str = "response-transformer";
    const PRIORITY: i32 = 800;
    const FOR_CONSUMER_GROUPS: bool = true;
    type Config = Config;

    fn ignored_fields(config: &Json) -> Vec<FieldWarning> {
        ignored_fields(config)
    }

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let Config { remove, rename, replace, add, append } = config;
        let headers = Operations {
            remove: remove.headers,
            rename: entries(&rename.headers).filter(|(_, new)| is_settable(new)).collect(),
            replace: headers(&replace),
            add: headers(&add),
            append: headers(&append),
        };
        let json = Operations {
            remove: remove.json,
            rename: entries(&rename.json).collect(),
            replace: members(&replace),
            add: members(&add),
            append: members(&append),
        };
        Ok(Self { headers, json })
    }
}

/// Entries with a value.
fn entries(list: &[String]) -> impl Iterator<Item = (Box<str>, String)> {
    let split = list.iter().map(|entry| split(entry)).filter(|(_, value)| !value.is_empty());
    split.map(|(name, value)| (name.into(), value.to_owned()))
}

fn headers(set: &Set) -> Entries {
    let settable = entries(&set.headers).filter(|(name, _)| is_settable(name));
    settable.map(|(name, value)| (name, value.trim().to_owned())).collect()
}

/// The values as JSON text; a value that is not of its type is left out.
fn members(set: &Set) -> Entries {
    let typed = |(at, entry): (usize, &String)| {
        let (name, value) = split(entry);
        let value = match set.json_types.get(at).map(String::as_str) {
            _ if value.is_empty() => return None,
            Some("number") => number(value.trim())?,
            Some("boolean") => (value == "true").to_string(),
            _ => quoted(value.as_bytes()),
        };
        Some((name.into(), value))
    };
    set.json.iter().enumerate().filter_map(typed).collect()
}

/// Parses a number as Lua does, and writes it as JSON.
fn number(text: &str) -> Option<String> {
    if serde_json::from_str::<serde_json::Number>(text).is_ok() {
        return Some(text.to_owned());
    }
    if let Some(digits) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        return u64::from_str_radix(digits, 16).ok().map(|number| number.to_string());
    }
    text.parse().ok().filter(|number: &f64| number.is_finite()).map(|number| Json::from(number).to_string())
}

impl Hooks for ResponseTransformer {
    fn phases(&self) -> Phases {
        Phases::RESPONSE | Phases::RESPONSE_BODY.only_if(!self.json.is_empty())
    }

    fn response(&self, exchange: &mut Exchange) {
        let headers = &mut exchange.response.headers;
        self.headers.apply_to_headers(headers);
        let encoded = headers.get_known(Known::ContentEncoding).is_some_and(|by| by != b"identity");
        if !self.json.is_empty() && !encoded && is_json(headers) {
            exchange.buffer_response_body();
        }
    }

    fn response_body(&self, exchange: &mut Exchange, body: Vec<u8>) -> Vec<u8> {
        if self.json.is_empty() || !is_json(&exchange.response.headers) {
            return body;
        }
        match Members::read(&body) {
            Some(members) => self.json.apply_to(members),
            None => body,
        }
    }
}

/// Whether one of the types in the header is JSON.
fn is_json(headers: &Headers) -> bool {
    let Some(listed) = headers.get_known(Known::ContentType) else { return false };
    listed.split(|byte| *byte == b',').any(|listed| {
        let media_type = listed.split(|byte| *byte == b';').next().unwrap_or_default();
        media_type.trim_ascii().eq_ignore_ascii_case(b"application/json")
    })
}

impl Operations {
    fn is_empty(&self) -> bool {
        let Self { remove, rename, replace, add, append } = self;
        remove.is_empty() && [rename, replace, add, append].iter().all(|entries| entries.is_empty())
    }

    fn apply_to_headers(&self, headers: &mut Headers) {
        let renamed: Vec<_> = self.rename.iter().map(|(old, _)| values(headers, old)).collect();
        let asked = self.replace.iter().chain(&self.add);
        let there: Vec<bool> = asked.map(|(name, _)| headers.get(name).is_some()).collect();
        let (replaced, added) = there.split_at(self.replace.len());
        for name in &self.remove {
            headers.remove(name);
        }
        for ((old, new), values) in self.rename.iter().zip(&renamed) {
            rename(headers, old, new, values);
        }
        for ((name, value), _) in self.replace.iter().zip(replaced).filter(|(_, there)| **there) {
            headers.set(&**name, value.as_bytes());
        }
        for ((name, value), _) in self.add.iter().zip(added).filter(|(_, there)| !**there) {
            headers.set(&**name, value.as_bytes());
        }
        for (name, value) in &self.append {
            headers.append(&**name, value.as_bytes());
        }
    }

    /// As in Lua, a member that is false counts as missing.
    fn apply_to(&self, mut members: Members<'_>) -> Vec<u8> {
        self.remove.iter().for_each(|name| members.remove(name));
        self.rename.iter().for_each(|(old, new)| members.rename(old, new));
        let holds = |members: &Members<'_>, name: &str| members.get(name).is_some_and(|it| it != b"false");
        for (name, value) in &self.replace {
            if holds(&members, name) {
                members.set(name, value.clone());
            }
        }
        for (name, value) in &self.add {
            if !holds(&members, name) {
                members.set(name, value.clone());
            }
        }
        for (name, value) in &self.append {
            members.append(name, value);
        }
        members.written()
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_those_of_lua() {
        let cases = [
            ("1", Some("1")),
            ("-1.50", Some("-1.50")),
            ("1e3", Some("1e3")),
            (".5", Some("0.5")),
            ("0x10", Some("16")),
            ("+3", Some("3.0")),
            ("1e999", None),
            ("nan", None),
            ("inf", None),
            ("one", None),
            ("", None),
            ("0x", None),
        ];
        for (text, expected) in cases {
            assert_eq!(number(text).as_deref(), expected, "{text}");
        }
    }
}
