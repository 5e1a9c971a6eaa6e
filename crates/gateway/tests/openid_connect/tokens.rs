//! Bearer tokens, by the provider's keys and by introspection.
use super::*;
use provider::{Broken, now, pairs};

fn bearing(gateway: &Gateway, token: &str) -> Message {
    gateway.get_with("/", &format!("Authorization: Bearer {token}\r\n"))
}

fn by_keys() -> Value {
    json!({ "bearer_only": true, "use_jwks": true, "session": null })
}

fn by_introspection() -> Value {
    json!({ "bearer_only": true, "session": null })
}

#[test]
fn tokens_are_verified_with_the_providers_keys() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &by_keys());
    let token = provider.state().access_token(&json!({ "tag": 1 }));
    for _ in 0..3 {
        let page = bearing(&gateway, &token);
        assert_eq!(page.status, 200, "{}", page.text());
        assert_eq!(echoed(&page, "X-Access-Token"), Some(&*token));
        assert_eq!(echoed_json(&page, "X-Userinfo")["tag"], 1);
    }
    assert_eq!((provider.asked("discovery"), provider.asked("keys")), (1, 1));
    let ago = now() - 1;
    for (claims, why) in [
        (json!({ "exp": ago }), "it has expired"),
        (json!({ "exp": "<absent>" }), "it has no expiry"),
        (json!({ "iss": "http://evil.test" }), "it is another issuer's"),
    ] {
        let token = provider.state().access_token(&claims);
        let page = bearing(&gateway, &token);
        assert_eq!(
            (page.status, &page.json()["message"]),
            (401, &json!(format!("The token is not valid: {why}")))
        );
    }
}

#[test]
fn new_keys_are_found_and_unknown_ones_looked_for_seldom() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &by_keys());
    let old = provider.state().access_token(&json!({}));
    assert_eq!(bearing(&gateway, &old).status, 200);
    provider.state().rotate("second");
    provider.state().published = "second".to_owned();
    let new = provider.state().access_token(&json!({}));
    assert_eq!(bearing(&gateway, &new).status, 200);
    assert_eq!(bearing(&gateway, &old).status, 401);
    let before = provider.asked("keys");
    for number in 0..20 {
        provider.state().rotate(&format!("unknown-{number}"));
        let unknown = provider.state().access_token(&json!({}));
        let page = bearing(&gateway, &unknown);
        let message = "The token is not valid: no key of the provider's has made the signature";
        assert_eq!((page.status, &page.json()["message"]), (401, &json!(message)));
    }
    let more = provider.asked("keys") - before;
    assert!(more <= 2, "{more} times");
}

#[test]
fn a_gateway_without_the_providers_keys_says_so() {
    for (endpoint, broken) in
        [("discovery", Broken::Reset), ("keys", Broken::Reset), ("keys", Broken::Answer("nonsense\r\n\r\n"))]
    {
        let provider = Provider::start();
        provider.state().broken.insert(endpoint, broken);
        let (gateway, _upstream) = gateway(&provider, &by_keys());
        let token = provider.state().access_token(&json!({}));
        let page = bearing(&gateway, &token);
        assert_eq!(page.status, 503, "{}", page.text());
    }
}

#[test]
fn a_discovery_document_that_is_a_page_is_named_so() {
    let provider = Provider::start();
    let page =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>";
    provider.state().broken.insert("discovery", Broken::Answer(page));
    let (gateway, _upstream) = gateway(&provider, &by_keys());
    let token = provider.state().access_token(&json!({}));
    let answer = bearing(&gateway, &token);
    let message = json!("The OpenID provider's response is not valid");
    assert_eq!((answer.status, &answer.json()["message"]), (502, &message), "{}", answer.text());
    assert!(gateway.log().contains("cannot be fetched: it is no discovery document"), "{}", gateway.log());
}

#[test]
fn a_token_is_introspected_and_the_outcome_known_for_a_while() {
    for method in ["client_secret_basic", "client_secret_post"] {
        let provider = Provider::start();
        let mut more = by_introspection();
        more["introspection_endpoint_auth_method"] = method.into();
        more["introspection_addon_headers"] = json!(["X-Tenant"]);
        more["required_scopes"] = json!(["orders"]);
        let (gateway, _upstream) = gateway(&provider, &more);
        for _ in 0..3 {
            let page = gateway.get_with("/", "Authorization: bearer opaque&token\r\nX-Tenant: blue\r\n");
            assert_eq!(page.status, 200, "{}", page.text());
            assert_eq!(echoed(&page, "X-Access-Token"), Some("opaque&token"));
            assert_eq!(echoed(&page, "X-Credential-Identifier"), Some("u-1"));
        }
        assert_eq!(provider.asked("introspect"), 1);
        let state = provider.state();
        let (_, asked) = state.asked.iter().find(|(endpoint, _)| endpoint == "introspect").unwrap();
        assert_eq!(asked.header("x-tenant"), Some("blue"));
        let form = pairs(asked.text());
        assert_eq!((&*form["token"], &*form["token_type_hint"]), ("opaque&token", "access_token"));
    }
}

#[test]
fn a_token_that_is_not_active_is_refused() {
    for answer in [
        json!({ "active": false }),
        json!({ "active": "true" }),
        json!({}),
        json!({ "active": true, "exp": 1 }),
    ] {
        let provider = Provider::start();
        provider.state().introspection = answer.clone();
        let (gateway, _upstream) = gateway(&provider, &by_introspection());
        let page = bearing(&gateway, "opaque");
        assert_eq!(
            (page.status, &page.json()["message"]),
            (401, &json!("The token is not active")),
            "{answer}"
        );
        let challenge =
            "Bearer realm=\"apisix\", error=\"invalid_token\", error_description=\"The token is not active\"";
        assert_eq!(page.header("www-authenticate"), Some(challenge));
    }
}

#[test]
fn an_introspection_that_fails_is_no_verdict() {
    const RUBBISH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nrubbish";
    for (broken, status) in [(Broken::Reset, 503), (Broken::Silent, 503), (Broken::Answer(RUBBISH), 502)] {
        let provider = Provider::start();
        provider.state().broken.insert("introspect", broken);
        let mut more = by_introspection();
        more["timeout"] = if matches!(broken, Broken::Silent) { 1 } else { 60 }.into();
        let (gateway, _upstream) = gateway(&provider, &more);
        assert_eq!(bearing(&gateway, "opaque").status, status);
        provider.state().broken.clear();
        assert_eq!(bearing(&gateway, "opaque").status, 200);
        assert!(!gateway.log().contains("hunter2") && !gateway.log().contains("opaque"));
    }
    let provider = Provider::start();
    let mut more = by_introspection();
    more["client_secret"] = "hunter2-wrong".into();
    let (gateway, _upstream) = gateway(&provider, &more);
    assert_eq!(bearing(&gateway, "opaque").status, 500);
}

#[test]
fn tokens_and_sessions_are_accepted_beside_each_other() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({ "use_jwks": true }));
    let mut browser = logged_in(&provider, &gateway);
    let session = browser.get(&gateway, "/");
    assert_eq!(echoed(&session, "X-Access-Token"), Some("access-token"));
    let token = provider.state().access_token(&json!({}));
    let page = browser.get_with(&gateway, "/", &format!("Authorization: Bearer {token}\r\n"));
    assert_eq!(echoed(&page, "X-Access-Token"), Some(&*token));
    let wrong = browser.get_with(&gateway, "/", "Authorization: Bearer wrong\r\n");
    assert_eq!(wrong.status, 401, "{}", wrong.text());
}
