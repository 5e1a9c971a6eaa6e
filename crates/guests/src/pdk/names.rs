//! Names of headers that code uses, which it passes as numbers.
//!
//! Code names the same few headers for each request. A number costs less to pass than a string, and its name has been
//! checked before.

use crate::fields::wire_name;
use crate::namespace::Namespace;
use mlua::{Function, Lua, Table, Value};
use std::cell::RefCell;
use std::rc::Rc;

/// How many names a VM knows. Functions take others as strings.
const MAX_NAMES: usize = 1024;
/// How long a name may be that is known.
const MAX_NAME: usize = 128;

/// The names that a VM knows. Clones share them.
#[derive(Clone)]
pub(crate) struct Names(Rc<Known>);

struct Known {
    /// The numbers, by the names as code writes them.
    numbers: Table,
    names: RefCell<Vec<Rc<Name>>>,
}

/// The name of a header.
pub(crate) struct Name {
    /// As code writes it.
    pub(crate) text: Box<str>,
    /// As it is on the wire.
    pub(crate) wire: Box<str>,
}

impl Names {
    /// Those of this VM.
    pub(crate) fn of(lua: &Lua) -> mlua::Result<Self> {
        if let Some(names) = lua.app_data_ref::<Self>() {
            return Ok(names.clone());
        }
        let names = Self(Rc::new(Known { numbers: lua.create_table()?, names: RefCell::default() }));
        lua.set_app_data(names.clone());
        Ok(names)
    }

    /// A name by its number.
    pub(crate) fn get(&self, number: usize) -> mlua::Result<Rc<Name>> {
        let name = self.0.names.borrow().get(number).cloned();
        name.ok_or_else(|| mlua::Error::runtime("there is no such header name"))
    }

    /// Gives a name a number, if it can be one.
    pub(crate) fn learn(&self, name: &Value) -> mlua::Result<()> {
        let mut names = self.0.names.borrow_mut();
        let Value::String(text) = name else { return Ok(()) };
        let bytes = text.as_bytes();
        let Ok(text) = std::str::from_utf8(&bytes) else { return Ok(()) };
        if names.len() >= MAX_NAMES || text.is_empty() || text.len() > MAX_NAME || text.starts_with(':') {
            return Ok(());
        }
        self.0.numbers.raw_set(name, names.len())?;
        names.push(Rc::new(Name { text: text.into(), wire: wire_name(text).into() }));
        Ok(())
    }
}

impl Namespace<'_> {
    /// A function whose first argument is the name of a header: `by_number` for names that are known, which gets the number,
    /// else `by_name`.
    pub(crate) fn named(&self, by_number: Function, by_name: Function) -> mlua::Result<Function> {
        let numbers = Names::of(self.lua)?.0.numbers.clone();
        self.prelude.get::<Function>("named")?.call((numbers, by_number, by_name))
    }
}
