//! What is changed in a configuration for data planes of an older version: the rows of `rules.toml`.
use super::KongVersion;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// A field, none for the whole entity, and what was done to it.
pub type Alteration = (Option<String>, String);

/// One row: what is changed in the rows of a collection for data planes older than a version.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    before: KongVersion,
    /// The collections.
    of: Vec<String>,
    /// The names of the plugins or vaults; all if there is none.
    #[serde(default)]
    named: Vec<String>,
    /// Values that fields must have.
    #[serde(default)]
    only: BTreeMap<String, Value>,
    /// Fields that are given a value if they have none: that of another field, or else this one.
    #[serde(default)]
    fill: Vec<Fill>,
    /// Fields with another name.
    #[serde(default)]
    rename: Vec<Rename>,
    /// Values that are replaced.
    #[serde(default)]
    replace: Vec<Replace>,
    /// Fields in whose texts `_` stands in the place of `-`.
    #[serde(default)]
    underscore: Vec<String>,
    /// Fields that are removed.
    #[serde(default)]
    remove: Vec<String>,
    /// The changes have no effect on traffic.
    #[serde(default)]
    silent: bool,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fill {
    field: String,
    from: Option<String>,
    value: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rename {
    from: String,
    to: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Replace {
    field: String,
    values: Vec<Value>,
    by: Value,
}

#[derive(Deserialize)]
struct Table {
    rule: Vec<Rule>,
}

/// All rows. That they are well-formed, a test makes sure.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    toml::from_str(include_str!("rules.toml")).map_or_else(|_| Vec::new(), |table: Table| table.rule)
});

/// The changes for data planes of one version.
#[derive(Debug, Clone)]
pub struct Rules(Vec<&'static Rule>);

impl Rules {
    /// Those for a data plane of this version.
    pub fn of(data_plane: KongVersion) -> Rules {
        Rules(RULES.iter().filter(|rule| data_plane < rule.before).collect())
    }

    /// Whether the configuration is sent as it is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Changes a row of a collection; returns what has an effect.
    pub fn apply(&self, collection: &str, row: &mut Value) -> Vec<Alteration> {
        let mut altered = Vec::new();
        for rule in self.0.iter().filter(|rule| rule.of.iter().any(|of| of == collection)) {
            if rule.concerns(row) {
                rule.apply(row, &mut altered);
            }
        }
        altered
    }
}

impl Rule {
    fn concerns(&self, row: &Value) -> bool {
        let name = row.get("name").and_then(Value::as_str).unwrap_or_default();
        (self.named.is_empty() || self.named.iter().any(|named| named == name))
            && self.only.iter().all(|(field, value)| at(row, field) == Some(value))
    }

    fn apply(&self, row: &mut Value, altered: &mut Vec<Alteration>) {
        let mut note = |field: &str, what: String| {
            if !self.silent {
                let reason = format!("{what} for data planes older than Kong {}", self.before);
                altered.push((Some(field.to_owned()), reason));
            }
        };
        for Fill { field, from, value } in &self.fill {
            let known = from.as_deref().and_then(|from| at(row, from)).filter(|known| !known.is_null());
            let filling = known.or(value.as_ref()).cloned();
            if let Some(filling) = filling
                && at(row, field).is_none_or(Value::is_null)
            {
                put(row, field, filling);
            }
        }
        for Rename { from, to } in &self.rename {
            if let Some(value) = take(row, from) {
                put(row, to, value);
            }
        }
        for Replace { field, values, by } in &self.replace {
            if let Some(value) = at_mut(row, field).filter(|value| values.contains(value)) {
                note(field, format!("{value} becomes {by}"));
                *value = by.clone();
            }
        }
        for field in &self.underscore {
            if let Some(Value::String(text)) =
                at_mut(row, field).filter(|value| value.as_str().is_some_and(|it| it.contains('-')))
            {
                *text = text.replace('-', "_");
            }
        }
        for field in &self.remove {
            if take(row, field).is_some_and(|value| has_content(&value)) {
                note(field, "removed".to_owned());
            }
        }
    }
}

/// Whether a value says something, so that its removal is worth a word.
fn has_content(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => false,
        Value::Array(elements) => !elements.is_empty(),
        Value::Object(members) => members.values().any(has_content),
        _ => true,
    }
}

fn parent<'r>(row: &'r mut Value, path: &str) -> Option<&'r mut Map<String, Value>> {
    let (around, _) = path.rsplit_once('.').unwrap_or(("", path));
    let names = around.split('.').filter(|name| !name.is_empty());
    names.into_iter().try_fold(row, |value, name| value.get_mut(name))?.as_object_mut()
}

fn last(path: &str) -> &str {
    path.rsplit('.').next().unwrap_or(path)
}

fn at<'r>(row: &'r Value, path: &str) -> Option<&'r Value> {
    path.split('.').try_fold(row, |value, name| value.get(name))
}

fn at_mut<'r>(row: &'r mut Value, path: &str) -> Option<&'r mut Value> {
    path.split('.').try_fold(row, |value, name| value.get_mut(name))
}

fn take(row: &mut Value, path: &str) -> Option<Value> {
    parent(row, path)?.remove(last(path))
}

fn put(row: &mut Value, path: &str, value: Value) {
    if let Some(parent) = parent(row, path) {
        parent.insert(last(path).to_owned(), value);
    }
}

/// For the test that all rows can be read.
#[cfg(test)]
pub(super) fn parsed() -> Result<usize, toml::de::Error> {
    toml::from_str(include_str!("rules.toml")).map(|table: Table| table.rule.len())
}
