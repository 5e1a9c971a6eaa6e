//! The parts that need no gateway.
use super::tokens::random_text;
use super::{Config, Endpoint};
use serde_json::json;
use std::collections::HashSet;
use weir_plugin::Record;

#[test]
fn endpoints_are_known_by_how_paths_end() {
    for (path, endpoint) in [
        ("/oauth2/token", Some(Endpoint::Token)),
        ("/a/b/oauth2/token/", Some(Endpoint::Token)),
        ("/a/oauth2/authorize", Some(Endpoint::Authorization)),
        ("/oauth2/tokens", None),
        ("/oauth2/token/x", None),
        ("/", None),
    ] {
        assert_eq!(Endpoint::of(path), endpoint, "{path}");
    }
}

#[test]
fn tokens_are_32_letters_and_digits_and_differ() {
    let tokens: HashSet<_> = (0..1000).map(|_| random_text()).collect();
    assert_eq!(tokens.len(), 1000);
    let is_token = |token: &String| token.len() == 32 && token.bytes().all(|it| it.is_ascii_alphanumeric());
    assert!(tokens.iter().all(is_token));
}

#[test]
fn a_configuration_without_a_grant_or_scopes_is_refused() {
    let errors = |config| {
        let errors = Config::from_value(&config).err().unwrap_or_default();
        errors.into_iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>()
    };
    assert!(errors(json!({}))[0].contains("at least one of these fields must be true"));
    let scopeless = json!({ "enable_implicit_grant": true, "mandatory_scope": true });
    assert!(errors(scopeless)[0].starts_with("scopes: required field missing"));
    assert_eq!(errors(json!({ "enable_implicit_grant": true })), [""; 0]);
}
