//! ID tokens that must not be accepted.
use super::*;
use aws_lc_rs::hmac;
use provider::now;

fn by_secret(text: &str) -> Vec<u8> {
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET.as_bytes());
    hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
}

fn not_at_all(_: &str) -> Vec<u8> {
    Vec::new()
}

fn zeros(_: &str) -> Vec<u8> {
    vec![0; 64]
}

#[test]
fn an_id_token_that_is_not_of_this_login_is_not_accepted() {
    let ago = now() - 1;
    for (claims, why) in [
        (json!({ "iss": "http://evil.test" }), "it is another issuer's"),
        (json!({ "iss": "<absent>" }), "it is another issuer's"),
        (json!({ "aud": "other" }), "it is for another client"),
        (json!({ "aud": "<absent>" }), "it is for another client"),
        (json!({ "aud": ["other"] }), "it is for another client"),
        (json!({ "aud": [CLIENT, "other"] }), "it was issued to another client"),
        (json!({ "azp": "other" }), "it was issued to another client"),
        (json!({ "nonce": "other" }), "it belongs to another login"),
        (json!({ "nonce": "<absent>" }), "it belongs to another login"),
        (json!({ "nonce": 1 }), "it belongs to another login"),
        (json!({ "exp": ago }), "it has expired"),
        (json!({ "exp": "<absent>" }), "it has no expiry"),
        (json!({ "exp": "4102444800" }), "it has expired"),
        (json!({ "iat": now() + 1000 }), "it is not valid yet"),
        (json!({ "nbf": now() + 1000 }), "it is not valid yet"),
        (json!({ "sub": "" }), "it has no subject"),
        (json!({ "sub": "<absent>" }), "it has no subject"),
    ] {
        let provider = Provider::start();
        provider.state().claims = claims.clone();
        let (gateway, _upstream) = gateway(&provider, &json!({}));
        let (browser, response) = come_back(&provider, &gateway);
        assert_eq!(response.status, 502, "{claims}: {}", response.text());
        assert!(gateway.log().contains(why), "{claims}: {}", gateway.log());
        assert_eq!(browser.cookies.len(), 0, "{claims}");
    }
}

#[test]
fn an_id_token_for_several_clients_is_accepted_if_it_was_issued_to_this_one() {
    let provider = Provider::start();
    provider.state().claims = json!({ "aud": ["other", CLIENT], "azp": CLIENT });
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    logged_in(&provider, &gateway);
}

#[test]
fn an_id_token_that_the_provider_has_not_signed_is_not_accepted() {
    type Forge = fn(&str) -> Vec<u8>;
    for (header, forge, why) in [
        (json!({ "alg": "none" }), not_at_all as Forge, "its algorithm is not allowed"),
        (json!({ "alg": "HS256" }), by_secret, "its algorithm is not allowed"),
        (json!({ "alg": "ES256" }), not_at_all, "its signature is wrong"),
        (json!({ "alg": "ES256" }), zeros, "its signature is wrong"),
        (json!({ "alg": "RS256" }), zeros, "its signature is wrong"),
        (json!({ "alg": "ES256", "kid": "other" }), zeros, "no key of the provider's has made the signature"),
        (json!({ "alg": "ES256", "kid": "<absent>" }), zeros, "its signature is wrong"),
        (json!({ "alg": "ES256", "crit": ["x"] }), zeros, "it has critical extensions"),
        (json!({ "alg": "<absent>" }), zeros, "it names no algorithm"),
    ] {
        let provider = Provider::start();
        provider.state().header = header.clone();
        provider.state().forge = Some(forge);
        let (gateway, _upstream) = gateway(&provider, &json!({}));
        let (browser, response) = come_back(&provider, &gateway);
        assert_eq!(response.status, 502, "{header}: {}", response.text());
        assert!(gateway.log().contains(why), "{header}: {}", gateway.log());
        assert_eq!(browser.cookies.len(), 0, "{header}");
    }
}

#[test]
fn an_id_token_may_be_signed_with_the_secret_where_that_is_expected() {
    let provider = Provider::start();
    provider.state().header = json!({ "alg": "HS256" });
    provider.state().forge = Some(by_secret);
    let (gateway, _upstream) = gateway(&provider, &json!({ "token_signing_alg_values_expected": "HS256" }));
    logged_in(&provider, &gateway);
}

#[test]
fn a_response_without_an_id_token_is_no_login() {
    for tokens in
        [json!({ "id_token": "<absent>" }), json!({ "id_token": "a.b.c" }), json!({ "token_type": "mac" })]
    {
        let provider = Provider::start();
        provider.state().tokens = tokens.clone();
        let (gateway, _upstream) = gateway(&provider, &json!({}));
        let (_, response) = come_back(&provider, &gateway);
        assert_eq!(response.status, 502, "{tokens}: {}", response.text());
    }
}
