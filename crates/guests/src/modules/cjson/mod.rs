//! `cjson` and `cjson.safe`: OpenResty's lua-cjson, with its settings, its errors and its ways to mark arrays.

mod config;
mod decode;
mod encode;
mod token;

use std::ffi::c_void;
use std::rc::Rc;

use mlua::{Function, IntoLua, LightUserData, Lua, MultiValue, Table, Value};

use self::config::{Config, Shared};
use self::decode::Decoder;
use self::encode::Encoder;
use crate::args;
use crate::raise::{self, Checked, Raised};
use crate::steps::Steps;

/// What a value costs.
const STEPS_PER_VALUE: usize = 64;

/// `cjson.empty_array`. The address is a mark only.
pub(super) const EMPTY_ARRAY: LightUserData = LightUserData(std::ptr::without_provenance_mut::<c_void>(8));

/// Metatables that mark a table as an array, and what walks through others. All instances of a VM share them: handles of their
/// own would use up those of the VM.
#[derive(Debug, Clone)]
pub(super) struct Metatables {
    /// Always an array.
    pub(super) array: Table,
    /// An array if it is empty.
    pub(super) empty_array: Table,
    /// Lua's `next`.
    next: Function,
}

impl Metatables {
    fn of(lua: &Lua) -> mlua::Result<Self> {
        if let Some(present) = lua.app_data_ref::<Self>() {
            return Ok(present.clone());
        }
        let next = lua.globals().get("next")?;
        let made = Self { array: mark(lua)?, empty_array: mark(lua)?, next };
        lua.set_app_data(made.clone());
        Ok(made)
    }
}

/// A metatable that takes nothing, because all code of the VM has it.
fn mark(lua: &Lua) -> mlua::Result<Table> {
    let (mark, meta) = (lua.create_table()?, lua.create_table()?);
    let refuse = |_: &Lua, _: MultiValue| -> mlua::Result<()> {
        Err(mlua::Error::runtime("the metatables of cjson cannot be changed"))
    };
    meta.raw_set("__newindex", lua.create_function(refuse)?)?;
    meta.raw_set("__metatable", false)?;
    mark.set_metatable(Some(meta))?;
    Ok(mark)
}

/// Whether errors are raised or returned.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Errors {
    Raise,
    Return,
}

/// `cjson`.
pub(super) fn raising(lua: &Lua) -> mlua::Result<Value> {
    instance(lua, Errors::Raise, "cjson").map(Value::Table)
}

/// `cjson.safe`.
pub(super) fn safe(lua: &Lua) -> mlua::Result<Value> {
    instance(lua, Errors::Return, "cjson").map(Value::Table)
}

fn instance(lua: &Lua, errors: Errors, name: &'static str) -> mlua::Result<Table> {
    let shared: Shared = Rc::default();
    let metatables = Metatables::of(lua)?;
    let module = lua.create_table()?;
    config::setters(lua, &module, &shared)?;
    module.raw_set("encode", encode(lua, errors, shared.clone(), metatables.clone())?)?;
    module.raw_set("decode", decode(lua, errors, shared, metatables.clone())?)?;
    module.raw_set("new", lua.create_function(move |lua, ()| instance(lua, errors, name))?)?;
    module.raw_set("null", Value::NULL)?;
    module.raw_set("empty_array", Value::LightUserData(EMPTY_ARRAY))?;
    module.raw_set("array_mt", metatables.array)?;
    module.raw_set("empty_array_mt", metatables.empty_array)?;
    module.raw_set("_NAME", name)?;
    module.raw_set("_VERSION", "2.1.0.14")?;
    Ok(module)
}

fn encode(lua: &Lua, errors: Errors, shared: Shared, metatables: Metatables) -> mlua::Result<Function> {
    let steps = Steps::of(lua);
    raise::function(lua, move |lua, given: MultiValue| {
        let value = single("encode", &given)?;
        let config = shared.borrow().clone();
        let encoder = Encoder::new(&config, &metatables, &steps);
        let outcome = encoder.document(value).and_then(|text| Ok(lua.create_string(text)?));
        finish(lua, errors, outcome)
    })
}

fn decode(lua: &Lua, errors: Errors, shared: Shared, metatables: Metatables) -> mlua::Result<Function> {
    let steps = Steps::of(lua);
    raise::function(lua, move |lua, given: MultiValue| {
        let text = args::string(lua, "decode", 1, single("decode", &given)?)?;
        let text = text.as_bytes();
        let config = shared.borrow().clone();
        finish(lua, errors, Decoder::new(lua, (&config, &metatables, &steps), &text).document())
    })
}

/// A table that is an array for `cjson`, whatever it has.
pub(crate) fn array(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.set_metatable(Some(Metatables::of(lua)?.array))?;
    Ok(table)
}

/// The text of a value as Kong's own functions write it.
pub(crate) fn write(lua: &Lua, value: &Value) -> Checked<Vec<u8>> {
    Encoder::new(&Config::of_kong(), &Metatables::of(lua)?, &Steps::of(lua)).document(value)
}

/// The value of a text as Kong's own functions read it.
pub(crate) fn read(lua: &Lua, text: &[u8]) -> Checked<Value> {
    Decoder::new(lua, (&Config::of_kong(), &Metatables::of(lua)?, &Steps::of(lua)), text).document()
}

/// The only argument.
fn single<'a>(function: &str, given: &'a MultiValue) -> Checked<&'a Value> {
    match given.len() {
        1 => Ok(&given[0]),
        _ => Err(args::bad(function, 1, "expected 1 argument")),
    }
}

/// The result, or `nil` and the message where errors are returned.
fn finish<T: IntoLua>(lua: &Lua, errors: Errors, outcome: Checked<T>) -> Checked<MultiValue> {
    match outcome {
        Ok(value) => Ok(MultiValue::from_vec(vec![value.into_lua(lua)?])),
        Err(Raised::Text(text)) if errors == Errors::Return => {
            Ok(MultiValue::from_vec(vec![Value::Nil, text.into_lua(lua)?]))
        }
        Err(error) => Err(error),
    }
}
