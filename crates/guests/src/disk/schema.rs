//! What `kong.plugins.NAME.schema` declares, as the model knows it.

use super::handler::module;
use crate::schema::checks::PluginCheck;
use crate::schema::declaration::{described, items, record};
use crate::schema::meta::{self, Subject};
use crate::schema::reader::PluginReader;
use crate::settings::LuaSettings;
use crate::source;
use crate::upstreams;
use crate::vm::Vm;
use mlua::{Lua, Table, Value};
use std::rc::Rc;
use std::sync::Arc;
use weir_plugin::entity::Plugin;
use weir_plugin::node::Node as Written;
use weir_plugin::schema::Reader;
use weir_plugin::{Json, PluginSchema, ReadConfig, Streams};

/// The protocols of sessions, which a plugin for requests alone does not name.
const OF_STREAMS: [&str; 4] = ["tcp", "tls", "tls_passthrough", "udp"];

/// The schema of a plugin. It lasts as long as the process.
pub(super) fn plugin(settings: &Arc<LuaSettings>, name: &str) -> Result<PluginSchema, String> {
    let (vm, table) = table(settings, name)?;
    let declared = declared(&vm.lua, &table, (settings, name, module(name, "schema")));
    declared.map_err(|error| wrong(&vm, name, &source::message(&error)))
}

/// Whether the file of a schema can be loaded, and Kong would take what it declares.
pub(super) fn loads(settings: &Arc<LuaSettings>, name: &str) -> Result<(), String> {
    let (vm, table) = table(settings, name)?;
    let checked = meta::check(&vm, &table, Subject::Plugin);
    checked.map_err(|error| wrong(&vm, name, &source::message(&error)))
}

/// What a schema has that does not do what it seems to.
pub(super) fn warnings(settings: &Arc<LuaSettings>, name: &str) -> Result<Vec<String>, String> {
    let (vm, table) = table(settings, name)?;
    let remarks = meta::remarks(&vm, &table, Subject::Plugin);
    let remarks = remarks.map_err(|error| wrong(&vm, name, &source::message(&error)))?;
    let found = remarks.without_effect.into_iter().chain(meta::of_other_name(&table, name));
    Ok(found.map(|remark| format!("{}: {}", place(&vm, name), remark.text())).collect())
}

fn table(settings: &Arc<LuaSettings>, name: &str) -> Result<(Rc<Vm>, Table), String> {
    let vm = Vm::reading(settings).map_err(|error| source::message(&error))?;
    match vm.require(&module(name, "schema"))? {
        Value::Table(table) => Ok((vm, table)),
        _ => Err(wrong(&vm, name, "return a table with `name` and `fields`")),
    }
}

fn wrong(vm: &Vm, name: &str, what: &str) -> String {
    format!("error initializing schema for plugin: {name}: {}: {what}", place(vm, name))
}

fn place(vm: &Vm, name: &str) -> String {
    let module = module(name, "schema");
    let file = vm.files.sources.find(&module).ok().flatten();
    file.map_or(module, |file| file.path.clone())
}

fn config(fields: &[(String, Table)]) -> mlua::Result<&Table> {
    let config = fields.iter().find(|(field, _)| field == "config").map(|(_, table)| table);
    config.ok_or_else(|| mlua::Error::runtime("add a field `config` of the type record"))
}

fn declared(
    lua: &Lua,
    table: &Table,
    (settings, name, module): (&Arc<LuaSettings>, &str, String),
) -> mlua::Result<PluginSchema> {
    let fields = items(table, "fields")?;
    let find = |name: &str| fields.iter().find(|(field, _)| field == name).map(|(_, table)| table);
    let config = record(config(&fields)?)?;
    let check = PluginCheck::of(lua, table, (&module, settings))?;
    let reader = PluginReader { module, settings: settings.clone(), config };
    let reader: &'static PluginReader = Box::leak(Box::new(reader));
    let read: &'static ReadConfig =
        Box::leak(Box::new(move |node: &Written<'_>, problems: &mut Reader<'_>| reader.read(node, problems)));
    let shown: &'static Json = Box::leak(Box::new(described(lua, table)?));
    let schema = PluginSchema::read_by(name.to_owned().leak(), config, read).with_description(shown);
    let schema = schema.with_upstreams(upstreams::of_config);
    let schema = match check {
        Some(check) => schema.with_check(Box::leak(Box::new(move |plugin: &Plugin| check.run(plugin)))),
        None => schema,
    };
    let is_refused = |name: &str| {
        find(name).is_some_and(|field| field.get::<Value>("eq").is_ok_and(|eq| eq == Value::NULL))
    };
    let refused: Vec<&'static str> =
        ["service", "route"].into_iter().filter(|name| is_refused(name)).collect();
    let schema = schema.with_streams(streams(find("protocols"))?).with_refused_scopes(refused.leak());
    Ok(match (is_refused("consumer"), is_refused("consumer_group")) {
        (true, _) => schema.without_consumer(),
        (false, true) => schema,
        (false, false) => schema.with_consumer_groups(),
    })
}

/// Streams are refused where the allowed protocols are those of requests.
fn streams(protocols: Option<&Table>) -> mlua::Result<Streams> {
    let elements = protocols.map(|field| field.get::<Option<Table>>("elements")).transpose()?.flatten();
    let allowed: Option<Vec<String>> = elements.map(|it| it.get("one_of")).transpose()?.flatten();
    let names_streams = allowed.is_none_or(|all| all.iter().any(|name| OF_STREAMS.contains(&name.as_str())));
    Ok(if names_streams { Streams::Accepted } else { Streams::Never })
}
