//! Certificates in Consul and in HashiCorp Vault, by servers that know their APIs and refuse all else.
use super::{declared, is_discreet, is_of_ca, order, presented};
use crate::harness::{Gateway, Message, PebblePlan, Upstream, eventually};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const TOKEN: &str = "hunter2-token";
const JWT: &str = "hunter2-jwt";

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// The method, the path and the query of a request.
fn target(request: &Message) -> (String, String, String) {
    let mut words = request.head.start.split(' ');
    let (method, target) = (words.next().unwrap().to_owned(), words.next().unwrap());
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    assert!(!path.contains("//") && path.bytes().all(|byte| byte.is_ascii_graphic()), "{path}");
    let escapes = [("%2A", "*"), ("%3D", "="), ("%2B", "+"), ("%23", "#")];
    let path = escapes.iter().fold(path.to_owned(), |path, (from, to)| path.replace(from, to));
    assert!(!path.contains('%'), "{path}");
    (method, path, query.to_owned())
}

/// A server of one of the APIs, and what it knows.
struct Server<S> {
    upstream: Upstream,
    state: Arc<Mutex<S>>,
}

impl<S: Default + Send + 'static> Server<S> {
    fn start(answer: fn(&mut S, &Message) -> (u16, Value)) -> Self {
        let state = Arc::new(Mutex::new(S::default()));
        let serving = state.clone();
        let upstream = Upstream::start(move |mut peer, _| {
            while let Some(request) = peer.request() {
                let (status, body) = answer(&mut serving.lock().unwrap(), &request);
                let body = if status == 204 { String::new() } else { body.to_string() };
                let length =
                    if status == 204 { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
                peer.send(format!("HTTP/1.1 {status} X\r\n{length}\r\n{body}"));
            }
        });
        Self { upstream, state }
    }

    fn state(&self) -> MutexGuard<'_, S> {
        self.state.lock().unwrap()
    }

    fn config(&self, more: &Value) -> Value {
        let address = self.upstream.address;
        let mut config =
            json!({ "host": address.ip().to_string(), "port": address.port(), "timeout": 60_000 });
        config.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        config
    }
}

/// Consul: the value, the flags and the index of each key.
#[derive(Default)]
struct Consul {
    index: u64,
    entries: BTreeMap<String, (String, u64, u64)>,
}

fn consul(state: &mut Consul, request: &Message) -> (u16, Value) {
    let (method, path, query) = target(request);
    if request.header("x-consul-token") != Some(TOKEN) {
        return (403, json!("Permission denied"));
    }
    let Some(key) = path.strip_prefix("/v1/kv/") else { return (404, json!("")) };
    let known = state.entries.get(key).cloned();
    match (&*method, &*query) {
        ("GET", "keys") => {
            let keys: Vec<_> = state.entries.keys().filter(|known| known.starts_with(key)).collect();
            if keys.is_empty() { (404, Value::Null) } else { (200, json!(keys)) }
        }
        ("GET", "") => known.map_or((404, Value::Null), |(value, flags, index)| {
            let entry = json!({
                "LockIndex": 0, "Key": key, "Flags": flags, "Value": STANDARD.encode(value), "CreateIndex": index,
                "ModifyIndex": index,
            });
            (200, json!([entry]))
        }),
        ("DELETE", "") => {
            state.entries.remove(key);
            (200, json!(true))
        }
        ("PUT", query) => {
            let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap());
            let pairs: BTreeMap<&str, u64> = pairs.map(|(name, number)| (name, number.parse().unwrap())).collect();
            assert!(pairs.keys().all(|name| matches!(*name, "flags" | "cas")), "{query}");
            let index = known.map_or(0, |(_, _, index)| index);
            if pairs.get("cas").is_some_and(|cas| *cas != index) {
                return (200, json!(false));
            }
            state.index += 1;
            let entry = (request.text().to_owned(), pairs.get("flags").copied().unwrap_or(0), state.index);
            state.entries.insert(key.to_owned(), entry);
            (200, json!(true))
        }
        _ => (405, json!("method not allowed")),
    }
}

/// Vault: the version, its value and when it ends, of each path.
#[derive(Default)]
struct Vault {
    logins: u32,
    /// The token of the last login, if it is valid.
    given: Option<String>,
    /// No token may do anything but look at itself.
    denies: bool,
    entries: BTreeMap<String, Secret>,
}

