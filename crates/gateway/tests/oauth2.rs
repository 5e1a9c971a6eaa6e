//! oauth2 as clients and login pages use it: on nodes with and without a database.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Builder, Gateway, Message, PostgresServer, Upstream, document, service};
use crate::upgrade::Node;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::thread;

const CALLBACK: &str = "https://shop.test/callback?a=b";
const VERIFIER: &str = "a-verifier-of-at-least-43-characters-0123456789";

/// What a plugin has in these tests, beside what a test says.
fn config(more: &Value) -> Value {
    let mut config = json!({
        "scopes": ["read", "write"], "provision_key": "provision", "accept_http_if_already_terminated": true,
        "enable_authorization_code": true, "enable_implicit_grant": true, "enable_client_credentials": true,
        "enable_password_grant": true,
    });
    config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    config
}

fn clients() -> Value {
    json!([
        { "name": "shop", "client_id": "shop", "client_secret": "shop-secret", "redirect_uris": [CALLBACK] },
        { "name": "app", "client_id": "app", "client_type": "public", "redirect_uris": ["app://done"] },
        { "name": "other", "client_id": "other", "client_secret": "other-secret", "redirect_uris": ["https://other.test/"] },
    ])
}

fn trusting(builder: Builder) -> Builder {
    builder.set("trusted_ips", "127.0.0.1/32").set("workers", "2")
}

/// A node with a file, and two services with the plugin.
fn declared(upstream: &Upstream, more: &Value) -> Builder {
    let plugin = json!([{ "name": "oauth2", "config": config(more) }]);
    let services = ["/one", "/two"].map(|path| {
        service(path, upstream.address, "", &format!("request_buffering: false, plugins: {plugin}"))
    });
    let consumers = json!([
        { "username": "alice", "custom_id": "a-1", "oauth2_credentials": clients() },
        { "username": "guest" },
    ]);
    trusting(Gateway::builder(&document(&services, &format!("consumers: {consumers}\n"))))
}

/// The same by the Admin API.
fn configure(node: &Gateway, upstream: &Upstream) {
    let put = |path: &str, body: &Value| {
        let answer = node.ask_admin("PUT", &format!("{path}?wait=true"), &body.to_string());
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    };
    put("/consumers/alice", &json!({ "custom_id": "a-1" }));
    for client in clients().as_array().unwrap() {
        let created = node.ask_admin("POST", "/consumers/alice/oauth2?wait=true", &client.to_string());
        assert_eq!(created.status, 201, "{}", created.text());
    }
    for name in ["one", "two"] {
        put(&format!("/services/{name}"), &json!({ "url": format!("http://{}", upstream.address) }));
        put(
            &format!("/routes/{name}"),
            &json!({ "paths": [format!("/{name}")], "service": { "name": name } }),
        );
        let plugin = json!({ "name": "oauth2", "config": config(&json!({})) });
        let created =
            node.ask_admin("POST", &format!("/services/{name}/plugins?wait=true"), &plugin.to_string());
        assert_eq!(created.status, 201, "{}", created.text());
    }
}

fn post(node: &Gateway, path: &str, headers: &str, form: &str) -> Message {
    node.send(&format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nX-Forwarded-Proto: https\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: {}\r\n{headers}\r\n{form}",
        form.len()
    ))
}

fn token(node: &Gateway, form: &str) -> Message {
    post(node, "/one/oauth2/token", "", form)
}

/// The token in a response.
#[track_caller]
fn issued(response: &Message) -> String {
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("cache-control"), Some("no-store"));
    let token = response.json()["access_token"].as_str().unwrap().to_owned();
    assert!(token.len() == 32 && token.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{token}");
    token
}

#[track_caller]
fn refused(response: &Message, status: u16, error: &str, description: &str) {
    let body = response.json();
    let is = (response.status, body["error"].as_str(), body["error_description"].as_str());
    assert_eq!(is, (status, Some(error), Some(description)), "{}", response.text());
}

fn with_token(node: &Gateway, path: &str, token: &str) -> Message {
    node.get_with(path, &format!("Authorization: Bearer {token}\r\n"))
}

