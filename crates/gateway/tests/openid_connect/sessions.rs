//! Sessions: their cookies, their renewal and their end.
use super::*;
use crate::harness::eventually;
use provider::{Broken, pairs};
use std::thread;

#[test]
fn a_session_that_was_changed_or_made_elsewhere_counts_for_nothing() {
    let provider = Provider::start();
    let (gateway, upstream) = gateway(&provider, &json!({}));
    let browser = logged_in(&provider, &gateway);
    let name = browser.session()[0].to_owned();
    let value = browser.cookies[&name].clone();
    let middle = value.len() / 2;
    let other = if &value[middle..=middle] == "A" { "B" } else { "A" };
    let changed = format!("{}{other}{}", &value[..middle], &value[middle + 1..]);
    for value in [&*changed, &value[..middle], "", "1", "9x", &"x".repeat(4000)] {
        let response = gateway.get_with("/", &format!("Cookie: {name}={value}\r\n"));
        assert_eq!(response.status, 302, "{value}");
    }
    // Another secret, another client, another provider.
    let theirs = Provider::start();
    for (provider, more) in [
        (&provider, json!({ "session": { "secret": "hunter2-another-secret" } })),
        (&provider, json!({ "client_id": "other" })),
        (&theirs, json!({})),
    ] {
        let mut config = config(provider, &more);
        config["session"]["cookie_name"] = name.clone().into();
        let other = builder(&upstream, &config).start();
        assert_eq!(browser.clone().get(&other, "/").status, 302, "{more}");
    }
    // A node with the same configuration accepts it.
    let node = builder(&upstream, &config(&provider, &json!({}))).start();
    let mut browser = browser;
    assert_eq!(browser.get(&node, "/").status, 200);
}

#[test]
fn a_login_of_another_secret_cannot_be_finished_here() {
    let provider = Provider::start();
    let (gateway, upstream) = gateway(&provider, &json!({}));
    let more = json!({ "session": { "secret": "hunter2-another-secret" } });
    let other = builder(&upstream, &config(&provider, &more)).start();
    let mut browser = Browser::default();
    let back = provider.agree(&location(&browser.get(&gateway, "/")));
    assert_eq!(browser.get(&other, path_of(&back)).status, 400);
    assert_eq!(provider.asked("token"), 0);
}

#[test]
fn cookies_are_as_the_configuration_says() {
    let provider = Provider::start();
    let session = json!({
        "secret": SESSION_SECRET, "cookie_name": "mine", "cookie_path": "/", "cookie_domain": "example.test",
        "cookie_same_site": "None", "cookie_secure": true, "cookie_http_only": false,
    });
    let (gateway, _upstream) = gateway(&provider, &json!({ "session": session }));
    let sent = gateway.get("/");
    let set = sent.header("set-cookie").unwrap();
    assert!(set.starts_with("mine_login_a=1"), "{set}");
    let attributes = "; Domain=example.test; Path=/; SameSite=None; Secure";
    assert!(set.ends_with(&format!("{attributes}; Max-Age=600")), "{set}");
    let (browser, response) = come_back(&provider, &gateway);
    assert_eq!(browser.session(), ["mine"]);
    let set = response.head.all("set-cookie");
    assert!(set[0].starts_with("mine=1") && set[0].ends_with(attributes), "{set:?}");
    assert!(set[1].starts_with("mine_login_a=;") && set[1].ends_with("; Max-Age=0"), "{set:?}");
}

#[test]
fn long_tokens_are_in_several_cookies_and_too_long_ones_in_none() {
    let provider = Provider::start();
    let upstream = Upstream::echoing();
    let gateway = builder(&upstream, &config(&provider, &json!({})));
    let gateway = gateway.set("large_client_header_buffers", "4 64k").start();
    provider.state().user = json!({ "sub": "u-1", "picture": "x".repeat(9000) });
    let mut browser = logged_in(&provider, &gateway);
    assert!(browser.session().len() >= 3, "{:?}", browser.session());
    let page = browser.get(&gateway, "/");
    assert_eq!((page.status, echoed(&page, "Cookie")), (200, None));
    assert_eq!(echoed_json(&page, "X-Userinfo")["picture"].as_str().unwrap().len(), 9000);
    assert!(gateway.log().contains("large_client_header_buffers must allow lines"), "{}", gateway.log());
    provider.state().user = json!({ "sub": "u-1", "picture": "x".repeat(60_000) });
    let (browser, response) = come_back(&provider, &gateway);
    assert_eq!((response.status, browser.session().len()), (500, 0));
    assert!(gateway.log().contains("say in session_contents which of them it keeps"), "{}", gateway.log());
}