#[derive(Default, Clone)]
struct Secret {
    version: u64,
    value: Value,
    lifetime: Option<u64>,
    ends: Option<u64>,
}

fn refused(status: u16, error: &str) -> (u16, Value) {
    (status, json!({ "errors": [error] }))
}

fn vault(state: &mut Vault, request: &Message) -> (u16, Value) {
    let (method, path, query) = target(request);
    let body = || request.json();
    if path == "/v1/auth/k8s/login" {
        if (&*method, body()) != ("POST", json!({ "role": "weir", "jwt": JWT })) {
            return refused(403, "permission denied");
        }
        state.logins += 1;
        state.given = Some(format!("hunter2-given-{}", state.logins));
        return (200, json!({ "auth": { "client_token": state.given, "lease_duration": 3600 } }));
    }
    let token = request.header("x-vault-token");
    if token.is_none() || token != Some(TOKEN) && token != state.given.as_deref() {
        return refused(403, "permission denied");
    }
    if (&*method, &*path) == ("GET", "/v1/auth/token/lookup-self") {
        return (200, json!({ "data": { "policies": ["default"] } }));
    }
    if state.denies {
        return refused(403, "permission denied");
    }
    let Some((part, path)) = path.strip_prefix("/v1/kv/").and_then(|rest| rest.split_once('/')) else {
        return refused(404, "no handler for route");
    };
    let known = state.entries.get(path).cloned();
    match (&*method, part, &*query) {
        ("GET", "data", "") => read(known),
        ("POST", "data", "") => write(state, path, known.unwrap_or_default(), &body()),
        ("POST", "metadata", "") => {
            let lifetime =
                body()["delete_version_after"].as_str().unwrap().strip_suffix("ms").unwrap().parse();
            state.entries.entry(path.to_owned()).or_default().lifetime = Some(lifetime.unwrap());
            (204, Value::Null)
        }
        ("DELETE", "metadata", "") => {
            state.entries.remove(path);
            (204, Value::Null)
        }
        ("GET", "metadata", "list=true") => {
            let keys: Vec<_> = state.entries.keys().filter_map(|key| key.strip_prefix(path)).collect();
            if keys.is_empty() {
                (404, json!({ "errors": [] }))
            } else {
                (200, json!({ "data": { "keys": keys } }))
            }
        }
        _ => refused(405, "unsupported operation"),
    }
}

fn read(known: Option<Secret>) -> (u16, Value) {
    let Some(secret) = known.filter(|secret| secret.version > 0) else {
        return (404, json!({ "errors": [] }));
    };
    let has_ended = secret.ends.is_some_and(|ends| ends <= now());
    let data = if has_ended { Value::Null } else { secret.value };
    let found = json!({ "data": { "data": data, "metadata": { "version": secret.version } } });
    (if has_ended { 404 } else { 200 }, found)
}

fn write(state: &mut Vault, path: &str, mut secret: Secret, body: &Value) -> (u16, Value) {
    if !body["data"].is_object() {
        return refused(400, "no data provided");
    }
    if body["options"]["cas"].as_u64().is_some_and(|cas| cas != secret.version) {
        return refused(400, "check-and-set parameter did not match the current version");
    }
    secret.version += 1;
    secret.value = body["data"].clone();
    secret.ends = secret.lifetime.map(|lifetime| now() + lifetime);
    let version = secret.version;
    state.entries.insert(path.to_owned(), secret);
    (200, json!({ "data": { "version": version } }))
}

/// Two nodes that share a server: one orders, the CA asks the other one. Returns a node, and the keys that there are.
fn share_certificates(more: &Value, settings: &[(&str, &str)], keys: impl Fn() -> Vec<String>) -> Gateway {
    let plan = PebblePlan::on_free_ports();
    let node = || {
        let builder = declared(&plan.directory(), &plan.trusted(), more);
        settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start()
    };
    let (one, other) = (node(), node());
    let ca = plan.start(other.proxy(), &json!({}));
    order(&one, "a.test", 201);
    // The other one may have looked a moment ago.
    eventually("the other node presents it", || is_of_ca(&presented(other.proxy_ssl(), "a.test")));
    assert!(is_of_ca(&presented(node().proxy_ssl(), "a.test")));
    // As many handshakes as come at once order it once.
    let handshakes = [&one, &other, &one, &other].map(|node| {
        let tls = node.proxy_ssl();
        std::thread::spawn(move || presented(tls, "x.b.test"))
    });
    handshakes.into_iter().for_each(|handshake| drop(handshake.join().unwrap()));
    for node in [&one, &other] {
        eventually("x.b.test has a certificate", || is_of_ca(&presented(node.proxy_ssl(), "x.b.test")));
        is_discreet(node);
    }
    assert_eq!(ca.issued(), 2);
    let listed = other.admin("/acme/certificates").json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2, "{listed}");
    let keys = keys();
    for key in ["cert_key:a.test", "renew_config:a.test", "cert_key:x.b.test"] {
        assert!(keys.contains(&format!("kong_acme:{key}")), "{key}: {keys:?}");
    }
    assert!(keys.iter().any(|key| key.starts_with("kong_acme:account:https:--127.0.0.1:")), "{keys:?}");
    assert!(!keys.iter().any(|key| key.ends_with("#http-01")), "{keys:?}");
    one
}

