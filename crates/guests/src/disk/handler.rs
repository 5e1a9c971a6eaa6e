//! The handler of a plugin: what `kong.plugins.NAME.handler` returns, and what its fields say.

use crate::files::Handler;
use crate::phase::Phase;
use crate::vm::Vm;
use mlua::{Table, Value};

/// The methods of handlers for requests, connections and sessions.
pub(super) const PHASES: [Phase; 7] = [
    Phase::Certificate,
    Phase::Rewrite,
    Phase::Access,
    Phase::Response,
    Phase::HeaderFilter,
    Phase::BodyFilter,
    Phase::Log,
];

impl Handler {
    /// Reads the handler of a plugin. The error says what is wrong, as Kong says it.
    pub(crate) fn read(vm: &Vm, name: &str) -> Result<Self, String> {
        let table = table(vm, name)?;
        let field = |field: &str| table.get::<Value>(field).unwrap_or(Value::Nil);
        let has = |method: &str| field(method).is_function();
        let priority = field("PRIORITY");
        let number = priority.as_integer().or_else(|| {
            let number = priority.as_number()?;
            (number.fract() == 0.0 && number.abs() < 9e15).then_some(number as i64)
        });
        let Some(priority) = number.and_then(|number| i32::try_from(number).ok()) else {
            let got = shown(vm, &priority);
            return Err(format!(
                "Plugin \"{name}\" cannot be loaded because its PRIORITY field is not a valid integer number, got: \
                 \"{got}\": set it in {}",
                place(vm, name)
            ));
        };
        let written = field("VERSION");
        let Some(version) = written.as_string().and_then(|text| version(&text.to_string_lossy())) else {
            let got = shown(vm, &written);
            return Err(format!(
                "Plugin \"{name}\" cannot be loaded because its VERSION field does not follow the \"x.y.z\" format, \
                 got: \"{got}\": set it in {}",
                place(vm, name)
            ));
        };
        if has("response") && (has("header_filter") || has("body_filter")) {
            return Err(format!(
                "Plugin \"{name}\" can't be loaded because it implements both `response` and `header_filter` or \
                 `body_filter` methods: {}",
                place(vm, name)
            ));
        }
        let phases = PHASES.into_iter().filter(|phase| has(phase.name())).collect();
        Ok(Self { priority, version, phases })
    }
}

/// The name of the module that holds the handler, or the schema, of a plugin.
pub(crate) fn module(plugin: &str, part: &str) -> String {
    format!("kong.plugins.{plugin}.{part}")
}

/// The table that is the handler.
pub(crate) fn table(vm: &Vm, name: &str) -> Result<Table, String> {
    match vm.require(&module(name, "handler"))? {
        Value::Table(table) => Ok(table),
        other => Err(format!(
            "Plugin \"{name}\" cannot be loaded because its handler is a {}: return a table in {}",
            other.type_name(),
            place(vm, name)
        )),
    }
}

/// The file of the handler.
pub(super) fn place(vm: &Vm, name: &str) -> String {
    let file = vm.files.sources.find(&module(name, "handler")).ok().flatten();
    file.map_or_else(|| module(name, "handler"), |file| file.path.clone())
}

fn shown(vm: &Vm, value: &Value) -> String {
    match value {
        Value::Nil => "nil".to_owned(),
        Value::Boolean(value) => value.to_string(),
        value => {
            let text = vm.lua.coerce_string(value.clone()).ok().flatten();
            text.map_or_else(|| value.type_name().to_owned(), |text| text.to_string_lossy())
        }
    }
}

/// The digits and dots that a version begins with, as in Kong: up to three numbers.
pub(super) fn version(text: &str) -> Option<String> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let clean = text[..end].trim_end_matches('.');
    let numbers: Vec<&str> = clean.split('.').collect();
    (numbers.len() <= 3 && numbers.iter().all(|number| !number.is_empty())).then(|| clean.to_owned())
}

#[cfg(test)]
mod tests {
    use super::version;

    #[test]
    fn versions_have_up_to_three_numbers() {
        let read = |text| version(text).unwrap_or_default();
        assert_eq!(["1.2.3", "1.0", "2.0.1-1", "1.0.0-rc.1"].map(read), ["1.2.3", "1.0", "2.0.1", "1.0.0"]);
        assert_eq!(["", "x", "1.0.0.0", "1..2", ".1"].map(version), [const { None }; 5]);
    }
}
