//! What the provider says of a token (RFC 7662).

use super::config::Config;
use super::verify::Claims;
use serde_json::Value as Json;
use std::time::Duration;

/// How long a token is taken to be active that was, unless the configuration says it.
const KEPT: u64 = 30;

/// A token that is active.
#[derive(Debug, PartialEq)]
pub(super) struct Introspected {
    pub(super) claims: Claims,
    /// How long it is known.
    pub(super) kept: Duration,
}

/// What a response says of a token; none of one that is not active.
pub(super) fn introspected(config: &Config, claims: Claims, now: u64) -> Option<Introspected> {
    if claims.get("active") != Some(&Json::Bool(true)) {
        return None;
    }
    let (Ok(expires), Ok(begin)) =
        (seconds(&claims, &config.introspection_expiry_claim), seconds(&claims, "nbf"))
    else {
        return None;
    };
    let left = expires.map(|expires| expires - now as f64);
    let has_begun = begin.is_none_or(|begin| begin <= now as f64 + f64::from(config.iat_slack));
    let is_trusted = match (config.valid_issuers(), claims.get("iss")) {
        (Some(trusted), Some(issuer)) => trusted.iter().any(|trusted| issuer == trusted),
        _ => true,
    };
    if left.is_some_and(|left| left <= 0.0) || !has_begun || !is_trusted || !is_access_token(&claims) {
        return None;
    }
    let kept = match config.introspection_interval {
        0 => KEPT,
        interval => interval.into(),
    };
    let kept = left.map_or(kept, |left| kept.min(left as u64));
    Some(Introspected { claims, kept: Duration::from_secs(kept) })
}

/// A time of a response, which some providers write as a text.
fn seconds(claims: &Claims, name: &str) -> Result<Option<f64>, ()> {
    match claims.get(name) {
        None | Some(Json::Null) => Ok(None),
        Some(Json::Number(number)) => Ok(number.as_f64()),
        Some(Json::String(text)) => text.parse().ok().filter(|at: &f64| at.is_finite()).map(Some).ok_or(()),
        Some(_) => Err(()),
    }
}

/// Whether a token says that it is for something else: an ID token, a refresh token, or a logout (OpenID Connect Back-Channel
/// Logout, 2.4). Most ID tokens do not say it.
pub(super) fn is_access_token(claims: &Claims) -> bool {
    let is_other = |name: &str| {
        let kind = claims.get(name).and_then(Json::as_str).unwrap_or_default().to_ascii_lowercase();
        matches!(&*kind, "id" | "id_token" | "refresh" | "refresh_token" | "offline" | "logout")
    };
    !claims.contains_key("events") && !is_other("typ") && !is_other("token_use")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use weir_plugin::Record;

    fn kept(config: &Json, response: &Json) -> Option<u64> {
        let mut all = json!({
            "client_id": "c", "client_secret": "hunter2", "discovery": "https://a.test/d", "bearer_only": true,
        });
        all.as_object_mut().unwrap().extend(config.as_object().unwrap().clone());
        let config = Config::from_value(&all).unwrap();
        let found = introspected(&config, response.as_object().unwrap().clone(), 1000);
        found.map(|found| found.kept.as_secs())
    }

    #[test]
    fn a_token_is_active_if_the_response_says_so_and_kept_until_it_expires() {
        let issuers = json!({ "claim_validator": { "issuer": { "valid_issuers": ["a"] } } });
        for (config, response, expected) in [
            (json!({}), json!({ "active": true }), Some(30)),
            (json!({}), json!({ "active": true, "exp": 1010 }), Some(10)),
            (json!({}), json!({ "active": true, "exp": 1000 }), None),
            (json!({}), json!({ "active": true, "nbf": 1121 }), None),
            (json!({}), json!({ "active": true, "exp": "1010" }), Some(10)),
            (json!({}), json!({ "active": true, "exp": "1000" }), None),
            (json!({}), json!({ "active": true, "exp": "soon" }), None),
            (json!({}), json!({ "active": true, "nbf": "1121" }), None),
            (json!({}), json!({ "active": true, "token_use": "refresh_token" }), None),
            (json!({}), json!({ "active": true, "typ": "ID" }), None),
            (json!({}), json!({ "active": true, "typ": "Bearer", "token_use": "access_token" }), Some(30)),
            (json!({}), json!({ "active": false }), None),
            (json!({}), json!({ "active": "true" }), None),
            (json!({}), json!({}), None),
            (json!({ "introspection_interval": 300 }), json!({ "active": true, "exp": 2000 }), Some(300)),
            (json!({ "introspection_interval": 300 }), json!({ "active": true, "exp": 1200 }), Some(200)),
            (json!({ "introspection_expiry_claim": "end" }), json!({ "active": true, "end": 1005 }), Some(5)),
            (issuers.clone(), json!({ "active": true, "iss": "a" }), Some(30)),
            (issuers, json!({ "active": true, "iss": "b" }), None),
        ] {
            assert_eq!(kept(&config, &response), expected, "{config} {response}");
        }
    }
}