fn keys_below<'k>(keys: impl Iterator<Item = &'k String>, folder: &str) -> Vec<String> {
    keys.map(|key| key.strip_prefix(folder).unwrap().to_owned()).collect()
}

#[test]
fn nodes_share_certificates_in_consul() {
    let server = Server::start(consul);
    let config = server.config(&json!({ "kv_path": "gateways/acme", "token": TOKEN }));
    let more = json!({ "storage": "consul", "storage_config": { "consul": config } });
    share_certificates(&more, &[], || keys_below(server.state().entries.keys(), "gateways/acme/"));
    let state = server.state();
    let (kept, flags, _) = &state.entries["gateways/acme/kong_acme:cert_key:a.test"];
    let kept: Value = serde_json::from_str(kept).unwrap();
    assert!(kept["key"].as_str().unwrap().contains("PRIVATE KEY") && kept["cert"].is_string());
    assert_eq!(*flags, 0);
}

#[test]
fn a_lock_in_consul_that_has_ended_holds_nothing_up() {
    let server = Server::start(consul);
    let config = server.config(&json!({ "token": TOKEN }));
    let more = json!({ "storage": "consul", "storage_config": { "consul": config } });
    let plan = PebblePlan::on_free_ports();
    let gateway = declared(&plan.directory(), &plan.trusted(), &more).start();
    let _ca = plan.start(gateway.proxy(), &json!({}));
    let lock = |ends: u64| {
        let entry = ("placeholder".to_owned(), ends, 7);
        server.state().entries.insert("acme/kong_acme:update_lock:a.test".to_owned(), entry);
    };
    lock(now() + 600_000);
    assert!(order(&gateway, "a.test", 500).contains("is being ordered"));
    lock(now() - 1);
    order(&gateway, "a.test", 201);
}

#[test]
fn nodes_share_certificates_in_vault() {
    let server = Server::start(vault);
    let config = server.config(&json!({ "kv_path": "/kv/gateways", "token": TOKEN }));
    let more = json!({ "storage": "vault", "storage_config": { "vault": config } });
    share_certificates(&more, &[], || keys_below(server.state().entries.keys(), "gateways/"));
    let state = server.state();
    let kept = state.entries["gateways/kong_acme:cert_key:a.test"].value["value"].as_str().unwrap();
    let kept: Value = serde_json::from_str(kept).unwrap();
    assert!(kept["key"].as_str().unwrap().contains("PRIVATE KEY") && kept["cert"].is_string());
    assert!(state.entries["gateways/kong_acme:cert_key:a.test"].ends.is_none());
    assert!(state.entries["gateways/kong_acme:update_lock:a.test"].ends.is_some());
}

#[test]
fn a_service_account_of_kubernetes_logs_in_at_vault() {
    let folder = tempfile::tempdir().unwrap();
    let (file, other) = (folder.path().join("token"), tempfile::NamedTempFile::new().unwrap());
    std::fs::write(&file, format!("{JWT}\n")).unwrap();
    let server = Server::start(vault);
    let config = |path: &std::path::Path| {
        let more = json!({
            "kv_path": "kv", "auth_method": "kubernetes", "auth_path": "k8s", "auth_role": "weir", "jwt_path": path,
        });
        json!({ "storage": "vault", "storage_config": { "vault": server.config(&more) } })
    };
    let directory = folder.path().display().to_string();
    let settings = [("vault_file_directory", &*directory)];
    let node =
        share_certificates(&config(&file), &settings, || server.state().entries.keys().cloned().collect());
    // It logs in again where the server has forgotten the token.
    let logins = server.state().logins;
    server.state().given = None;
    let listed = node.admin("/acme/certificates").json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(server.state().logins, logins + 1);
    // No other file is sent to a server.
    let plan = PebblePlan::on_free_ports();
    let refusing = declared(&plan.directory(), &plan.trusted(), &config(other.path()));
    let message = order(&refusing.set("vault_file_directory", &directory).start(), "a.test", 500);
    assert!(message.contains("put it below") && message.contains("vault_file_directory"), "{message}");
}

