//! No cookie makes session panic or logs anybody in, and what is set as cookies is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::sync::Arc;
use weir_plugin::testing::Gateway;
use weir_plugin::{Flow, Hooks};
use weir_plugins::{PLUGINS, fuzzing};

thread_local! {
    static SESSION: (Gateway, Arc<dyn Hooks>) = plugin();
}

fn plugin() -> (Gateway, Arc<dyn Hooks>) {
    let gateway = Gateway::new(PLUGINS);
    // The secret cannot be guessed.
    let config = json!({ "secret": "2d8c0b7e6f9f1e4ac35b", "remember": true });
    let plugin = gateway.plugin("session", config).expect("a valid configuration");
    (gateway, plugin)
}

fn logs_nobody_in(line: &[u8]) {
    SESSION.with(|(gateway, plugin)| {
        let mut exchange = gateway.exchange("POST /?session_logout");
        exchange.request.headers.append("Cookie", line);
        assert!(matches!(plugin.access(&mut exchange), Flow::Continue));
        assert!(exchange.consumer().is_none(), "a forgery");
        plugin.response(&mut exchange);
        assert_eq!(exchange.response.headers.get("Set-Cookie"), None);
    });
}

fuzz_target!(|bytes: &[u8]| {
    logs_nobody_in(bytes);
    fuzzing::session_cookie(bytes);
});
