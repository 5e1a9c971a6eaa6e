//! Tables that become text: JSON and what is printed.

use super::{run, settings, value};
use crate::{LuaSettings, UntrustedLua};
use std::time::Duration;

fn brief() -> LuaSettings {
    LuaSettings { timeout: Duration::from_millis(20), ..settings(UntrustedLua::Sandbox) }
}

#[test]
fn tables_that_contain_others_often_end_the_call() {
    for code in [
        "kong.response.exit(200, t)",
        "kong.response.error(500, t)",
        "kong.service.request.set_body(t, 'application/json')",
        "kong.log.set_serialize_value('key', t)",
        "ngx.say(t)",
    ] {
        let code = format!(
            "local t = {{}} for _ = 1, 60 do t = {{ t, t }} end pcall(function() {code} end) kong.response.exit(204)"
        );
        let outcome = run(brief(), &code, "GET /");
        assert_eq!(outcome.status(), 500, "{code}: {:?}", outcome.answer);
    }
}

#[test]
fn tables_that_contain_themselves_are_errors() {
    for (code, expected) in [
        ("kong.response.exit(200, t)", "excessive nesting"),
        ("kong.service.request.set_body(t, 'application/json')", "excessive nesting"),
        ("kong.log.set_serialize_value('key', t)", "non-self-referencial"),
        ("ngx.say(t)", "nested too deep"),
    ] {
        let found = value(brief(), &format!("local t = {{}} t[1] = t {code}"));
        assert!(found.contains(expected), "{code}: {found}");
    }
}

#[test]
fn keys_of_the_record_are_not_nested_without_end() {
    let found = value(brief(), "kong.log.set_serialize_value(('a.'):rep(20) .. 'a', 1)");
    assert!(found.contains("key must not have more than"), "{found}");
    assert_eq!(value(brief(), "kong.log.set_serialize_value('a.b.c', 1) return 'set'"), "set");
}