/// Asks as the login page does; returns the arguments of the URI that the user is sent to.
#[track_caller]
fn authorized(node: &Gateway, status: u16, form: &str) -> (String, Vec<(String, String)>) {
    let form = format!("provision_key=provision&authenticated_userid=user%201&{form}");
    let response = post(node, "/one/oauth2/authorize", "", &form);
    assert_eq!(response.status, status, "{}", response.text());
    let uri = response.json()["redirect_uri"].as_str().unwrap().to_owned();
    let arguments = uri.rsplit_once(['?', '#']).unwrap().1;
    (uri.clone(), form_urlencoded::parse(arguments.as_bytes()).into_owned().collect())
}

fn argument(arguments: &[(String, String)], name: &str) -> Option<String> {
    arguments.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn code(node: &Gateway, form: &str) -> String {
    let (_, arguments) = authorized(node, 200, &format!("response_type=code&{form}"));
    argument(&arguments, "code").unwrap()
}

const CODE: &str = "client_id=shop&client_secret=shop-secret&grant_type=authorization_code&code=";
const REFRESH: &str = "client_id=shop&client_secret=shop-secret&grant_type=refresh_token&refresh_token=";

/// The flows that every kind of node has.
fn all_grants(node: &Gateway, other: &Gateway) {
    // Client credentials.
    let basic = format!("Authorization: Basic {}\r\n", STANDARD.encode("shop:shop-secret"));
    let response =
        post(node, "/one/oauth2/token/", &basic, "grant_type=client_credentials&scope=read&state=s");
    let access_token = issued(&response);
    let body = response.json();
    assert_eq!((&body["state"], &body["token_type"]), (&json!("s"), &json!("bearer")));
    assert_eq!((&body["expires_in"], body.get("refresh_token")), (&json!(7200), None));
    for node in [node, other] {
        let passed = with_token(node, "/one/x", &access_token);
        assert_eq!(passed.status, 200, "{}", passed.text());
        let echoed = passed.text().to_ascii_lowercase();
        for line in
            ["x-consumer-username: alice", "x-credential-identifier: shop", "x-authenticated-scope: read"]
        {
            assert!(echoed.contains(line), "{line}: {echoed}");
        }
        assert!(!echoed.contains("x-authenticated-userid"), "{echoed}");
        let elsewhere = with_token(node, "/two", &access_token);
        refused(&elsewhere, 401, "invalid_token", "The access token is invalid or has expired");
    }
    // Password, and refresh.
    let password = "client_id=shop&client_secret=shop-secret&grant_type=password&provision_key=provision&authenticated_userid=u1";
    let response = token(node, password);
    let (first, refresh_token) = (issued(&response), response.json()["refresh_token"].clone());
    assert!(
        with_token(other, "/one", &first).text().to_ascii_lowercase().contains("x-authenticated-userid: u1")
    );
    let refresh = format!("{REFRESH}{}", refresh_token.as_str().unwrap());
    let second = issued(&token(other, &refresh));
    assert_eq!(with_token(node, "/one", &second).status, 200);
    refused(&token(node, &refresh), 400, "invalid_request", "Invalid refresh_token");
    // Authorization code.
    let code = code(node, "client_id=shop&state=a%26b");
    refused(
        &token(
            other,
            &format!("client_id=other&client_secret=other-secret&grant_type=authorization_code&code={code}"),
        ),
        400,
        "invalid_request",
        "Invalid code",
    );
    let once = format!("{CODE}{code}");
    issued(&token(other, &once));
    refused(&token(node, &once), 400, "invalid_request", "Invalid code");
    // Implicit.
    let (uri, arguments) = authorized(node, 200, "client_id=shop&response_type=token&state=s");
    assert!(uri.starts_with(&format!("{CALLBACK}#access_token=")), "{uri}");
    let implicit = argument(&arguments, "access_token").unwrap();
    assert_eq!(argument(&arguments, "expires_in").as_deref(), Some("7200"));
    assert_eq!(with_token(other, "/one", &implicit).status, 200);
}

/// The tokens of a node, by the Admin API.
fn admin_api(node: &Gateway, other: &Gateway) {
    let shop = node.admin("/oauth2/shop").json();
    let credential = json!({ "id": shop["id"] });
    let written =
        json!({ "credential": credential, "expires_in": 0, "access_token": "written", "scope": "read" });
    let post = |body: &Value| node.ask_admin("POST", "/oauth2_tokens", &body.to_string());
    let created = post(&written);
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(created.json()["token_type"], "bearer");
    assert_eq!(post(&written).json()["code"], 5);
    assert_eq!(
        post(&json!({ "credential": credential })).json()["fields"]["expires_in"],
        "required field missing"
    );
    let missing = json!({ "credential": { "id": "00000000-0000-4000-8000-00000000dead" }, "expires_in": 1 });
    assert_eq!(post(&missing).json()["code"], 4);
    assert_eq!(post(&json!({ "x": 1 })).json()["fields"]["x"], "unknown field");
    let id = created.json()["id"].as_str().unwrap().to_owned();
    for name in [&id, "written"] {
        assert_eq!(other.admin(&format!("/oauth2_tokens/{name}")).json()["id"], created.json()["id"]);
    }
    // It is of no service.
    let description =
        "The access token is global, but the current plugin is configured without 'global_credentials'";
    refused(&with_token(other, "/one", "written"), 401, "invalid_token", description);
    let of_one = json!({ "service": { "id": node.admin("/services/one").json()["id"] } });
    let patched = other.ask_admin("PATCH", "/oauth2_tokens/written", &of_one.to_string());
    assert_eq!(patched.status, 200, "{}", patched.text());
    assert_eq!(with_token(other, "/one", "written").status, 200);
    let all = node.admin("/oauth2_tokens?size=1000").json()["data"].as_array().unwrap().len();
    let (mut listed, mut next) = (0, "/oauth2_tokens?size=2".to_owned());
    while !next.is_empty() {
        let page = node.admin(&next).json();
        listed += page["data"].as_array().unwrap().len();
        assert_eq!(page["next"].is_null(), page.get("offset").is_none());
        next = page["next"].as_str().unwrap_or_default().to_owned();
    }
    assert!(all > 2 && listed == all, "{listed} of {all}");
    let replaced = node.ask_admin("PUT", "/oauth2_tokens/put", &written.to_string());
    assert_eq!(replaced.json()["code"], Value::Null, "{}", replaced.text());
    assert_eq!(replaced.json()["access_token"], "put");
    for _ in 0..2 {
        assert_eq!(other.ask_admin("DELETE", "/oauth2_tokens/written", "").status, 204);
    }
    let gone = "The access token is invalid or has expired";
    refused(&with_token(other, "/one", "written"), 401, "invalid_token", gone);
    assert_eq!(other.admin("/oauth2_tokens/written").status, 404);
    assert_eq!(node.admin("/oauth2_tokens?size=0").json()["code"], 9);
}

#[test]
fn every_grant_works_on_a_node_without_a_database() {
    let upstream = Upstream::echoing();
    let node = declared(&upstream, &json!({})).start();
    all_grants(&node, &node);
    assert!(node.log().contains("tokens of oauth2 are in this node's memory"), "{}", node.log());
}

#[test]
fn every_grant_works_with_sqlite() {
    let upstream = Upstream::echoing();
    let node = trusting(Gateway::empty()).start();
    configure(&node, &upstream);
    let revision = || node.admin("/status").json()["configuration_hash"].clone();
    let before = revision();
    all_grants(&node, &node);
    admin_api(&node, &node);
    assert_eq!(revision(), before);
    assert!(!node.log().contains("in this node's memory"), "{}", node.log());
}

#[test]
fn nodes_of_one_database_share_tokens_and_one_of_them_gets_a_code() {
    let upstream = Upstream::echoing();
    let mut settings = PostgresServer::settings(PostgresServer::shared_port(), "oauth2");
    settings.extend([("trusted_ips", "127.0.0.1/32")].map(|(key, value)| (key.to_owned(), value.to_owned())));
    let [one, other] = Gateway::sharing_by(&settings);
    configure(&one, &upstream);
    crate::harness::eventually("the other node has the plugin", || other.get("/two").status == 401);
    all_grants(&one, &other);
    admin_api(&one, &other);
    let exchanged = |form: &str| -> usize {
        thread::scope(|scope| {
            let asking: Vec<_> = (0..8)
                .map(|number| {
                    let node = if number % 2 == 0 { &one } else { &other };
                    scope.spawn(move || usize::from(token(node, form).status == 200))
                })
                .collect();
            asking.into_iter().map(|asking| asking.join().unwrap()).sum()
        })
    };
    for _ in 0..5 {
        assert_eq!(exchanged(&format!("{CODE}{}", code(&one, "client_id=shop"))), 1);
        let response = token(&one, &format!("{CODE}{}", code(&other, "client_id=shop")));
        let refresh_token = response.json()["refresh_token"].as_str().unwrap().to_owned();
        assert_eq!(exchanged(&format!("{REFRESH}{refresh_token}")), 1);
    }
}

#[test]
fn pkce_is_verified_and_demanded_of_public_clients() {
    let upstream = Upstream::echoing();
    let node = declared(&upstream, &json!({})).start();
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(VERIFIER));
    let demanded = |node: &Gateway, client: &str| {
        let (_, arguments) = authorized(node, 400, &format!("response_type=code&client_id={client}"));
        assert_eq!(argument(&arguments, "error").as_deref(), Some("invalid_request"));
        let description = argument(&arguments, "error_description");
        assert_eq!(description.as_deref(), Some("code_challenge is required for public clients"));
    };
    demanded(&node, "app");
    for (client, credentials) in
        [("app", "client_id=app"), ("shop", "client_id=shop&client_secret=shop-secret")]
    {
        // Padding and the other alphabet mean the same.
        let asked = format!("client_id={client}&code_challenge={challenge}%3D&code_challenge_method=S256");
        let code = code(&node, &asked);
        let form = format!("{credentials}&grant_type=authorization_code&code={code}");
        let refuse = |more: &str, error, description| {
            refused(&token(&node, &format!("{form}{more}")), 400, error, description);
        };
        refuse("", "invalid_request", "code_verifier is required for PKCE authorization requests");
        let short = "code_verifier must be between 43 and 128 characters";
        refuse("&code_verifier=short", "invalid_request", short);
        refuse(&format!("&code_verifier={}", "x".repeat(50)), "invalid_grant", "Invalid code");
        issued(&token(&node, &format!("{form}&code_verifier={VERIFIER}")));
    }
    let secret = "client_secret is disallowed for public clients";
    refused(
        &token(&node, "client_id=app&client_secret=x&grant_type=refresh_token"),
        400,
        "invalid_request",
        secret,
    );
    let strict = declared(&upstream, &json!({ "pkce": "strict" })).start();
    demanded(&strict, "shop");
    let none = declared(&upstream, &json!({ "pkce": "none" })).start();
    code(&none, "client_id=app");
}

