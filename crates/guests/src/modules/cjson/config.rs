//! The settings of one instance of `cjson`, and the functions that read and change them.

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use crate::args;
use crate::raise::{self, Checked};

/// What to write for a number that JSON does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InvalidNumbers {
    Refuse,
    Write,
    Null,
}

/// The settings, with lua-cjson's defaults.
#[derive(Debug, Clone)]
pub(super) struct Config {
    pub(super) sparse_convert: bool,
    pub(super) sparse_ratio: i64,
    pub(super) sparse_safe: i64,
    pub(super) encode_max_depth: usize,
    pub(super) decode_max_depth: usize,
    pub(super) encode_invalid_numbers: InvalidNumbers,
    pub(super) decode_invalid_numbers: bool,
    pub(super) precision: usize,
    pub(super) empty_table_as_object: bool,
    pub(super) array_with_mt: bool,
    pub(super) escape_slash: bool,
    pub(super) skip_unsupported: bool,
    pub(super) keep_buffer: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_max_depth: 1000,
            decode_max_depth: 1000,
            encode_invalid_numbers: InvalidNumbers::Refuse,
            decode_invalid_numbers: true,
            precision: 14,
            empty_table_as_object: true,
            array_with_mt: false,
            escape_slash: true,
            skip_unsupported: false,
            keep_buffer: true,
        }
    }
}

impl Config {
    /// The settings of `kong.tools.cjson`.
    pub(super) fn of_kong() -> Self {
        Self { sparse_safe: 1 << 15, precision: 16, array_with_mt: true, ..Self::default() }
    }
}

/// Settings that the functions of an instance share.
pub(super) type Shared = Rc<RefCell<Config>>;

/// Adds the functions that change settings. Without an argument they return the present value.
pub(super) fn setters(lua: &Lua, module: &Table, shared: &Shared) -> mlua::Result<()> {
    switch(lua, module, shared, "encode_empty_table_as_object", |c| &mut c.empty_table_as_object)?;
    switch(lua, module, shared, "decode_array_with_array_mt", |c| &mut c.array_with_mt)?;
    switch(lua, module, shared, "decode_invalid_numbers", |c| &mut c.decode_invalid_numbers)?;
    switch(lua, module, shared, "encode_escape_forward_slash", |c| &mut c.escape_slash)?;
    switch(lua, module, shared, "encode_skip_unsupported_value_types", |c| &mut c.skip_unsupported)?;
    switch(lua, module, shared, "encode_keep_buffer", |c| &mut c.keep_buffer)?;
    count(lua, module, shared, "encode_max_depth", i64::from(i32::MAX), |c| &mut c.encode_max_depth)?;
    count(lua, module, shared, "decode_max_depth", i64::from(i32::MAX), |c| &mut c.decode_max_depth)?;
    count(lua, module, shared, "encode_number_precision", 16, |c| &mut c.precision)?;
    invalid_numbers(lua, module, shared)?;
    sparse_array(lua, module, shared)
}

type Field<T> = fn(&mut Config) -> &mut T;

fn switch(
    lua: &Lua,
    module: &Table,
    shared: &Shared,
    name: &'static str,
    field: Field<bool>,
) -> mlua::Result<()> {
    let shared = shared.clone();
    let function = raise::function(lua, move |lua, given: MultiValue| {
        let [value] = exactly(name, given)?;
        let mut config = shared.borrow_mut();
        if let Some(on) = on_or_off(lua, name, &value)? {
            *field(&mut config) = on;
        }
        Ok(*field(&mut config))
    })?;
    module.raw_set(name, function)
}

fn count(
    lua: &Lua,
    module: &Table,
    shared: &Shared,
    name: &'static str,
    max: i64,
    field: Field<usize>,
) -> mlua::Result<()> {
    let shared = shared.clone();
    let function = raise::function(lua, move |lua, given: MultiValue| {
        let [value] = exactly(name, given)?;
        let mut config = shared.borrow_mut();
        if let Some(number) = whole(lua, name, 1, &value, 1, max)? {
            *field(&mut config) = number as usize;
        }
        Ok(*field(&mut config))
    })?;
    module.raw_set(name, function)
}

fn invalid_numbers(lua: &Lua, module: &Table, shared: &Shared) -> mlua::Result<()> {
    const NAME: &str = "encode_invalid_numbers";
    let shared = shared.clone();
    let function = raise::function(lua, move |lua, given: MultiValue| {
        let [value] = exactly(NAME, given)?;
        let mut config = shared.borrow_mut();
        if value.as_string().is_some_and(|text| text == "null") {
            config.encode_invalid_numbers = InvalidNumbers::Null;
        } else if let Some(on) = on_or_off(lua, NAME, &value)? {
            config.encode_invalid_numbers = if on { InvalidNumbers::Write } else { InvalidNumbers::Refuse };
        }
        Ok(match config.encode_invalid_numbers {
            InvalidNumbers::Null => Value::String(lua.create_string("null")?),
            other => Value::Boolean(other == InvalidNumbers::Write),
        })
    })?;
    module.raw_set(NAME, function)
}

fn sparse_array(lua: &Lua, module: &Table, shared: &Shared) -> mlua::Result<()> {
    const NAME: &str = "encode_sparse_array";
    let shared = shared.clone();
    let function = raise::function(lua, move |lua, given: MultiValue| {
        let [convert, ratio, safe] = exactly(NAME, given)?;
        let mut config = shared.borrow_mut();
        config.sparse_convert = on_or_off(lua, NAME, &convert)?.unwrap_or(config.sparse_convert);
        let max = i64::from(i32::MAX);
        config.sparse_ratio = whole(lua, NAME, 2, &ratio, 0, max)?.unwrap_or(config.sparse_ratio);
        config.sparse_safe = whole(lua, NAME, 3, &safe, 0, max)?.unwrap_or(config.sparse_safe);
        Ok((config.sparse_convert, config.sparse_ratio, config.sparse_safe))
    })?;
    module.raw_set(NAME, function)
}

/// As many arguments as there are settings; those that are absent are `nil`.
fn exactly<const N: usize>(function: &str, given: MultiValue) -> Checked<[Value; N]> {
    if given.len() > N {
        return Err(args::bad(function, N + 1, "found too many arguments"));
    }
    let mut given = given.into_iter();
    Ok(std::array::from_fn(|_| given.next().unwrap_or(Value::Nil)))
}

/// A boolean, `"on"` or `"off"`; none for `nil`.
fn on_or_off(lua: &Lua, function: &str, value: &Value) -> Checked<Option<bool>> {
    match value {
        Value::Nil => Ok(None),
        Value::Boolean(on) => Ok(Some(*on)),
        _ => {
            let text = args::string(lua, function, 1, value)?;
            match &*text.as_bytes() {
                b"on" => Ok(Some(true)),
                b"off" => Ok(Some(false)),
                _ => Err(args::bad(function, 1, &format!("invalid option '{}'", text.to_string_lossy()))),
            }
        }
    }
}

/// A whole number within bounds; none for `nil`.
fn whole(
    lua: &Lua,
    function: &str,
    position: usize,
    value: &Value,
    min: i64,
    max: i64,
) -> Checked<Option<i64>> {
    if value.is_nil() {
        return Ok(None);
    }
    let number = args::integer(lua, function, position, value, min)?;
    if (min..=max).contains(&number) {
        Ok(Some(number))
    } else {
        Err(args::bad(function, 1, &format!("expected integer between {min} and {max}")))
    }
}
