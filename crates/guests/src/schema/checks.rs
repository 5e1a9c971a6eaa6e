//! Checks of a plugin's schema that read more of its entity than the configuration, such as `protocols` or `service`.

use super::values;
use crate::settings::LuaSettings;
use crate::source;
use crate::vm::Vm;
use mlua::{Function, Lua, LuaString, Table, Value};
use std::sync::Arc;
use weir_plugin::Json;
use weir_plugin::entity::{Entity, Plugin};
use weir_plugin::schema::FieldError;

/// The fields that refer to other entities, which code sees as tables with an `id`.
const REFERENCES: [&str; 4] = ["route", "service", "consumer", "consumer_group"];

/// The checks of a schema.
pub(crate) struct PluginCheck {
    module: String,
    settings: Arc<LuaSettings>,
}

impl PluginCheck {
    /// Those that a schema declares, if it does.
    pub(crate) fn of(
        lua: &Lua,
        schema: &Table,
        (module, settings): (&str, &Arc<LuaSettings>),
    ) -> mlua::Result<Option<Self>> {
        let check = make(lua, schema)?;
        Ok(check.map(|_| Self { module: module.to_owned(), settings: settings.clone() }))
    }

    /// What is wrong with an entity.
    pub(crate) fn run(&self, plugin: &Plugin) -> Vec<FieldError> {
        self.violations(plugin).unwrap_or_else(|error| vec![FieldError::new("", source::message(&error))])
    }

    fn violations(&self, plugin: &Plugin) -> mlua::Result<Vec<FieldError>> {
        let vm = Vm::reading(&self.settings)?;
        let Some(check) = self.function(&vm)? else { return Ok(Vec::new()) };
        let mark = values::list_mark(&vm.lua)?;
        let entity = values::to_lua(&vm.lua, &mark, &shown(plugin))?;
        let found: Vec<Vec<LuaString>> = vm.load_files(|| check.call(entity))?;
        let error = |found: Vec<LuaString>| match &values::texts(&found)[..] {
            [path, message, ..] => FieldError::new(path, message.as_str()),
            _ => FieldError::new("", "is refused by the plugin's schema"),
        };
        Ok(found.into_iter().map(error).collect())
    }

    /// The function that checks, made once for each VM.
    fn function(&self, vm: &Vm) -> mlua::Result<Option<Function>> {
        let key = format!("weir.checks.{}", self.module);
        if let Some(known) = vm.lua.named_registry_value::<Option<Function>>(&key)? {
            return Ok(Some(known));
        }
        let Value::Table(schema) = vm.require(&self.module).map_err(mlua::Error::runtime)? else {
            return Ok(None);
        };
        let check = make(&vm.lua, &schema)?;
        vm.lua.set_named_registry_value(&key, check.clone())?;
        Ok(check)
    }
}

fn make(lua: &Lua, schema: &Table) -> mlua::Result<Option<Function>> {
    let engine: Table = lua.globals().get::<Function>("require")?.call("kong.db.schema")?;
    engine.get::<Function>("plugin_checks")?.call(schema)
}

/// An entity as Kong's checks see it.
fn shown(plugin: &Plugin) -> Json {
    let mut entity = Entity::Plugins(Arc::new(plugin.clone())).to_value();
    for field in REFERENCES {
        if let Some(id) = entity.get_mut(field).filter(|id| id.is_string()) {
            *id = serde_json::json!({ "id": id.take() });
        }
    }
    entity
}
