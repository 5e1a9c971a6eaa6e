//! No cookie, token or callback makes openid-connect panic or lets anybody pass.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::sync::Arc;
use weir_plugin::testing::Gateway;
use weir_plugin::{Flow, Hooks};
use weir_plugins::PLUGINS;

/// The private key to it is lost.
const KEY: &str = "-----BEGIN PUBLIC KEY-----
MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbbwa7ENLi+9buWHRuaTcG4/HXgxT
Cs0o5te9Q/TLQAm89fiL+NWazR7ISL38fLwsz0504KhiQycvUfYFrH4aag==
-----END PUBLIC KEY-----
";

thread_local! {
    static PLUGIN: (Gateway, Arc<dyn Hooks>) = plugin();
}

fn plugin() -> (Gateway, Arc<dyn Hooks>) {
    let gateway = Gateway::new(PLUGINS);
    let config = json!({
        "client_id": "fuzz", "discovery": "http://127.0.0.1:1/", "public_key": KEY,
        "claim_validator": { "issuer": { "valid_issuers": ["https://issuer.test"] } },
        // The secret cannot be guessed.
        "session": { "secret": "2d8c0b7e6f9f1e4ac35b", "cookie_name": "s" }, "unauth_action": "deny",
        "ssl_verify": false,
    });
    let plugin = gateway.plugin("openid-connect", config).expect("a valid configuration");
    (gateway, plugin)
}

fn lets_nobody_pass(request: &str, header: &str, value: &[u8]) {
    PLUGIN.with(|(gateway, plugin)| {
        let mut exchange = gateway.exchange(request);
        exchange.request.headers.append(header, value);
        assert!(matches!(plugin.access(&mut exchange), Flow::Respond(_)), "a forgery");
        assert!(exchange.credential().is_none(), "a forgery");
        plugin.response(&mut exchange);
    });
}

fuzz_target!(|bytes: &[u8]| {
    lets_nobody_pass("GET /", "Cookie", bytes);
    lets_nobody_pass("GET /.apisix/redirect?code=a&state=b", "Cookie", bytes);
    lets_nobody_pass("GET /", "Authorization", &[&b"Bearer "[..], bytes].concat());
    lets_nobody_pass("GET /", "X-Access-Token", bytes);
});
