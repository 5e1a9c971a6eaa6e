//! `kong.plugins.NAME.api`: routes that a plugin adds to the Admin API. Those of its entities are generated; others are not
//! served, and said so.

use super::handler::module;
use crate::settings::LuaSettings;
use crate::source;
use crate::vm::Vm;
use mlua::Value;
use std::sync::Arc;
use weir_plugin::CustomEntitySchema;

/// Warns of what the file has that the Admin API will not.
pub(super) fn warn(settings: &Arc<LuaSettings>, plugin: &str, entities: &[&'static CustomEntitySchema]) {
    let module = module(plugin, "api");
    let Ok(Some(file)) = settings.files.current().sources.find(&module) else { return };
    let path = &file.path;
    match unserved(settings, &module, entities) {
        Ok(left) if left.is_empty() => {}
        Ok(left) => tracing::warn!(
            plugin,
            "{path}: the Admin API does not have {}: Weir generates the endpoints of entities, and runs no functions of \
             api.lua",
            left.join(", ")
        ),
        Err(error) => tracing::warn!(plugin, "{path}: the Admin API has none of its routes: {error}"),
    }
}

fn unserved(
    settings: &Arc<LuaSettings>,
    module: &str,
    entities: &[&'static CustomEntitySchema],
) -> Result<Vec<String>, String> {
    let message = |error: mlua::Error| source::message(&error);
    let vm = Vm::reading(settings).map_err(message)?;
    let routes = vm.require(module)?;
    let Value::Table(routes) = routes else { return Err("it returns no table of routes".to_owned()) };
    let endpoints = vm.require("kong.api.endpoints")?;
    let names = entities.iter().flat_map(|entity| [entity.path, entity.nested_path]);
    let find = || {
        let names = vm.lua.create_sequence_from(names)?;
        let chunk = vm.lua.load(include_str!("api.lua")).set_name("=[kong.api]");
        chunk.call::<Vec<String>>((routes, endpoints, names))
    };
    vm.load_files(find).map_err(message)
}
