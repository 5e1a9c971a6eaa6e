//! session as clients and browsers use it: with each authentication plugin, and on nodes with and without a database.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{
    Builder, Gateway, Identity, LdapServer, Message, PostgresServer, Upstream, chromium, document,
    eventually, service,
};
use crate::upgrade::Node;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

const SECRET: &str = "a-secret-that-is-hard-to-guess-0123456789";

/// `iss` is `alices-issuer`, signed with `jwt-secret`.
const JWT: &str = "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJhbGljZXMtaXNzdWVyIn0.JrZ413NEzmPkQwMfEPnm-PgqYgt611Ky_-cidyt36lo";

/// The beginning of 1970, signed with `hmac-secret`.
const HMAC: &str = "X-Date: Thu, 01 Jan 1970 00:00:00 GMT\r\nAuthorization: hmac username=\"alice\", algorithm=\"hmac-sha256\", \
                    headers=\"x-date\", signature=\"wKtiuedH3oLz8IbmjYSqmCVulX2r0SirJ8AxjZrbkGM=\"\r\n";

fn consumers() -> Value {
    let closed =
        json!([{ "name": "request-termination", "config": { "status_code": 401, "message": "log in" } }]);
    json!([
        {
            "username": "alice", "custom_id": "a-1",
            "keyauth_credentials": [{ "key": "alices-key", "id": "0000000a-0000-4000-8000-000000000001" }],
            "basicauth_credentials": [{ "username": "alice", "password": "correct horse" }],
            "jwt_secrets": [{ "key": "alices-issuer", "secret": "jwt-secret" }],
            "hmacauth_credentials": [{ "username": "alice", "secret": "hmac-secret" }],
            "oauth2_credentials": [{ "name": "shop", "client_id": "shop", "client_secret": "shop-secret" }],
        },
        { "username": "bob", "keyauth_credentials": [{ "key": "bobs-key" }] },
        { "username": "guest", "plugins": closed },
    ])
}

/// A plugin, as JSON.
fn plugin(name: &str, config: &Value) -> Value {
    let mut config = config.clone();
    match name {
        "session" => {
            config["secret"] = config.get("secret").cloned().unwrap_or_else(|| SECRET.into());
            config["cookie_secure"] = false.into();
        }
        _ => config["anonymous"] = "guest".into(),
    }
    json!({ "name": name, "config": config })
}

/// A file with session and an authentication plugin for `/`.
fn file(upstream: &Upstream, session: &Value) -> String {
    let plugins = json!([plugin("session", session), plugin("key-auth", &json!({}))]);
    let services = [service("/", upstream.address, "", &format!("plugins: {plugins}"))];
    document(&services, &format!("consumers: {}\n", consumers()))
}

fn declared(upstream: &Upstream, session: &Value) -> Builder {
    Gateway::builder(&file(upstream, session)).set("workers", "2")
}

/// The cookies of a response, as a browser sends them.
fn cookies(response: &Message) -> String {
    let pair = |set: &&str| set.split(';').next().unwrap().to_owned();
    response.head.all("set-cookie").iter().map(pair).collect::<Vec<_>>().join("; ")
}

#[track_caller]
fn log_in(node: &Gateway) -> String {
    let response = node.get_with("/", "apikey: alices-key\r\n");
    assert_eq!(response.status, 200, "{}", response.text());
    cookies(&response)
}

fn with(node: &Gateway, path: &str, cookies: &str) -> Message {
    node.get_with(path, &format!("Cookie: {cookies}\r\n"))
}

/// Whether a request with these cookies is alice's.
#[track_caller]
fn is_logged_in(node: &Gateway, cookies: &str) -> bool {
    let response = with(node, "/", cookies);
    let is_alice = response.text().to_ascii_lowercase().contains("x-consumer-username: alice\n");
    assert_eq!(response.status, if is_alice { 200 } else { 401 }, "{}", response.text());
    is_alice
}

fn log_out(node: &Gateway, request: &str, cookies: &str, body: &str) -> Message {
    let (method, path) = request.split_once(' ').unwrap();
    node.send(&format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookies}\r\nContent-Type: \
         application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    ))
}