#[test]
fn a_session_keeps_what_the_configuration_says() {
    let provider = Provider::start();
    let contents = json!({ "id_token": true });
    let more = json!({ "session_contents": contents, "set_raw_id_token_header": true });
    let (gateway, _upstream) = gateway(&provider, &more);
    let page = logged_in(&provider, &gateway).get(&gateway, "/");
    for (header, is_there) in
        [("X-ID-Token", true), ("X-Raw-ID-Token", false), ("X-Access-Token", false), ("X-Userinfo", false)]
    {
        assert_eq!(echoed(&page, header).is_some(), is_there, "{header}");
    }
    assert_eq!(provider.asked("userinfo"), 0);
}

/// Access tokens that are to be renewed at once.
fn short_lived() -> Value {
    json!({ "access_token_expires_leeway": 600 })
}

#[test]
fn an_access_token_is_renewed_once_for_all_requests() {
    let provider = Provider::start();
    provider.state().tokens = json!({ "expires_in": 60 });
    let (gateway, _upstream) = gateway(&provider, &short_lived());
    let browser = logged_in(&provider, &gateway);
    provider.state().tokens = json!({ "access_token": "renewed-token" });
    provider.state().claims = json!({ "nonce": "<absent>" });
    thread::scope(|scope| {
        let open = || {
            let mut tab = browser.clone();
            let page = tab.get(&gateway, "/");
            assert_eq!(echoed(&page, "X-Access-Token"), Some("renewed-token"), "{}", page.text());
            assert!(!page.head.all("set-cookie").is_empty());
            tab
        };
        let tabs: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
        for tab in tabs {
            let page = tab.join().unwrap().get(&gateway, "/");
            assert_eq!(echoed(&page, "X-Access-Token"), Some("renewed-token"));
        }
    });
    assert_eq!(provider.asked("token"), 2);
    // A request that was on its way has the former session.
    let mut browser = browser;
    assert_eq!(browser.get(&gateway, "/").status, 200);
    assert_eq!(provider.asked("token"), 2);
}

#[test]
fn a_session_that_the_provider_does_not_renew_ends() {
    let provider = Provider::start();
    provider.state().tokens = json!({ "expires_in": 60 });
    let (gateway, _upstream) = gateway(&provider, &short_lived());
    let mut browser = logged_in(&provider, &gateway);
    provider.state().refresh_tokens.clear();
    let sent = browser.get(&gateway, "/page?a=b");
    let back = provider.agree(&location(&sent));
    assert_eq!(location(&browser.get(&gateway, path_of(&back))), "/page?a=b");
}

#[test]
fn another_users_id_token_renews_nothing() {
    let provider = Provider::start();
    provider.state().tokens = json!({ "expires_in": 60 });
    let (gateway, _upstream) = gateway(&provider, &short_lived());
    let mut browser = logged_in(&provider, &gateway);
    provider.state().claims = json!({ "sub": "u-2" });
    let page = browser.get(&gateway, "/");
    // The former access token is still valid.
    assert_eq!((page.status, echoed(&page, "X-Credential-Identifier")), (200, Some("u-1")));
    assert_eq!(page.head.all("set-cookie"), [""; 0]);
}

#[test]
fn while_the_provider_is_away_sessions_last_as_long_as_their_tokens() {
    for (expires_in, status) in [(60, 200), (0, 503)] {
        let provider = Provider::start();
        provider.state().tokens = json!({ "expires_in": expires_in });
        let (gateway, _upstream) = gateway(&provider, &short_lived());
        let mut browser = logged_in(&provider, &gateway);
        provider.state().broken.insert("token", Broken::Reset);
        assert_eq!(browser.get(&gateway, "/").status, status);
        // The failure is not remembered.
        provider.state().broken.clear();
        provider.state().tokens = json!({});
        assert_eq!(browser.get(&gateway, "/").status, 200);
    }
}

#[test]
fn expired_tokens_without_a_refresh_token_need_a_login_unless_that_is_not_wanted() {
    for (more, status) in [(json!({}), 302), (json!({ "renew_access_token_on_expiry": false }), 200)] {
        let provider = Provider::start();
        provider.state().tokens = json!({ "expires_in": 0, "refresh_token": "<absent>" });
        let (gateway, _upstream) = gateway(&provider, &more);
        let mut browser = logged_in(&provider, &gateway);
        assert_eq!(browser.get(&gateway, "/").status, status, "{more}");
    }
}

