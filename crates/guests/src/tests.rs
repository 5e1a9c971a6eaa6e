//! Lua of a configuration, in a gateway in memory.

mod body_filters;
mod cache;
mod clients;
mod cluster;
mod db;
mod debian;
mod escapes;
mod escapes_known;
mod escapes_waiting;
mod growth;
mod handles;
mod inspect;
mod kept;
mod library;
mod limits;
mod lua_cjson;
mod names;
mod pdk;
mod proxies;
mod queues;
mod sandbox;
mod single_calls;
mod sockets;
mod tables;
mod threads;
mod timers;
mod waiting;

use crate::{LuaSettings, PLUGINS, UntrustedLua};
use serde_json::json;
use weir_plugin::AccessEffect;
use weir_plugin::testing::{Gateway, Outcome, check_cases};

/// Settings with this mode.
fn settings(untrusted: UntrustedLua) -> LuaSettings {
    LuaSettings { untrusted, ..LuaSettings::default() }
}

/// A gateway with these settings.
fn gateway(settings: LuaSettings) -> Gateway {
    let gateway = Gateway::new(PLUGINS);
    gateway.retained.provide(settings);
    gateway
}

/// Runs code in the access phase of a request.
fn run(settings: LuaSettings, code: &str, request: &str) -> Outcome {
    let gateway = gateway(settings);
    let hooks = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
    gateway.send(&[&*hooks], request)
}

/// What code returns in the access phase, or the error that it raises.
fn value(settings: LuaSettings, code: &str) -> String {
    let probe = format!(
        "local function probe() {code} end\n\
         local ok, value = pcall(probe)\n\
         kong.response.exit(200, (ok and '' or 'error: ') .. tostring(value))"
    );
    let outcome = run(settings, &probe, "GET /path?x=1\nX-One: 1");
    outcome.answer.unwrap_or_else(|| format!("no answer, status {}", outcome.exchange.response.status))
}

#[test]
fn cases() {
    check_cases(PLUGINS, "pre-function", include_str!("tests/pre_function.json"));
}

#[test]
fn lua_that_is_switched_off_is_refused() {
    let refused =
        gateway(settings(UntrustedLua::Off)).plugin("pre-function", json!({ "access": ["return"] }));
    assert_eq!(refused.err().as_deref(), Some(crate::sandbox::SWITCHED_OFF));
}

#[test]
fn a_function_that_is_returned_runs_from_then_on() {
    let gateway = gateway(LuaSettings::default());
    let count = |code: &str| {
        let hooks = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
        let outcomes = (0..3).map(|_| gateway.send(&[&*hooks], "GET /"));
        outcomes.map(|outcome| outcome.answer.unwrap()).collect::<Vec<_>>().join(" ")
    };
    let kept = "local n = 0 return function() n = n + 1 kong.response.exit(200, tostring(n)) end";
    assert_eq!(count(kept), "1 2 3");
    assert_eq!(count("n = (n or 0) + 1 kong.response.exit(200, tostring(n))"), "1 2 3", "its globals stay");
    assert_eq!(count("local n = 0 n = n + 1 kong.response.exit(200, tostring(n))"), "1 1 1");
}

#[test]
fn functions_of_a_phase_run_in_their_order_until_one_answers() {
    let gateway = gateway(LuaSettings::default());
    let set = |value: &str| format!("kong.service.request.add_header('x-ran', '{value}')");
    let code = [set("a"), set("b"), "kong.response.exit(204)".to_owned(), set("c")];
    let hooks = gateway.plugin("pre-function", json!({ "access": code })).unwrap();
    let outcome = gateway.send(&[&*hooks], "GET /");
    assert_eq!(outcome.status(), 204);
    let ran: Vec<_> = outcome.exchange.request.headers.get_all("x-ran").collect();
    assert_eq!(ran, [b"a", b"b"]);
}

#[test]
fn only_code_of_the_access_phase_makes_an_access_hook_uncertain() {
    let gateway = gateway(LuaSettings::default());
    for (phase, effect) in [
        ("access", AccessEffect::Unknown),
        ("rewrite", AccessEffect::Passes),
        ("header_filter", AccessEffect::Passes),
    ] {
        let hooks = gateway.plugin("post-function", json!({ phase: ["f()"] })).unwrap();
        assert_eq!(hooks.access_effect(&gateway.exchange("GET /")), effect, "{phase}");
    }
}
