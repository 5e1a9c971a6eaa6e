//! Timers: code that runs beside requests.

use super::waiting::{access, on_worker, value_in};
use super::{gateway, settings};
use crate::beside::MAX_TASKS;
use crate::{LuaSettings, UntrustedLua};
use std::time::Duration;
use weir_plugin::Background;

/// What code returns after timers that it has begun have set the global `said`.
fn said(code: &str) -> String {
    let wait = "while not said do ngx.sleep(0.001) end return said";
    on_worker(async { value_in(&gateway(settings(UntrustedLua::On)), &format!("{code} {wait}")).await })
}

#[test]
fn a_timer_gets_its_arguments() {
    for (code, expected) in [
        (
            "ngx.timer.at(0, function(...) said = table.concat({ tostring(...), select(2, ...) }, ' ') end, 'a', 2)",
            "false a 2",
        ),
        (
            "ngx.timer.at(0.001, function(p, a, b, ...) said = tostring(a) .. select('#', ...) end, nil, nil, nil)",
            "nil1",
        ),
        ("assert(ngx.timer.at(0, function() said = ngx.get_phase() end) == 1)", "timer"),
        ("ngx.timer.at(0, function() ngx.sleep(0.001) said = 'slept' end)", "slept"),
        ("ngx.timer.at(0, function() ngx.timer.at(0, function() said = 'inner' end) end)", "inner"),
        ("local n = 0 ngx.timer.every(0.001, function() n = n + 1 if n == 3 then said = n end end)", "3"),
        ("local n = 0 ngx.timer.every(0.001, function() n = n + 1 said = n == 2 and n error('no') end)", "2"),
        (
            "ngx.timer.at(0, function() said = ngx.timer.running_count() .. ngx.timer.pending_count() end)",
            "10",
        ),
        (
            "ngx.timer.at(9, function() end) said = ngx.timer.running_count() .. ngx.timer.pending_count()",
            "01",
        ),
        ("ngx.timer.at(0, function() ngx.ctx.a = 1 ngx.sleep(0) said = ngx.ctx.a end)", "1"),
        (
            "ngx.timer.at(0, function() ngx.ctx.a = 1 ngx.timer.at(0, function() said = tostring(ngx.ctx.a) end) end)",
            "nil",
        ),
    ] {
        assert_eq!(said(code), expected, "{code}");
    }
}

#[test]
fn arguments_of_timers_are_checked() {
    for (code, expected) in [
        ("ngx.timer.at('x', print)", "bad argument #1 to 'at' (number expected, got string)"),
        ("ngx.timer.at(-1, print)", "bad argument #1 to 'at' (invalid delay \"-1\")"),
        ("ngx.timer.every(0, print)", "delay cannot be zero"),
        ("ngx.timer.at(0, 1)", "bad argument #2 to 'at' (Lua function expected)"),
        ("ngx.timer.every(1)", "bad argument #2 to 'every' (Lua function expected)"),
    ] {
        let found = said(&format!("said = select(2, pcall(function() {code} end))"));
        assert!(found.ends_with(expected), "{code}: {found}");
    }
}

#[test]
fn what_needs_a_request_is_refused() {
    for call in ["kong.request.get_path()", "kong.response.exit(200)", "kong.client.get_ip()"] {
        let code = format!("ngx.timer.at(0, function() said = select(2, pcall(function() {call} end)) end)");
        let found = said(&code);
        assert!(found.contains("function cannot be called in timer phase (only in: "), "{call}: {found}");
    }
}

#[test]
fn a_timer_that_takes_too_long_is_ended() {
    let brief = LuaSettings { timeout: Duration::from_millis(20), ..settings(UntrustedLua::On) };
    on_worker(async {
        let gateway = gateway(brief);
        let endless =
            "ngx.timer.at(0, function() while true do pcall(function() while true do end end) end end)";
        let wait = "while ngx.timer.running_count() > 0 do ngx.sleep(0.001) end return 'ended'";
        assert_eq!(value_in(&gateway, &format!("{endless} ngx.sleep(0.001) {wait}")).await, "ended");
        // Each resume has its own time.
        let long = "local t = {} ngx.timer.at(0, function() for _ = 1, 200 do for _ = 1, 1e5 do end ngx.sleep(0) end t.said = 1 end)";
        let wait = "while not t.said do ngx.sleep(0.001) end return t.said";
        assert_eq!(value_in(&gateway, &format!("{long} {wait}")).await, "1");
    });
}

#[test]
fn timers_are_limited() {
    let code = "local n, err = 0 repeat local ok ok, err = ngx.timer.at(60, function() end) n = n + (ok or 0) until not ok return n .. ' ' .. err";
    let patient = LuaSettings { timeout: Duration::from_secs(60), ..LuaSettings::default() };
    let found = on_worker(async { value_in(&gateway(patient), code).await });
    assert_eq!(found, format!("{MAX_TASKS} too many pending timers"));
}

#[test]
fn timers_that_run_are_as_many_as_requests_need() {
    let code = "local n = 0 for _ = 1, 10000 do ngx.timer.at(0, function() ngx.sleep(0.01) n = n + 1 end) end \
                while n < 10000 do ngx.sleep(0.001) end return n";
    let patient = LuaSettings { timeout: Duration::from_secs(60), ..LuaSettings::default() };
    assert_eq!(on_worker(async { value_in(&gateway(patient), code).await }), "10000");
}

#[test]
fn a_node_that_exits_runs_its_timers_first() {
    on_worker(async {
        let gateway = gateway(settings(UntrustedLua::On));
        let begin = "local function say(p) _G.said = (_G.said or '') .. tostring(p) end \
                     ngx.timer.at(3600, function(p) ngx.sleep(0.001) say(p) end) \
                     ngx.timer.every(3600, say) return 'begun'";
        assert_eq!(value_in(&gateway, begin).await, "begun");
        let background = gateway.retained.get::<Background>();
        let ended = tokio::task::spawn_blocking(move || background.finish(Duration::from_secs(60)));
        assert!(ended.await.unwrap());
        assert_eq!(value_in(&gateway, "return _G.said").await, "truetrue");
        assert_eq!(value_in(&gateway, "return ngx.worker.exiting()").await, "true");
        let late = "local ok, e = ngx.timer.at(1, function() end) return tostring(ok) .. ' ' .. e";
        assert_eq!(value_in(&gateway, late).await, "nil process exiting");
    });
}

#[test]
fn timers_end_with_their_vm() {
    on_worker(async {
        let small = LuaSettings { memory: 8 << 20, ..settings(UntrustedLua::On) };
        let gateway = gateway(small);
        let begin = "ngx.timer.every(0.001, function() end) return ngx.timer.pending_count()";
        assert_eq!(value_in(&gateway, begin).await, "1");
        let code = "_G.kept = {} while true do kept[#kept + 1] = ('x'):rep(1000) .. #kept end";
        let hooks = gateway.plugin("pre-function", serde_json::json!({ "access": [code] })).unwrap();
        access(&*hooks, &mut gateway.exchange("GET /")).await;
        assert_eq!(value_in(&gateway, "return ngx.timer.pending_count()").await, "0");
        let background = gateway.retained.get::<Background>();
        let ended = tokio::task::spawn_blocking(move || background.finish(Duration::from_secs(60)));
        assert!(ended.await.unwrap(), "the node waits for none");
    });
}