#[test]
fn a_refresh_token_may_be_used_again_and_tokens_may_be_for_all_services() {
    let upstream = Upstream::echoing();
    let more = json!({ "reuse_refresh_token": true, "global_credentials": true, "hide_credentials": true });
    let node = declared(&upstream, &more).start();
    let first = token(&node, &format!("{CODE}{}", code(&node, "client_id=shop&scope=read%20write")));
    let old = issued(&first);
    assert_eq!(with_token(&node, "/two", &old).status, 200);
    let refresh = format!("{REFRESH}{}", first.json()["refresh_token"].as_str().unwrap());
    for _ in 0..2 {
        let renewed = token(&node, &refresh);
        let access_token = issued(&renewed);
        assert_eq!(renewed.json()["refresh_token"], first.json()["refresh_token"]);
        refused(
            &with_token(&node, "/one", &old),
            401,
            "invalid_token",
            "The access token is invalid or has expired",
        );
        let passed = node.get(&format!("/two?a=b&access_token={access_token}"));
        let echoed = passed.text();
        assert!(echoed.starts_with("GET /?a=b HTTP"), "{echoed}");
        assert!(echoed.to_ascii_lowercase().contains("x-authenticated-scope: read write"), "{echoed}");
        assert!(!with_token(&node, "/two", &access_token).text().contains(&access_token));
        let posted = post(&node, "/two", "", &format!("a=b&access_token={access_token}&c=d"));
        assert!(posted.text().ends_with("\na=b&c=d"), "{}", posted.text());
    }
}

