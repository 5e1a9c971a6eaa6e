//! What code hands to the gateway.

use super::{run, value};
use crate::LuaSettings;
use std::time::Duration;

/// Enough time that bytes alone end what code does.
fn patient() -> LuaSettings {
    LuaSettings { timeout: Duration::from_secs(60), ..LuaSettings::default() }
}

#[track_caller]
fn refused(code: &str, expected: &str) {
    let found = value(patient(), code);
    assert!(found.contains(expected), "{code}: {found}");
}

#[test]
fn a_header_has_a_length() {
    for code in [
        "kong.response.set_header('x', s)",
        "kong.response.add_header('x', s)",
        "kong.response.set_header('x', { 'a', s })",
        "kong.response.set_header(s, 'x')",
        "kong.response.set_headers({ x = s })",
        "kong.service.request.set_header('x', s)",
        "kong.service.request.add_header('x', s)",
        "ngx.header.x = s",
        "ngx.req.set_header('x', s)",
        "local t = {} for i = 1, 3000 do t[i] = '' end kong.response.set_header('x', t)",
    ] {
        refused(&format!("local s = ('x'):rep(70000) {code}"), "a header may have at most 65536 bytes");
    }
    let longest = "kong.service.request.set_header('x', ('x'):rep(65000)) return 'set'";
    assert_eq!(value(patient(), longest), "set");
}

#[test]
fn a_request_keeps_no_more_than_16_mib() {
    for code in [
        "for i = 1, 600 do kong.response.add_header('x-' .. i, s) end",
        "for i = 1, 600 do kong.response.set_header('x-' .. i, s) end",
        "for i = 1, 600 do kong.service.request.add_header('x', s) end",
        "local t = {} for i = 1, 600 do t['x-' .. i] = s end kong.response.set_headers(t)",
        "for i = 1, 600 do ngx.print(s) end",
        "for i = 1, 600 do kong.log.set_serialize_value('x' .. i, { s }) end",
        "local t = {} for i = 1, 600 do t[i] = s end kong.service.request.set_query({ a = t })",
        "local t = {} for i = 1, 600 do t[i] = s end ngx.req.set_uri_args({ a = t })",
    ] {
        refused(&format!("local s = ('x'):rep(60000) {code}"), "more than 16777216 bytes from Lua");
    }
}

#[test]
fn a_source_of_pieces_has_a_length() {
    let settings = LuaSettings { sandbox_environment: vec!["load".to_owned()], ..patient() };
    let code = "local s = (' '):rep(60000) load(function() return s end)";
    assert_eq!(run(settings, code, "GET /").status(), 500);
}
