//! Patterns beside LuaJIT's own functions.

use mlua::{Function, Lua, LuaString};

use super::install;
use crate::steps::{OutOfSteps, Steps};

/// Calls every function with a pattern and a subject, and writes all results down. `string` is a table of functions.
const OBSERVE: &str = r##"
local find, match, gmatch, gsub = ...
local function show(...)
  local out = {}
  for i = 1, select("#", ...) do out[i] = tostring((select(i, ...))) end
  return table.concat(out, "|")
end
local function all(subject, pattern)
  local out = {}
  for a, b, c in gmatch(subject, pattern) do out[#out + 1] = show(a, b, c) end
  return table.concat(out, ";")
end
local function join(...) return "<" .. show(...) .. ">" end
return function(pattern, subject)
  return table.concat({
    show(pcall(find, subject, pattern)), show(pcall(find, subject, pattern, 2)),
    show(pcall(find, subject, pattern, -2)), show(pcall(find, subject, pattern, 1, true)),
    show(pcall(match, subject, pattern)), show(pcall(match, subject, pattern, 3)),
    show(pcall(all, subject, pattern)), show(pcall(gsub, subject, pattern, "[%1%%%0]")),
    show(pcall(gsub, subject, pattern, "%2", 1)), show(pcall(gsub, subject, pattern, join)),
    show(pcall(gsub, subject, pattern, { a = "x", b = false, ab = 1 }, 2)),
  }, "\n")
end
"##;

/// Parts of patterns, whole and broken.
const PARTS: &[&str] = &[
    "a", "b", "c", ".", "%a", "%d", "%s", "%w", "%u", "%l", "%x", "%p", "%c", "%g", "%z", "%A", "%S", "%W",
    "[ab]", "[^a]", "[a-c]", "[%a_]", "[]]", "[^]]", "[a-]", "[%]-]", "[+-%%]", "[%", "[a", "(", ")", "()",
    "(a", "b)", "%1", "%2", "%0", "%bab", "%b()", "%b", "%f[a]", "%f[%A]", "%f", "^", "$", "%", "%%", "*",
    "+", "-", "?", "a*", "b+", "c-", ".-", ".*", "a?", "%a+", "(a*)", "(.-)", "(%a)", "\0", "-", "é",
];
const SUBJECTS: &[&str] =
    &["a", "b", "c", "ab", "A", "0", "1", " ", "_", "(", ")", "%", "-", "]", "+", ".", "\0", "\n", "é"];

/// A text of up to `max` parts.
fn text(random: &mut fastrand::Rng, parts: &[&str], max: usize) -> String {
    (0..random.usize(0..=max)).map(|_| parts[random.usize(0..parts.len())]).collect()
}

/// Writes down what the VM's present functions do.
fn observer(lua: &Lua) -> Function {
    let functions = lua.load("return string.find, string.match, string.gmatch, string.gsub");
    let functions: mlua::MultiValue = functions.eval().expect("the functions");
    lua.load(OBSERVE).set_name("=observe").call(functions).expect("an observer")
}

#[test]
fn they_do_what_luajit_does() {
    let lua = Lua::new();
    let original = observer(&lua);
    install(&lua).expect("patterns");
    let ours = observer(&lua);
    let steps = Steps::of(&lua);
    let mut random = fastrand::Rng::with_seed(21);
    for _ in 0..100_000 {
        let (pattern, subject) = (text(&mut random, PARTS, 5), text(&mut random, SUBJECTS, 8));
        steps.refill();
        let expected: LuaString = original.call((&*pattern, &*subject)).expect("LuaJIT's results");
        let found: LuaString = ours.call((&*pattern, &*subject)).expect("results");
        assert_eq!(found, expected, "pattern {pattern:?}, subject {subject:?}");
    }
}

#[test]
fn a_pattern_ends_when_its_steps_are_used_up() {
    let lua = Lua::new();
    install(&lua).expect("patterns");
    let steps = Steps::of(&lua);
    for call in ["find(s, p)", "match(s, p)", "gsub(s, p, '')", "gsub(s, p, print)", "gmatch(s, p)()"] {
        steps.refill();
        let script =
            format!("local s, p = ('a'):rep(30) .. 'b', ('a*'):rep(25) .. 'c'; return string.{call}");
        let error = lua.load(script).exec().expect_err("out of steps");
        assert!(error.chain().any(|cause| cause.is::<OutOfSteps>()), "{call}: {error}");
        // What is used up stays so until the host grants more.
        lua.load("string.find('a', '[a]')").exec().expect_err("nothing is left");
    }
    steps.refill();
    lua.load("assert(string.find('a', '[a]'))").exec().expect("refilled");
}

#[test]
fn errors_are_strings_with_the_position_of_the_caller() {
    let lua = Lua::new();
    install(&lua).expect("patterns");
    for (call, expected) in [
        ("string.find('a', '[')", "test:1: malformed pattern (missing ']')"),
        ("string.gsub('a', '%', '')", "test:1: malformed pattern (ends with '%')"),
        ("string.gsub('a', '%', print)", "test:1: malformed pattern (ends with '%')"),
        ("string.gmatch('a', '(')()", "test:1: unfinished capture"),
        ("string.gsub('a', 'a', function() return {} end)", "test:1: invalid replacement value (a table)"),
        ("string.gsub('a', 'a', function() error({ 'x' }) end)", "x"),
        ("string.find({}, 'a')", "test:1: bad argument #1 to 'find' (string expected, got table)"),
        ("string.gsub('a', 'a', true)", "test:1: bad argument #3 to 'gsub' (string/function/table expected)"),
    ] {
        let script = format!(
            "local ok, e = pcall(function() local x = {call} end) return type(e) == 'table' and e[1] or e"
        );
        let error: String = lua.load(script).set_name("=test").eval().expect("a string");
        assert_eq!(error, expected, "{call}");
    }
}

#[test]
fn a_callback_may_yield() {
    let lua = Lua::new();
    install(&lua).expect("patterns");
    let script = "local c = coroutine.wrap(function() return (string.gsub('a-b', '%a', coroutine.yield)) end)
        return c() .. c('x') .. c('y')";
    assert_eq!(lua.load(script).eval::<String>().expect("a result"), "abx-y");
}

#[test]
fn memory_bounds_what_is_not_a_pattern() {
    let lua = Lua::new();
    install(&lua).expect("patterns");
    lua.set_memory_limit(8 << 20).expect("a limit");
    for script in [
        "return ('x'):rep(1e9)",
        "return ('x'):rep(1e8, 'y')",
        "return string.format('%99999999d', 1)",
        "return string.format(('%s'):rep(1e6), (unpack)({}, 1, 1e6))",
        "local s = 'x' while true do s = s .. s end",
        "return (('x'):rep(2^20)):gsub('x', ('y'):rep(2^10))",
    ] {
        lua.load(script).exec().expect_err(script);
        lua.gc_collect().expect("collected");
        Steps::of(&lua).refill();
    }
}
