//! No credentials make an authentication plugin panic, and none but the right ones open a route.
#![no_main]

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use libfuzzer_sys::fuzz_target;
use serde_json::json;
use std::sync::Arc;
use weir_model::{Document, Format};
use weir_plugin::testing::Gateway;
use weir_plugin::{Flow, Hooks, PluginSchema};
use weir_plugins::PLUGINS;

/// The secrets cannot be guessed; the password is short, so that the fuzzer finds it.
const ENTITIES: &str = r#"
_format_version: "3.0"
consumers:
- username: alice
  basicauth_credentials: [{ username: a, password: b }]
  hmacauth_credentials: [{ username: a, secret: 2d8c0b7e6f }]
  jwt_secrets:
  - { key: a, secret: 9f1e4ac35b, algorithm: HS256 }
  - key: b
    algorithm: ES256
    rsa_public_key: |
      -----BEGIN PUBLIC KEY-----
      MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEbH9EfHtRNqUFrJyvkbpmHC26+QEm
      Xus2AT1vAbG9ezIvN+RI6314wuE+SF34iWKNk49/ZXg4s7yHPxkq0ELXMw==
      -----END PUBLIC KEY-----
"#;

const REQUEST: &str = "GET /\nX-Date: Thu, 01 Jan 1970 00:00:00 GMT";

struct Plugins {
    gateway: Gateway,
    basic: Arc<dyn Hooks>,
    others: [Arc<dyn Hooks>; 3],
}

thread_local! {
    static ALL: Plugins = plugins();
}

fn plugins() -> Plugins {
    let schemas: Vec<PluginSchema> = PLUGINS.iter().map(|plugin| plugin.schema).collect();
    let read = Document::read(ENTITIES, Format::Yaml, schemas.leak(), &|_| None);
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document = read.unwrap_or_else(|errors| panic!("{errors:?}")).document;
    let plugin = |name: &str, config| gateway.plugin(name, config).expect("a valid configuration");
    let basic = plugin("basic-auth", json!({}));
    let hmac = plugin("hmac-auth", json!({ "clock_skew": 1e12 }));
    let jwt = plugin("jwt", json!({ "claims_to_verify": ["exp", "nbf"] }));
    let others = [hmac, jwt, plugin("oauth2", json!({ "enable_client_credentials": true }))];
    Plugins { basic, others, gateway }
}

/// Whether a plugin lets a request with this Authorization pass.
fn passes(gateway: &Gateway, plugin: &dyn Hooks, authorization: &[u8]) -> bool {
    let mut exchange = gateway.exchange(REQUEST);
    exchange.request.headers.append("Authorization", authorization);
    matches!(plugin.access(&mut exchange), Flow::Continue)
}

/// Whether a value says `Basic` and the name and password, as RFC 7617 has it.
fn is_right(authorization: &[u8]) -> bool {
    let lenient = GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
    let (scheme, token) = authorization.trim_ascii().split_at_checked(5).unwrap_or_default();
    let decoded = GeneralPurpose::new(&STANDARD, lenient).decode(token.trim_ascii());
    scheme.eq_ignore_ascii_case(b"basic") && decoded.is_ok_and(|pair| pair == b"a:b")
}

fuzz_target!(|authorization: &[u8]| {
    ALL.with(|all| {
        assert_eq!(passes(&all.gateway, &*all.basic, authorization), is_right(authorization));
        for plugin in &all.others {
            assert!(!passes(&all.gateway, &**plugin, authorization), "a forgery");
        }
    });
});
