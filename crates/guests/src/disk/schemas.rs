//! What is wrong with the schemas in files of a plugin, with the lines where it is written.

use super::needs::Missing;
use super::tokens::{Token, Tokens};
use crate::schema::meta::{Remark, Subject, remarks};
use crate::source;
use crate::vm::Vm;
use mlua::chunk::ChunkMode;
use mlua::{Table, Value};
use std::path::Path;

/// What Kong would refuse of the schemas in a file, if it holds such.
pub(super) fn problems(vm: &Vm, (file, text): (&Path, &[u8]), tokens: &Tokens<'_>) -> Vec<Missing> {
    let subject = match file.file_name().and_then(|name| name.to_str()) {
        Some("schema.lua") => Subject::Plugin,
        Some("daos.lua") => Subject::Entity,
        _ => return Vec::new(),
    };
    let chunk = vm.lua.load(text).set_name("=").set_mode(ChunkMode::Text);
    match vm.load_files(|| chunk.eval::<Value>()) {
        Ok(Value::Table(table)) => said(vm, (file, subject), &table, tokens),
        Ok(_) => vec![Missing::new(file, 1, "the file returns no table".to_owned())],
        // A module that is missing has been named.
        Err(error) if names_a_module(&error) => Vec::new(),
        Err(error) => vec![failure(file, &source::message(&error))],
    }
}

fn names_a_module(error: &mlua::Error) -> bool {
    source::message(error).contains("module '")
}

/// What a file fails with: `:3: message` where it names a line.
fn failure(file: &Path, message: &str) -> Missing {
    let place = message.trim_start_matches(':').split_once(": ");
    let place = place.and_then(|(line, rest)| Some((line.parse().ok()?, rest)));
    let (line, message) = place.unwrap_or((1, message));
    Missing::new(file, line, message.to_owned())
}

fn said(vm: &Vm, (file, subject): (&Path, Subject), table: &Table, tokens: &Tokens<'_>) -> Vec<Missing> {
    let schemas: Vec<Table> = match subject {
        Subject::Plugin => vec![table.clone()],
        Subject::Entity => {
            let members = table.pairs::<Value, Value>().filter_map(Result::ok);
            members.filter_map(|(_, value)| value.as_table().cloned()).collect()
        }
    };
    let mut found = Vec::new();
    for schema in schemas {
        let name = schema.get::<String>("name").ok().filter(|_| subject == Subject::Entity);
        let text = |remark: &Remark| match &name {
            Some(name) => format!("{name}: {}", remark.text()),
            None => remark.text(),
        };
        match remarks(vm, &schema, subject) {
            Ok(said) => {
                let line = |remark: &Remark| line(tokens, remark);
                found.extend(said.wrong.iter().map(|it| Missing::new(file, line(it), text(it))));
                found.extend(said.without_effect.iter().map(|it| Missing::warning(file, line(it), text(it))));
            }
            Err(error) => found.push(failure(file, &source::message(&error))),
        }
    }
    found
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
