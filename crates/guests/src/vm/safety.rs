//! What makes the VM memory-safe against code that wants to break it, and keeps it from the machine.
//!
//! LuaJIT opens its FFI by itself, runs bytecode without checking it, and hands out raw pointers. Each of that is taken away
//! before any code of others runs.

use super::{debug, files};
use crate::depth::Depth;
use crate::kept;
use crate::modules::NEWPROXY;
use crate::steps::{OutOfSteps, Steps};
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, LuaOptions, LuaString, MultiValue, StdLib, Table, Value};

/// A VM without what could break it.
pub(super) fn safe_lua() -> mlua::Result<Lua> {
    let lua = Lua::new_with(StdLib::ALL_SAFE, LuaOptions::default())?;
    switch_jit_off(&lua)?;
    forget_ffi(&lua)?;
    load_text_alone(&lua)?;
    forget_modules(&lua)?;
    keep_the_process(&lua)?;
    files::guard(&lua)?;
    debug::install(&lua)?;
    Ok(lua)
}

/// No hook stops a loop that was compiled.
fn switch_jit_off(lua: &Lua) -> mlua::Result<()> {
    let jit: Table = lua.globals().get("jit")?;
    jit.get::<Function>("off")?.call::<()>(())?;
    jit.get::<Function>("flush")?.call::<()>(())?;
    for name in ["on", "off", "flush"] {
        jit.set(name, lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    }
    for name in ["opt", "util", "profile", "attach", "security"] {
        jit.set(name, Value::Nil)?;
    }
    Ok(())
}

/// LuaJIT opens the FFI when it first reads a literal such as `1LL`. It does so once. Arithmetic with such literals uses a
/// table that only the library refers to, so that is kept where no code finds it: collected, it would be used all the same.
fn forget_ffi(lua: &Lua) -> mlua::Result<()> {
    lua.load("return 1LL").set_mode(ChunkMode::Text).eval::<Value>()?;
    let loaded: Table = lua.globals().get::<Table>("package")?.get("loaded")?;
    lua.set_named_registry_value("weir.ffi", loaded.get::<Value>("ffi")?)
}

/// Modules that are loaded, or can be, beside the libraries of Lua.
fn forget_modules(lua: &Lua) -> mlua::Result<()> {
    let package: Table = lua.globals().get("package")?;
    let unsafe_ones = ["ffi", "string.buffer", "jit.opt", "jit.util", "jit.profile", "jit.vmdef", "debug"];
    for list in ["loaded", "preload"] {
        let list: Table = package.get(list)?;
        for name in unsafe_ones {
            list.set(name, Value::Nil)?;
        }
    }
    lua.set_named_registry_value(NEWPROXY, lua.globals().get::<Value>("newproxy")?)?;
    lua.globals().set("newproxy", Value::Nil)?;
    for name in ["loadlib", "loaders", "searchers", "searchpath", "cpath", "seeall"] {
        package.set(name, Value::Nil)?;
    }
    lua.globals().set("module", Value::Nil)
}

/// Bytecode is not checked: source text alone is loaded, and none is made.
fn load_text_alone(lua: &Lua) -> mlua::Result<()> {
    let globals = lua.globals();
    globals.get::<Table>("string")?.set("dump", Value::Nil)?;
    let load = lua.create_function(load)?;
    globals.set("loadstring", &load)?;
    globals.set("load", load)?;
    globals.set("loadfile", Value::Nil)?;
    globals.set("dofile", Value::Nil)
}

/// Kong's `load`: a string, or a function that returns pieces of one until it returns nothing.
fn load(
    lua: &Lua,
    (chunk, name, _mode, env): (Value, Option<LuaString>, Value, Option<Table>),
) -> mlua::Result<MultiValue> {
    let depth = Depth::of(lua);
    let _level = depth.enter()?;
    let source = match &chunk {
        Value::String(text) => text.as_bytes().to_vec(),
        Value::Function(next) => pieces(lua, next)?,
        other => {
            let message = format!("bad argument #1 to 'load' (function expected, got {})", other.type_name());
            return Err(mlua::Error::runtime(message));
        }
    };
    take(lua, &source)?;
    let name = match (name, &chunk) {
        (Some(name), _) => name.to_string_lossy(),
        (None, Value::String(_)) => String::from_utf8_lossy(&source).into_owned(),
        (None, _) => "=(load)".to_owned(),
    };
    let mut loaded = lua.load(source).set_name(name.replace('\0', "?")).set_mode(ChunkMode::Text);
    if let Some(env) = env {
        loaded = loaded.set_environment(env);
    }
    Ok(match loaded.into_function() {
        Ok(function) => MultiValue::from_iter([Value::Function(function)]),
        Err(error) => {
            let message = Value::String(lua.create_string(crate::source::message(&error))?);
            MultiValue::from_iter([Value::Nil, message])
        }
    })
}

/// What it takes to compile a byte.
const STEPS_PER_BYTE: usize = 32;

/// Takes the steps for compiling a source. Each label is compared with all others of its function.
fn take(lua: &Lua, source: &[u8]) -> Result<(), OutOfSteps> {
    let jumps =
        memchr::memmem::find_iter(source, b"::").count() + memchr::memmem::find_iter(source, b"goto").count();
    Steps::of(lua).take_many(
        source.len().saturating_mul(STEPS_PER_BYTE).saturating_add(jumps.saturating_mul(jumps) / 4),
    )
}

fn pieces(lua: &Lua, next: &Function) -> mlua::Result<Vec<u8>> {
    let pieces = std::iter::from_fn(|| next.call::<Option<LuaString>>(()).transpose());
    kept::joined(
        &Steps::of(lua),
        pieces.take_while(|piece| !piece.as_ref().is_ok_and(|piece| piece.as_bytes().is_empty())),
    )
}

/// What could end the process, start others, or change files.
fn keep_the_process(lua: &Lua) -> mlua::Result<()> {
    let os: Table = lua.globals().get("os")?;
    for name in ["execute", "exit", "remove", "rename", "tmpname", "setlocale"] {
        os.set(name, Value::Nil)?;
    }
    lua.globals().get::<Table>("io")?.set("popen", Value::Nil)
}
