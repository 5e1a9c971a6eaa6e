//! What is wrong with a schema in Lua itself: attributes, types and checks that do not exist, as Kong finds them before it takes
//! a schema.

use super::values;
use crate::patterns;
use crate::vm::Vm;
use mlua::{Function, Lua, LuaString, Table};
use weir_plugin::schema::did_you_mean;

/// What a schema is of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A plugin: `schema.lua`.
    Plugin,
    /// A kind of entities: one in `daos.lua`.
    Entity,
}

/// Something about a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Remark {
    /// The path of the field, such as `config.redis.port`; empty for the schema itself.
    pub(crate) path: String,
    pub(crate) message: String,
    /// The name in the file that it is about, if there is one.
    pub(crate) name: String,
}

impl Remark {
    /// As a message has it.
    pub(crate) fn text(&self) -> String {
        match self.path.as_str() {
            "" => self.message.clone(),
            path => format!("{path}: {}", self.message),
        }
    }
}

/// What there is to say of a schema.
pub(crate) struct Remarks {
    /// Kong would not take it.
    pub(crate) wrong: Vec<Remark>,
    /// It is taken, but does not do what it seems to.
    pub(crate) without_effect: Vec<Remark>,
}

/// Texts of Lua, which need not be UTF-8.
type Texts = Vec<LuaString>;

/// Looks through a schema.
pub(crate) fn remarks(vm: &Vm, schema: &Table, subject: Subject) -> mlua::Result<Remarks> {
    let engine = vm.require("kong.db.schema").map_err(mlua::Error::runtime)?;
    let make = vm.lua.load(include_str!("meta.lua")).set_name("=[kong.db.schema]");
    let check: Function =
        make.call((engine, vm.lua.create_function(near)?, vm.lua.create_function(pattern_problem)?))?;
    let check = || check.call::<(Vec<Texts>, Vec<Texts>)>((schema, subject == Subject::Entity));
    let (wrong, without_effect) = vm.load_files(check)?;
    Ok(Remarks { wrong: read(wrong), without_effect: read(without_effect) })
}

/// `Err` with all that is wrong with a schema.
pub(crate) fn check(vm: &Vm, schema: &Table, subject: Subject) -> mlua::Result<()> {
    let wrong = remarks(vm, schema, subject)?.wrong;
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            let texts: Vec<String> = wrong.iter().map(Remark::text).collect();
            Err(mlua::Error::runtime(texts.join("; ")))
        }
    }
}

/// `; did you mean …?`, or nothing.
fn near(_: &Lua, (written, known): (LuaString, Texts)) -> mlua::Result<String> {
    let known: Vec<String> = values::texts(&known);
    Ok(did_you_mean(&written.to_string_lossy(), known.iter().map(String::as_str)))
}

/// What is wrong with a pattern of Lua.
fn pattern_problem(_: &Lua, pattern: LuaString) -> mlua::Result<Option<String>> {
    Ok(patterns::problem(&pattern.as_bytes()))
}

fn read(found: Vec<Texts>) -> Vec<Remark> {
    let remark = |found: Texts| {
        let [path, message, name] = <[String; 3]>::try_from(values::texts(&found)).ok()?;
        Some(Remark { path, message, name })
    };
    found.into_iter().filter_map(remark).collect()
}

/// What there is to say of a plugin's schema that has another name than its plugin.
pub(crate) fn of_other_name(schema: &Table, plugin: &str) -> Option<Remark> {
    let name = schema.get::<LuaString>("name").ok()?.to_string_lossy();
    (name != plugin).then(|| Remark {
        path: "name".to_owned(),
        message: format!("`{name}` has no effect, because the plugin is `{plugin}`, after its folder"),
        name,
    })
}