#[test]
fn a_body_that_is_no_form_streams_past() {
    let upstream = Upstream::start(|mut peer, _| {
        // It answers before the body has ended.
        if peer.head().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
        }
    });
    let node = declared(&upstream, &json!({})).start();
    let token =
        issued(&token(&node, "client_id=shop&client_secret=shop-secret&grant_type=client_credentials"));
    let head = format!(
        "POST /one HTTP/1.1\r\nHost: a\r\nAuthorization: bearer {token}\r\nContent-Type: application/grpc\r\n\
         Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n"
    );
    assert_eq!(node.connect().send(head).response().text(), "hi");
}

#[test]
fn a_secret_may_be_stored_as_its_hash() {
    let upstream = Upstream::echoing();
    let node = trusting(Gateway::empty()).start();
    configure(&node, &upstream);
    let hashed = json!({ "name": "h", "client_id": "h", "client_secret": "h-secret", "hash_secret": true });
    let created = node.ask_admin("POST", "/consumers/alice/oauth2?wait=true", &hashed.to_string());
    assert!(
        created.json()["client_secret"].as_str().unwrap().starts_with("$argon2id$v=19$"),
        "{}",
        created.text()
    );
    let granted = |secret: &str| {
        let form = format!("client_id=h&client_secret={secret}&grant_type=client_credentials");
        token(&node, &form).status
    };
    assert_eq!(["h-secret", "wrong", "h-secret"].map(granted), [200, 400, 200]);
    let patched = node.ask_admin("PATCH", "/oauth2/h?wait=true", r#"{"name": "renamed"}"#);
    assert_eq!(patched.json()["client_secret"], created.json()["client_secret"]);
    assert_eq!(granted("h-secret"), 200);
    // As Kong writes it.
    let of_kong =
        "$pbkdf2-sha512$i=10000,l=32$MDEyMzQ1Njc4OWFiY2RlZg$Ku2kkJn6DxC9USh74Agbkv4vbBI4ZhZ8d47MX26bL/c";
    let patched =
        node.ask_admin("PATCH", "/oauth2/h?wait=true", &json!({ "client_secret": of_kong }).to_string());
    assert_eq!(patched.json()["client_secret"], of_kong);
    assert_eq!(["correct%20horse", "h-secret"].map(granted), [200, 400]);
}

#[test]
fn an_upgrade_keeps_tokens_in_memory() {
    let upstream = Upstream::echoing();
    let node = Node::start(declared(&upstream, &json!({})));
    let kept = issued(&token(
        &node.gateway,
        "client_id=shop&client_secret=shop-secret&grant_type=client_credentials",
    ));
    node.upgrade();
    assert_eq!(with_token(&node.gateway, "/one", &kept).status, 200);
}

#[test]
fn a_database_that_does_not_answer_is_no_wrong_token() {
    let upstream = Upstream::echoing();
    let mut server = PostgresServer::start();
    let mut settings = PostgresServer::settings(server.port, "oauth2");
    settings.push(("trusted_ips".to_owned(), "127.0.0.1/32".to_owned()));
    let [node] = Gateway::sharing_by(&settings);
    configure(&node, &upstream);
    let form = "client_id=shop&client_secret=shop-secret&grant_type=client_credentials";
    let known = issued(&token(&node, form));
    server.stop();
    assert_eq!(with_token(&node, "/one", "unknown").status, 500);
    assert_eq!(token(&node, form).status, 500);
    server.restart();
    crate::harness::eventually("it answers again", || with_token(&node, "/one", &known).status == 200);
}