#[test]
fn a_logout_ends_the_session_here_and_at_the_provider() {
    let provider = Provider::start();
    let more = json!({
        "post_logout_redirect_uri": "https://shop.test/bye", "revoke_tokens_on_logout": true, "logout_path": "/bye",
    });
    let (gateway, _upstream) = gateway(&provider, &more);
    let mut browser = logged_in(&provider, &gateway);
    let sent = location(&browser.get(&gateway, "/bye"));
    assert_eq!(browser.cookies.len(), 0);
    let (endpoint, query) = sent.split_once('?').unwrap();
    assert_eq!(endpoint, format!("{}/logout", provider.origin()));
    let asked = pairs(query);
    assert_eq!((&*asked["a"], &*asked["client_id"]), ("b", CLIENT));
    assert_eq!(asked["post_logout_redirect_uri"], "https://shop.test/bye");
    assert_eq!(asked["id_token_hint"].split('.').count(), 3);
    eventually("both tokens are revoked", || provider.asked("revoke") == 2);
    let state = provider.state();
    let revoked: Vec<_> = state.asked.iter().filter(|(endpoint, _)| endpoint == "revoke").collect();
    let hints = revoked.iter().map(|(_, request)| pairs(request.text())["token_type_hint"].clone());
    assert_eq!(hints.collect::<Vec<_>>(), ["refresh_token", "access_token"]);
}

#[test]
fn no_other_site_logs_a_user_out() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    let mut browser = logged_in(&provider, &gateway);
    for headers in ["Sec-Fetch-Site: cross-site\r\n", "Referer: https://evil.test/\r\n"] {
        assert_eq!(browser.get_with(&gateway, "/logout", headers).status, 403);
        assert_eq!(browser.get(&gateway, "/").status, 200);
    }
    assert_eq!(browser.get_with(&gateway, "/logout", "Sec-Fetch-Site: same-origin\r\n").status, 302);
    assert_eq!(browser.cookies.len(), 0);
}

#[test]
fn a_request_with_sessions_of_two_users_is_refused() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    let alice = logged_in(&provider, &gateway);
    provider.state().claims = json!({ "sub": "u-2" });
    let bob = logged_in(&provider, &gateway);
    let both = alice.line() + &bob.line();
    let refused = gateway.get_with("/", &both);
    assert_eq!(refused.status, 400, "{}", refused.text());
    let forgotten = refused.head.all("set-cookie");
    assert!(forgotten.len() == 1 && forgotten[0].ends_with("; Max-Age=0"), "{forgotten:?}");
    assert_eq!(gateway.get_with("/", &(alice.line() + &alice.line())).status, 200);
}

#[test]
fn a_provider_without_an_endpoint_for_logouts_is_not_asked() {
    for (more, expected) in
        [(json!({ "post_logout_redirect_uri": "/bye" }), Some("http://localhost/bye")), (json!({}), None)]
    {
        let provider = Provider::start();
        provider.state().metadata = json!({ "end_session_endpoint": "<absent>" });
        let (gateway, _upstream) = gateway(&provider, &more);
        let mut browser = logged_in(&provider, &gateway);
        let response = browser.get(&gateway, "/logout");
        assert_eq!(response.header("location"), expected);
        assert_eq!(response.status, if expected.is_some() { 302 } else { 200 }, "{}", response.text());
        assert_eq!(browser.cookies.len(), 0);
    }
}

#[test]
fn a_logout_ends_the_session_here_while_the_provider_is_away() {
    let provider = Provider::start();
    let (gateway, upstream) = gateway(&provider, &json!({}));
    let mut browser = logged_in(&provider, &gateway);
    provider.state().broken.insert("discovery", Broken::Reset);
    let node = builder(&upstream, &config(&provider, &json!({}))).start();
    assert_eq!(browser.get(&node, "/logout").status, 503);
    assert_eq!(browser.cookies.len(), 0);
}

#[test]
fn required_scopes_are_those_that_the_provider_has_granted() {
    for (granted, status) in [(json!("openid orders"), 200), (json!("openid"), 403), (json!("<absent>"), 200)]
    {
        let provider = Provider::start();
        provider.state().tokens = json!({ "scope": granted });
        let (gateway, _upstream) =
            gateway(&provider, &json!({ "scope": "openid orders", "required_scopes": ["orders"] }));
        let mut browser = logged_in(&provider, &gateway);
        assert_eq!(browser.get(&gateway, "/").status, status, "{granted}");
    }
}

