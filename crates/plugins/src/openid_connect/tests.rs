//! openid-connect over exchanges in memory. The tests against the real binary log in.

use super::OpenIdConnect;
use super::bearer::bearer_token;
use super::config::Config;
use super::session::hide;
use super::verify::{Claims, check_times, has_member, scopes};
use crate::PLUGINS;
use serde_json::{Value, json};
use weir_plugin::testing::{Gateway, id};
use weir_plugin::{Plugin, Record};

fn claims(value: &Value) -> Claims {
    value.as_object().unwrap().clone()
}

/// A configuration with this secret of sessions.
pub(super) fn config(secret: &str) -> Value {
    json!({ "client_id": "a", "client_secret": "b", "discovery": "https://p.test/d", "ssl_verify": false,
            "session": { "secret": secret } })
}

#[test]
fn a_bearer_token_is_found() {
    let gateway = Gateway::new(&[]);
    for (request, expected) in [
        ("GET /\nAuthorization: Bearer abc", Some("abc")),
        ("GET /\nAuthorization: bEARER  abc ", Some("abc")),
        ("GET /\nAuthorization: Bearer", None),
        ("GET /\nAuthorization: Bearer ", None),
        ("GET /\nAuthorization: Basic abc\nX-Access-Token: def", None),
        ("GET /\nX-Access-Token: def", Some("def")),
        ("GET /\nX-Access-Token: ", None),
        ("GET /", None),
    ] {
        assert_eq!(bearer_token(&gateway.exchange(request)).as_deref(), expected, "{request}");
    }
}

#[test]
fn the_upstream_gets_no_cookie_of_the_plugin() {
    let gateway = Gateway::new(&[]);
    for (name, cookies, left) in [
        ("s", "a=b; s=1x; c=d", Some("a=b; c=d")),
        ("s", "s=2x; __Host-s=2x; __Host-s_used=1x; s2=y; s_used=1x; s_login_a=z; s_login_d=z", None),
        ("__Host-s", "__Host-s=2x; a=b; __Host-s2=y; __Host-s_used=1x; __Host-s_login_b=z", Some("a=b")),
        ("__Host-s", "s=1x; __Host-a=b", Some("s=1x; __Host-a=b")),
        (
            "s",
            "s0=x; s10=x; ss=x; s_login_e=x; s_login=x; xs=1",
            Some("s0=x; s10=x; ss=x; s_login_e=x; s_login=x; xs=1"),
        ),
        ("s", "a=b", Some("a=b")),
    ] {
        let mut exchange = gateway.exchange(&format!("GET /\nCookie: {cookies}"));
        hide(&mut exchange, name);
        let found =
            exchange.request.headers.get("Cookie").map(|value| String::from_utf8_lossy(value).into_owned());
        assert_eq!(found.as_deref(), left, "{cookies}");
    }
}

#[test]
fn scopes_are_words_or_a_list() {
    for (claim, expected) in [
        (json!({ "scope": "a b  c" }), &["a", "b", "c"][..]),
        (json!({ "scp": ["a", "b", 1] }), &["a", "b"]),
        (json!({ "scope": "a", "scp": "b" }), &["a"]),
        (json!({ "scope": 1 }), &[]),
        (json!({}), &[]),
    ] {
        assert_eq!(scopes(&claims(&claim)), expected, "{claim}");
    }
    assert!(has_member(&json!("a"), "a") && has_member(&json!(["b", "a"]), "a"));
    assert!(!has_member(&json!({ "a": "a" }), "a") && !has_member(&json!("ab"), "a"));
}

#[test]
fn tokens_are_valid_for_some_time() {
    for (times, is_valid) in [
        (json!({ "exp": 1001 }), true),
        (json!({ "exp": 1000.5 }), true),
        (json!({ "exp": 1000 }), false),
        (json!({ "exp": "1001" }), false),
        (json!({ "exp": null }), false),
        (json!({}), false),
        (json!({ "exp": 2000, "nbf": 1010, "iat": 1010 }), true),
        (json!({ "exp": 2000, "nbf": 1011 }), false),
        (json!({ "exp": 2000, "iat": 1011 }), false),
        (json!({ "exp": 2000, "nbf": "1" }), false),
    ] {
        assert_eq!(check_times(&claims(&times), 1000, 10).is_ok(), is_valid, "{times}");
    }
}

#[test]
fn a_secret_that_a_vault_does_not_have_seals_nothing() {
    let gateway = Gateway::new(PLUGINS);
    assert!(gateway.plugin("openid-connect", config("sixteen letters.")).is_ok());
    let entity = json!({ "id": id(1), "name": "openid-connect", "config": config("") });
    let entity = weir_plugin::testing::entity::<weir_plugin::entity::Plugin>(entity);
    let missing = gateway.build_with(&entity, |build| {
        let config = Config::from_resolved(&entity.config).unwrap();
        OpenIdConnect::new(config, build).err().unwrap()
    });
    assert!(missing.contains("config.session.secret is too short"), "{missing}");
}
