//! Entities that a plugin declares in `kong.plugins.NAME.daos`. The node stores them as those of plugins in Rust: in its own
//! tables, in files under their names, in the Admin API. Migrations are not run.

use super::handler::module;
use crate::schema::declaration;
use crate::schema::meta::{self, Subject};
use crate::schema::values;
use crate::settings::LuaSettings;
use crate::source;
use crate::vm::Vm;
use mlua::{Function, LuaString, Table, Value};
use std::sync::Arc;
use weir_plugin::entity::EntityKind;
use weir_plugin::schema::{FieldError, FieldSchema, Kind, RecordCheck, RecordSchema};
use weir_plugin::{CustomEntitySchema, DerivedId, Json};

/// What a plugin without entities has.
const NONE: &[&CustomEntitySchema] = &[];

/// The entities of a plugin. They last as long as the process. The error says where what is wrong.
pub(super) fn entities(
    settings: &Arc<LuaSettings>,
    plugin: &str,
) -> Result<&'static [&'static CustomEntitySchema], String> {
    let module = module(plugin, "daos");
    let Some(file) = settings.files.current().sources.find(&module)? else { return Ok(NONE) };
    let wrong = |what: &str| format!("error loading the entities of plugin {plugin}: {}: {what}", file.path);
    let vm = Vm::reading(settings).map_err(|error| source::message(&error))?;
    let Value::Table(declared) = vm.require(&module)? else {
        return Err(wrong("return a table with a schema for each kind of entity"));
    };
    let mut made: Vec<&'static CustomEntitySchema> = Vec::new();
    for table in self::declared(&declared) {
        let entity = Declaration { settings, module: &module, table };
        let schema = entity.schema(&made).map_err(|what| wrong(&what))?;
        made.push(Box::leak(Box::new(schema)));
    }
    Ok(made.leak())
}

/// The schemas that a file returns: a list of them, or a table by their names; `tables` once was a member beside these.
pub(super) fn declared(table: &Table) -> Vec<Table> {
    let members = table.pairs::<Value, Value>().filter_map(Result::ok);
    members.filter_map(|(_, value)| value.as_table().cloned()).collect()
}

/// The schema of an entity that is only checked, after others of the same file. The error says what is wrong.
pub(super) fn schema(
    settings: &Arc<LuaSettings>,
    table: &Table,
    others: &[&'static CustomEntitySchema],
) -> Result<CustomEntitySchema, String> {
    Declaration { settings, module: "", table: table.clone() }.schema(others)
}

/// One schema in the file.
struct Declaration<'d> {
    settings: &'d Arc<LuaSettings>,
    module: &'d str,
    table: Table,
}

impl Declaration<'_> {
    fn schema(&self, others: &[&'static CustomEntitySchema]) -> Result<CustomEntitySchema, String> {
        let name = self.text("name").ok_or("a schema needs a `name`")?;
        let said = |what: String| format!("{name}: {what}");
        if EntityKind::from_name(name).is_some() {
            return Err(said("the gateway has entities of this name: choose another".to_owned()));
        }
        if self.texts("primary_key").is_some_and(|key| key != ["id"]) {
            return Err(said("its primary_key must be { \"id\" }".to_owned()));
        }
        self.check().map_err(|error| said(source::message(&error)))?;
        let record = self.record().map_err(|error| said(source::message(&error)))?;
        let referenced = referenced(record, others).map_err(said)?;
        let check = EntityCheck::new(self, name, record);
        let check: &'static RecordCheck = Box::leak(Box::new(move |entity: &Json| check.run(entity)));
        let schema = CustomEntitySchema::declared(name, record, check).with_referenced(referenced);
        let schema = match self.is("generate_admin_api") {
            Some(false) => schema.with_paths("", ""),
            _ => {
                let path = self.text("admin_api_name").unwrap_or(name);
                schema.with_paths(path, self.text("admin_api_nested_name").unwrap_or(path))
            }
        };
        let schema = if self.is("ttl") == Some(true) { schema.with_ttl("ttl") } else { schema };
        self.with_keys(schema).map_err(said)
    }

    fn check(&self) -> mlua::Result<()> {
        meta::check(&*Vm::reading(self.settings)?, &self.table, Subject::Entity)
    }

    /// The same schema, with the fields that stand for the id and make the key of the cache.
    fn with_keys(&self, mut schema: CustomEntitySchema) -> Result<CustomEntitySchema, String> {
        let record = schema.record;
        if let Some(key) = self.text("endpoint_key") {
            let is_text = record.field(key).is_some_and(|field| matches!(field.kind, Kind::String));
            if !is_text {
                return Err(format!("its endpoint_key `{key}` must be one of its fields, a string"));
            }
            schema = schema.with_endpoint_key(key).with_derived_id(DerivedId::Field(key));
        }
        if let Some(fields) = self.texts("cache_key") {
            if let Some(unknown) = fields.iter().find(|field| record.field(field).is_none()) {
                return Err(format!("its cache_key names `{unknown}`, which it has no field of"));
            }
            let fields: &'static [&'static str] = fields.leak();
            schema = schema.with_cache_key(fields).with_derived_id(DerivedId::CacheKey(fields));
            if fields.len() > 1 {
                schema = schema.with_unique_together(fields);
            }
        }
        Ok(schema)
    }

    /// The fields, with those that every entity has.
    fn record(&self) -> mlua::Result<&'static RecordSchema> {
        let declared = declaration::record(&self.table)?;
        let mut fields: Vec<FieldSchema> = declared.fields.to_vec();
        for field in &mut fields {
            // What is filled in need not be written.
            field.required &= !field.auto || !matches!(field.kind, Kind::Integer(..) | Kind::Number);
            field.secret |= field.encrypted;
        }
        let id = FieldSchema { auto: true, ..FieldSchema::new::<weir_plugin::Uuid>("id", "The id.") };
        match fields.iter_mut().find(|field| field.name == "id") {
            Some(known) => *known = id,
            None => fields.insert(0, id),
        }
        if self.is("ttl") == Some(true) {
            let added = [("ttl", "For how many seconds it lasts."), ("created_at", "When it was created.")];
            for (name, doc) in added {
                let whole = FieldSchema::new::<Option<i64>>(name, doc);
                match fields.iter_mut().find(|field| field.name == name) {
                    Some(known) => *known = whole,
                    None => fields.push(whole),
                }
            }
        }
        let (fields, old_names) = (fields.leak(), declared.old_names);
        Ok(Box::leak(Box::new(RecordSchema { doc: "", fields, old_names, hints: &[] })))
    }

    fn text(&self, member: &str) -> Option<&'static str> {
        let text = self.table.get::<Option<String>>(member).ok().flatten()?;
        Some(text.leak())
    }

    fn texts(&self, member: &str) -> Option<Vec<&'static str>> {
        let texts = self.table.get::<Option<Vec<String>>>(member).ok().flatten()?;
        Some(texts.into_iter().map(|text| &*text.leak()).collect())
    }

    fn is(&self, member: &str) -> Option<bool> {
        self.table.get::<Option<bool>>(member).ok().flatten()
    }
}