#[test]
fn every_authentication_plugin_starts_a_session_that_takes_its_place() {
    let upstream = Upstream::echoing();
    let grant = json!({ "enable_client_credentials": true, "accept_http_if_already_terminated": true });
    let skew = json!({ "clock_skew": 1e12 });
    let all = [
        ("key-auth", json!({}), "apikey: alices-key\r\n".to_owned()),
        (
            "basic-auth",
            json!({}),
            format!("Authorization: Basic {}\r\n", STANDARD.encode("alice:correct horse")),
        ),
        ("jwt", json!({}), format!("Authorization: Bearer {JWT}\r\n")),
        ("hmac-auth", skew, HMAC.to_owned()),
        ("oauth2", grant, String::new()),
    ];
    let services = all.each_ref().map(|(name, config, _)| {
        let plugins = json!([plugin("session", &json!({})), plugin(name, config)]);
        service(&format!("/{name}"), upstream.address, "", &format!("plugins: {plugins}"))
    });
    let text = document(&services, &format!("consumers: {}\n", consumers()));
    let node = Gateway::builder(&text).set("trusted_ips", "127.0.0.1/32").set("workers", "2").start();
    for (name, _, mut headers) in all {
        let path = format!("/{name}");
        if name == "oauth2" {
            let form = "client_id=shop&client_secret=shop-secret&grant_type=client_credentials";
            let issued = node.send(&format!(
                "POST {path}/oauth2/token?{form} HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\nContent-Length: 0\r\n\r\n"
            ));
            headers =
                format!("Authorization: Bearer {}\r\n", issued.json()["access_token"].as_str().unwrap());
        }
        assert_eq!(node.get(&path).status, 401, "{name}");
        let login = node.get_with(&path, &headers);
        assert_eq!(login.status, 200, "{name}: {}", login.text());
        let passed = with(&node, &path, &cookies(&login));
        assert_eq!(passed.status, 200, "{name}: {}", passed.text());
        assert_eq!(passed.head.all("set-cookie"), [""; 0], "{name}");
        let echoed = passed.text().to_ascii_lowercase();
        for line in
            ["x-consumer-username: alice\n", "x-consumer-custom-id: a-1\n", "x-credential-identifier: "]
        {
            assert!(echoed.contains(line), "{name}: {line}: {echoed}");
        }
        assert!(!echoed.contains("x-anonymous-consumer"), "{name}: {echoed}");
        // One login is for all of them.
        assert_eq!(with(&node, "/key-auth", &cookies(&login)).status, 200, "{name}");
    }
}

#[test]
fn who_has_no_consumer_gets_no_session() {
    let upstream = Upstream::echoing();
    let identity = Identity::new("127.0.0.1");
    let entries = "dn: dc=example,dc=test\nobjectClass: dcObject\nobjectClass: organization\no: Example\ndc: example\n\n\
                   dn: uid=alice,dc=example,dc=test\nobjectClass: inetOrgPerson\nuid: alice\ncn: Alice\nsn: A\n\
                   userPassword: correct horse\n";
    let directory = LdapServer::start(&identity, entries, "");
    let ldap = json!({ "ldap_host": "127.0.0.1", "ldap_port": directory.port, "base_dn": "dc=example,dc=test", "attribute": "uid" });
    let plugins = json!([plugin("session", &json!({})), plugin("ldap-auth", &ldap)]);
    let services = [service("/", upstream.address, "", &format!("plugins: {plugins}"))];
    let node = Gateway::start(&document(&services, &format!("consumers: {}\n", consumers())));
    let login = format!("Authorization: ldap {}\r\n", STANDARD.encode("alice:correct horse"));
    let response = node.get_with("/", &login);
    assert_eq!((response.status, response.head.all("set-cookie")), (200, vec![]));
    // Who has a session needs no password of the directory.
    let keyed = declared(&upstream, &json!({})).start();
    assert!(is_logged_in(&node, &log_in(&keyed)));
}

#[test]
fn a_cookie_that_was_changed_or_is_of_another_secret_is_none() {
    let upstream = Upstream::echoing();
    let node = declared(&upstream, &json!({})).start();
    let cookie = log_in(&node);
    assert!(is_logged_in(&node, &cookie));
    let value = cookie.strip_prefix("session=1").unwrap();
    for at in [0, 1, 60, 100, value.len() - 3] {
        let mut changed = value.to_owned().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = format!("session=1{}", String::from_utf8(changed).unwrap());
        assert!(!is_logged_in(&node, &changed), "{at}");
    }
    for changed in [
        format!("session={value}"),
        format!("session=2{value}"),
        format!("session=1{value}A"),
        "session=".into(),
    ] {
        assert!(!is_logged_in(&node, &changed), "{changed}");
    }
    let rotated = json!({ "secret": "another-secret-that-is-hard-to-guess" });
    assert!(node.reload(&file(&upstream, &rotated)).status.success());
    eventually("the secret is another one", || !is_logged_in(&node, &cookie));
    assert!(is_logged_in(&node, &log_in(&node)));
    assert!(node.reload(&file(&upstream, &json!({}))).status.success());
    eventually("the secret is the old one", || is_logged_in(&node, &cookie));
}

