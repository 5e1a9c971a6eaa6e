//! Code that takes too much time or memory.

use super::{run, settings, value};
use crate::{LuaSettings, UntrustedLua};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// What a VM may take with a plugin of 1,000 lines.
const MAX_KIB: f64 = 200.0;

fn brief() -> LuaSettings {
    LuaSettings { timeout: Duration::from_millis(20), ..settings(UntrustedLua::On) }
}

#[test]
fn a_loop_without_end_is_ended() {
    for code in [
        "while true do end",
        "pcall(function() while true do end end) while true do end",
        "while true do pcall(function() while true do end end) end",
        "xpcall(function() while true do end end, function() while true do end end)",
        "while true do xpcall(function() while true do end end, function() return 1 end) end",
        "coroutine.wrap(function() while true do end end)()",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "while true do coroutine.yield() end",
        "table.sort({1, 2, 3}, function() while true do end end)",
        "setmetatable({}, { __index = function() while true do end end }).x = nil local _ = setmetatable({}, { __index = function() while true do end end }).x",
        "local function f() return f() end f()",
        "for _ in function() return 1 end do end",
        "('a'):rep(30):find(('a*'):rep(25) .. 'c')",
        "while true do pcall(function() ('a'):rep(30):find(('a*'):rep(25) .. 'c') end) end",
        "('aaa'):gsub('a', function() while true do end end)",
        "local d, i = ngx.shared.kong, 0 while true do i = i + 1 d:set(i, i) d:get_keys(0) end",
        "local d, i = ngx.shared.kong, 0 while true do i = i + 1 d:set(i, i) d:flush_expired() end",
        "while true do ngx.shared.kong:set(1, ('v'):rep(4e6)) end",
        "while true do ngx.shared.kong:rpush(1, 1) end",
    ] {
        let outcome = run(brief(), code, "GET /");
        assert_eq!(outcome.status(), 500, "{code}: {:?}", outcome.answer);
    }
}

#[test]
fn a_loop_without_end_in_another_phase_is_skipped() {
    let gateway = super::gateway(brief());
    let endless = serde_json::json!(["while true do end"]);
    let config = serde_json::json!({ "header_filter": endless, "log": endless });
    let hooks = gateway.plugin("post-function", config).unwrap();
    let mut outcome = gateway.send(&[&*hooks], "GET /");
    hooks.log(&mut outcome.exchange);
    assert_eq!(outcome.status(), 200);
}

/// What a header filter and a log function of one entity leave, after a header filter of another took all time.
fn after_endless(first: serde_json::Value, second: &str) -> Vec<String> {
    let gateway = super::gateway(brief());
    let first = gateway.plugin("pre-function", first).unwrap();
    let second = gateway.plugin("post-function", serde_json::json!({ "header_filter": [second] })).unwrap();
    let mut outcome = gateway.send(&[&*first, &*second], "GET /");
    first.log(&mut outcome.exchange);
    let fields = outcome
        .exchange
        .log_fields()
        .map(|fields| fields.borrow().iter().map(|it| it.path.join(".")).collect());
    fields.unwrap_or_default()
}

#[test]
fn the_calls_of_a_request_share_its_time() {
    let mark = |name: &str| format!("kong.log.set_serialize_value('{name}', 1)");
    let long = format!("for _ = 1, 1e6 do end {}", mark("second"));
    let endless = serde_json::json!({ "header_filter": ["while true do end"], "log": [mark("first")] });
    assert_eq!(after_endless(endless.clone(), &long), [""; 0]);
    assert_eq!(after_endless(endless, &mark("second")), ["second"]);
    let brief = serde_json::json!({ "header_filter": ["return"], "log": [mark("first")] });
    assert_eq!(after_endless(brief, &mark("second")), ["second", "first"]);
}

#[test]
fn memory_is_bounded_and_the_next_request_has_some() {
    let settings = LuaSettings { memory: 8 << 20, ..settings(UntrustedLua::On) };
    for code in [
        "local t = {} while true do t[#t + 1] = ('x'):rep(1000) .. #t end",
        "return ('x'):rep(1e9)",
        "local t = {} while true do pcall(function() t[#t + 1] = ('x'):rep(100000) .. #t end) end",
        "kept = {} while true do kept[#kept + 1] = ('x'):rep(1000) .. #kept end",
    ] {
        let outcome = run(settings.clone(), code, "GET /");
        assert_eq!(outcome.status(), 500, "{code}: {:?}", outcome.answer);
        assert_eq!(value(settings.clone(), "return 1 + 1"), "2", "{code}");
    }
}