#[test]
fn over_https_the_cookies_are_secure() {
    let provider = Provider::start();
    let upstream = Upstream::echoing();
    let gateway = builder(&upstream, &config(&provider, &json!({ "redirect_uri": null })))
        .set("trusted_ips", "127.0.0.1/32");
    let gateway = gateway.start();
    let headers = "X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.test:8443\r\n";
    let sent = gateway.get_with("/page", headers);
    let set = sent.header("set-cookie").unwrap();
    assert!(set.starts_with("__Host-oidc_") && set.contains("; Secure;"), "{set}");
    let asked = location(&sent);
    let asked = pairs(asked.split_once('?').unwrap().1);
    assert_eq!(asked["redirect_uri"], "https://shop.test:8443/page/.apisix/redirect");
}

const HTTPS: &str = "X-Forwarded-Proto: https\r\n";

/// A gateway that believes in [`HTTPS`]; its `redirect_uri` is `https://…`.
fn behind_tls(provider: &Provider) -> (Gateway, Upstream) {
    let upstream = Upstream::echoing();
    let config = config(provider, &json!({ "redirect_uri": "https://localhost/callback" }));
    let gateway = builder(&upstream, &config).set("trusted_ips", "127.0.0.1/32").start();
    (gateway, upstream)
}

#[test]
fn a_login_from_a_page_without_tls_ends_over_https() {
    let provider = Provider::start();
    let (gateway, _upstream) = behind_tls(&provider);
    let mut browser = Browser::default();
    let back = provider.agree(&location(&browser.get(&gateway, "/page?a=b")));
    assert!(browser.cookies.keys().all(|name| name.starts_with("oidc_")), "{:?}", browser.cookies);
    let response = browser.get_with(&gateway, path_of(&back), HTTPS);
    assert_eq!(location(&response), "/page?a=b");
    assert!(browser.cookies.len() == 1 && browser.session()[0].starts_with("__Host-oidc_"));
    let page = browser.get_with(&gateway, "/", HTTPS);
    assert_eq!((page.status, echoed(&page, "Cookie")), (200, None));
}

#[test]
fn cookies_without_the_prefix_give_way_to_those_with_it() {
    let provider = Provider::start();
    let (gateway, _upstream) = behind_tls(&provider);
    let mut browser = Browser::default();
    let sent = browser.get_with(&gateway, "/", HTTPS);
    let name = browser.cookies.keys().next().unwrap().clone();
    let name = name.strip_prefix("__Host-").and_then(|name| name.strip_suffix("_login_a")).unwrap();
    // A former version has set them, and the session has ended.
    let former = |browser: &mut Browser| {
        for part in ["", "2", "_used", "_login_a"] {
            browser.cookies.insert(format!("{name}{part}"), format!("2{}", "x".repeat(1200)));
        }
    };
    former(&mut browser);
    let again = browser.get_with(&gateway, "/", HTTPS);
    let left: Vec<_> = browser.cookies.keys().filter(|name| !name.starts_with("__Host-")).collect();
    assert_eq!(left, [&format!("{name}_login_a")]);
    for sent in [sent, again] {
        former(&mut browser);
        let back = provider.agree(&location(&sent));
        assert_eq!(location(&browser.get_with(&gateway, path_of(&back), HTTPS)), "/");
    }
    former(&mut browser);
    browser.get_with(&gateway, "/logout", HTTPS);
    assert!(browser.session().is_empty(), "{:?}", browser.cookies);
}

#[test]
fn after_sessions_of_two_users_the_next_request_works() {
    let provider = Provider::start();
    let upstream = Upstream::echoing();
    let session = json!({ "secret": SESSION_SECRET, "cookie_path": "/shop" });
    let shop = config(&provider, &json!({ "session": session }));
    let shop = builder(&upstream, &shop).start();
    let alice = logged_in(&provider, &gateway(&provider, &json!({})).0);
    provider.state().claims = json!({ "sub": "u-2" });
    let bob = logged_in(&provider, &shop);
    let refused = shop.get_with("/logout", &(alice.line() + &bob.line()));
    let mut paths: Vec<_> = refused.head.all("set-cookie");
    paths.sort_unstable();
    let name = bob.session()[0];
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(paths[0].starts_with(&format!("{name}=; Path=/; ")), "{paths:?}");
    assert!(paths[1].starts_with(&format!("{name}=; Path=/shop; ")), "{paths:?}");
    assert_eq!((paths.len(), paths.iter().all(|set| set.ends_with("; Max-Age=0"))), (2, true));
}
