//! Bodies of responses that pass through Lua part by part.

use super::{gateway, settings};
use crate::{LuaSettings, UntrustedLua};
use serde_json::json;
use std::time::Duration;
use weir_plugin::Metrics;

/// What the client gets for each of these parts, and behind the last, and how many calls failed.
fn filtered(settings: LuaSettings, code: &str, parts: &[&str]) -> (Vec<String>, usize) {
    let gateway = gateway(settings);
    let hooks = gateway.plugin("pre-function", json!({ "body_filter": [code] })).unwrap();
    let mut exchange = gateway.send(&[&*hooks], "GET /").exchange;
    let mut filters = exchange.engine.take_body_changes().unwrap().filters;
    let mut sent: Vec<_> =
        parts.iter().map(|part| filters.chunk(&mut exchange, part.as_bytes().to_vec())).collect();
    sent.push(filters.end(&mut exchange));
    let mut metrics = String::new();
    gateway.retained.get::<Metrics>().write(&mut metrics);
    let counts = metrics.lines().filter(|line| line.starts_with("weir_lua_ended_total{"));
    let failures = counts.map(|line| line.rsplit(' ').next().unwrap().parse::<usize>().unwrap()).sum();
    (sent.into_iter().map(|part| String::from_utf8(part).unwrap()).collect(), failures)
}

#[track_caller]
fn check(code: &str, parts: &[&str], expected: &[&str], failures: usize) {
    let (sent, failed) = filtered(settings(UntrustedLua::Sandbox), code, parts);
    assert_eq!(sent, expected, "{code}");
    assert_eq!(failed, failures, "{code}");
}

#[test]
fn parts_are_changed_dropped_and_collected() {
    check("ngx.arg[1] = ngx.arg[1]:upper()", &["a", "b"], &["A", "B", ""], 0);
    check("if ngx.arg[1] == 'a' then ngx.arg[1] = nil end", &["a", "b"], &["", "b", ""], 0);
    check("if ngx.arg[2] then ngx.arg[1] = { 'e', 'nd' } end", &["a"], &["a", "end"], 0);
    check("ngx.arg[2] = true", &["a", "b"], &["a", "", ""], 0);
    check(
        "local body = kong.response.get_raw_body() if body then kong.response.set_raw_body(body .. '!') end",
        &["a", "b"],
        &["", "", "ab!"],
        0,
    );
    check("kong.response.set_raw_body('whole')", &["a", "b"], &["whole", "", ""], 0);
}

#[test]
fn code_that_fails_runs_for_no_further_part() {
    check("error('no')", &["a", "b"], &["a", "b", ""], 1);
    check(
        "if ngx.arg[1] == 'b' then error('no') end ngx.arg[1] = 'x'",
        &["a", "b", "c"],
        &["x", "b", "c", ""],
        1,
    );
    check("if ngx.arg[2] then error('no') end", &["a", "b"], &["a", "b", ""], 1);
}

#[test]
fn what_was_withheld_passes_when_code_fails() {
    let collect = "local body = kong.response.get_raw_body() ";
    check(&format!("{collect} if body then error('no') end"), &["a", "b"], &["", "", "ab"], 1);
    check(
        &format!("if ngx.arg[1] == 'b' then error('no') end {collect}"),
        &["a", "b", "c"],
        &["", "ab", "c", ""],
        1,
    );
    check(
        &format!("{collect} n = (n or 0) + 1 if n == 2 then error('no') end"),
        &["a", "b", "c"],
        &["", "ab", "c", ""],
        1,
    );
}

#[test]
fn what_was_withheld_passes_when_code_is_ended() {
    let code =
        "local part = ngx.arg[1] kong.response.get_raw_body() if part == 'b' then while true do end end";
    let brief = LuaSettings { timeout: Duration::from_millis(20), ..LuaSettings::default() };
    let (sent, failures) = filtered(brief, code, &["a", "b", "c"]);
    assert_eq!((sent.concat().as_str(), failures), ("abc", 1));
}

#[test]
fn what_was_printed_is_gone_once_there_is_another_response() {
    for code in [
        "ngx.say('a') error('no')",
        "ngx.say('a') ngx.redirect('/b')",
        "ngx.say('a') kong.response.exit(401)",
    ] {
        let gateway = gateway(settings(UntrustedLua::Sandbox));
        let sent = "kong.response.set_header('x-sent', tostring(ngx.headers_sent))";
        let hooks =
            gateway.plugin("pre-function", json!({ "access": [code], "header_filter": [sent] })).unwrap();
        let headers = gateway.send(&[&*hooks], "GET /").exchange.response.headers;
        assert_eq!(headers.get("x-sent"), Some(&b"false"[..]), "{code}");
    }
}
