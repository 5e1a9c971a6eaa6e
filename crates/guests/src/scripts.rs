//! Code in Lua that configurations of other plugins contain: templates, and functions that return fields of records.

use crate::call::Guest;
use crate::kept;
use crate::machine;
use crate::modules;
use crate::phase::Phase;
use crate::sandbox::{SWITCHED_OFF, syntax_error};
use crate::settings::{LuaSettings, UntrustedLua};
use crate::vm::Vm;
use mlua::chunk::ChunkMode;
use mlua::{Function, Lua, Table, Value};
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, Script, ScriptCode, ScriptError, ScriptKind, ScriptValue, Scripts,
};

/// Runs such code.
pub struct LuaScripts;

impl Scripts for LuaScripts {
    fn syntax_error(&self, code: &str) -> Option<String> {
        syntax_error(code)
    }

    fn load(
        &self,
        plugin: &'static str,
        kind: ScriptKind,
        code: Vec<ScriptCode>,
        build: &BuildContext<'_>,
    ) -> Result<Arc<dyn Script>, String> {
        if build.retained.get::<LuaSettings>().untrusted == UntrustedLua::Off {
            return Err(SWITCHED_OFF.to_owned());
        }
        let phase = match kind {
            ScriptKind::Templates => Phase::Access,
            ScriptKind::LogFields => Phase::Log,
        };
        let count = code.len();
        let guest = Guest::new(plugin, build, move |guest, vm| {
            let function = compile(vm, kind, &code)?;
            Ok(guest.script_of(vec![(phase, function)]))
        });
        Ok(Arc::new(LuaScript { guest, phase, count }))
    }
}

/// The code of one plugin entity.
struct LuaScript {
    guest: Guest,
    phase: Phase,
    count: usize,
}

impl Script for LuaScript {
    fn evaluate(
        &self,
        exchange: &mut Exchange,
        is_wanted: &dyn Fn(usize) -> bool,
    ) -> Vec<Result<ScriptValue, ScriptError>> {
        let call = |vm: &Vm, function: &Function| {
            let wanted = vm.lua.create_sequence_from((0..self.count).map(is_wanted))?;
            let results: Table = function.call(wanted)?;
            (1..=self.count).map(|at| result(&vm.lua, &results, at)).collect::<mlua::Result<Vec<_>>>()
        };
        let Some(results) = self.guest.evaluate(exchange, self.phase, call) else {
            return vec![Err(ScriptError); self.count];
        };
        let keep = |result: Result<ScriptValue, String>| match result {
            Ok(value) if kept::keep(exchange, size(&value)).is_ok() => Ok(value),
            Ok(_) => Err(ScriptError),
            Err(message) => {
                self.guest.log_error(self.phase, message);
                Err(ScriptError)
            }
        };
        results.into_iter().map(keep).collect()
    }
}

/// What a piece of code is worth; the error is its message.
fn result(lua: &Lua, results: &Table, at: usize) -> mlua::Result<Result<ScriptValue, String>> {
    let result: Table = results.get(at)?;
    let value: Value = result.get(2)?;
    Ok(match result.get(1)? {
        true => worth(lua, value).map_err(|error| crate::source::message(&error)),
        false => Err(value.to_string()?),
    })
}

fn worth(lua: &Lua, value: Value) -> mlua::Result<ScriptValue> {
    match value {
        Value::Nil => Ok(ScriptValue::Nil),
        Value::String(text) => Ok(ScriptValue::Text(text.as_bytes().to_vec())),
        value => {
            let text = modules::to_json(lua, &value).map_err(mlua::Error::from)?;
            let json = serde_json::from_str(&String::from_utf8_lossy(&text));
            json.map(ScriptValue::Json).map_err(|error| mlua::Error::runtime(error.to_string()))
        }
    }
}

fn size(value: &ScriptValue) -> usize {
    match value {
        ScriptValue::Nil => 0,
        ScriptValue::Text(text) => text.len(),
        ScriptValue::Json(json) => kept::size(json),
    }
}

/// The function that evaluates all pieces.
fn compile(vm: &Vm, kind: ScriptKind, code: &[ScriptCode]) -> mlua::Result<Function> {
    let lua = &vm.lua;
    let host = lua.load(include_str!("scripts.lua")).set_name("=[host]").set_mode(ChunkMode::Text);
    let host: Table = host.call(lua.globals().get::<Table>("kong")?)?;
    let globals = || vm.sandbox.globals(lua);
    let chunks = lua.create_table()?;
    let mut begin: Option<Function> = None;
    match kind {
        ScriptKind::Templates => {
            let make: Function = host.get("template_globals")?;
            let (env, forget): (Table, Function) = make.call((globals()?, vm.sandbox.is_open()))?;
            for code in code {
                let text = format!("return {}", code.text);
                chunks.raw_push(machine::compile(lua, &text, &format!("={}", code.name), env.clone())?)?;
            }
            begin = Some(forget);
        }
        ScriptKind::LogFields => {
            for code in code {
                chunks.raw_push(machine::compile(
                    lua,
                    &code.text,
                    &format!("={}", code.name),
                    globals()?,
                )?)?;
            }
        }
    }
    host.get::<Function>("evaluator")?.call((chunks, begin))
}
