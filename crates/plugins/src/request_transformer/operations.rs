//! The operations of a configuration, prepared.

use super::template::Template;
use crate::shared::transformer::split;
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
use weir_plugin::{
    BuildContext, Exchange, Script, ScriptCode, ScriptError, ScriptKind, ScriptValue, Scripts,
};

/// A value of the configuration.
#[derive(Debug)]
pub(super) enum Value {
    Text(Box<str>),
    /// The index of its template.
    Rendered(usize),
}

/// The templates of a configuration, each once.
#[derive(Default)]
pub(super) struct Values {
    templates: Vec<Prepared>,
    code: Vec<ScriptCode>,
    script: Option<Arc<dyn Script>>,
    /// Whether what is prepared next is for bodies.
    is_for_body: bool,
}

struct Prepared {
    template: Template,
    /// Where its code stands among all.
    code: Range<usize>,
    /// Whether bodies alone need it.
    is_for_body: bool,
}

impl Values {
    pub(super) fn prepare(&mut self, text: &str) -> Result<Value, String> {
        let Some(template) = Template::parse(text)? else { return Ok(Value::Text(text.into())) };
        if let Some(known) = self.templates.iter().position(|known| known.template == template) {
            self.templates[known].is_for_body &= self.is_for_body;
            return Ok(Value::Rendered(known));
        }
        let start = self.code.len();
        let code =
            template.code().map(|code| ScriptCode { name: "template".to_owned(), text: code.to_owned() });
        self.code.extend(code);
        let code = start..self.code.len();
        self.templates.push(Prepared { template, code, is_for_body: self.is_for_body });
        Ok(Value::Rendered(self.templates.len() - 1))
    }

    /// The same for operations on bodies.
    pub(super) fn for_body<T>(&mut self, prepare: impl FnOnce(&mut Self) -> T) -> T {
        self.is_for_body = true;
        let prepared = prepare(self);
        self.is_for_body = false;
        prepared
    }

    /// Loads the code of all templates.
    pub(super) fn load(&mut self, plugin: &'static str, build: &BuildContext<'_>) -> Result<(), String> {
        let code = std::mem::take(&mut self.code);
        self.script = <dyn Scripts>::load_all(plugin, ScriptKind::Templates, code, build)?;
        Ok(())
    }

    /// Whether code is needed for some of them, once it is loaded.
    pub(super) fn have_code(&self) -> bool {
        self.script.is_some()
    }

    /// Renders the values for a request, before any of it is changed. Those that bodies alone need may be left out.
    pub(super) fn render(&self, exchange: &mut Exchange, with_body: bool) -> Result<Rendered, ScriptError> {
        let mut rendered = Rendered { bytes: Vec::new(), ends: Vec::with_capacity(self.templates.len()) };
        let mut values = self.evaluate(exchange, with_body)?;
        for prepared in &self.templates {
            if with_body || !prepared.is_for_body {
                let values = values.get_mut(prepared.code.clone()).into_iter().flatten();
                let values = values.map(|value| std::mem::replace(value, ScriptValue::Nil));
                prepared.template.render(exchange, values, &mut rendered.bytes);
            }
            rendered.ends.push(rendered.bytes.len());
        }
        Ok(rendered)
    }

    /// The values of the code in all templates.
    fn evaluate(&self, exchange: &mut Exchange, with_body: bool) -> Result<Vec<ScriptValue>, ScriptError> {
        let Some(script) = &self.script else { return Ok(Vec::new()) };
        let is_wanted = |code: usize| {
            with_body || self.templates.iter().any(|it| !it.is_for_body && it.code.contains(&code))
        };
        script.evaluate(exchange, &is_wanted).into_iter().collect()
    }
}

/// The values for one request.
pub(super) struct Rendered {
    bytes: Vec<u8>,
    /// Where each template's value ends.
    ends: Vec<usize>,
}

impl Rendered {
    pub(super) fn get<'v>(&'v self, value: &'v Value) -> &'v [u8] {
        match value {
            Value::Text(text) => text.as_bytes(),
            Value::Rendered(index) => {
                let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
                &self.bytes[start..self.ends[*index]]
            }
        }
    }

    pub(super) fn text<'v>(&'v self, value: &'v Value) -> Cow<'v, str> {
        String::from_utf8_lossy(self.get(value))
    }
}

/// A name and what happens to it.
pub(super) struct Entry {
    pub(super) name: Box<str>,
    pub(super) value: Value,
}

/// Parses a list of entries. Those without a value do nothing.
pub(super) fn entries(list: &[String], values: &mut Values) -> Result<Vec<Entry>, String> {
    let valued = list.iter().map(|entry| split(entry)).filter(|(_, value)| !value.is_empty());
    valued.map(|(name, value)| Ok(Entry { name: name.into(), value: values.prepare(value)? })).collect()
}

/// The operations on a body or a query string.
pub(super) struct Operations {
    remove: Vec<Box<str>>,
    rename: Vec<Entry>,
    replace: Vec<Entry>,
    add: Vec<Entry>,
    append: Vec<Entry>,
}

impl Operations {
    pub(super) fn new(
        remove: &[String],
        [rename, replace, add, append]: [&Vec<String>; 4],
        values: &mut Values,
    ) -> Result<Self, String> {
        Ok(Self {
            remove: remove.iter().map(|entry| split(entry).0.into()).collect(),
            rename: entries(rename, values)?,
            replace: entries(replace, values)?,
            add: entries(add, values)?,
            append: entries(append, values)?,
        })
    }

    pub(super) fn is_empty(&self) -> bool {
        let Self { remove, rename, replace, add, append } = self;
        remove.is_empty() && [rename, replace, add, append].iter().all(|entries| entries.is_empty())
    }
}

/// Named values that operations change.
pub(super) trait Fields {
    /// Whether fields are renamed before fields are removed.
    const RENAMES_FIRST: bool = false;
    /// Whether the name exists, as in Lua: false counts as missing.
    fn holds(&self, name: &str) -> bool;
    fn remove(&mut self, name: &str);
    /// Renames fields; they replace those that have the new name.
    fn rename(&mut self, old: &str, new: &str);
    /// Sets the value of a name.
    fn set(&mut self, name: &str, value: &[u8]);
    fn append(&mut self, name: &str, value: &[u8]);
}

/// Applies the operations; if there was nothing before, only those that add something.
pub(super) fn apply<F: Fields>(operations: &Operations, fields: &mut F, values: &Rendered, any: bool) {
    let rename = |fields: &mut F| {
        for Entry { name, value } in &operations.rename {
            let new = values.text(value);
            if **name != *new && fields.holds(name) {
                fields.rename(name, &new);
            }
        }
    };
    if any {
        if F::RENAMES_FIRST {
            rename(fields);
        }
        operations.remove.iter().for_each(|name| fields.remove(name));
        if !F::RENAMES_FIRST {
            rename(fields);
        }
        for Entry { name, value } in &operations.replace {
            if fields.holds(name) {
                fields.set(name, values.get(value));
            }
        }
    }
    for Entry { name, value } in &operations.add {
        if !fields.holds(name) {
            fields.set(name, values.get(value));
        }
    }
    for Entry { name, value } in &operations.append {
        fields.append(name, values.get(value));
    }
}
