//! Reads values by a schema in Lua, in a VM of the thread that reads.

use super::values;
use crate::settings::LuaSettings;
use crate::source;
use crate::vm::Vm;
use mlua::{Function, LuaString, MultiValue, Table, Value};
use std::rc::Rc;
use std::sync::Arc;
use weir_plugin::Json;
use weir_plugin::node::{Node, Origin, Value as Written};
use weir_plugin::schema::{JsonMap, Kind, Reader, RecordSchema, did_you_mean};

/// It takes time to look for a misspelt name: more than this are no help.
const MAX_HINTS: usize = 20;

/// The schema of a plugin on disk.
pub(crate) struct PluginReader {
    pub(crate) module: String,
    pub(crate) settings: Arc<LuaSettings>,
    pub(crate) config: &'static RecordSchema,
}

impl PluginReader {
    /// Reads the `config` of a plugin entity: defaults are filled in, and what is wrong goes to the reader.
    pub(crate) fn read(&self, node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Json> {
        let written = written(node, Some(Kind::Record(self.config)));
        let (config, errors) = match self.checked(&written) {
            Ok(checked) => checked,
            Err(error) => {
                reader.report(node.at, source::message(&error));
                return None;
            }
        };
        for ((path, message), index) in errors.iter().zip(0..) {
            match path.strip_prefix("config").map(|path| path.trim_start_matches('.')) {
                Some(path) => {
                    let hint = if index < MAX_HINTS { self.hint(path, message) } else { String::new() };
                    reader.report_exactly(path, node.position_of(path), &format!("{message}{hint}"));
                }
                None => reader.report_around(node.at, message),
            }
        }
        errors.is_empty().then_some(config)
    }

    /// The field that may be meant by one that there is not.
    fn hint(&self, path: &str, message: &str) -> String {
        if message != "unknown field" {
            return String::new();
        }
        let (record, name) = match path.rsplit_once('.') {
            None => (Some(self.config), path),
            Some((around, name)) => match self.config.field_at(around).map(|field| field.kind) {
                Some(Kind::Record(record)) => (Some(record), name),
                _ => (None, name),
            },
        };
        record.map_or_else(String::new, |record| {
            did_you_mean(name, record.fields.iter().map(|field| field.name))
        })
    }

    fn checked(&self, config: &Json) -> mlua::Result<(Json, Vec<(String, String)>)> {
        let vm = Vm::reading(&self.settings)?;
        let check = self.check(&vm)?;
        let mark = values::list_mark(&vm.lua)?;
        let config = values::to_lua(&vm.lua, &mark, config)?;
        let returned: MultiValue = vm.load_files(|| check.call(config))?;
        let (config, errors): (Value, Table) = vm.lua.unpack_multi(returned)?;
        let errors = errors.sequence_values::<Table>().map(|pair| {
            let pair = pair?;
            let text = |at: i64| pair.get::<LuaString>(at).map(|text| text.to_string_lossy());
            Ok((text(1)?, text(2)?))
        });
        Ok((values::to_json(&mark, &config)?, errors.collect::<mlua::Result<_>>()?))
    }

    /// The function that fills in and checks a configuration, made once for each VM.
    fn check(&self, vm: &Rc<Vm>) -> mlua::Result<Function> {
        let key = format!("weir.schema.{}", self.module);
        if let Some(known) = vm.lua.named_registry_value::<Option<Function>>(&key)? {
            return Ok(known);
        }
        let schema = vm.require(&self.module).map_err(mlua::Error::runtime)?;
        let engine = vm.require("kong.db.schema").map_err(mlua::Error::runtime)?;
        let engine = engine.as_table().ok_or_else(|| mlua::Error::runtime("kong.db.schema is no table"))?;
        let check: Function = engine.get::<Function>("plugin")?.call(schema)?;
        vm.lua.set_named_registry_value(&key, &check)?;
        Ok(check)
    }
}

/// What is written, as JSON; words and values of the environment that stand for numbers and booleans are those.
fn written(node: &Node<'_>, kind: Option<Kind>) -> Json {
    match (&node.value, kind) {
        (Written::Map(entries), kind) => {
            let of = |name: &str| match kind {
                Some(Kind::Record(record)) => record.field(name).map(|field| field.kind),
                Some(Kind::Map(kind)) => Some(*kind),
                _ => None,
            };
            let member = entries.iter().map(|it| (it.key.to_string(), written(&it.node, of(&it.key))));
            Json::Object(member.collect::<JsonMap>())
        }
        (Written::List(items), kind) => {
            let of = if let Some(Kind::Array(kind)) = kind { Some(*kind) } else { None };
            items.iter().map(|item| written(item, of)).collect()
        }
        (Written::Str(text, Origin::Plain | Origin::Interpolated), Some(Kind::Boolean)) => match &**text {
            "true" | "yes" | "on" => true.into(),
            "false" | "no" | "off" => false.into(),
            _ => node.to_json(),
        },
        (Written::Str(text, Origin::Interpolated), Some(Kind::Integer(..) | Kind::Number)) => {
            text.trim().parse().map_or_else(|_| node.to_json(), values::number)
        }
        _ => node.to_json(),
    }
}
