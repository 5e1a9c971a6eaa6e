//! Integers without bound, as the bytes of their magnitude, to and from decimal digits.

use mlua::{Lua, LuaString, Table};
use num_bigint::BigUint;

use crate::steps::{OutOfSteps, Steps};

pub(super) fn add(lua: &Lua, table: &Table) -> mlua::Result<()> {
    let decimal = lua.create_function(|lua, bytes: LuaString| {
        take(lua, &bytes)?;
        Ok(BigUint::from_bytes_be(&bytes.as_bytes()).to_string())
    })?;
    table.raw_set("integer_to_decimal", decimal)?;
    let parse = lua.create_function(|lua, (digits, radix): (LuaString, u32)| {
        take(lua, &digits)?;
        let number = BigUint::parse_bytes(&digits.as_bytes(), radix);
        number.map(|number| lua.create_string(number.to_bytes_be())).transpose()
    })?;
    table.raw_set("integer_parse", parse)
}

/// Takes the steps for a conversion, whose cost is quadratic.
fn take(lua: &Lua, text: &LuaString) -> Result<(), OutOfSteps> {
    let len = text.as_bytes().len();
    Steps::of(lua).take_many(len.saturating_mul(len) / 64)
}
