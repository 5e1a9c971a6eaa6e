//! Sessions over exchanges in memory.
use super::super::tests::config;
use super::*;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::Gateway;
use weir_plugin::{Flow, Record};

fn keeper() -> Keeper {
    let config = Config::from_value(&config("sixteen letters.")).unwrap();
    Keeper::new(&config, config.session.as_ref().unwrap())
}

fn pairs(set: &[String]) -> String {
    set.iter().map(|set| set.split(';').next().unwrap()).collect::<Vec<_>>().join("; ")
}

/// The cookies of a session that was last used so many seconds ago.
fn used_ago(gateway: &Gateway, seconds: u64) -> String {
    let mut session = Session::new("u-1".to_owned());
    (session.saved, session.used) = (session.saved - seconds, session.used - seconds);
    pairs(&keeper().save(&mut session, &gateway.exchange("GET /")).unwrap())
}

#[test]
fn the_use_of_a_session_changes_no_cookie_but_its_own() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = gateway.plugin("openid-connect", config("sixteen letters.")).unwrap();
    for (seconds, is_due) in [(1, false), (100, true), (800, true)] {
        let cookies = used_ago(&gateway, seconds);
        let mut exchange = gateway.exchange(&format!("GET /\nCookie: {cookies}"));
        assert!(matches!(plugin.access(&mut exchange), Flow::Continue));
        plugin.response(&mut exchange);
        let set: Vec<_> = exchange.response.headers.get_all("Set-Cookie").collect();
        let set: Vec<_> = set.iter().map(|set| String::from_utf8(set.to_vec()).unwrap()).collect();
        assert_eq!(set.len(), usize::from(is_due), "{set:?}");
        let Some(used) = set.first() else { continue };
        assert!(used.contains("_used=1") && used.ends_with("; SameSite=Lax"), "{used}");
        // It belongs to this session, and not to one that was renewed meanwhile.
        let opened = |cookies: &str| {
            let line = format!("GET /\nCookie: {cookies}; {}", pairs(&set));
            keeper().open(&gateway.exchange(&line)).unwrap().unwrap()
        };
        assert!(opened(&cookies).used > unix_time() - 50);
        assert!(opened(&used_ago(&gateway, seconds)).used < unix_time() - 50);
    }
}

fn keeper_of(session: &serde_json::Value) -> Keeper {
    let mut value = config("sixteen letters.");
    value["session"].as_object_mut().unwrap().extend(session.as_object().unwrap().clone());
    let config = Config::from_value(&value).unwrap();
    Keeper::new(&config, config.session.as_ref().unwrap())
}

#[test]
fn browsers_refuse_secure_cookies_from_other_hosts() {
    let gateway = Gateway::new(PLUGINS);
    for (session, expected) in [
        (json!({ "cookie_name": "s", "cookie_secure": true }), "__Host-s"),
        (json!({ "cookie_name": "s" }), "s"),
        (json!({ "cookie_name": "s", "cookie_secure": false }), "s"),
        (json!({ "cookie_name": "s", "cookie_secure": true, "cookie_path": "/shop" }), "s"),
        (json!({ "cookie_name": "s", "cookie_secure": true, "cookie_domain": "a.test" }), "s"),
        (json!({ "cookie_name": "__Secure-s", "cookie_secure": true }), "__Secure-s"),
        (json!({ "cookie_name": "__Host-s", "cookie_secure": true }), "__Host-s"),
    ] {
        let keeper = keeper_of(&session);
        let set = keeper.save(&mut Session::new("u-1".to_owned()), &gateway.exchange("GET /")).unwrap();
        assert_eq!(set[0].split('=').next(), Some(expected), "{session}");
        let mut exchange = gateway.exchange(&format!("GET /\nCookie: {}", pairs(&set)));
        assert!(keeper.open(&exchange).unwrap().is_some());
        assert_eq!(keeper.forget(&exchange, 0)[0].split('=').next(), Some(expected));
        hide(&mut exchange, &keeper.name);
        assert_eq!(exchange.request.headers.get("Cookie"), None);
    }
}

