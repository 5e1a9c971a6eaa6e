//! Light threads, semaphores, and waits within coroutines.

use super::settings;
use super::waiting::{on_worker, value, value_in};
use crate::{LuaSettings, UntrustedLua};
use std::time::Duration;

#[track_caller]
fn check(code: &str, expected: &str) {
    let found = value(settings(UntrustedLua::On), code);
    assert!(found == expected || found.ends_with(&format!(": {expected}")), "{code}: {found}");
}

#[test]
fn an_operation_passes_through_coroutines() {
    for (code, expected) in [
        ("return coroutine.wrap(function() ngx.sleep(0) return 'back' end)()", "back"),
        (
            "local t = coroutine.create(function(a) ngx.sleep(0) local b = coroutine.yield(a + 1) ngx.sleep(0) return b end) \
          local _, x = coroutine.resume(t, 1) local _, y = coroutine.resume(t, 'y') return x .. y .. coroutine.status(t)",
            "2ydead",
        ),
        (
            "local f = coroutine.wrap(function() coroutine.wrap(function() ngx.sleep(0) end)() coroutine.yield('a') ngx.sleep(0) return 'b' end) \
          return f() .. f()",
            "ab",
        ),
        ("return tostring(pcall(function() ngx.sleep(0) error('late') end))", "false"),
        (
            "return select(2, xpcall(function() ngx.sleep(0) error('late', 0) end, function(e) return e .. '!' end))",
            "late!",
        ),
        (
            "local t = setmetatable({}, { __index = function(_, k) ngx.sleep(0) return k end }) return t.key",
            "key",
        ),
        (
            "local s = '' for i in coroutine.wrap(function() for i = 1, 3 do ngx.sleep(0) coroutine.yield(i) end end) do s = s .. i end return s",
            "123",
        ),
        (
            "return select(2, coroutine.resume(coroutine.create(function() pcall(ngx.sleep, 0) error('e', 0) end)))",
            "e",
        ),
        (
            "local t = { 3, 1, 2 } table.sort(t, function(a, b) ngx.sleep(0) return a < b end) return table.concat(t)",
            "123",
        ),
    ] {
        check(code, expected);
    }
}

#[test]
fn requests_that_wait_in_coroutines_do_not_meet() {
    on_worker(async {
        let gateway = super::gateway(LuaSettings::default());
        let calls = (0..40).map(|number| {
            let code = format!(
                "local s = '' local f = coroutine.wrap(function() for i = 1, 20 do ngx.sleep(0) coroutine.yield({number}) end end) \
                 for i = 1, 20 do ngx.sleep(0) kong.ctx.shared.n = {number} assert(f() == {number}) \
                 assert(kong.ctx.shared.n == {number}) end return 'own {number}'"
            );
            let gateway = &gateway;
            async move { assert_eq!(value_in(gateway, &code).await, format!("own {number}")) }
        });
        futures_util::future::join_all(calls).await;
    });
}

