//! Functions for Lua whose errors are strings.
//!
//! An `Err` of an `mlua` function reaches Lua as a userdata, so that `pcall` returns no text which a plugin could
//! concatenate or search. The functions made here raise what a C function would: a string, after the position of the
//! caller.

use mlua::{FromLuaMulti, Function, IntoLua, IntoLuaMulti, Lua, MultiValue, Table, Value};

use crate::steps::{OutOfSteps, Steps};

/// Why a function raises.
#[derive(Debug)]
pub(crate) enum Raised {
    /// A message for the caller.
    Text(String),
    /// An error of the VM, which passes as it is.
    Vm(mlua::Error),
}

/// The result of a function that raises strings.
pub(crate) type Checked<T> = Result<T, Raised>;

impl From<mlua::Error> for Raised {
    fn from(error: mlua::Error) -> Self {
        Self::Vm(error)
    }
}

impl From<Raised> for mlua::Error {
    fn from(raised: Raised) -> Self {
        match raised {
            Raised::Text(text) => Self::RuntimeError(text),
            Raised::Vm(error) => error,
        }
    }
}

impl Raised {
    /// The same with another message, where it has one.
    pub(crate) fn worded(self, word: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Text(text) => Self::Text(word(text)),
            error => error,
        }
    }
}

impl From<OutOfSteps> for Raised {
    fn from(error: OutOfSteps) -> Self {
        Self::Vm(error.into())
    }
}

impl From<String> for Raised {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Raised {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// What the function below returns, and its marker.
#[derive(Clone)]
struct Wrapper {
    wrap: Function,
    marker: Table,
}

/// Turns a result that begins with the marker into an error. `settle` is called by a tail call, so that level 2 is the
/// code that called the function.
const SOURCE: &str = r#"
local marker = ...
local error, rawequal = error, rawequal
local function settle(first, ...)
  if rawequal(first, marker) then error(..., 2) end
  return first, ...
end
return function(body)
  return function(...) return settle(body(...)) end
end
"#;

/// Makes a Lua function of `body`, which raises `Raised::Text` as a string.
pub(crate) fn function<A, R, F>(lua: &Lua, body: F) -> mlua::Result<Function>
where
    A: FromLuaMulti,
    R: IntoLuaMulti,
    F: Fn(&Lua, A) -> Checked<R> + 'static,
{
    let Wrapper { wrap, marker } = wrapper(lua)?;
    let raw = lua.create_function(move |lua, args: A| match body(lua, args) {
        Ok(values) => values.into_lua_multi(lua),
        Err(Raised::Text(text)) => {
            Ok(MultiValue::from_vec(vec![Value::Table(marker.clone()), text.into_lua(lua)?]))
        }
        Err(Raised::Vm(error)) => Err(error),
    })?;
    wrap.call(raw)
}

/// The same for a function that reads its strings once: it takes steps by their length.
pub(crate) fn metered<A, R, F>(lua: &Lua, body: F) -> mlua::Result<Function>
where
    A: FromLuaMulti,
    R: IntoLuaMulti,
    F: Fn(&Lua, A) -> Checked<R> + 'static,
{
    let steps = Steps::of(lua);
    function(lua, move |lua, args: MultiValue| {
        let texts = args.iter().filter_map(Value::as_string);
        steps.take_bytes(texts.map(|text| text.as_bytes().len()).sum())?;
        body(lua, A::from_lua_multi(args, lua)?)
    })
}

/// The wrapper of this VM, made at the first use. All functions share its handles: one for each would use those of the VM up.
fn wrapper(lua: &Lua) -> mlua::Result<Wrapper> {
    if let Some(known) = lua.app_data_ref::<Wrapper>() {
        return Ok(known.clone());
    }
    let marker = lua.create_table()?;
    let wrap = lua.load(SOURCE).set_name("=[weir]").call(&marker)?;
    let wrapper = Wrapper { wrap, marker };
    lua.set_app_data(wrapper.clone());
    Ok(wrapper)
}