#[test]
fn garbage_of_others_is_collected_before_memory_is_used_up() {
    let settings =
        LuaSettings { memory: 16 << 20, timeout: Duration::from_secs(60), ..settings(UntrustedLua::On) };
    let gateway = super::gateway(settings);
    let run = |code: &str| {
        let hooks = gateway.plugin("pre-function", serde_json::json!({ "access": [code] })).unwrap();
        gateway.send(&[&*hooks], "GET /").status()
    };
    let keep = "kept = {} for i = 1, 110 do kept[i] = ('x'):rep(1e5) .. i end _G.all = kept";
    assert_eq!(run(keep), 200);
    // Few instructions, so that no hook runs within a call; and many.
    for i in 0..100 {
        assert_eq!(run(&format!("local _ = ('y'):rep(1e6) .. {i}")), 200, "{i}");
    }
    for i in 0..20 {
        assert_eq!(run(&format!("for i = 1, 300 do local _ = ('y'):rep(1e5) .. i .. {i} end")), 200, "{i}");
    }
}

#[test]
fn long_operations_are_ended_soon() {
    let settings = LuaSettings { timeout: Duration::from_millis(20), ..settings(UntrustedLua::On) };
    for code in [
        "local a, b = ('x'):rep(2e7) .. 'a', ('x'):rep(2e7) .. 'b' while true do local _ = a < b end",
        "local a = ('x'):rep(1e7) while true do local _ = a .. 'b' end",
    ] {
        assert_eq!(run(settings.clone(), code, "GET /").status(), 500, "{code}");
    }
}

/// How many KiB a VM takes after it has loaded and run code.
fn kib_with(code: &str) -> f64 {
    let gateway = super::gateway(settings(UntrustedLua::On));
    let code = format!("{code} collectgarbage() kong.response.exit(200, tostring(collectgarbage('count')))");
    let hooks = gateway.plugin("pre-function", serde_json::json!({ "access": [code] })).unwrap();
    let answer = gateway.send(&[&*hooks], "GET /").answer.unwrap();
    answer.rsplit("\r\n").next().unwrap().parse().unwrap_or_else(|_| panic!("{answer}"))
}

#[test]
fn a_vm_is_small() {
    let part = |i: u32| {
        format!(
            "function parts.f{i}(a)\n  local value = kong.request.get_header('x-{i}')\n  if value and a then\n    \
             local t = {{ name = value, count = {i} }}\n    kong.log.debug('part ', t.name)\n    return t\n  end\n  \
             return nil\nend\n\n"
        )
    };
    let code = "parts = {}\n".to_owned() + &(0..100).map(part).collect::<String>();
    assert!(code.lines().count() > 1000, "{}", code.lines().count());
    let (bare, with) = (kib_with(""), kib_with(&code));
    assert!((1.0..=MAX_KIB).contains(&with), "{bare} KiB, {with} KiB with 1,000 lines");
}

#[test]
fn a_stack_without_end_is_an_error() {
    assert!(value(brief(), "local function f() return 1 + f() end return f()").contains("stack overflow"));
}

#[test]
fn coroutines_in_coroutines_without_end_are_an_error() {
    for code in [
        "local function f() return coroutine.wrap(f)() end return f()",
        "local function f() assert(coroutine.resume(coroutine.create(f))) end return f()",
        "local function f() return select(2, pcall(coroutine.wrap(f))) end return f()",
    ] {
        let found = value(LuaSettings::default(), code);
        assert!(found.contains("C stack overflow"), "{code}: {found}");
    }
    let nested = "local function f(n) return n == 0 and 'done' or coroutine.wrap(f)(n - 1) end return f(100)";
    assert_eq!(value(LuaSettings::default(), nested), "done");
}

