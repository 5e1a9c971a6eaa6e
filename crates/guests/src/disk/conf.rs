//! What the methods of a handler get as `conf`: the configuration of one plugin entity.

use mlua::{Lua, Table, Value};
use weir_plugin::{BuildContext, Json, WORKSPACE};

/// A configuration as data, from which each VM makes a table once.
#[derive(Debug)]
pub(crate) struct Conf {
    config: Json,
    /// What Kong adds to it: names and texts.
    added: Vec<(&'static str, String)>,
}

impl Conf {
    /// Of the entity that is built.
    pub(crate) fn new(config: &Json, build: &BuildContext<'_>) -> Self {
        let entity = build.entity;
        let text = |id: Option<weir_plugin::Uuid>| id.map(|id| id.to_string());
        let ids = [
            ("route_id", text(entity.route)),
            ("service_id", text(entity.service)),
            ("consumer_id", text(entity.consumer)),
        ];
        let [route, service, consumer] = ids.each_ref().map(|(_, id)| id.as_deref().unwrap_or_default());
        let key = format!("plugins:{}:{route}:{service}:{consumer}::{WORKSPACE}", entity.name);
        let mut added = vec![("__plugin_id", entity.id.to_string()), ("__key__", key)];
        added.extend(ids.into_iter().filter_map(|(name, id)| Some((name, id?))));
        added.extend(entity.instance_name.clone().map(|name| ("plugin_instance_name", name)));
        Self { config: config.clone(), added }
    }

    /// As a table. What has no value is not in it.
    pub(crate) fn table(&self, lua: &Lua) -> mlua::Result<Table> {
        let table = match value(lua, &self.config)? {
            Value::Table(table) => table,
            _ => lua.create_table()?,
        };
        for (name, text) in &self.added {
            table.raw_set(*name, text.as_str())?;
        }
        Ok(table)
    }
}

fn value(lua: &Lua, json: &Json) -> mlua::Result<Value> {
    Ok(match json {
        Json::Null => Value::Nil,
        Json::Bool(value) => Value::Boolean(*value),
        Json::Number(number) => match number.as_i64() {
            Some(whole) => Value::Integer(whole),
            None => Value::Number(number.as_f64().unwrap_or_default()),
        },
        Json::String(text) => Value::String(lua.create_string(text)?),
        Json::Array(items) => {
            let items: Vec<Value> = items.iter().map(|item| value(lua, item)).collect::<mlua::Result<_>>()?;
            Value::Table(lua.create_sequence_from(items)?)
        }
        Json::Object(members) => {
            let table = lua.create_table_with_capacity(0, members.len())?;
            for (name, member) in members {
                table.raw_set(name.as_str(), value(lua, member)?)?;
            }
            Value::Table(table)
        }
    })
}
