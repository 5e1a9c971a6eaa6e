//! What is wrong with schemas, as data.

use super::meta::{Remark, Subject, remarks};
use crate::LuaSettings;
use crate::vm::Vm;
use mlua::Table;
use std::sync::Arc;

/// The schema of a case, and what it is of.
fn schema(case: &str) -> (String, Subject) {
    let (kind, rest) = case.split_once(' ').unwrap_or((case, ""));
    let config =
        |members: &str| format!("name = 'x', fields = {{ {{ config = {{ type = 'record', {members} }} }} }}");
    let members = match kind {
        "config" => config(&format!("fields = {{ {rest} }}")),
        "checks" => config(&format!(
            "fields = {{ {{ a = {{ type = 'string' }} }}, {{ b = {{ type = 'array', elements = {{ type = 'string' }} }} }}, \
             {{ c = {{ type = 'string' }} }} }}, entity_checks = {{ {rest} }}"
        )),
        "shorthands" => config(&format!("fields = {{}}, shorthand_fields = {{ {rest} }}")),
        "schema" => rest.to_owned(),
        "entity" => format!("name = 'x', primary_key = {{ 'id' }}, {rest}"),
        other => panic!("no kind of case: {other}"),
    };
    let subject = if kind == "entity" { Subject::Entity } else { Subject::Plugin };
    let code =
        format!("local typedefs, null = require 'kong.db.schema.typedefs', ngx.null return {{ {members} }}");
    (code, subject)
}

fn texts(remarks: &[Remark]) -> String {
    remarks.iter().map(Remark::text).collect::<Vec<_>>().join("; ")
}

#[test]
fn schemas() {
    let patient = LuaSettings { timeout: std::time::Duration::from_secs(60), ..LuaSettings::default() };
    let vm = Vm::reading(&Arc::new(patient)).unwrap();
    let mut faults = Vec::new();
    let lines = include_str!("meta_cases.txt").lines().zip(1..);
    for (line, number) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
        let (case, expected) = line.rsplit_once(" | ").unwrap();
        let (code, subject) = schema(case);
        let table: Table = vm.lua.load(&code).eval().unwrap_or_else(|error| panic!("{code}: {error}"));
        let found = remarks(&vm, &table, subject).unwrap_or_else(|error| panic!("{code}: {error}"));
        let wrong = if found.wrong.is_empty() { "good".to_owned() } else { texts(&found.wrong) };
        let found = match texts(&found.without_effect) {
            none if none.is_empty() => wrong,
            without_effect => format!("{wrong} ~ {without_effect}"),
        };
        if found != expected {
            faults
                .push(format!("meta_cases.txt:{number}: {case}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn a_schema_that_contains_itself_is_refused() {
    let vm = Vm::reading(&Arc::new(LuaSettings::default())).unwrap();
    for code in [
        "local list = { type = 'array' } list.elements = list return { name = 'x', fields = { { config = list } } }",
        "local record = { type = 'record', fields = {} } record.fields[1] = { a = record } \
         return { name = 'x', fields = { { config = record } } }",
        "local default = {} default.a = default \
         return { name = 'x', fields = { { config = { type = 'any', default = default } } } }",
    ] {
        let table: Table = vm.lua.load(code).eval().unwrap();
        let error = remarks(&vm, &table, Subject::Plugin).err().unwrap().to_string();
        assert!(error.contains("does one contain itself?"), "{error}");
    }
}
