//! Logins as they should be, and those that break off.
use super::*;
use crate::harness::eventually;
use provider::{Broken, pairs};

#[test]
fn a_browser_logs_in_and_the_upstream_knows_who_it_is() {
    let provider = Provider::start();
    let more =
        json!({ "scope": "openid email", "set_refresh_token_header": true, "set_raw_id_token_header": true });
    let (gateway, _upstream) = gateway(&provider, &more);
    let mut browser = logged_in(&provider, &gateway);
    let forged =
        "X-Userinfo: forged\r\nx_access_token: forged\r\nX-Consumer-Username: forged\r\nX-Tag: 1\r\n";
    browser.cookies.insert("own".to_owned(), "1".to_owned());
    let page = browser.get_with(&gateway, "/page?a=b", forged);
    assert_eq!(page.status, 200, "{}", page.text());
    assert_eq!(page.text().lines().next(), Some("GET /page?a=b HTTP/1.1"));
    assert!(!page.text().contains("forged"), "{}", page.text());
    assert_eq!(echoed(&page, "X-Access-Token"), Some("access-token"));
    assert!(echoed(&page, "X-Refresh-Token").unwrap().starts_with("refresh-"));
    assert_eq!(echoed(&page, "X-Credential-Identifier"), Some("u-1"));
    assert_eq!(echoed(&page, "Cookie"), Some("own=1"));
    assert_eq!(echoed_json(&page, "X-ID-Token")["sub"], "u-1");
    assert_eq!(echoed_json(&page, "X-Userinfo")["email"], "alice@example.test");
    assert_eq!(echoed(&page, "X-Raw-ID-Token").unwrap().split('.').count(), 3);
    assert_eq!(page.head.all("set-cookie"), [""; 0]);
    // One request to each endpoint is all that it takes.
    for (endpoint, times) in [("discovery", 1), ("keys", 1), ("token", 1), ("userinfo", 1)] {
        assert_eq!(provider.asked(endpoint), times, "{endpoint}");
    }
    let log = gateway.log();
    for secret in ["hunter2", "access-token", "refresh-", "code-0"] {
        assert!(!log.contains(secret), "{secret}: {log}");
    }
}

#[test]
fn the_client_proves_itself_as_it_is_configured() {
    for more in [
        json!({ "token_endpoint_auth_method": "client_secret_post" }),
        json!({ "client_secret": null }),
        json!({ "use_pkce": false }),
        json!({ "redirect_uri": null }),
        json!({ "redirect_uri": "/callback" }),
    ] {
        let provider = Provider::start();
        let (gateway, _upstream) = gateway(&provider, &more);
        let mut browser = logged_in(&provider, &gateway);
        assert_eq!(browser.get(&gateway, "/").status, 200, "{more}");
    }
}

#[test]
fn a_client_that_the_provider_does_not_know_is_the_gateways_fault() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({ "client_secret": "hunter2-wrong" }));
    let (browser, response) = come_back(&provider, &gateway);
    assert_eq!(response.status, 500, "{}", response.text());
    assert_eq!(browser.cookies.len(), 0);
    let log = gateway.log();
    assert!(log.contains("the provider answered 401, invalid_client: look at the client's id"), "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[test]
fn a_browser_comes_back_to_this_host_alone() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    for (path, expected) in
        [("//evil.test/x?y", "/evil.test/x?y"), ("/\\evil.test", "/evil.test"), ("/a%0d%0ab", "/a%0d%0ab")]
    {
        let mut browser = Browser::default();
        let sent = browser.get(&gateway, path);
        if sent.status == 400 {
            continue;
        }
        let back = provider.agree(&location(&sent));
        assert_eq!(location(&browser.get(&gateway, path_of(&back))), expected, "{path}");
    }
}

#[test]
fn a_code_counts_for_the_browser_and_the_login_that_asked_for_it() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    let (mut one, mut other) = (Browser::default(), Browser::default());
    let backs = [&mut one, &mut other].map(|browser| {
        let sent = browser.get(&gateway, "/");
        path_of(&provider.agree(&location(&sent))).to_owned()
    });
    // Another browser's login, one that was not begun, and none at all.
    for path in [&*backs[1], "/callback?code=code-0&state=x", "/callback?code=code-0", "/callback"] {
        let response = one.get(&gateway, path);
        assert_eq!(response.status, 400, "{path}: {}", response.text());
        assert!(one.session().is_empty());
    }
    assert_eq!(provider.asked("token"), 0);
    assert_eq!(location(&one.get(&gateway, &backs[0])), "/");
    // It is over, so that the same code is not redeemed again.
    assert_eq!(one.get(&gateway, &backs[0]).status, 400);
    assert_eq!(provider.asked("token"), 1);
    // The login is not over for the provider's other answers.
    let refused = backs[1].replace("code=code-1", "error=access_denied");
    let response = other.get(&gateway, &refused);
    assert_eq!(
        (response.status, &response.json()["message"]),
        (401, &json!("The login failed: access_denied"))
    );
}

