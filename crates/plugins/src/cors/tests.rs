//! cors over exchanges in memory.

use super::Origin;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::{Gateway, check_cases, run};

#[test]
fn cases() {
    check_cases(PLUGINS, "cors", include_str!("cases.json"));
}

#[test]
fn what_the_upstream_says_gives_way() {
    let gateway = Gateway::new(PLUGINS);
    let origins = json!(["https://a.test", "https://b.test"]);
    for (origin, allowed) in [("https://b.test", Some("https://b.test")), ("https://c.test", None)] {
        let plugin =
            gateway.plugin("cors", json!({ "origins": origins, "exposed_headers": ["X-A", "X-B"] })).unwrap();
        let mut exchange = gateway.exchange(&format!("GET /\nOrigin: {origin}"));
        for (name, value) in [
            ("Vary", "Accept"),
            ("access-control-allow-origin", "*"),
            ("Access-Control-Allow-Origin", "https://c.test"),
            ("Access-Control-Expose-Headers", "X-Other"),
        ] {
            exchange.response.headers.append(name, value.as_bytes());
        }
        let outcome = run(&[&*plugin], exchange);
        let all = |name: &str| -> Vec<_> {
            outcome
                .exchange
                .response
                .headers
                .get_all(name)
                .map(|value| String::from_utf8_lossy(value).into_owned())
                .collect()
        };
        assert_eq!(all("Vary"), ["Accept", "Origin"]);
        assert_eq!(all("Access-Control-Allow-Origin"), allowed.into_iter().collect::<Vec<_>>());
        assert_eq!(all("Access-Control-Expose-Headers"), ["X-A,X-B"]);
    }
}

#[test]
fn a_preflight_meets_no_other_plugin_and_keeps_its_answer() {
    let gateway = Gateway::new(PLUGINS);
    let cors = gateway.plugin("cors", json!({ "exposed_headers": ["X-A"] })).unwrap();
    let refuses = gateway.plugin("request-termination", json!({ "status_code": 401 })).unwrap();
    let send = |request: &str| gateway.send(&[&*cors, &*refuses], request);
    let preflight = send("OPTIONS /\nOrigin: https://a.test\nAccess-Control-Request-Method: PUT");
    assert_eq!((preflight.status(), preflight.answer.as_deref()), (200, Some("")));
    assert_eq!(preflight.header("Access-Control-Expose-Headers"), None);
    let refused = send("GET /\nOrigin: https://a.test");
    assert_eq!((refused.status(), refused.header("Access-Control-Allow-Origin")), (401, Some("*")));
    assert_eq!(refused.header("Access-Control-Expose-Headers"), Some("X-A"));
}

proptest::proptest! {
    /// Only what the client sent is compared, up to the end of the authority: never more, and never another host.
    #[test]
    fn an_origin_is_a_beginning_of_what_was_sent(sent in "(https?|://|a|\\.|:|443|80|@|\\[::1\\]|/|#|\\?|\\\\){0,12}") {
        let origin = Origin::of(sent.as_bytes());
        proptest::prop_assert!(sent.as_bytes().starts_with(origin.text));
        proptest::prop_assert!(memchr::memmem::find(origin.text, origin.host).is_some());
        let again = Origin::of(origin.text);
        proptest::prop_assert!(memchr::memmem::find(origin.text, again.text).is_some());
    }
}
