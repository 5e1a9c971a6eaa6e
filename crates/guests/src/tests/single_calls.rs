//! Functions that would work for long in one call, which no hook ends.

use super::{gateway, settings, value};
use crate::{LuaSettings, UntrustedLua};
use serde_json::json;
use std::time::Duration;

/// Whether code is ended because it takes too long: each of these works for much longer on any machine.
fn is_ended(code: &str) -> bool {
    is_ended_after(Duration::from_millis(2), code)
}

fn is_ended_after(timeout: Duration, code: &str) -> bool {
    let gateway = gateway(LuaSettings { timeout, ..settings(UntrustedLua::On) });
    let hooks = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
    let status = gateway.send(&[&*hooks], "GET /").status();
    let mut text = String::new();
    gateway.retained.get::<weir_plugin::Metrics>().write(&mut text);
    let is_counted = text.contains("weir_lua_ended_total{plugin=\"pre-function\",reason=\"timeout\"} 1\n");
    assert_eq!(status == 500, is_counted, "{status}: {text}");
    is_counted
}

#[test]
fn a_call_takes_steps_for_its_work() {
    let texts = "local text, texts = ('0'):rep(65535) .. '5', {} for i = 1, 5000 do texts[i] = text end ";
    for code in [
        &*format!("{texts} return math.max(unpack(texts))"),
        &format!("{texts} return math.min(1, 2, unpack(texts))"),
        &format!("{texts} return bit.bor(unpack(texts))"),
        &format!("{texts} return string.char(unpack(texts))"),
        &format!("{texts} return pcall(table.concat, texts)"),
        &format!("{texts} return io.stderr:write(unpack(texts))"),
        "return os.date(('%c'):rep(2e5))",
        "return load(('x=1 '):rep(2e5))",
        "local t = {} for i = 1, 4000 do t[i] = '::a' .. i .. '::' end return load(table.concat(t))",
        "return ('x'):rep(2e4):find('[' .. ('a'):rep(2e4) .. ']')",
        "return ('x'):rep(2e4):match('[^' .. ('a'):rep(2e4) .. ']*y')",
        "return ('x'):rep(2e4):find('%f[' .. ('a'):rep(2e4) .. ']')",
        "return ngx.re.find(('ab'):rep(1e6), '(?:a|b)*a(?:a|b){200}c')",
        "local random = require('resty.random').bytes(1048576) return require('zlib').deflate(9)(random:rep(8))",
    ] {
        assert!(is_ended(code), "{code}");
    }
    let brief = "return math.max(1, '2'), bit.bor(1, '2'), string.char('65'), table.concat({ 1, 'a' })";
    assert!(!is_ended_after(Duration::from_secs(10), brief));
}

#[test]
fn arithmetic_with_long_texts_is_ended_soon() {
    let add = "n = n + (t + 1) ".repeat(100);
    assert!(is_ended(&format!("local t, n = ('1'):rep(4e6), 0 {add} return n")));
    assert!(is_ended(&format!("local t, n = table.concat({{ ('1'):rep(4e6), '1' }}), 0 {add} return n")));
}

#[test]
fn functions_of_numbers_are_those_of_lua() {
    for (code, expected) in [
        ("return math.max(5)", "5"),
        ("return math.max(1, '7', 3)", "7"),
        ("return bit.band(7, '3')", "3"),
        ("return string.char() .. string.char(65, 66, '67')", "ABC"),
        ("return os.date('!%Y', 0)", "1970"),
        ("return table.concat({ 1, 2, 3 }, '-', 2)", "2-3"),
        ("return ('%s-%d'):format('a', 1)", "a-1"),
        ("return collectgarbage('setpause', 1) + collectgarbage('stop')", "200"),
        ("return type(collectgarbage('count'))", "number"),
        ("return collectgarbage()", "0"),
    ] {
        assert_eq!(value(settings(UntrustedLua::On), code), expected, "{code}");
    }
    let error = value(settings(UntrustedLua::On), "return math.max()");
    assert!(error.contains("number expected"), "{error}");
}

#[test]
fn a_request_has_few_headers_from_code() {
    let many = "local many = {} for i = 1, 5000 do many['x-' .. i] = 'v' end ";
    for code in [
        "kong.response.set_headers(many)",
        "kong.service.request.set_headers(many)",
        "kong.response.exit(200, '', many)",
        "for name in pairs(many) do kong.response.add_header(name, 'v') end",
        "for name in pairs(many) do kong.service.request.set_header(name, 'v') end",
        "for name in pairs(many) do ngx.header[name] = 'v' end",
        "for name in pairs(many) do ngx.req.set_header(name, 'v') end",
    ] {
        let long = LuaSettings { timeout: Duration::from_secs(60), ..settings(UntrustedLua::Sandbox) };
        let found = value(long, &(many.to_owned() + code));
        assert!(
            found.contains("Lua has set more than 4096 headers of the request: set fewer"),
            "{code}: {found}"
        );
    }
}

#[test]
fn what_is_too_long_is_refused() {
    for (code, message) in [
        (
            "return select(2, require('resty.openssl.x509').new(('x'):rep(70000)))",
            "the certificate is too long",
        ),
        ("return select(2, require('resty.openssl.pkey').new(('x'):rep(70000)))", "the key is too long"),
        ("ngx.var.args = ('x'):rep(17e6)", "the request has more than 16777216 bytes from Lua"),
        ("ngx.req.set_uri(('/'):rep(17e6))", "the request has more than 16777216 bytes from Lua"),
        (
            "kong.service.request.set_raw_query(('x'):rep(17e6))",
            "the request has more than 16777216 bytes from Lua",
        ),
        ("return select(2, ngx.re.match('a', ('a'):rep(70000)))", "regular expression is too large"),
        (
            "return select(3, ngx.re.find('a', ('(?=[a-z]{9}b)'):rep(4000)))",
            "regular expression is too large",
        ),
    ] {
        let long = LuaSettings { timeout: Duration::from_secs(60), ..settings(UntrustedLua::On) };
        let found = value(long, code);
        assert!(found.contains(message), "{code}: {found}");
    }
}
