//! Ways in which code that waits could reach other code, or stop the worker.

use super::waiting::{access, on_worker, value, value_in};
use super::{gateway, names, settings};
use crate::{LuaSettings, UntrustedLua};
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::spawn_local;

/// What code returns that has the port of a server as `port`, which answers whatever it is sent with this.
fn answered(settings: LuaSettings, answer: Vec<u8>, code: &str) -> String {
    on_worker(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let answer = answer.clone();
                spawn_local(async move {
                    let mut piece = [0; 4096];
                    while stream.read(&mut piece).await.is_ok_and(|len| len > 0) {
                        if stream.write_all(&answer).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        value_in(&gateway(settings), &format!("local port = {port} {code}")).await
    })
}

#[test]
fn times_may_be_of_any_length() {
    for (code, expected) in [
        ("ngx.sleep(0/0)", "invalid delay"),
        ("ngx.sleep(-1/0)", "invalid delay"),
        ("ngx.timer.at(0/0, function() end)", "invalid delay"),
        ("return tostring(ngx.timer.at(1/0, function() end))", "1"),
        ("return tostring(ngx.timer.every(1e300, function() end))", "1"),
        ("local t = ngx.thread.spawn(ngx.sleep, 1e300) ngx.thread.kill(t) return 'ended'", "ended"),
        (
            "local s = require('ngx.semaphore').new(1e300) s:post(1e300) return tostring(s:wait(1e300))",
            "true",
        ),
        ("local s = require('ngx.semaphore').new(0/0) return tostring(s:wait(0))", "nil"),
        (
            "local s = require('ngx.semaphore').new() local t = ngx.thread.spawn(s.wait, s, 1e300) s:post(1) return tostring(select(2, ngx.thread.wait(t)))",
            "true",
        ),
        ("return kong.cache:get('a', { ttl = 1e300 }, function() return 1 end)", "1"),
        ("return kong.cache:get('b', { ttl = 0/0 }, function() return 1 end)", "1"),
        ("return kong.cache:get('c', { neg_ttl = 1/0 }, function() return nil end)", "nil"),
        ("return tostring(ngx.shared.kong:set('a', 1, 1e300))", "true"),
        ("return tostring(ngx.shared.kong:set('a', 1, 0, 1e300))", "true"),
        ("ngx.shared.kong:set('i', 1.7e308) return tostring(ngx.shared.kong:incr('i', 1.7e308))", "inf"),
        ("ngx.shared.kong:incr('j', 0/0, 0, 1e300) return tostring(ngx.shared.kong:ttl('j') > 1e9)", ""),
        ("return tostring(pcall(ngx.shared.kong.expire, ngx.shared.kong, 'j', 1/0))", ""),
        ("return tostring(pcall(kong.service.set_timeouts, 1e300, 1/0, 0/0))", "false"),
        ("return tostring(pcall(kong.response.exit, 1e300))", "false"),
        ("return tostring(pcall(kong.response.exit, 0/0))", "false"),
    ] {
        let found = value(settings(UntrustedLua::On), code);
        assert!(found.contains(expected), "{code}: {found}");
    }
}

#[test]
fn a_kept_connection_may_be_kept_for_ever() {
    for time in ["1e300", "1/0", "0/0", "-1", "2^63"] {
        let code = format!(
            "local s = ngx.socket.tcp() s:settimeouts({time}, {time}, {time}) assert(s:connect('127.0.0.1', port)) \
             return tostring(s:setkeepalive({time}, {time}))"
        );
        assert_eq!(answered(settings(UntrustedLua::On), Vec::new(), &code), "1", "{time}");
    }
}

#[test]
fn a_coroutine_that_code_has_kept_does_not_run_that_of_others() {
    on_worker(async {
        let gateway = gateway(LuaSettings::default());
        // The same function again, for each of the calls that end and begin.
        let code = "if not kept then kept = coroutine.running() return end \
                    local ok, why = coroutine.resume(kept, true, 'forged') \
                    kong.response.exit(200, tostring(ok) .. tostring(why))";
        let attacker = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
        let victim_code =
            "local value = ngx.sleep(0.05) kong.response.exit(200, 'slept ' .. tostring(value))";
        let victim = gateway.plugin("pre-function", json!({ "access": [victim_code] })).unwrap();
        assert_eq!(access(&*attacker, &mut gateway.exchange("GET /")).await, None);
        let mut of_victim = gateway.exchange("GET /");
        let attack = async {
            tokio::task::yield_now().await;
            access(&*attacker, &mut gateway.exchange("GET /")).await
        };
        let (slept, attacked) = futures_util::future::join(access(&*victim, &mut of_victim), attack).await;
        assert_eq!(slept.as_deref(), Some("slept nil"));
        assert_eq!(attacked.as_deref(), Some("falsecannot resume dead coroutine"));
    });
}

#[test]
fn endless_code_ends_wherever_it_runs() {
    let endless = "while true do end";
    let brief = |untrusted| LuaSettings { timeout: Duration::from_millis(20), ..settings(untrusted) };
    for code in [
        endless.to_owned(),
        format!("xpcall(function() {endless} end, function() {endless} end)"),
        format!("while true do xpcall(function() error('x') end, function() {endless} end) end"),
        format!("while true do pcall(string.gsub, 'a', 'a', function() {endless} end) end"),
        format!("while true do pcall(ngx.re.gsub, 'a', 'a', function() {endless} end) end"),
        format!("while true do pcall(table.sort, {{ 1, 2 }}, function() {endless} end) end"),
        format!("while true do coroutine.wrap(function() {endless} end)() end"),
        format!("while true do pcall(kong.cache.get, kong.cache, 'a', nil, function() {endless} end) end"),
        format!(
            "kong.cache:get('a', nil, function() kong.cache:get('a', nil, function() {endless} end) end) {endless}"
        ),
        format!(
            "ngx.thread.wait(ngx.thread.spawn(function() pcall(function() {endless} end) {endless} end))"
        ),
        "while true do coroutine.yield() end".to_owned(),
        "while true do coroutine.wrap(coroutine.yield)() end".to_owned(),
        "while true do ngx.thread.kill(ngx.thread.spawn(coroutine.yield)) end".to_owned(),
        "local f f = function() ngx.timer.at(0, f) ngx.timer.at(0, f) end f() while true do ngx.sleep(0) end"
            .to_owned(),
        "while true do ngx.shared.kong:get_keys(0) end".to_owned(),
        "while true do kong.cache:purge() end".to_owned(),
    ] {
        let found = value(brief(UntrustedLua::Sandbox), &code);
        assert!(found.contains("An unexpected error occurred"), "{code}: {found}");
    }
}

#[test]
fn callbacks_may_call_what_has_called_them() {
    for (code, expected) in [
        (
            "return kong.cache:get('a', nil, function() return kong.cache:get('b', nil, function() return 'inner' end) end)",
            "inner",
        ),
        (
            "local t = {} t[1] = setmetatable({}, { __tostring = function() return kong.request.get_path() end }) ngx.print(tostring(t[1])) return tostring(t[1])",
            "/path",
        ),
        (
            "local t = setmetatable({}, { __index = function(_, k) return kong.request.get_path() end, __tostring = function() return kong.request.get_path() end }) \
             pcall(kong.response.set_headers, t) pcall(kong.service.request.set_query, t) pcall(kong.log, t) pcall(kong.log.inspect, t) pcall(ngx.say, t) \
             pcall(kong.log.set_serialize_value, 'a', t) pcall(kong.response.set_header, 'a', t) return 'alive'",
            "alive",
        ),
        (
            "local self self = ngx.thread.spawn(function() ngx.sleep(0) return tostring(ngx.thread.kill(self)) end) ngx.sleep(0.01) return 'alive'",
            "alive",
        ),
        (
            "ngx.thread.spawn(function() ngx.thread.kill(coroutine.running()) ngx.sleep(3600) end) return 'ended'",
            "ended",
        ),
        (
            "local main = coroutine.running() local t = ngx.thread.spawn(function() ngx.sleep(0) return tostring(coroutine.resume(main)) end) return 'alive'",
            "alive",
        ),
        (
            "local t = ngx.thread.spawn(function() ngx.sleep(0.001) end) return tostring(coroutine.resume(t, false, 'x')) .. coroutine.status(t)",
            "truedead",
        ),
    ] {
        let found = value(settings(UntrustedLua::On), code);
        assert!(found.contains(expected) || found.contains("An unexpected error"), "{code}: {found}");
    }
}

#[test]
fn code_in_the_sandbox_replaces_nothing_that_others_use() {
    let members = names::members();
    assert!(members.contains("kong.service") && members.contains("ngx.shared.own"), "{members:?}");
    let shared = ["ngx.ctx", "kong.ctx", "ngx.header", "ngx.arg", "ngx.var"];
    let closed = members.iter().filter(|name| !shared.iter().any(|known| name.starts_with(known)));
    let mut code = "local open = {} ".to_owned();
    for name in closed {
        code += &format!(
            "if pcall(function() local t = {name} t.planted = 1 end) then open[#open + 1] = '{name}' end "
        );
    }
    code += "return 'open: ' .. table.concat(open, ' ')";
    let dicts = vec![("own".to_owned(), 65_536)];
    assert_eq!(value(LuaSettings { shared_dicts: dicts, ..LuaSettings::default() }, &code), "open: ");
}

#[test]
fn peers_that_lie_about_lengths_get_an_error() {
    const HTTP: &str = "local c = require('resty.http').new() c:set_timeout(200) \
        local r, e = c:request_uri('http://127.0.0.1:' .. port .. '/') return tostring(r and #r.body) .. ' ' .. tostring(e)";
    for length in ["-5", "nan", "inf", "1e300", "0x10", "1.5", "99999999999999999999", ""] {
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\nx");
        let found = answered(settings(UntrustedLua::On), answer.into_bytes(), HTTP);
        assert_eq!(found, "nil bad Content-Length", "{length}");
    }
    for (answer, expected) in [
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
            "unable to read chunk size",
        ),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n", "unable to read chunk size"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffff\r\nx", "timeout"),
    ] {
        let found = answered(settings(UntrustedLua::On), answer.as_bytes().to_vec(), HTTP);
        assert!(found.ends_with(expected), "{answer}: {found}");
    }
    let endless = "HTTP/1.1 100 Continue\r\n\r\n".repeat(2000);
    let found = answered(settings(UntrustedLua::On), endless.into_bytes(), HTTP);
    assert_eq!(found, "nil the response has too many interim responses");
    let redis = "local c = require('resty.redis').new() c:set_timeout(200) assert(c:connect('127.0.0.1', port)) \
        local ok, r, e = pcall(c.get, c, 'a') return tostring(ok) .. ' ' .. tostring(r) .. ' ' .. tostring(e)";
    let deep = "*1\r\n".repeat(100_000);
    for (answer, expected) in [
        ("$nan\r\n", "true nil bad reply"),
        ("$inf\r\n", "true nil bad reply"),
        ("$1e300\r\nx", "true nil bad reply"),
        ("$1.5\r\nx", "true nil bad reply"),
        ("*nan\r\n", "true nil bad reply"),
        ("*1e300\r\n", "true nil bad reply"),
        (":x\r\n", "true nil bad reply"),
        ("*9999999\r\n", "true nil the reply is too large"),
        (deep.as_str(), "true nil the reply is too large"),
    ] {
        let found = answered(settings(UntrustedLua::On), answer.as_bytes().to_vec(), redis);
        assert!(found.starts_with(expected), "{}: {found}", &answer[..answer.len().min(20)]);
    }
}
