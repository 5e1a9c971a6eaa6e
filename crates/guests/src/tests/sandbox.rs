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

#[test]
fn one_request_does_not_see_the_context_of_another() {
    let code = "local before = kong.ctx.shared.seen kong.ctx.shared = { seen = kong.request.get_path() } \
                kong.ctx.plugin = { own = 1 } \
                kong.response.exit(200, tostring(before) .. kong.ctx.shared.seen .. kong.ctx.plugin.own)";
    let gateway = super::gateway(LuaSettings::default());
    let hooks = gateway.plugin("pre-function", serde_json::json!({ "access": [code] })).unwrap();
    let answer = |line: &str| gateway.send(&[&*hooks], line).answer;
    assert_eq!(answer("GET /one").as_deref(), Some("nil/one1"));
    assert_eq!(answer("GET /two").as_deref(), Some("nil/two1"));
    is("return pcall(function() kong.ctx.other = {} end)", "false");
}

#[test]
fn functions_that_all_code_shares_cannot_be_replaced() {
    for place in ["ngx.re.match", "ngx.req.get_headers", "ngx.resp.get_headers", "ngx.location.capture"] {
        is(
            &format!("{place} = print"),
            &format!("error: pre-function.access[1]:1: Can not modify {place}. Protected by the sandbox."),
        );
    }
    is("return pcall(function() kong.log.inspect.on = 1 end)", "false");
    is("return (ngx.re.match('abc', 'b'))[0] .. ngx.req.get_method() .. ngx.get_phase()", "bGETaccess");
    let wide = LuaSettings {
        sandbox_environment: vec!["os.getenv".to_owned(), "jit".to_owned()],
        sandbox_requires: vec!["bit".to_owned()],
        ..LuaSettings::default()
    };
    for place in ["os.time", "jit.version", "require('bit').band"] {
        let found = value(wide.clone(), &format!("{place} = nil"));
        assert!(found.contains("Protected by the sandbox"), "{place}: {found}");
    }
}

#[test]
fn each_function_has_modules_of_its_own() {
    let settings = LuaSettings {
        sandbox_requires: ["cjson", "pl.List", "pl.stringx"].map(str::to_owned).to_vec(),
        ..LuaSettings::default()
    };
    let change = "require('cjson').encode = nil require('cjson').encode_max_depth(1) \
                  require('pl.stringx').split('a').__index.append = nil \
                  return tostring(require('cjson').encode) .. tostring(require('pl.List').append)";
    let gateway = super::gateway(settings.clone());
    let answer = |code: &str| {
        let code = format!("kong.response.exit(200, (function() {code} end)())");
        let hooks = gateway.plugin("pre-function", serde_json::json!({ "access": [code] })).unwrap();
        gateway.send(&[&*hooks], "GET /").answer
    };
    assert_eq!(answer(change).as_deref(), Some("nilnil"));
    let read = "return require('cjson').encode({ { 1 } }) .. type(require('pl.List').append)";
    assert_eq!(answer(read).as_deref(), Some("[[1]]function"));
    let found = value(settings, "require('cjson').array_mt.__index = {}");
    assert!(found.contains("cannot be changed"), "{found}");
}