#[test]
fn a_session_without_the_prefix_counts_until_there_is_another() {
    let gateway = Gateway::new(PLUGINS);
    let plain = keeper_of(&json!({ "cookie_name": "s" }));
    let secure = keeper_of(&json!({ "cookie_name": "s", "cookie_secure": true }));
    let of = |keeper: &Keeper, user: &str| {
        pairs(&keeper.save(&mut Session::new(user.to_owned()), &gateway.exchange("GET /")).unwrap())
    };
    let open = |keeper: &Keeper, cookies: &str| {
        let session = keeper.open(&gateway.exchange(&format!("GET /\nCookie: {cookies}")))?;
        Ok(session.map(|session| session.subject))
    };
    let (alice, bob, carol) = (of(&plain, "alice"), of(&plain, "bob"), of(&secure, "carol"));
    for (cookies, user) in [
        (alice.clone(), Some("alice")),
        (format!("{alice}; {carol}"), Some("carol")),
        (format!("{carol}; {bob}; {alice}"), Some("carol")),
        (format!("{alice}; {bob}"), None),
        // Another host gives the user its own session.
        (carol.replace("__Host-", ""), None),
    ] {
        assert_eq!(open(&secure, &cookies), Ok(user.map(str::to_owned)), "{cookies}");
    }
    assert_eq!(open(&plain, &format!("{alice}; {bob}")), Err(SessionError::TwoUsers));
    assert_eq!(open(&plain, &carol), Ok(None));
}

/// The names of the cookies that the browser forgets.
fn forgotten(set: &[String]) -> Vec<&str> {
    let forgotten = set.iter().filter(|set| set.ends_with("; Max-Age=0"));
    forgotten.map(|set| set.split('=').next().unwrap()).collect()
}

#[test]
fn the_browser_forgets_cookies_without_the_prefix() {
    let gateway = Gateway::new(PLUGINS);
    let cookies = "a=b; s=3x; s2=x; s3=x; s_used=1x; s4x=1";
    let exchange = gateway.exchange(&format!("GET /\nCookie: {cookies}"));
    for (secure, saved) in [(true, &["s", "s2", "s3", "s_used"][..]), (false, &["s2", "s3", "s_used"])] {
        let keeper = keeper_of(&json!({ "cookie_name": "s", "cookie_secure": secure }));
        let set = keeper.save(&mut Session::new("u-1".to_owned()), &exchange).unwrap();
        assert_eq!(forgotten(&set), saved);
        assert!(set.iter().all(|set| set.contains("; Path=/;") && set.contains("; Secure") == secure));
        assert_eq!(forgotten(&keeper.forget(&exchange, 0)), ["s", "s2", "s3", "s_used"]);
    }
    let keeper = keeper_of(&json!({ "cookie_name": "s", "cookie_secure": true, "cookie_path": "/shop" }));
    let set = keeper.forget_all(&exchange);
    assert_eq!(forgotten(&set), ["s", "s2", "s3", "s_used", "s", "s2", "s3", "s_used"]);
    assert!(set[0].starts_with("s=; Path=/shop; ") && set[4].starts_with("s=; Path=/; Secure; "), "{set:?}");
}

#[test]
fn a_cookie_from_elsewhere_does_not_hide_a_session() {
    let gateway = Gateway::new(PLUGINS);
    let keeper = keeper_of(&json!({ "cookie_name": "s" }));
    let of = |subject: &str, length: usize, saved| {
        let mut session = Session::new(subject.to_owned());
        (session.saved, session.access_token) = (session.saved - saved, Some("x".repeat(length)));
        pairs(&keeper.save(&mut session, &gateway.exchange("GET /")).unwrap())
    };
    let open = |cookies: &str| {
        let session = keeper.open(&gateway.exchange(&format!("GET /\nCookie: {cookies}")))?;
        Ok(session.map(|session| (session.subject, session.access_token.unwrap_or_default().len())))
    };
    let tossed = "s=1rubbish; s2=rubbish; s3=rubbish; ".repeat(14);
    let (short, long) = (of("u-1", 10, 20), of("u-1", 8000, 10));
    for (cookies, expected) in [
        (format!("{tossed}{short}"), Some(10)),
        (format!("{tossed}{long}"), Some(8000)),
        (format!("{short}; {long}"), Some(8000)),
        (format!("{long}; {short}"), Some(8000)),
        (tossed, None),
    ] {
        assert_eq!(open(&cookies), Ok(expected.map(|length| ("u-1".to_owned(), length))), "{cookies}");
    }
    for cookies in [format!("{short}; {}", of("u-2", 10, 20)), format!("{}; {long}", of("u-2", 5000, 0))] {
        assert_eq!(open(&cookies), Err(SessionError::TwoUsers), "{cookies}");
    }
}

#[test]
fn each_renewal_has_an_id_of_its_own() {
    let gateway = Gateway::new(PLUGINS);
    let exchange = gateway.exchange("GET /");
    let mut session = Session::new("u-1".to_owned());
    keeper().save(&mut session, &exchange).unwrap();
    let first = session.id.clone();
    keeper().save(&mut session, &exchange).unwrap();
    assert!(first.len() == 43 && session.id.len() == 43 && session.id != first);
    let former: Session =
        serde_json::from_value(json!({ "c": 1, "r": 1, "u": 1, "s": "u", "sc": "" })).unwrap();
    assert_eq!(former.id, "");
}