#[test]
fn each_timeout_ends_a_session() {
    let upstream = Upstream::echoing();
    for timeout in ["idling_timeout", "rolling_timeout", "absolute_timeout"] {
        for storage in ["cookie", "kong"] {
            let mut config = json!({ "idling_timeout": 0, "rolling_timeout": 0, "absolute_timeout": 0, "storage": storage });
            let lasting = declared(&upstream, &config).start();
            let cookie = log_in(&lasting);
            config[timeout] = 2.into();
            let node = declared(&upstream, &config).start();
            let other = log_in(&node);
            eventually(timeout, || !is_logged_in(&node, &other));
            assert!(is_logged_in(&lasting, &cookie), "{timeout} {storage}");
        }
    }
}

#[test]
fn a_remembered_browser_gets_a_new_session() {
    let upstream = Upstream::echoing();
    for storage in ["cookie", "kong"] {
        let config = json!({ "remember": true, "storage": storage, "read_body_for_logout": true });
        let node = declared(&upstream, &config).start();
        let login = log_in(&node);
        let (_, remember) = login.split_once("; ").unwrap();
        let response = with(&node, "/", &format!("session=1old; {remember}"));
        assert_eq!(response.status, 200, "{storage}: {}", response.text());
        let renewed = cookies(&response);
        assert!(renewed.starts_with("session=1") && renewed.contains("; remember=1"), "{renewed}");
        assert!(is_logged_in(&node, renewed.split("; ").next().unwrap()), "{storage}");
        // Requests that are on their way have the old one.
        assert!(is_logged_in(&node, remember), "{storage}");
        let logout = log_out(&node, "POST /", &renewed, "session_logout=1");
        assert_eq!((logout.status, logout.text()), (200, ""), "{storage}");
        let forgotten = logout.head.all("set-cookie").iter().filter(|set| set.ends_with("Max-Age=0")).count();
        assert_eq!(forgotten, 2, "{storage}");
        assert!(storage == "cookie" || !is_logged_in(&node, &renewed));
    }
}

#[test]
fn a_client_logs_out_by_query_form_or_json() {
    let upstream = Upstream::echoing();
    for storage in ["cookie", "kong"] {
        let config =
            json!({ "storage": storage, "read_body_for_logout": true, "logout_methods": ["POST", "DELETE"] });
        let node = declared(&upstream, &config).start();
        for (request, body) in [
            ("POST /?session_logout", ""),
            ("DELETE /?a=b&session_logout=true", ""),
            ("POST /x", "a=b&session_logout=1"),
        ] {
            let cookie = log_in(&node);
            assert!(is_logged_in(&node, &cookie));
            let logout = log_out(&node, request, &cookie, body);
            assert_eq!((logout.status, logout.text()), (200, ""), "{request}");
            let expired = "session=; Path=/; SameSite=Strict; HttpOnly; Expires=Thu, 01 Jan 1970 00:00:01 GMT; Max-Age=0";
            assert_eq!(logout.head.all("set-cookie"), [expired], "{request}");
            // Nobody can take back a cookie that holds all there is.
            assert_eq!(is_logged_in(&node, &cookie), storage == "cookie", "{request}");
        }
        let cookie = log_in(&node);
        for (request, body) in
            [("GET /?session_logout", ""), ("PUT /", "session_logout=1"), ("POST /", "a=session_logout")]
        {
            assert_ne!(log_out(&node, request, &cookie, body).text(), "", "{request}");
        }
        assert!(is_logged_in(&node, &cookie));
    }
}

#[test]
fn an_upgrade_keeps_sessions_in_memory() {
    let upstream = Upstream::echoing();
    let node = Node::start(declared(&upstream, &json!({ "storage": "kong" })));
    let cookie = log_in(&node.gateway);
    assert!(
        node.gateway.log().contains("sessions of session are in this node's memory"),
        "{}",
        node.gateway.log()
    );
    node.upgrade();
    assert!(is_logged_in(&node.gateway, &cookie));
}

/// The same plugins by the Admin API.
fn configure(node: &Gateway, upstream: &Upstream, session: &Value) {
    let write = |method: &str, path: &str, body: &Value| {
        let answer = node.ask_admin(method, &format!("{path}?wait=true"), &body.to_string());
        assert!(matches!(answer.status, 200 | 201), "{path}: {}", answer.text());
    };
    for consumer in ["alice", "guest"] {
        write("PUT", &format!("/consumers/{consumer}"), &json!({}));
    }
    write("POST", "/consumers/alice/key-auth", &json!({ "key": "alices-key" }));
    let closed = json!({ "status_code": 401, "message": "log in" });
    write("POST", "/consumers/guest/plugins", &json!({ "name": "request-termination", "config": closed }));
    write("PUT", "/services/s", &json!({ "url": format!("http://{}", upstream.address) }));
    write("PUT", "/routes/r", &json!({ "paths": ["/"], "service": { "name": "s" } }));
    write("POST", "/services/s/plugins", &plugin("session", session));
    write("POST", "/services/s/plugins", &plugin("key-auth", &json!({})));
}

