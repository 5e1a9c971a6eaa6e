//! What is wrong with the schemas in files of a plugin, with the lines where it is written.

use super::entities;
use super::names::missing;
use super::needs::Missing;
use crate::schema::meta::{Remark, Subject, of_other_name, remarks};
use crate::settings::LuaSettings;
use crate::source;
use crate::tokens::{Token, Tokens};
use crate::vm::Vm;
use crate::vm::files::CLOSED;
use mlua::chunk::ChunkMode;
use mlua::{LuaString, Table, Value};
use std::path::Path;
use std::sync::Arc;

/// The schemas of one plugin, and where they run.
pub(super) struct Running<'r> {
    pub(super) settings: &'r Arc<LuaSettings>,
    pub(super) vm: &'r Vm,
    /// The name of the plugin.
    pub(super) plugin: &'r str,
    /// What the texts of its files have shown.
    pub(super) found: &'r [Missing],
}

impl Running<'_> {
    /// What Kong, or the start, would refuse of the schemas in a file.
    pub(super) fn problems(
        &self,
        (file, text): (&Path, &[u8]),
        subject: Subject,
        tokens: &Tokens<'_>,
    ) -> Vec<Missing> {
        let chunk = self.vm.lua.load(text).set_name("=").set_mode(ChunkMode::Text);
        match self.vm.load_files(|| chunk.eval::<Value>()) {
            Ok(Value::Table(table)) => self.said((file, subject), &table, tokens),
            Ok(_) => vec![Missing::new(file, 1, "the file returns no table".to_owned())],
            Err(error) => self.failure(file, &source::message(&error)).into_iter().collect(),
        }
    }

    /// What a file fails with: `:3: message` where it names a line. A module that is missing is named once.
    fn failure(&self, file: &Path, message: &str) -> Option<Missing> {
        let place = message.trim_start_matches(':').split_once(": ");
        let place = place.and_then(|(line, rest)| Some((line.parse().ok()?, rest)));
        let (line, message) = place.unwrap_or((1, message));
        let module = message.split_once("module '").and_then(|(_, rest)| rest.split_once("' not found"));
        let message = match module {
            Some((module, _)) if self.is_reported(module) => return None,
            Some((module, _)) => missing(module, "module"),
            None => message.to_owned(),
        };
        Some(Missing { is_warning: message.contains(CLOSED), ..Missing::new(file, line, message) })
    }

    fn is_reported(&self, module: &str) -> bool {
        let name = format!("module '{module}'");
        self.found.iter().any(|it| it.message.contains(&name))
    }

    fn said(&self, (file, subject): (&Path, Subject), table: &Table, tokens: &Tokens<'_>) -> Vec<Missing> {
        if subject == Subject::Plugin {
            let mut found = self.remarked((file, subject), table, tokens);
            let other = of_other_name(table, self.plugin);
            found.extend(other.map(|it| Missing::warning(file, line(tokens, &it), it.text())));
            return found;
        }
        let (mut found, mut made) = (Vec::new(), Vec::new());
        for table in entities::declared(table) {
            let wrong = self.remarked((file, subject), &table, tokens);
            // The start looks at what Kong would take alone.
            if wrong.iter().all(|it| it.is_warning) {
                match entities::schema(self.settings, &table, &made) {
                    Ok(schema) => made.push(&*Box::leak(Box::new(schema))),
                    Err(message) => found.push(Missing::new(file, line_of_name(tokens, &message), message)),
                }
            }
            found.extend(wrong);
        }
        found
    }

    /// What there is to say of one schema.
    fn remarked(
        &self,
        (file, subject): (&Path, Subject),
        schema: &Table,
        tokens: &Tokens<'_>,
    ) -> Vec<Missing> {
        let name = schema.get::<LuaString>("name").ok().filter(|_| subject == Subject::Entity);
        let text = |remark: &Remark| match &name {
            Some(name) => format!("{}: {}", name.to_string_lossy(), remark.text()),
            None => remark.text(),
        };
        match remarks(self.vm, schema, subject) {
            Ok(said) => {
                let line = |remark: &Remark| line(tokens, remark);
                let wrong = said.wrong.iter().map(|it| Missing::new(file, line(it), text(it)));
                let useless = said.without_effect.iter().map(|it| Missing::warning(file, line(it), text(it)));
                wrong.chain(useless).collect()
            }
            Err(error) => self.failure(file, &source::message(&error)).into_iter().collect(),
        }
    }
}

/// Where the first name that a message has between backticks is written.
fn line_of_name(tokens: &Tokens<'_>, message: &str) -> usize {
    let name = message.split('`').nth(1).or_else(|| message.split(':').next()).unwrap_or_default();
    line(tokens, &Remark { path: String::new(), message: String::new(), name: name.to_owned() })
}

/// Where a remark's attribute is written, or else the last name of its path.
fn line(tokens: &Tokens<'_>, remark: &Remark) -> usize {
    let last = remark.path.rsplit('.').next().unwrap_or_default();
    let of_name = |name: &str| {
        let is_it = |token: &Token<'_>| matches!(token, Token::Name(it) | Token::Text(it) if *it == name);
        tokens.iter().find(|(token, _)| !name.is_empty() && is_it(token)).map(|(_, line)| *line)
    };
    of_name(&remark.name).or_else(|| of_name(last)).unwrap_or(1)
}
