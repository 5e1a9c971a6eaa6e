//! A HashiCorp Vault: a mock of its HTTP API, as its documentation describes that.
use super::{Collector, document};
use crate::harness::{Gateway, Identity, Message, NginxOverTls, Upstream, closed_port};
use serde_json::{Value as Json, json};
use std::sync::{Arc, Mutex};

/// What the mock has and knows.
#[derive(Default)]
struct State {
    /// What the path `app/db` has as its password.
    password: String,
    /// The tokens that are valid.
    tokens: Vec<String>,
    logins: usize,
    namespace: Option<String>,
}

struct Server {
    upstream: Upstream,
    state: Arc<Mutex<State>>,
}

impl Server {
    fn start(state: State) -> Server {
        let state = Arc::new(Mutex::new(state));
        let own = state.clone();
        let upstream = Upstream::start(move |mut peer, _| {
            while let Some(request) = peer.request() {
                let (status, body) = answer(&mut own.lock().unwrap(), &request);
                let body = body.to_string();
                peer.send(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
            }
        });
        Server { upstream, state }
    }

    fn config(&self, more: Json) -> Json {
        let mut config = json!({ "port": self.upstream.address.port() });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!([{ "prefix": "my-hcv", "name": "hcv", "config": config }])
    }
}

fn answer(state: &mut State, request: &Message) -> (u16, Json) {
    let mut start = request.head.start.split(' ');
    let (method, path) = (start.next().unwrap(), start.next().unwrap());
    assert_eq!(request.header("x-vault-request"), Some("true"));
    if request.header("x-vault-namespace") != state.namespace.as_deref() {
        return (404, json!({ "errors": ["no handler for route"] }));
    }
    if method == "POST" {
        let body = request.json();
        let is_known = match path {
            "/v1/auth/approle/login" => body == json!({ "role_id": "weir", "secret_id": "hunter6" }),
            "/v1/auth/k8s/login" => body == json!({ "role": "weir", "jwt": "the-jwt" }),
            _ => false,
        };
        if !is_known {
            return (400, json!({ "errors": ["invalid role or secret ID"] }));
        }
        state.logins += 1;
        let token = format!("token-{}", state.logins);
        state.tokens = vec![token.clone()];
        return (200, json!({ "auth": { "client_token": token, "lease_duration": 3600 } }));
    }
    if !request.header("x-vault-token").is_some_and(|token| state.tokens.iter().any(|it| it == token)) {
        return (403, json!({ "errors": ["permission denied"] }));
    }
    let secret = json!({ "username": "ann", "password": state.password });
    match path {
        "/v1/secret/app/db" => (200, json!({ "data": secret })),
        "/v1/kv/data/app/db" => (200, json!({ "data": { "data": secret, "metadata": { "version": 2 } } })),
        "/v1/kv/data/app/db?version=1" => (200, json!({ "data": { "data": { "password": "hunter1" } } })),
        _ => (404, json!({ "errors": [] })),
    }
}

fn state() -> State {
    State { password: "hunter2".to_owned(), tokens: vec!["root".to_owned()], ..State::default() }
}

const PASSWORD: &str = "{vault://my-hcv/app/db/password}";

#[test]
fn secrets_of_both_versions_of_the_engine_are_read() {
    let (server, collector) = (Server::start(state()), Collector::start());
    let v2 = json!({ "token": "{vault://env/hcv-token}", "kv": "v2", "mount": "kv" });
    for (config, reference, expected) in [
        (json!({ "token": "root" }), PASSWORD, "hunter2"),
        (json!({ "token": "root" }), "{vault://my-hcv/app/db/username}", "ann"),
        (v2.clone(), PASSWORD, "hunter2"),
        (v2, "{vault://my-hcv/app/db/password#1}", "hunter1"),
    ] {
        let document = document(&collector.plugin(reference), server.config(config));
        let gateway = Gateway::builder(&document).env("HCV_TOKEN", "root").start();
        assert_eq!(collector.header(&gateway), expected, "{reference}");
    }
}

#[test]
fn settings_configure_it_for_references_by_its_name() {
    let mut state = state();
    state.namespace = Some("team".to_owned());
    let (server, collector) = (Server::start(state), Collector::start());
    let gateway = Gateway::builder(&document(&collector.plugin("{vault://hcv/app/db/password}"), json!([])))
        .env("KONG_VAULT_HCV_PORT", &server.upstream.address.port().to_string())
        .env("KONG_VAULT_HCV_TOKEN", "root")
        .env("KONG_VAULT_HCV_NAMESPACE", "team")
        .env("KONG_LOG_LEVEL", "{vault://hcv/app/db/password}")
        .fail();
    // It is read for settings too, which this one does not fit.
    assert!(gateway.1.contains("log_level: what the vault has for it is not valid here"), "{}", gateway.1);
    assert!(!gateway.1.contains("hunter"), "{}", gateway.1);
    let gateway = Gateway::builder(&document(&collector.plugin("{vault://hcv/app/db/password}"), json!([])))
        .env("KONG_VAULT_HCV_PORT", &server.upstream.address.port().to_string())
        .env("KONG_VAULT_HCV_TOKEN", "root")
        .env("KONG_VAULT_HCV_NAMESPACE", "team")
        .start();
    assert_eq!(collector.header(&gateway), "hunter2");
}

#[test]
fn the_node_logs_in_again_when_its_token_has_ended() {
    let (server, collector) = (Server::start(state()), Collector::start());
    let jwt = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(jwt.path(), "the-jwt\n").unwrap();
    let approle =
        json!({ "auth_method": "approle", "approle_role_id": "weir", "approle_secret_id": "hunter6" });
    let file = jwt.path().display().to_string();
    let kubernetes = json!({
        "auth_method": "kubernetes", "kube_role": "weir", "kube_auth_path": "k8s", "kube_api_token_file": file,
    });
    for config in [approle, kubernetes] {
        server.state.lock().unwrap().password = "hunter2".to_owned();
        let document = document(&collector.plugin(PASSWORD), server.config(config));
        let gateway = Gateway::builder(&document)
            .set("vault_rotation_interval", "100ms")
            .set("vault_file_directory", &jwt.path().parent().unwrap().display().to_string())
            .start();
        assert_eq!(collector.header(&gateway), "hunter2");
        let logins = server.state.lock().unwrap().logins;
        {
            let mut state = server.state.lock().unwrap();
            state.tokens.clear();
            state.password = "hunter3".to_owned();
        }
        collector.expect(&gateway, "hunter3");
        assert_eq!(server.state.lock().unwrap().logins, logins + 1);
        assert!(!gateway.log().contains("hunter"), "{}", gateway.log());
    }
}

#[test]
fn what_the_server_refuses_is_an_empty_text_with_a_line_in_the_log() {
    let (server, collector) = (Server::start(state()), Collector::start());
    for (config, reference, expected) in [
        (json!({ "token": "wrong" }), PASSWORD, "the token may not read app/db in secret"),
        (json!({ "token": "root" }), "{vault://my-hcv/none/x}", "there is no secret none in secret"),
        (json!({ "token": "root" }), "{vault://my-hcv/app%2f..%2fdb/x}", "the path of a secret has no `..`"),
        (
            json!({ "token": "root", "mount": "kv/data" }),
            PASSWORD,
            "could not get subfield value: subfield password not found",
        ),
        (
            json!({ "token": "root", "kv": "v2", "mount": "other" }),
            PASSWORD,
            "there is no secret app/db in other",
        ),
        (json!({ "token": "root", "namespace": "x" }), PASSWORD, "there is no secret app/db in secret"),
        (
            json!({ "auth_method": "approle", "approle_role_id": "weir", "approle_secret_id": "wrong" }),
            PASSWORD,
            "the login at auth/approle was refused with status 400",
        ),
    ] {
        let gateway = Gateway::start(&document(&collector.plugin(reference), server.config(config)));
        assert_eq!(collector.header(&gateway), "", "{expected}");
        assert!(gateway.log().contains(expected), "{expected}: {}", gateway.log());
    }
}

#[test]
fn a_node_starts_without_the_server_and_finds_it_later() {
    let collector = Collector::start();
    let vaults = json!([{ "prefix": "my-hcv", "name": "hcv", "config": { "port": closed_port().port(), "token": "root" } }]);
    let gateway = Gateway::start(&document(&collector.plugin(PASSWORD), vaults));
    assert_eq!(collector.header(&gateway), "");
    assert!(gateway.log().contains("unable to resolve reference"), "{}", gateway.log());
    let server = Server::start(state());
    let plugin = collector.plugin(PASSWORD);
    let found = gateway.reload(&document(&plugin, server.config(json!({ "token": "root" }))));
    assert!(found.status.success(), "{found:?}");
    collector.expect(&gateway, "hunter2");
}

#[test]
fn its_certificate_is_verified() {
    let (authority, collector) = (Identity::new("authority.test"), Collector::start());
    let data = r#"{\"data\":{\"password\":\"hunter2\"}}"#;
    let server = NginxOverTls::start(&Identity::signed("vault.test", &authority), &[], "", data);
    let config = json!({ "protocol": "https", "port": server.address.port(), "token": "root" });
    let document = document(
        &collector.plugin(PASSWORD),
        json!([{ "prefix": "my-hcv", "name": "hcv", "config": config }]),
    );
    let trusted = authority.cert().display().to_string();
    let gateway = Gateway::builder(&document).set("lua_ssl_trusted_certificate", &trusted).start();
    assert_eq!(collector.header(&gateway), "hunter2");
    let other = Identity::new("other.test");
    let trusted = other.cert().display().to_string();
    let gateway = Gateway::builder(&document).set("lua_ssl_trusted_certificate", &trusted).start();
    assert_eq!(collector.header(&gateway), "");
    assert!(gateway.log().contains("lua_ssl_trusted_certificate"), "{}", gateway.log());
}