/// A node that logs in at Vault with a service account, whose token is in the folder.
fn with_service_account(vault: std::net::SocketAddr, folder: &std::path::Path) -> Gateway {
    let file = folder.join("token");
    std::fs::write(&file, JWT).unwrap();
    let config = json!({
        "host": vault.ip().to_string(), "port": vault.port(), "timeout": 60_000, "kv_path": "kv",
        "auth_method": "kubernetes", "auth_path": "k8s", "auth_role": "weir", "jwt_path": file,
    });
    let more = json!({ "storage": "vault", "storage_config": { "vault": config } });
    let identity = crate::harness::Identity::new("localhost");
    let node = declared("http://127.0.0.1:1/", &identity.cert().display().to_string(), &more);
    node.set("vault_file_directory", &folder.display().to_string()).start()
}

#[test]
fn what_a_policy_of_vault_refuses_is_no_reason_to_log_in_again() {
    let (folder, server) = (tempfile::tempdir().unwrap(), Server::start(vault));
    server.state().denies = true;
    let node = with_service_account(server.upstream.address, folder.path());
    for _ in 0..3 {
        let listed = node.admin("/acme/certificates");
        assert_eq!(listed.status, 500, "{}", listed.text());
    }
    assert_eq!(server.state().logins, 1);
    // A token that the server has forgotten is another matter, and a policy that was changed needs no login.
    server.state().given = None;
    assert_eq!(node.admin("/acme/certificates").status, 500);
    assert_eq!(server.state().logins, 2);
    server.state().denies = false;
    assert_eq!(node.admin("/acme/certificates").status, 200);
    assert_eq!(server.state().logins, 2);
}

#[test]
fn requests_to_vault_do_not_wait_for_each_other() {
    let folder = tempfile::tempdir().unwrap();
    // How many lists were asked for, and whether one was answered before there was another.
    let state = Arc::new((Mutex::new(Vault::default()), Mutex::new((0, false)), Condvar::new()));
    let shared = state.clone();
    let server = Upstream::start(move |mut peer, _| {
        let (vault_state, arrived, changed) = &*shared;
        while let Some(request) = peer.request() {
            // A list is answered once two are asked for.
            if target(&request).2 == "list=true" {
                let mut lists = arrived.lock().unwrap();
                lists.0 += 1;
                changed.notify_all();
                let (mut lists, waited) =
                    changed.wait_timeout_while(lists, Duration::from_secs(20), |lists| lists.0 < 2).unwrap();
                lists.1 |= waited.timed_out();
            }
            let (status, body) = vault(&mut vault_state.lock().unwrap(), &request);
            let body = body.to_string();
            peer.send(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()));
        }
    });
    let node = with_service_account(server.address, folder.path());
    std::thread::scope(|scope| {
        let asked = [(); 2].map(|()| scope.spawn(|| node.admin("/acme/certificates").status));
        let answered = asked.map(|asked| asked.join().unwrap());
        assert_eq!(answered, [200, 200]);
    });
    assert!(!state.1.lock().unwrap().1, "a list waited for the answer to another");
    assert_eq!(state.0.lock().unwrap().logins, 1);
}

#[test]
fn a_refusal_of_the_server_is_explained() {
    let (consul, vault) = (Server::start(consul), Server::start(vault));
    let identity = crate::harness::Identity::new("localhost");
    for (name, config, hint) in [
        ("consul", consul.config(&json!({ "token": "wrong" })), "status 403; check the token"),
        ("vault", vault.config(&json!({ "kv_path": "kv", "token": "wrong" })), "status 403; check the token"),
        ("vault", vault.config(&json!({ "kv_path": "none", "token": TOKEN })), "status 404; check kv_path"),
    ] {
        let more = json!({ "storage": name, "storage_config": { name: config } });
        let trusted = identity.cert().display().to_string();
        let gateway = declared("http://127.0.0.1:1/", &trusted, &more).start();
        let message = order(&gateway, "a.test", 500);
        assert!(message.contains(hint), "{message}");
    }
}