#[test]
fn tabs_log_in_beside_each_other_and_leave_few_cookies() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    let mut browser = Browser::default();
    let backs: Vec<_> = (0..10)
        .map(|tab| {
            let sent = browser.get(&gateway, &format!("/{tab}"));
            provider.agree(&location(&sent))
        })
        .collect();
    assert_eq!(browser.cookies.len(), 4);
    let ended: Vec<_> = backs.iter().map(|back| browser.get(&gateway, path_of(back)).status).collect();
    assert_eq!(ended.iter().filter(|status| **status == 302).count(), 4, "{ended:?}");
}

#[test]
fn an_error_of_the_provider_is_shown_as_far_as_it_is_one() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    let mut browser = Browser::default();
    let sent = location(&browser.get(&gateway, "/"));
    let state = &pairs(sent.split_once('?').unwrap().1)["state"];
    let response = browser.get(&gateway, &format!("/callback?error=%3Cscript%3E&state={state}"));
    assert_eq!((response.status, &response.json()["message"]), (401, &json!("The login failed: an error")));
}

#[test]
fn another_provider_cannot_send_the_browser_back() {
    for (metadata, issuer, status) in [
        (json!({}), Some("http://evil.test"), 502),
        (json!({ "authorization_response_iss_parameter_supported": true }), None, 502),
        (json!({ "authorization_response_iss_parameter_supported": true }), Some(""), 302),
    ] {
        let provider = Provider::start();
        provider.state().metadata = metadata;
        let (gateway, _upstream) = gateway(&provider, &json!({}));
        let mut browser = Browser::default();
        let back = provider.agree(&location(&browser.get(&gateway, "/")));
        let issuer =
            issuer.map(|issuer| if issuer.is_empty() { provider.origin() } else { issuer.to_owned() });
        let back = issuer.map_or(back.clone(), |issuer| format!("{back}&iss={issuer}"));
        assert_eq!(browser.get(&gateway, path_of(&back)).status, status);
    }
}

#[test]
fn a_provider_that_fails_ends_the_login_in_time() {
    const RUBBISH: &str = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nrubbish";
    const HALF: &str = "HTTP/1.1 200 OK\r\nContent-Length: 700\r\n\r\n{\"access_token\":";
    for (endpoint, broken, status) in [
        ("token", Broken::Silent, 503),
        ("token", Broken::Reset, 503),
        ("token", Broken::Answer(""), 503),
        ("token", Broken::Answer(HALF), 503),
        ("token", Broken::Answer(RUBBISH), 502),
        ("token", Broken::Answer("nonsense\r\n\r\n"), 503),
        ("token", Broken::Answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"), 502),
        ("token", Broken::Answer("HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\n{}"), 503),
        ("token", Broken::Answer("HTTP/1.1 302 X\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), 502),
        ("keys", Broken::Reset, 503),
        ("keys", Broken::Answer(RUBBISH), 503),
        // The login needs no more of the user.
        ("userinfo", Broken::Reset, 302),
        ("userinfo", Broken::Answer(RUBBISH), 302),
    ] {
        let provider = Provider::start();
        provider.state().broken.insert(endpoint, broken);
        let timeout = if matches!(broken, Broken::Silent) { 1 } else { 60 };
        let (gateway, _upstream) = gateway(&provider, &json!({ "timeout": timeout }));
        let (_, response) = come_back(&provider, &gateway);
        assert_eq!(response.status, status, "{endpoint}: {}: {}", response.text(), gateway.log());
        let log = gateway.log();
        assert!(!log.contains("hunter2") && !log.contains("access_token"), "{log}");
    }
}

#[test]
fn a_response_that_does_not_end_takes_bounded_memory() {
    let provider = Provider::start();
    provider.state().tokens = json!({ "padding": "x".repeat(300 * 1024) });
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    let (_, response) = come_back(&provider, &gateway);
    assert_eq!(response.status, 502, "{}", response.text());
    assert!(gateway.log().contains("the response is longer than 262144 bytes"), "{}", gateway.log());
}

#[test]
fn a_login_goes_on_once_the_provider_is_back() {
    let provider = Provider::start();
    provider.state().broken.insert("discovery", Broken::Reset);
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    assert_eq!(gateway.get("/").status, 503);
    provider.state().broken.clear();
    eventually("the provider is asked again", || gateway.get("/").status == 302);
}

#[test]
fn what_the_userinfo_endpoint_says_of_another_user_is_not_believed() {
    let provider = Provider::start();
    provider.state().user = json!({ "sub": "u-2", "email": "eve@example.test" });
    let (gateway, _upstream) = gateway(&provider, &json!({}));
    let mut browser = logged_in(&provider, &gateway);
    assert_eq!(echoed(&browser.get(&gateway, "/"), "X-Userinfo"), None);
    assert!(gateway.log().contains("the userinfo endpoint has answered for another user"));
}

#[test]
fn a_claim_names_the_consumer() {
    let provider = Provider::start();
    let (gateway, _upstream) = gateway(&provider, &json!({ "consumer_claim": "sub" }));
    let mut browser = logged_in(&provider, &gateway);
    let page = browser.get(&gateway, "/");
    assert_eq!((page.status, echoed(&page, "X-Consumer-Username")), (200, Some("alice")));
    provider.state().claims = json!({ "sub": "u-3" });
    let mut stranger = logged_in(&provider, &gateway);
    assert_eq!(stranger.get(&gateway, "/").status, 403);
}
