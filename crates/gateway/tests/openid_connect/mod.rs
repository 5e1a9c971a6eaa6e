//! openid-connect with a provider that checks what it gets, and with dex.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod browser;
mod dex;
mod forgeries;
mod logins;
mod provider;
mod sessions;
mod tokens;

use crate::harness::{Builder, Gateway, Message, Upstream, document, service};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use browser::{Browser, location, path_of};
use provider::{CLIENT, Provider, SECRET};
use serde_json::{Value, json};

const SESSION_SECRET: &str = "hunter2-a-secret-of-sessions";

/// A plugin's configuration, and more of it.
fn config(provider: &Provider, more: &Value) -> Value {
    let mut config = json!({
        "client_id": CLIENT, "client_secret": SECRET, "discovery": provider.discovery(), "timeout": 60,
        "redirect_uri": "http://localhost/callback", "session": { "secret": SESSION_SECRET },
    });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

fn builder(upstream: &Upstream, config: &Value) -> Builder {
    let plugins = json!([{ "name": "openid-connect", "config": config }]);
    let services = [service("/", upstream.address, "", &format!("plugins: {plugins}"))];
    let consumers = json!([{ "username": "alice", "custom_id": "u-1" }]);
    Gateway::builder(&document(&services, &format!("consumers: {consumers}\n"))).set("workers", "2")
}

/// A gateway with the plugin, and an upstream that answers with what it gets.
fn gateway(provider: &Provider, more: &Value) -> (Gateway, Upstream) {
    let upstream = Upstream::echoing();
    (builder(&upstream, &config(provider, more)).start(), upstream)
}

/// Logs in; returns the browser and the response to its code.
#[track_caller]
fn come_back(provider: &Provider, gateway: &Gateway) -> (Browser, Message) {
    let mut browser = Browser::default();
    let sent = browser.get(gateway, "/page?a=b");
    let back = provider.agree(&location(&sent));
    let response = browser.get(gateway, path_of(&back));
    (browser, response)
}

/// The same where the login succeeds.
#[track_caller]
fn logged_in(provider: &Provider, gateway: &Gateway) -> Browser {
    let (browser, response) = come_back(provider, gateway);
    assert_eq!(location(&response), "/page?a=b");
    assert!(!browser.session().is_empty() && browser.session().len() == browser.cookies.len());
    browser
}

/// The value of a header that the upstream has got.
fn echoed<'m>(response: &'m Message, name: &str) -> Option<&'m str> {
    let is_it =
        |line: &&str| line.split_once(": ").is_some_and(|(header, _)| header.eq_ignore_ascii_case(name));
    response.text().lines().find(is_it).and_then(|line| line.split_once(": ")).map(|(_, value)| value)
}

/// The JSON in a header that the upstream has got.
fn echoed_json(response: &Message, name: &str) -> Value {
    let value = echoed(response, name).unwrap_or_else(|| panic!("{name}: {}", response.text()));
    serde_json::from_slice(&STANDARD.decode(value).unwrap()).unwrap()
}