#[test]
fn a_secret_that_is_left_out_is_made_up() {
    let node = Gateway::empty().start();
    let created = node.ask_admin("POST", "/plugins?wait=true", r#"{"name": "session"}"#);
    let secret = created.json()["config"]["secret"].as_str().unwrap().to_owned();
    assert!(secret.len() == 44 && secret.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{secret}");
    let again = node.ask_admin(
        "PATCH",
        &format!("/plugins/{}", created.json()["id"].as_str().unwrap()),
        r#"{"enabled": false}"#,
    );
    assert_eq!(again.json()["config"]["secret"].as_str(), Some(&*secret));
    let named = node.ask_admin("POST", "/plugins", r#"{"name": "session", "config": {"secret": ""}}"#);
    assert_eq!(named.status, 400, "{}", named.text());
}

#[test]
fn nodes_of_one_database_share_sessions_until_the_logout() {
    let upstream = Upstream::echoing();
    let mut server = PostgresServer::start();
    let [one, other] = Gateway::sharing_by(&PostgresServer::settings(server.port, "sessions"));
    let config = json!({ "storage": "kong", "store_metadata": true, "hash_subject": true, "response_headers": ["id"] });
    configure(&one, &upstream, &config);
    eventually("the other node has the plugins", || other.get("/").status == 401);
    let revision = || one.admin("/status").json()["configuration_hash"].clone();
    let before = revision();

    let login = one.get_with("/", "apikey: alices-key\r\n");
    let (cookie, id) = (cookies(&login), login.header("session-id").unwrap().to_owned());
    assert!(is_logged_in(&one, &cookie));
    eventually("the other node knows it", || is_logged_in(&other, &cookie));
    assert_eq!(revision(), before);
    let rows = || {
        PostgresServer::select(server.port, "SELECT id, body FROM sessions.weir_rows WHERE kind = 'sessions'")
    };
    let stored = rows();
    assert!(stored.contains("\"audience\":\"default\"") && stored.lines().count() == 1, "{stored}");
    for secret in [&*id, "alice", SECRET] {
        assert!(!stored.contains(secret), "{secret}: {stored}");
    }

    assert_eq!(log_out(&other, "POST /?session_logout", &cookie, "").status, 200);
    assert_eq!(rows(), "");
    assert!(!is_logged_in(&other, &cookie));
    eventually("the first node has forgotten it", || !is_logged_in(&one, &cookie));

    // While the database does not answer, no client has a session, and one that is known cannot end.
    let cookie = cookies(&one.get_with("/", "apikey: alices-key\r\n"));
    eventually("it is stored", || rows().lines().count() == 1);
    server.stop();
    assert!(!is_logged_in(&other, &cookie));
    assert_eq!(other.get_with("/", "apikey: alices-key\r\n").status, 200);
    server.restart();
    eventually("it is known again", || is_logged_in(&other, &cookie));
}

#[test]
fn a_browser_logs_in_once_and_stays_logged_in() {
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let user = request.head.field("x-consumer-username").unwrap_or("no consumer").to_owned();
            let page =
                format!("<!doctype html><title>shop</title><link rel=icon href='data:,'><p>{user}</p>");
            let length = page.len();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: {length}\r\n\r\n{page}"
            ));
        }
    });
    let node = declared(&upstream, &json!({ "storage": "kong" })).start();
    let log_in = "fetch('/', {headers: {apikey: 'alices-key'}}).then(response => window.status_of_login = response.status)";
    let log_out = "fetch('/?session_logout', {method: 'POST'}).then(response => window.status_of_logout = response.status)";
    let text = "document.body.innerText";
    let seen = chromium(
        &format!("http://{}/", node.proxy()),
        &[
            text,
            &format!("void {log_in}"),
            "wait:window.status_of_login",
            "go:location.href = '/page'",
            text,
            "go:location.reload()",
            text,
            "document.cookie",
            &format!("void {log_out}"),
            "wait:window.status_of_logout",
            "go:location.reload()",
            text,
        ],
    );
    let is_refused = |at: usize| seen[at].as_str().unwrap().contains("log in");
    assert!(is_refused(0) && is_refused(11), "{seen:?}");
    assert_eq!([&seen[2], &seen[9]], [&json!(200), &json!(200)], "{seen:?}");
    assert_eq!([&seen[4], &seen[6]], [&json!("alice"), &json!("alice")], "{seen:?}");
    assert_eq!(seen[7], "", "scripts see no cookie");
}
