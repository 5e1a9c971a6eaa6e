//! What the sandbox shows.

use super::{settings, value};
use crate::{LuaSettings, UntrustedLua};

#[track_caller]
fn is(code: &str, expected: &str) {
    assert_eq!(value(settings(UntrustedLua::Sandbox), code), expected, "{code}");
}

#[test]
fn what_kong_hides_is_hidden() {
    for name in [
        "io",
        "debug",
        "package",
        "load",
        "loadstring",
        "loadfile",
        "dofile",
        "setmetatable",
        "getmetatable",
        "rawget",
        "rawset",
        "rawequal",
        "setfenv",
        "getfenv",
        "collectgarbage",
        "newproxy",
        "module",
        "jit",
        "bit",
        "string.dump",
        "os.getenv",
        "os.execute",
        "os.exit",
        "math.randomseed",
        "table.getn",
    ] {
        is(&format!("return {name}"), "nil");
    }
    is("return _G == _G._G and _G.kong == kong", "true");
    is("x = 1 return _G.x", "1");
    is(
        "local _ = require('cjson')",
        "error: pre-function.access[1]:1: require 'cjson' not allowed within sandbox",
    );
}

#[test]
fn modules_are_read_only() {
    is("string.x = 1", "error: pre-function.access[1]:1: Can not modify string.x. Protected by the sandbox.");
    is(
        "kong.request.get_header = nil",
        "error: pre-function.access[1]:1: cannot set \"get_header\": the PDK is read-only",
    );
    is("ngx.x = 1", "error: pre-function.access[1]:1: Can not modify ngx.x. Protected by the sandbox.");
    is("local s = '' return s.dump", "nil");
}

#[test]
fn one_configuration_does_not_see_the_globals_of_another() {
    let gateway = super::gateway(LuaSettings::default());
    let hooks = |code: &str| gateway.plugin("pre-function", serde_json::json!({ "access": [code] })).unwrap();
    let (one, other) = (hooks("shared = 1"), hooks("kong.response.exit(200, tostring(shared))"));
    let outcome = gateway.send(&[&*one, &*other], "GET /");
    assert_eq!(outcome.answer.as_deref(), Some("nil"));
}

#[test]
fn settings_widen_it() {
    let wide = LuaSettings {
        sandbox_requires: vec!["table.new".to_owned()],
        sandbox_environment: vec!["os.getenv".to_owned(), "setmetatable".to_owned()],
        ..LuaSettings::default()
    };
    assert_eq!(value(wide.clone(), "return type(require('table.new'))"), "function");
    assert_eq!(
        value(wide.clone(), "return type(os.getenv) .. type(os.time) .. type(setmetatable)"),
        "functionfunctionfunction"
    );
    assert_eq!(value(wide, "return type(os.exit)"), "nil");
}

#[test]
fn without_it_code_sees_all_globals_but_sets_its_own() {
    let on = settings(UntrustedLua::On);
    assert_eq!(value(on.clone(), "x = 1 return tostring(x) .. type(setmetatable)"), "1function");
    assert_eq!(value(on, "return x"), "nil");
}
