//! Requests that wait, on a worker of one thread.

use super::{gateway, settings};
use crate::{LuaSettings, UntrustedLua};
use serde_json::json;
use std::future::Future;
use std::time::Duration;
use tokio::runtime::LocalRuntime;
use weir_plugin::testing::Gateway;
use weir_plugin::{ErrorTemplates, Exchange, Flow, Handshake, HandshakeFlow, Hooks};

/// Runs something as a worker would.
pub(super) fn on_worker<T>(work: impl Future<Output = T>) -> T {
    let bounded = async { tokio::time::timeout(Duration::from_secs(90), work).await };
    LocalRuntime::new().unwrap().block_on(bounded).expect("it took too long")
}

/// Runs the access hook of a plugin to its end. Returns the answer, if there is one.
pub(super) async fn access(hooks: &dyn Hooks, exchange: &mut Exchange) -> Option<String> {
    let mut flow = hooks.access(exchange);
    loop {
        flow = match flow {
            Flow::Continue => return None,
            Flow::Respond(answer) => {
                let text = answer.write(exchange, &ErrorTemplates::default());
                return Some(String::from_utf8_lossy(&Vec::from(text)).into_owned());
            }
            Flow::Wait(operation) => operation.await(exchange),
        };
    }
}

/// What code returns in the access phase, or the error that it raises.
pub(super) async fn value_in(gateway: &Gateway, code: &str) -> String {
    let probe = format!(
        "local function probe() {code} end\n\
         local ok, value = pcall(probe)\n\
         kong.response.exit(200, (ok and '' or 'error: ') .. tostring(value))"
    );
    let hooks = gateway.plugin("pre-function", json!({ "access": [probe] })).unwrap();
    let mut exchange = gateway.exchange("GET /path?x=1");
    let answer = access(&*hooks, &mut exchange).await;
    answer.unwrap_or_else(|| format!("no answer, status {}", exchange.response.status))
}

/// The same in a gateway of its own.
pub(super) fn value(settings: LuaSettings, code: &str) -> String {
    on_worker(async { value_in(&gateway(settings), code).await })
}

#[test]
fn a_sleep_lets_others_go_on() {
    on_worker(async {
        let gateway = gateway(LuaSettings::default());
        let slow = value_in(&gateway, "ngx.sleep(60) return 'slow'");
        let quick = value_in(&gateway, "local n = ngx.sleep(0.001) return 'quick ' .. tostring(n)");
        tokio::select! {
            slow = slow => panic!("{slow}"),
            quick = quick => assert_eq!(quick, "quick nil"),
        }
    });
}

#[test]
fn a_sleep_has_its_arguments_checked() {
    for (code, expected) in [
        ("ngx.sleep(-1)", "bad argument #1 to 'sleep' (invalid delay \"-1\")"),
        ("ngx.sleep('x')", "bad argument #1 to 'sleep' (number expected, got string)"),
        ("ngx.sleep()", "bad argument #1 to 'sleep' (number expected, got nil)"),
        ("ngx.sleep(0) return 'done'", "done"),
        ("ngx.sleep('0.001') return 'done'", "done"),
        ("local ok, e = pcall(ngx.sleep, 0.001) return tostring(ok)", "true"),
        (
            "return select(2, pcall(load, function() ngx.sleep(0) end))",
            "attempt to yield across C-call boundary",
        ),
    ] {
        let found = value(settings(UntrustedLua::On), code);
        assert!(found.ends_with(expected), "{code}: {found}");
    }
}

#[test]
fn phases_that_cannot_wait_say_so() {
    let probe = "local ok, e = pcall(ngx.sleep, 0) kong.log.set_serialize_value('said', e)";
    for (phase, context) in [("header_filter", "header_filter_by_lua*"), ("log", "log_by_lua*")] {
        let gateway = gateway(LuaSettings::default());
        let hooks = gateway.plugin("post-function", json!({ phase: [probe] })).unwrap();
        let mut outcome = gateway.send(&[&*hooks], "GET /");
        hooks.log(&mut outcome.exchange);
        let fields = outcome.exchange.log_fields().unwrap();
        let said = fields.borrow()[0].value.clone().unwrap();
        let said = said.as_str().unwrap();
        assert!(said.ends_with(&format!("API disabled in the context of {context}")), "{phase}: {said}");
    }
}

/// Whether code asks a client at this address for its certificate.
async fn asks(hooks: &dyn Hooks, address: &str) -> bool {
    let client = address.parse().unwrap();
    let mut handshake = Handshake::new(client, client, None, Vec::new());
    let mut flow = hooks.certificate(&mut handshake);
    while let HandshakeFlow::Wait(waiting) = flow {
        flow = waiting.await(&mut handshake);
    }
    handshake.into_answer().requests_certificate
}

#[test]
fn handshakes_wait_beside_each_other() {
    on_worker(async {
        let gateway = gateway(LuaSettings::default());
        let code = "local asks = kong.client.get_ip() == '192.0.2.1' \
                    if asks then kong.client.tls.request_client_certificate() end \
                    ngx.sleep(0.01) assert(asks == (kong.client.get_ip() == '192.0.2.1')) \
                    if kong.client.get_ip() == '192.0.2.3' then kong.client.tls.request_client_certificate() end";
        let hooks = gateway.plugin("pre-function", json!({ "certificate": [code] })).unwrap();
        let addresses = ["192.0.2.1:1", "192.0.2.2:1", "192.0.2.3:1"];
        let asked = futures_util::future::join_all(addresses.map(|it| asks(&*hooks, it))).await;
        assert_eq!(asked, [true, false, true]);
        let fails =
            gateway.plugin("pre-function", json!({ "certificate": ["ngx.sleep(0) error('no')"] })).unwrap();
        assert!(!asks(&*fails, addresses[0]).await, "a handshake goes on where code fails");
    });
}

#[test]
fn the_time_of_a_request_that_waits_is_one() {
    let settings = LuaSettings { timeout: Duration::from_millis(20), ..LuaSettings::default() };
    let code = "for _ = 1, 1000 do for _ = 1, 1e5 do end ngx.sleep(0) end";
    let found = value(settings, &format!("{code} return 'not ended'"));
    assert!(found.contains("An unexpected error occurred"), "{found}");
}

#[test]
fn thousands_of_requests_have_tables_and_wait() {
    on_worker(async {
        let gateway = gateway(LuaSettings::default());
        let code = "kong.ctx.shared.a, kong.ctx.plugin.b, ngx.ctx.c = 1, 2, 3 ngx.sleep(0.05) kong.response.exit(200, 'done')";
        let hooks = gateway.plugin("pre-function", json!({ "access": [code] })).unwrap();
        let requests = (0..5000).map(|_| async {
            let mut exchange = gateway.exchange("GET /");
            let answer = access(&*hooks, &mut exchange).await;
            (answer, exchange)
        });
        let ended = futures_util::future::join_all(requests).await;
        assert!(ended.iter().all(|(answer, _)| answer.as_deref() == Some("done")));
    });
}
