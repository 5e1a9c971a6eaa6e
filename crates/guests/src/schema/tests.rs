//! What schemas in Lua say of configurations, as data.

use super::{declaration, values};
use crate::LuaSettings;
use crate::vm::Vm;
use mlua::{Function, Table, Value};
use serde_json::Value as Json;
use std::sync::Arc;
use weir_plugin::schema::{Kind, Literal};

/// A case is `the fields of config ; more members of config | configuration | what comes of it`: the configuration with its
/// defaults, or each error as `path: message`.
#[test]
fn configurations() {
    let patient = LuaSettings { timeout: std::time::Duration::from_secs(60), ..LuaSettings::default() };
    let vm = Vm::reading(&Arc::new(patient)).unwrap();
    let mut faults = Vec::new();
    let lines = include_str!("cases.txt").lines().zip(1..);
    for (line, number) in lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#')) {
        let parts: Vec<_> = line.split(" | ").collect();
        let [schema, config, expected] = *parts else { panic!("cases.txt:{number}: {line}") };
        let found = read(&vm, schema, config);
        if found != expected.trim() {
            faults.push(format!("cases.txt:{number}: {schema}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn read(vm: &Vm, schema: &str, config: &str) -> String {
    let (fields, more) = schema.split_once(" ; ").unwrap_or((schema, ""));
    let (of_config, of_entity) = more.split_once(" ;; ").unwrap_or((more, ""));
    let code = format!(
        "local typedefs, null = require 'kong.db.schema.typedefs', ngx.null \
         return require('kong.db.schema').plugin {{ name = 'x', \
         fields = {{ {{ config = {{ type = 'record', fields = {{ {fields} }}, {of_config} }} }} }}, {of_entity} }}"
    );
    let check: Function = vm.lua.load(&code).eval().unwrap_or_else(|error| panic!("{code}: {error}"));
    let mark = values::list_mark(&vm.lua).unwrap();
    let json: Json = serde_json::from_str(config).unwrap_or_else(|error| panic!("{config}: {error}"));
    let written = values::to_lua(&vm.lua, &mark, &json).unwrap();
    let (config, errors): (Value, Table) =
        check.call(written).unwrap_or_else(|error| panic!("{code}: {error}"));
    let errors: Vec<Table> = errors.sequence_values().collect::<mlua::Result<_>>().unwrap();
    if errors.is_empty() {
        return values::to_json(&mark, &config).unwrap().to_string();
    }
    let text = |error: &Table, at: i64| error.get::<String>(at).unwrap();
    errors.iter().map(|it| format!("{}: {}", text(it, 1), text(it, 2))).collect::<Vec<_>>().join("; ")
}

#[test]
fn fields_that_are_automatic_are_filled_in() {
    let vm = Vm::reading(&Arc::new(LuaSettings::default())).unwrap();
    let fields = "{ secret = { type = 'string', required = true, auto = true } }, { id = typedefs.uuid }, \
        { created_at = typedefs.auto_timestamp_s }, { updated_at = typedefs.auto_timestamp_ms { required = true } }, \
        { more = { type = 'record', required = true, fields = { { key = { type = 'string', auto = true } } } } }";
    let [one, other] =
        [(); 2].map(|()| serde_json::from_str::<Json>(&read(&vm, fields, "{}")).expect("a configuration"));
    let text = |json: &Json, at: &str| json.pointer(at).and_then(Json::as_str).unwrap().to_owned();
    for at in ["/secret", "/more/key"] {
        let (one, other) = (text(&one, at), text(&other, at));
        assert!(
            one.len() == 32 && one != other && one.bytes().all(|byte| byte.is_ascii_alphanumeric()),
            "{one}"
        );
    }
    assert!(weir_plugin::Uuid::parse_str(&text(&one, "/id")).is_ok() && one["id"] != other["id"], "{one}");
    assert!(one["created_at"].is_i64() && one["updated_at"].as_f64() > Some(1e9), "{one}");
    let given = r#"{"secret":"s","id":"5a1e7d2c-0d2b-4f62-9d1a-6f1f0e9f3c11","created_at":1,"updated_at":2,"more":{"key":"k"}}"#;
    let given: Json = serde_json::from_str(given).unwrap();
    let kept: Json = serde_json::from_str(&read(&vm, fields, &given.to_string())).unwrap();
    assert_eq!(kept, given);
    let null = read(&vm, "{ a = { type = 'string', auto = true } }", r#"{"a":null}"#);
    assert_eq!(null, r#"{"a":null}"#);
}

#[test]
fn a_table_becomes_a_declaration() {
    let vm = Vm::reading(&Arc::new(LuaSettings::default())).unwrap();
    let code = "local typedefs = require 'kong.db.schema.typedefs' return { type = 'record', fields = { \
        { port = typedefs.port { default = 80 } }, \
        { key = { type = 'string', required = true, referenceable = true, description = 'A key.' } }, \
        { tags = { type = 'set', elements = { type = 'string', one_of = { 'a', 'b' } }, default = {} } }, \
        { redis = { type = 'record', fields = { { host = typedefs.host } } } } }, \
        shorthand_fields = { { redis_host = { type = 'string', translate_backwards = { 'redis', 'host' }, \
            func = function(value) return { redis = { host = value } } end } } } }";
    let record = declaration::record(&vm.lua.load(code).eval().unwrap()).unwrap();
    let port = record.field("port").unwrap();
    assert_eq!((port.default, port.between), (Some(Literal::Int(80)), Some((0.0, 65535.0))));
    assert!(matches!(port.kind, Kind::Integer(..)) && !port.required);
    let key = record.field("key").unwrap();
    assert!(key.required && key.takes_references() && key.doc == "A key.");
    let tags = record.field("tags").unwrap();
    assert!(tags.set && tags.one_of == [Literal::Str("a"), Literal::Str("b")]);
    assert_eq!(tags.default, Some(Literal::List(&[])));
    assert!(record.field_at("redis.host").is_some());
    assert_eq!(record.old_names, [("redis_host", "redis.host")]);
}

#[test]
fn a_table_that_contains_itself_is_refused() {
    let vm = Vm::reading(&Arc::new(LuaSettings::default())).unwrap();
    for code in [
        "local list = { type = 'array' } list.elements = list return { type = 'record', fields = { { a = list } } }",
        "local record = { type = 'record', fields = {} } record.fields[1] = { a = record } return record",
        "local map = setmetatable({}, { __index = function(self, key) \
           if key == 'type' then return 'map' elseif key == 'values' then return setmetatable({}, getmetatable(self)) end \
         end }) return { type = 'record', fields = { { a = map } } }",
    ] {
        let table: Table = vm.lua.load(code).eval().unwrap();
        let error = declaration::record(&table).unwrap_err().to_string();
        assert!(error.contains("does one contain itself?"), "{error}");
    }
    let code = "local default = {} default.a = default \
        return { type = 'record', fields = { { a = { type = 'map', default = default } } } }";
    let table: Table = vm.lua.load(code).eval().unwrap();
    assert!(declaration::record(&table).is_ok());
}
