//! `kong.tracing` and `kong.telemetry`, which record nothing, as where Kong's tracing is off.

use crate::args::truthy;
use crate::namespace::{Namespace, read_only};
use mlua::chunk::ChunkMode;
use mlua::{Lua, Table, Value};

/// Makes `kong.tracing`.
pub(super) fn tracing(make: &Namespace<'_>) -> mlua::Result<Table> {
    let chunk = make.lua.load(include_str!("tracing.lua")).set_name("=[kong.tracing]");
    chunk.set_mode(ChunkMode::Text).call(())
}

/// Makes `kong.telemetry`.
pub(super) fn telemetry(make: &Namespace<'_>) -> mlua::Result<Table> {
    let table = make.table()?;
    table.set("log", make.lua.create_function(log)?)?;
    read_only(make.lua, table)
}

/// What Kong says where no plugin reports logs.
const DISABLED: &str = "Telemetry logging is disabled: log entry will not be recorded. Ensure the OpenTelemetry plugin is \
                        correctly configured to report logs in order to use this feature.";

/// `log(plugin_name, plugin_config, message_type, message, attributes)`: nil, and why.
fn log(
    _: &Lua,
    (name, config, kind, message, attributes): (Value, Value, Value, Value, Value),
) -> mlua::Result<(Value, &'static str)> {
    let rules = [
        (name.is_string(), "plugin_name must be a string"),
        (config.is_table(), "plugin_config must be a table"),
        (kind.is_string(), "message_type must be a string"),
        (message.is_string() || !truthy(&message), "message must be a string"),
        (attributes.is_table() || !truthy(&attributes), "attributes must be a table"),
    ];
    let broken = rules.into_iter().find(|(is_kept, _)| !is_kept);
    Ok((Value::Nil, broken.map_or(DISABLED, |(_, why)| why)))
}
