//! Fields that plugins add to what is logged of a request, for all log plugins alike.

use super::Exchange;
use std::cell::RefCell;
use weir_model::schema::Json;

/// A field that a plugin wants in the record of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct LogField {
    /// The names on the way to it.
    pub path: Vec<String>,
    /// Its value; none removes it.
    pub value: Option<Json>,
    /// When it is written.
    pub mode: LogFieldMode,
}

/// When a field is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LogFieldMode {
    /// In any case.
    #[default]
    Set,
    /// Where the record has none of that name.
    Add,
    /// Where the record has one of that name.
    Replace,
}

impl LogFieldMode {
    /// The mode of Kong's name: `set`, `add`, `replace`.
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "set" => Some(Self::Set),
            "add" => Some(Self::Add),
            "replace" => Some(Self::Replace),
            _ => None,
        }
    }
}

impl LogField {
    /// Makes the record what the field wants.
    pub fn apply(&self, record: &mut Json) {
        self.apply_below(record, &self.path);
    }

    fn apply_below(&self, record: &mut Json, path: &[String]) {
        let Some(members) = record.as_object_mut() else { return };
        match path {
            [last] => {
                let wanted = match self.mode {
                    LogFieldMode::Set => true,
                    LogFieldMode::Add => !members.contains_key(last),
                    LogFieldMode::Replace => members.contains_key(last),
                };
                match &self.value {
                    Some(value) if wanted => drop(members.insert(last.clone(), value.clone())),
                    None if wanted => drop(members.remove(last)),
                    _ => {}
                }
            }
            [first, rest @ ..] => {
                let makes = self.mode != LogFieldMode::Replace && self.value.is_some();
                match members.get_mut(first) {
                    Some(inner) => self.apply_below(inner, rest),
                    None if makes => {
                        let inner = members.entry(first.clone()).or_insert(Json::Object(Default::default()));
                        self.apply_below(inner, rest);
                    }
                    None => {}
                }
            }
            [] => {}
        }
    }
}

impl Exchange {
    /// Has every log plugin write this field of the request's record: `a.b` is `b` within `a`. None removes it. Log hooks
    /// may do so too, for those of lower priority.
    pub fn set_log_field(&self, path: &str, value: Option<Json>, mode: LogFieldMode) {
        let path = path.split('.').map(str::to_owned).collect();
        let fields = self.engine.log_fields.get_or_init(Box::default);
        fields.borrow_mut().push(LogField { path, value, mode });
    }

    /// The fields that plugins want in the request's record, in the order in which they were set.
    pub fn log_fields(&self) -> Option<&RefCell<Vec<LogField>>> {
        self.engine.log_fields.get().map(|fields| &**fields)
    }
}

#[cfg(test)]
mod tests {
    use super::LogFieldMode::{self, Add, Replace, Set};
    use crate::testing::Gateway;
    use serde_json::{Value, json};

    #[test]
    fn fields_are_set_added_and_replaced() {
        let record = || json!({ "request": { "size": 1 }, "tries": [] });
        let cases: [(&str, Option<Value>, LogFieldMode, Value); 10] = [
            ("a.b", Some(json!(1)), Set, json!({ "a": { "b": 1 } })),
            ("a.b", Some(json!(1)), Add, json!({ "a": { "b": 1 } })),
            ("a.b", Some(json!(1)), Replace, json!({})),
            ("request.size", Some(json!(2)), Set, json!({ "request": { "size": 2 } })),
            ("request.size", Some(json!(2)), Add, json!({})),
            ("request.size", Some(json!(2)), Replace, json!({ "request": { "size": 2 } })),
            ("request.size", None, Set, json!({ "request": {} })),
            ("a.b", None, Set, json!({})),
            ("tries.x", Some(json!(1)), Set, json!({})),
            ("request", Some(json!("r")), Replace, json!({ "request": "r" })),
        ];
        for (path, value, mode, changes) in cases {
            let exchange = Gateway::new(&[]).exchange("GET /");
            exchange.set_log_field(path, value, mode);
            let (mut found, mut expected) = (record(), record());
            exchange.log_fields().unwrap().borrow().iter().for_each(|field| field.apply(&mut found));
            for (name, value) in changes.as_object().unwrap() {
                expected[name] = value.clone();
            }
            assert_eq!(found, expected, "{path} {mode:?}");
        }
        assert_eq!(
            [Some(Set), Some(Add), Some(Replace), None],
            ["set", "add", "replace", "x"].map(LogFieldMode::named)
        );
    }
}
