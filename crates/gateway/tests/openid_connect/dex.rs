//! Logins at a real provider.
use super::*;
use crate::harness::{Dex, Peer};
use provider::pairs;

/// The end of a path that leads from a redirect to the provider, through its form, back to the gateway.
#[track_caller]
fn log_in_at(dex: &Dex, location: &str) -> String {
    let mut target = path_of(location).to_owned();
    for _ in 0..10 {
        let page = open(dex, &format!("GET {target} HTTP/1.1\r\nHost: {}\r\n\r\n", dex.address));
        if page.status == 200 {
            target = submit(dex, &target, page.text());
        } else {
            assert!(matches!(page.status, 302 | 303), "{}: {}", page.status, page.text());
            target = page.header("location").unwrap().to_owned();
        }
        if target.starts_with("http://localhost/") {
            return target;
        }
        target = path_of(&target).to_owned();
    }
    panic!("the provider goes in circles");
}

fn open(dex: &Dex, request: &str) -> Message {
    Peer::connect(dex.address).send(request).response()
}

/// Fills the form in, and sends it to where it says.
#[track_caller]
fn submit(dex: &Dex, target: &str, page: &str) -> String {
    assert!(page.contains("name=\"login\"") && page.contains("name=\"password\""), "{page}");
    let action = page.split("action=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or(target);
    let action = action.replace("&amp;", "&");
    let (user, password) = Dex::USER;
    let form = format!("login={}&password={}", user.replace('@', "%40"), password.replace(' ', "+"));
    let response = open(
        dex,
        &format!(
            "POST {} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{form}",
            path_of(&action),
            dex.address,
            form.len()
        ),
    );
    assert!(matches!(response.status, 302 | 303), "{}: {}", response.status, response.text());
    response.header("location").unwrap().to_owned()
}

fn config_of(dex: &Dex, more: &Value) -> Value {
    let mut config = json!({
        "client_id": CLIENT, "client_secret": SECRET, "discovery": dex.discovery(), "timeout": 60,
        "redirect_uri": "http://localhost/callback", "scope": "openid profile email offline_access",
        "session": { "secret": SESSION_SECRET }, "set_refresh_token_header": true,
    });
    for (name, value) in more.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

#[track_caller]
fn browser_of(dex: &Dex, gateway: &Gateway) -> Browser {
    let mut browser = Browser::default();
    let back = log_in_at(dex, &location(&browser.get(gateway, "/page?a=b")));
    assert!(pairs(back.split_once('?').unwrap().1).contains_key("code"), "{back}");
    assert_eq!(location(&browser.get(gateway, path_of(&back))), "/page?a=b", "{}", gateway.log());
    browser
}

#[test]
fn a_browser_logs_in_at_dex_and_stays_logged_in() {
    let Some(dex) = Dex::start(CLIENT, SECRET, "http://localhost/callback") else { return };
    let upstream = Upstream::echoing();
    for method in ["client_secret_basic", "client_secret_post"] {
        let more =
            json!({ "token_endpoint_auth_method": method, "use_pkce": method == "client_secret_basic" });
        let gateway = builder(&upstream, &config_of(&dex, &more)).start();
        let page = browser_of(&dex, &gateway).get(&gateway, "/page?a=b");
        assert_eq!(page.status, 200, "{}", page.text());
        let claims = echoed_json(&page, "X-ID-Token");
        assert_eq!((&claims["email"], &claims["name"]), (&json!(Dex::USER.0), &json!("alice")));
        assert_eq!(echoed_json(&page, "X-Userinfo")["email"], Dex::USER.0);
        assert_eq!(echoed(&page, "X-Credential-Identifier"), claims["sub"].as_str());
        assert!(echoed(&page, "X-Refresh-Token").is_some());
    }
}

#[test]
fn dex_renews_access_tokens_and_the_gateway_accepts_them_from_others() {
    let Some(dex) = Dex::start(CLIENT, SECRET, "http://localhost/callback") else { return };
    let upstream = Upstream::echoing();
    let gateway =
        builder(&upstream, &config_of(&dex, &json!({ "access_token_expires_leeway": 86400 }))).start();
    let mut browser = browser_of(&dex, &gateway);
    let mut tokens = Vec::new();
    for _ in 0..3 {
        let page = browser.get(&gateway, "/");
        assert_eq!(page.status, 200, "{}: {}", page.text(), gateway.log());
        assert!(!page.head.all("set-cookie").is_empty());
        tokens.push(echoed(&page, "X-Refresh-Token").unwrap().to_owned());
        tokens.push(echoed(&page, "X-Access-Token").unwrap().to_owned());
    }
    assert!(tokens[0] != tokens[2] && tokens[2] != tokens[4]);
    let access_token = tokens.pop().unwrap();
    for more in [
        json!({ "use_jwks": true, "claim_validator": { "audience": { "required": true, "match_with_client_id": true } } }),
        json!({}),
    ] {
        let mut config = config_of(&dex, &more);
        config["bearer_only"] = true.into();
        let node = builder(&upstream, &config).start();
        let page = node.get_with("/", &format!("Authorization: Bearer {access_token}\r\n"));
        assert_eq!(page.status, 200, "{more}: {}: {}", page.text(), node.log());
        let (signed, signature) = access_token.rsplit_once('.').unwrap();
        let other = if signature.starts_with('A') { "B" } else { "A" };
        let changed = format!("{signed}.{other}{}", &signature[1..]);
        let page = node.get_with("/", &format!("Authorization: Bearer {changed}\r\n"));
        assert_eq!(page.status, 401, "{more}: {}", page.text());
    }
}
