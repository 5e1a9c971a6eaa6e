//! `kong.vault`: secrets that references lead to.

use crate::host::Host;
use crate::namespace::{Namespace, refused};
use crate::operation::returned;
use crate::phase::Phases;
use mlua::{Function, Lua, Table, Value};
use std::sync::Arc;
use weir_plugin::{Background, SecretReference, Vaults, is_reference};

/// Makes the namespace.
pub(super) fn table(
    make: &Namespace<'_>,
    vaults: &Arc<Vaults>,
    background: &Arc<Background>,
) -> mlua::Result<Table> {
    let table = make.table()?;
    let is =
        |_: &Lua, text: Value| Ok(text.as_string().is_some_and(|text| is_reference(&text.to_string_lossy())));
    table.set("is_reference", make.lua.create_function(is)?)?;
    table.set("parse_reference", make.lua.create_function(parse_reference)?)?;
    let (vaults, background) = (vaults.clone(), background.clone());
    let get = move |_: &Lua, host: &Host, reference: Value| begin(host, &vaults, &background, &reference);
    table.set("get", make.waiting(make.host(Phases::ANY, get)?)?)?;
    // What stands in a plugin's configuration is resolved before the plugin sees it, so that nothing is to be looked up again.
    let attempt = |_: &Lua, (callback, options): (Value, Value)| match callback {
        Value::Function(callback) => Ok((callback, options)),
        _ => refused("callback must be a function"),
    };
    let attempt = make.lua.create_function(attempt)?;
    let call = "local check = ... return function(callback, options) local f, o = check(callback, options) return f(o) end";
    table.set("try", make.lua.load(call).set_name("=[kong.vault]").call::<Function>(attempt)?)?;
    let update = |_: &Lua, options: Value| match options {
        Value::Table(_) => Ok(options),
        _ => refused("options must be a table"),
    };
    table.set("update", make.lua.create_function(update)?)?;
    // Nothing is kept here: vaults keep what they have read for as long as their settings say.
    table.set("flush", make.lua.create_function(|_, ()| Ok(()))?)?;
    Ok(table)
}

/// Has the call wait for the vault, on a thread that may.
fn begin(
    host: &Host,
    vaults: &Arc<Vaults>,
    background: &Arc<Background>,
    reference: &Value,
) -> mlua::Result<bool> {
    let Value::String(reference) = reference else { return refused("reference must be a string") };
    let (vaults, reference) = (vaults.clone(), reference.to_string_lossy());
    let background = background.clone();
    host.wait_for(async move {
        match background.run_blocking(move || vaults.get(&reference, &[])).await {
            Ok(Ok(secret)) => returned(secret),
            Ok(Err(error)) => returned((Value::Nil, error.to_string())),
            Err(error) => returned((Value::Nil, error.to_string())),
        }
    })
}

fn parse_reference(lua: &Lua, reference: Value) -> mlua::Result<(Option<Table>, Option<String>)> {
    let Value::String(text) = reference else {
        return Ok((None, Some(format!("reference is not a string [{}]", reference.to_string()?))));
    };
    let parsed = match SecretReference::parse(&text.to_string_lossy()) {
        Ok(parsed) => parsed,
        Err(error) => return Ok((None, Some(error))),
    };
    let table = lua.create_table()?;
    table.set("name", parsed.vault)?;
    table.set("resource", parsed.resource)?;
    table.set("key", parsed.key)?;
    table.set("version", parsed.version)?;
    if !parsed.options.is_empty() {
        table.set("config", lua.create_table_from(parsed.options)?)?;
    }
    Ok((Some(table), None))
}
