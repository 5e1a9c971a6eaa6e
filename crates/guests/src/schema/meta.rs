//! What is wrong with a schema in Lua itself: attributes, types and checks that do not exist, as Kong finds them before it takes
//! a schema.

use crate::vm::Vm;
use mlua::{Function, Lua, Table};
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

/// Looks through a schema.
pub(crate) fn remarks(vm: &Vm, schema: &Table, subject: Subject) -> mlua::Result<Remarks> {
    let engine = vm.require("kong.db.schema").map_err(mlua::Error::runtime)?;
    let make = vm.lua.load(include_str!("meta.lua")).set_name("=[kong.db.schema]");
    let check: Function = make.call((engine, vm.lua.create_function(near)?))?;
    let check = || check.call::<(Vec<Vec<String>>, Vec<Vec<String>>)>((schema, subject == Subject::Entity));
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
fn near(_: &Lua, (written, known): (String, Vec<String>)) -> mlua::Result<String> {
    Ok(did_you_mean(&written, known.iter().map(String::as_str)))
}

fn read(found: Vec<Vec<String>>) -> Vec<Remark> {
    let remark = |found: Vec<String>| {
        let [path, message, name] = <[String; 3]>::try_from(found).ok()?;
        Some(Remark { path, message, name })
    };
    found.into_iter().filter_map(remark).collect()
}
