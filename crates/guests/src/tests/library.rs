//! Functions of Lua's library that work long by themselves.

use super::{run, settings, value};
use crate::{LuaSettings, UntrustedLua};
use std::time::Duration;

#[test]
fn none_of_them_runs_without_end() {
    let settings = LuaSettings { timeout: Duration::from_millis(20), ..LuaSettings::default() };
    for code in [
        "table.insert({}, -2147483647, 1)",
        "while true do pcall(table.insert, {}, -2147483647, 1) end",
        "local t = {} for i = 1, 1e4 do t[i] = i end while true do table.insert(t, 1, i) end",
        "local a = ('x'):rep(1e6) while true do a:reverse() end",
        "local a = ('x'):rep(1e6) while true do a:upper() end",
        "local a = ('x'):rep(1e6) while true do local _ = ('%q'):format(a) end",
        "while true do local _ = ('x'):rep(1e6) end",
        "while true do local _ = table.concat({ 1 }, ('x'):rep(1e6)) end",
        "local a = ('x'):rep(1e6) while true do local _ = a < 'y' .. a end",
        "local t = {} for i = 1, 1e4 do t[i] = i end while true do local _ = table.concat(t) end",
        "while true do table.sort({ 3, 2, 1 }, function() return true end) end",
        "local a = ('x'):rep(1e6) while true do a:find('y', 1, true) end",
    ] {
        let outcome = run(settings.clone(), code, "GET /");
        assert_eq!(outcome.status(), 500, "{code}: {:?}", outcome.answer);
    }
}

#[test]
fn sorting_in_sorting_does_not_use_the_stack_of_the_thread() {
    let found = value(
        LuaSettings::default(),
        "local function f() table.sort({ 1, 2 }, f) end local function deep(n) if n == 0 then f() end \
         return coroutine.wrap(deep)(n - 1) end return deep(100)",
    );
    assert!(found.contains("stack overflow"), "{found}");
}

#[track_caller]
fn is(code: &str, expected: &str) {
    assert_eq!(value(settings(UntrustedLua::On), code), expected, "{code}");
}

#[test]
fn they_do_what_luajit_does() {
    is("local t = { 1, 2 } table.insert(t, 3) table.insert(t, 1, 0) return table.concat(t, ' ')", "0 1 2 3");
    is("local t = { 1, 2 } table.insert(t, 5, 'x') return t[5]", "x");
    is("local t = { 1 } table.insert(t, 0, 'x') return t[0] .. t[2]", "x1");
    is(
        "return debug.traceback(2^53):match('^%S+') .. debug.traceback(1e14):match('^%S+')",
        "9.007199254741e+151e+14",
    );
    is("return debug.traceback(0.1 + 0.2):match('^%S+')", "0.3");
    is(
        "table.insert({}, 1e300, 1)",
        "error: pre-function.access[1]:1: bad argument #2 to 'insert' (position out of bounds)",
    );
    is(
        "table.insert({}, 0/0, 1)",
        "error: pre-function.access[1]:1: bad argument #2 to 'insert' (position out of bounds)",
    );
    is(
        "table.insert(nil, 1)",
        "error: pre-function.access[1]:1: bad argument #1 to 'insert' (table expected, got nil)",
    );
    is("table.insert({}, 1, 2, 3)", "error: pre-function.access[1]:1: wrong number of arguments to 'insert'");
    is("return table.concat({ 1, 'b', 3 }, ', ', 2, 3)", "b, 3");
    is(
        "local _ = table.concat({ 1, {} })",
        "error: pre-function.access[1]:1: invalid value (table) at index 2 in table for 'concat'",
    );
    is("return ('ab'):rep(3, '-') .. ('x'):rep(-1) .. ('x'):rep('2')", "ab-ab-abxx");
    is("return ('aB'):upper() .. ('aB'):lower() .. ('aB'):reverse()", "ABabBa");
    is(
        "local _ = string.upper({})",
        "error: pre-function.access[1]:1: bad argument #1 to 'upper' (string expected, got table)",
    );
    is("return ('%s %d %q'):format('a', 2, 'b')", "a 2 \"b\"");
    is(
        "local _ = ('%d'):format('x')",
        "error: pre-function.access[1]:1: bad argument #1 to 'format' (number expected, got string)",
    );
}

#[test]
fn sorting_sorts() {
    is("local t = { 5, 3, 4, 1, 2 } table.sort(t) return table.concat(t, ' ')", "1 2 3 4 5");
    is(
        "local t = { 'b', 'c', 'a' } table.sort(t, function(a, b) return a > b end) return table.concat(t)",
        "cba",
    );
    is("local t = {} table.sort(t) return #t", "0");
    is(
        "local t = {} for i = 1, 1000 do t[i] = i * 7919 % 1009 end table.sort(t) \
         for i = 2, 1000 do if t[i - 1] > t[i] then return i end end return 'sorted'",
        "sorted",
    );
    is(
        "table.sort(1)",
        "error: pre-function.access[1]:1: bad argument #1 to 'sort' (table expected, got number)",
    );
    is(
        "table.sort({}, 1)",
        "error: pre-function.access[1]:1: bad argument #2 to 'sort' (function expected, got number)",
    );
    is("table.sort({ 1, 'x' })", "error: pre-function.access[1]:1: attempt to compare string with number");
}

#[test]
fn a_call_that_was_ended_does_not_end_the_next() {
    let limit = Duration::from_millis(20);
    let gateway = super::gateway(LuaSettings { timeout: limit, ..LuaSettings::default() });
    let plugin =
        |code: &str| gateway.plugin("pre-function", serde_json::json!({ "access": [code] })).unwrap();
    for _ in 0..40 {
        assert_eq!(gateway.send(&[&*plugin("while true do end")], "GET /").status(), 500);
        assert_eq!(gateway.send(&[&*plugin("kong.response.exit(204)")], "GET /").status(), 204);
    }
}