#[test]
fn recursion_through_functions_of_the_host_is_an_error() {
    for code in [
        "local function g() load(g) end g() error('C stack overflow')",
        "local function g() assert(load(g)) end g()",
        "package.preload.x = function() require 'x' end require 'x'",
        "local o = setmetatable({}, { __tostring = function(o) kong.log(o) return '' end }) kong.log(o)",
        "local o = setmetatable({}, { __tostring = function(o) kong.request[o] = 1 end }) kong.request[o] = 1",
    ] {
        let found = value(settings(UntrustedLua::On), code);
        assert!(found.contains("C stack overflow") || found.contains("read-only"), "{code}: {found}");
        assert_eq!(value(settings(UntrustedLua::On), "return load('return 1')()"), "1");
    }
}

/// Keeps what is logged.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<String>>>);

impl Subscriber for Logged {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut |_: &Field, value: &dyn fmt::Debug| {
            self.0.lock().unwrap().push(format!("{value:?}"));
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// What is logged while code runs.
pub(super) fn logged(settings: LuaSettings, code: &str) -> Vec<String> {
    // Other tests log too: what is logged while there is no subscriber would be left out later.
    let _ = tracing::subscriber::set_global_default(Logged::default());
    let logged = Logged::default();
    tracing::subscriber::with_default(logged.clone(), || run(settings, code, "GET /"));
    std::mem::take(&mut *logged.0.lock().unwrap())
}

#[test]
fn the_log_has_the_line_that_took_too_long() {
    for (code, line) in [
        ("\nwhile true do end", 2),
        ("while true do pcall(function()\nwhile true do end end) end", 2),
        ("coroutine.wrap(function()\n\nwhile true do end end)()", 3),
        ("\nlocal s = ('a'):rep(30):find(('a*'):rep(25) .. 'c')", 2),
        ("while true do\npcall(function()\n('a'):rep(30):find(('a*'):rep(25) .. 'c') end) end", 3),
        ("\n('aaa'):gsub('a', function()\nwhile true do end end)", 3),
        ("\nwhile true do local _ = ('ab'):rep(1e6) end", 2),
        ("\nngx.thread.wait(ngx.thread.spawn(function()\nwhile true do end end))", 3),
    ] {
        let expected =
            format!("pre-function.access[1]:{line}: the calls for this request took more than 20 ms");
        let logged = logged(brief(), code);
        assert!(logged.iter().any(|it| it.contains(&expected)), "{code}: {logged:?}");
    }
}

#[test]
fn messages_are_cut() {
    for code in [
        "kong.log.err(('z'):rep(1e6))",
        "local s = ('z'):rep(3000) kong.log.err(s, s, s)",
        "error(('z'):rep(1e6))",
        "local t = {} for i = 1, 1e5 do t[i] = i end kong.log.inspect(t)",
        "kong.log.inspect(('z'):rep(1e6), { ('z'):rep(1e6) })",
        "ngx.log(ngx.ERR, ('z'):rep(1e6))",
        "print(('z'):rep(1e6))",
    ] {
        let longest = logged(settings(UntrustedLua::On), code).iter().map(String::len).max();
        assert!(longest.is_some_and(|longest| (4000..4200).contains(&longest)), "{code}: {longest:?}");
    }
}

#[test]
fn calls_that_end_early_are_counted_by_their_reason() {
    for (code, reason) in [
        ("while true do end", "timeout"),
        ("error('no')", "error"),
        ("local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1e5) .. i end", "memory"),
        ("local t = {} while true do t[#t + 1] = {} end", "memory"),
        ("local t = {} for i = 1, 1e9 do t[i] = kong.request.get_path() .. i end", "memory"),
    ] {
        let settings =
            LuaSettings { memory: 8 << 20, timeout: Duration::from_secs(5), ..settings(UntrustedLua::On) };
        let settings = if reason == "timeout" { brief() } else { settings };
        let gateway = super::gateway(settings);
        let hooks = gateway.plugin("pre-function", serde_json::json!({ "access": [code] })).unwrap();
        assert_eq!(gateway.send(&[&*hooks], "GET /").status(), 500, "{code}");
        let mut text = String::new();
        gateway.retained.get::<weir_plugin::Metrics>().write(&mut text);
        let line = format!("weir_lua_ended_total{{plugin=\"pre-function\",reason=\"{reason}\"}} 1\n");
        assert!(text.contains(&line), "{code}: {text}");
    }
}
