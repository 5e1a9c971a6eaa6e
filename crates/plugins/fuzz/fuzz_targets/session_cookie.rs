//! No cookie makes session panic or logs anybody in, and what is set as cookies is read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::sync::Arc;
use weir_plugin::testing::Gateway;
use weir_plugin::{Flow, Hooks};
use weir_plugins::PLUGINS;

// The modules stand alone: no client can make what they read, because it is sealed.
#[allow(dead_code)]
#[path = "../../src/session/content.rs"]
mod content;
#[allow(dead_code)]
#[path = "../../src/session/cookie.rs"]
mod cookie;

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

fn is_read_again(bytes: &[u8]) {
    if let Some(session) = content::Session::decode(bytes) {
        assert_eq!(content::Session::decode(&session.encode()), Some(session));
    }
    let text: String = bytes.iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    if let Some(set) = cookie::set("session", &text, "; Path=/") {
        let pairs: Vec<_> = set.iter().map(|cookie| cookie.split(';').next().unwrap_or_default()).collect();
        let line = pairs.join("; ");
        let jar = cookie::Jar::of([line.as_bytes()].into_iter(), "session");
        let read: Vec<_> = jar.texts("session").collect();
        assert_eq!(read, [text.as_bytes()]);
    }
}

fuzz_target!(|bytes: &[u8]| {
    logs_nobody_in(bytes);
    is_read_again(bytes);
    for text in cookie::Jar::of([bytes].into_iter(), "s").texts("s") {
        let _ = content::Session::decode(&text);
    }
});
