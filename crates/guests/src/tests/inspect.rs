//! What `kong.log.inspect` writes is what the module `inspect` returns.

use super::limits::logged;
use super::{settings, value};
use crate::UntrustedLua;

/// The lines that are logged of a value.
fn inspected(expression: &str) -> String {
    let lines = logged(settings(UntrustedLua::On), &format!("kong.log.inspect({expression})"));
    let lines: Vec<_> = lines.iter().filter_map(|line| line.strip_prefix("[pre-function] ")).collect();
    lines.join("\n")
}

#[test]
fn values_are_logged_as_inspect_writes_them() {
    for expression in [
        "nil",
        "1.5",
        "-0.25",
        "1e15",
        "{ 0.1 + 0.2, 1 / 3, 1e300, -1 / 0, 2^53 }",
        "true",
        "'a'",
        "'say \"a\"'",
        r#"'"\\\n\1\127'"#,
        r#"'"\'\t\\'"#,
        "{}",
        "{ 1, 2, 3 }",
        "{ 'a', 'b', c = 1 }",
        "{ 1, { 2, {} }, a = { b = { c = 'd' } }, ['e f'] = true, ['end'] = 1, [10] = 'x', [true] = 2, [2.5] = 3 }",
        "{ print, print, function() end, coroutine.create(print), ngx.null }",
        "setmetatable({ a = 1 }, { __index = { b = 2 } })",
        "setmetatable({ 1 }, { __metatable = 'hidden' })",
        "(function() local t = { 1 } t.self = t return t end)()",
        "(function() local t = {} for i = 1, 9 do t = { t, t, x = t } end return t end)()",
        "{ [{ 1 }] = { 2 } }",
        "{ [90] = 1, [70] = 1, [2.5] = 1, [50] = 1, [-1] = 1, [30] = 1, [0.5] = 1, [1e9] = 1, [10] = 1, a = 1 }",
    ] {
        let expected = value(settings(UntrustedLua::On), &format!("return require('inspect')({expression})"));
        assert_eq!(inspected(expression), expected, "{expression}");
    }
}

#[test]
fn several_values_are_separated_by_spaces() {
    assert_eq!(inspected("'a', nil, { 1 }, { b = 2 }"), "\"a\" nil { 1 } {\n  b = 2\n}");
}

#[test]
fn tables_that_are_too_deep_are_not_shown_to_their_end() {
    let shown = inspected("(function() local t = {} for i = 1, 1e5 do t = { t } end return t end)()");
    assert!(shown.starts_with("{ { {") && shown.contains("{...}"), "{shown}");
}
