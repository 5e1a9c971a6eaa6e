//! hmac-auth over exchanges in memory. The cases that run against the real binary cover what is signed, and how.

use super::credential::HmacAuthCredential;
use super::parameters::Parameters;
use crate::PLUGINS;
use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use std::time::{Duration, SystemTime};
use weir_plugin::Json;
use weir_plugin::testing::{Gateway, custom, id};

fn gateway() -> Gateway {
    let mut gateway = Gateway::new(PLUGINS);
    let credential = json!({ "id": id(0xe1), "consumer": id(1), "username": "alice", "secret": "secret" });
    gateway.document.custom.set([custom::<HmacAuthCredential>(credential)]);
    gateway
}

/// A request signed at this time.
fn signed(header: &str, time: SystemTime) -> String {
    let date = httpdate::fmt_http_date(time);
    let text = format!("{}: {date}", header.to_lowercase());
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"secret"), text.as_bytes());
    format!(
        "GET /\n{header}: {date}\nAuthorization: hmac username=\"alice\", algorithm=\"hmac-sha256\", headers=\"{}\", signature=\"{}\"",
        header.to_lowercase(),
        STANDARD.encode(tag.as_ref())
    )
}

#[test]
fn a_signature_is_good_for_as_long_as_its_date() {
    let gateway = gateway();
    let status = |config: Json, request: &str| {
        let plugin = gateway.plugin("hmac-auth", config).unwrap();
        gateway.send(&[&*plugin], request).status()
    };
    let (now, minute) = (SystemTime::now(), Duration::from_secs(60));
    for header in ["Date", "X-Date"] {
        for (config, time, expected) in [
            (json!({}), now, 200),
            (json!({}), now - 4 * minute, 200),
            (json!({}), now + 4 * minute, 200),
            (json!({}), now - 6 * minute, 401),
            (json!({}), now + 6 * minute, 401),
            (json!({ "clock_skew": 600 }), now - 6 * minute, 200),
            (json!({ "clock_skew": 0.5 }), now - minute, 401),
        ] {
            assert_eq!(status(config.clone(), &signed(header, time)), expected, "{config} {header}");
        }
    }
}

#[test]
fn one_timely_date_of_two_is_enough_if_it_is_signed() {
    let gateway = gateway();
    let plugin = gateway.plugin("hmac-auth", json!({})).unwrap();
    let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
    let fresh = format!("X-Date: {}", httpdate::fmt_http_date(now));
    for (signed, more, expected) in [
        (signed("Date", now), "X-Date: Thu, 01 Jan 1970 00:00:00 GMT", 200),
        (signed("Date", now), "X-Date: soon", 200),
        (signed("Date", now - hour), &fresh, 401),
    ] {
        let outcome = gateway.send(&[&*plugin], &format!("{signed}\n{more}"));
        assert_eq!(outcome.status(), expected, "{more}");
    }
}

/// The upstream would get both, and only one is signed.
#[test]
fn a_signed_header_that_comes_twice_cannot_be_verified() {
    let gateway = gateway();
    let plugin = gateway.plugin("hmac-auth", json!({})).unwrap();
    let signed = signed("X-Date", SystemTime::now());
    let date = signed.lines().nth(1).unwrap();
    for (more, expected) in [("X-Other: a\nX-Other: b", 200), ("x-date: never", 401), (date, 401)] {
        let outcome = gateway.send(&[&*plugin], &format!("{signed}\n{more}"));
        assert_eq!(outcome.status(), expected, "{more}");
    }
}

#[test]
fn a_text_that_grows_beyond_the_head_is_not_hashed() {
    let gateway = gateway();
    let plugin = gateway.plugin("hmac-auth", json!({})).unwrap();
    let long = "x".repeat(30_000);
    for (times, expected) in [(1, 200), (100, 401)] {
        let date = httpdate::fmt_http_date(SystemTime::now());
        let names = " x-long".repeat(times);
        let text = format!("date: {date}{}", format!("\nx-long: {long}").repeat(times));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, b"secret"), text.as_bytes());
        let request = format!(
            "GET /\nDate: {date}\nX-Long: {long}\nAuthorization: hmac username=\"alice\", \
             algorithm=\"hmac-sha256\", headers=\"date{names}\", signature=\"{}\"",
            STANDARD.encode(tag.as_ref())
        );
        assert_eq!(gateway.send(&[&*plugin], &request).status(), expected, "{times}");
    }
}

proptest::proptest! {
    #[test]
    fn whatever_a_header_is_its_parts_are_parts_of_it(header in "(hmac |username=|algorithm=|headers=|signature=|\"|,| |a|é){0,30}") {
        if let Some(found) = Parameters::parse(header.as_bytes()) {
            let names: Vec<&[u8]> = found.headers().collect();
            let inner = [found.username, found.algorithm, &names.join(&b' ')[..], found.signature];
            proptest::prop_assert!(inner.iter().all(|part| memchr::memmem::find(header.as_bytes(), part).is_some()));
        }
    }
}