/// The entities of plugins that these fields refer to.
fn referenced(
    record: &RecordSchema,
    others: &[&'static CustomEntitySchema],
) -> Result<&'static [&'static CustomEntitySchema], String> {
    let mut found: Vec<&'static CustomEntitySchema> = Vec::new();
    for field in record.fields {
        let Some(name) = field.foreign else { continue };
        match others.iter().find(|other| other.name == name) {
            Some(other) => found.push(other),
            None if EntityKind::from_name(name).is_some() => {}
            None => {
                return Err(format!(
                    "`{}` refers to {name}: declare these before it in the same file, or refer to entities of the \
                     gateway itself",
                    field.name
                ));
            }
        }
    }
    Ok(found.leak())
}

/// The rules of a schema that are functions or patterns of Lua, run in the VM of the thread that reads an entity.
struct EntityCheck {
    settings: Arc<LuaSettings>,
    module: String,
    name: &'static str,
    /// The fields that refer to others.
    foreign: Vec<&'static str>,
}

impl EntityCheck {
    fn new(declaration: &Declaration<'_>, name: &'static str, record: &RecordSchema) -> Self {
        let foreign = record.fields.iter().filter(|field| field.foreign.is_some());
        Self {
            settings: declaration.settings.clone(),
            module: declaration.module.to_owned(),
            name,
            foreign: foreign.map(|field| field.name).collect(),
        }
    }

    fn run(&self, entity: &Json) -> Vec<FieldError> {
        self.violations(entity).unwrap_or_else(|error| vec![FieldError::new("", source::message(&error))])
    }

    fn violations(&self, entity: &Json) -> mlua::Result<Vec<FieldError>> {
        let vm = Vm::reading(&self.settings)?;
        let mut entity = entity.clone();
        for field in &self.foreign {
            if let Some(id) = entity.get_mut(*field).filter(|id| id.is_string()) {
                *id = serde_json::json!({ "id": id.take() });
            }
        }
        let check = self.check(&vm)?;
        let found = vm.load_files(|| {
            let entity = crate::modules::from_json(&vm.lua, entity.to_string().as_bytes())?;
            check.call::<Vec<Vec<LuaString>>>(entity)
        })?;
        let violation = |found: Vec<LuaString>| match &values::texts(&found)[..] {
            [path, message, ..] => FieldError::new(path, message.as_str()),
            _ => FieldError::new("", "is refused by the plugin's schema"),
        };
        Ok(found.into_iter().map(violation).collect())
    }

    /// The function that checks an entity, made once for each VM.
    fn check(&self, vm: &Vm) -> mlua::Result<Function> {
        let key = format!("weir.entity.{}", self.name);
        if let Some(known) = vm.lua.named_registry_value::<Option<Function>>(&key)? {
            return Ok(known);
        }
        let declared = vm.require(&self.module).map_err(mlua::Error::runtime)?;
        let engine = vm.require("kong.db.schema").map_err(mlua::Error::runtime)?;
        let make = vm.lua.load(include_str!("entities.lua")).set_name("=[kong.db.schema]");
        let check: Function = make.call((declared, self.name, engine))?;
        vm.lua.set_named_registry_value(&key, &check)?;
        Ok(check)
    }
}