#[test]
fn light_threads_run_beside_one_another() {
    for (code, expected) in [
        (
            "local t = ngx.thread.spawn(function(a) return a, 'b' end, 'a') return table.concat({ select(2, ngx.thread.wait(t)) })",
            "ab",
        ),
        (
            "local t = ngx.thread.spawn(function() ngx.sleep(0) return 'slept' end) return select(2, ngx.thread.wait(t))",
            "slept",
        ),
        (
            "local t = ngx.thread.spawn(function() ngx.sleep(0) error('broken', 0) end) local ok, e = ngx.thread.wait(t) return tostring(ok) .. e",
            "falsebroken",
        ),
        (
            "local order = '' local function run(name, time) order = order .. name ngx.sleep(time) order = order .. name end \
          local a = ngx.thread.spawn(run, 'a', 0.05) local b = ngx.thread.spawn(run, 'b', 0) ngx.thread.wait(b) ngx.thread.wait(a) return order",
            "abba",
        ),
        (
            "local slow = ngx.thread.spawn(ngx.sleep, 60) local quick = ngx.thread.spawn(function() ngx.sleep(0) return 'quick' end) \
          local _, x = ngx.thread.wait(slow, quick) ngx.thread.kill(slow) return x",
            "quick",
        ),
        (
            "local t = ngx.thread.spawn(ngx.sleep, 60) return tostring(ngx.thread.kill(t)) .. tostring(select(2, ngx.thread.kill(t)))",
            "truealready waited or killed",
        ),
        (
            "local t = ngx.thread.spawn(function() end) return select(2, ngx.thread.kill(t))",
            "already terminated",
        ),
        ("return select(2, ngx.thread.kill(coroutine.create(print)))", "not user thread"),
        (
            "local t = ngx.thread.spawn(function() end) ngx.thread.wait(t) return select(2, ngx.thread.wait(t))",
            "already waited or killed",
        ),
        (
            "ngx.thread.wait(coroutine.create(print))",
            "attempt to wait on a coroutine that is not a user thread",
        ),
        ("ngx.thread.wait()", "at least one coroutine should be specified"),
        ("ngx.thread.spawn(1)", "bad argument #1 to 'spawn' (function expected, got number)"),
        (
            "local s = '' local function f(n) for _ = 1, 2 do s = s .. n coroutine.yield() end end \
          local a, b = ngx.thread.spawn(f, 'a'), ngx.thread.spawn(f, 'b') ngx.thread.wait(a) ngx.thread.wait(b) return s:sub(1, 2) .. #s",
            "ab4",
        ),
        (
            "local t = ngx.thread.spawn(function() return select(2, ngx.thread.wait(ngx.thread.spawn(function() ngx.sleep(0) return 'inner' end))) end) \
          return select(2, ngx.thread.wait(t))",
            "inner",
        ),
        (
            "local t = coroutine.wrap(function() local t = ngx.thread.spawn(function() ngx.sleep(0) return 'in a coroutine' end) return select(2, ngx.thread.wait(t)) end) return t()",
            "in a coroutine",
        ),
        (
            "local list = {} for i = 1, 256 do list[i] = ngx.thread.spawn(ngx.sleep, 0) end local _, e = pcall(ngx.thread.spawn, ngx.sleep, 0) \
          for i = 1, 256 do ngx.thread.wait(list[i]) end assert(ngx.thread.spawn(ngx.sleep, 0)) return e",
            "a call has at most 256 light threads: wait for some of them",
        ),
    ] {
        check(code, expected);
    }
}

#[test]
fn a_request_waits_for_its_light_threads() {
    for code in [
        "ngx.thread.spawn(function() ngx.sleep(0) kong.response.exit(200, 'from a light thread') end)",
        "ngx.thread.spawn(function() kong.response.exit(200, 'from a light thread') end) ngx.sleep(60)",
        "ngx.thread.spawn(function() ngx.sleep(0) pcall(kong.response.exit, 200, 'from a light thread') end) ngx.sleep(60)",
    ] {
        let found = on_worker(async {
            let gateway = super::gateway(LuaSettings::default());
            let config = serde_json::json!({ "access": [code] });
            let hooks = gateway.plugin("pre-function", config).unwrap();
            super::waiting::access(&*hooks, &mut gateway.exchange("GET /")).await
        });
        assert_eq!(found.as_deref(), Some("from a light thread"), "{code}");
    }
}

#[test]
fn a_light_thread_that_takes_too_long_ends_the_request() {
    let brief = LuaSettings { timeout: Duration::from_millis(20), ..LuaSettings::default() };
    for code in [
        "ngx.thread.spawn(function() while true do end end)",
        "ngx.thread.spawn(function() ngx.sleep(0) while true do pcall(function() while true do end end) end end)",
        "ngx.thread.spawn(function() while true do coroutine.yield() end end)",
        "ngx.thread.spawn(function() while true do ngx.sleep(0) end end)",
        "local function f() ngx.thread.spawn(f) end f() while true do end",
    ] {
        let found = value(brief.clone(), &format!("{code} ngx.sleep(60)"));
        assert!(found.contains("An unexpected error occurred"), "{code}: {found}");
    }
}

#[test]
fn semaphores_count_and_wait() {
    for (code, expected) in [
        ("local s = new(1) return tostring(s:wait(0)) .. tostring(select(2, s:wait(0)))", "truetimeout"),
        ("local s = new() return tostring(select(2, s:wait(0.001))) .. s:count()", "timeout0"),
        ("local s = new() s:post(2) return s:count()", "2"),
        (
            "local s = new() local t = ngx.thread.spawn(function() return s:wait(60) end) local n = s:count() s:post() \
          return n .. tostring(select(2, ngx.thread.wait(t)))",
            "-1true",
        ),
        ("local s = new() ngx.timer.at(0, function() s:post() end) return tostring(s:wait(60))", "true"),
        (
            "local s = new() local t = ngx.thread.spawn(function() s:wait(60) end) ngx.thread.kill(t) ngx.sleep(0) return s:count()",
            "0",
        ),
        ("new(-1)", "no negative number"),
        ("new():post(0)", "positive number required"),
        ("new():wait(-1)", "time must be greater than or equal to 0"),
    ] {
        check(&format!("local new = require('ngx.semaphore').new {code}"), expected);
    }
}
