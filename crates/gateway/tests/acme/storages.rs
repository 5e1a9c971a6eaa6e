//! Where accounts and certificates are kept: nodes that share them, and a process that replaces another.
use super::{declared, is_discreet, is_of_ca, order, plugin, presented};
use crate::harness::{
    Gateway, Identity, PebblePlan, PostgresServer, RedisServer, closed_port, document, eventually,
};
use crate::http3::client::Client;
use crate::upgrade::Node;
use serde_json::{Value, json};

/// Two nodes that share a server of Redis: one orders, the CA asks the other one.
fn shares_certificates(server: &RedisServer) {
    let plan = PebblePlan::on_free_ports();
    let redis = json!({ "host": "127.0.0.1", "port": server.port, "extra_options": { "namespace": "ns:" } });
    let more = json!({ "storage": "redis", "storage_config": { "redis": redis } });
    let node = || declared(&plan.directory(), &plan.trusted(), &more).start();
    let (one, other) = (node(), node());
    let ca = plan.start(other.proxy(), &json!({}));
    order(&one, "a.test", 201);
    // The other one may have looked a moment ago.
    eventually("the other node presents it", || is_of_ca(&presented(other.proxy_ssl(), "a.test")));
    assert!(is_of_ca(&presented(node().proxy_ssl(), "a.test")));
    assert_eq!(ca.issued(), 1);
    let keys = server.keys();
    let expected = ["cert_key:a.test", "renew_config:a.test", "update_lock:a.test"];
    for key in expected.map(|key| format!("ns:kong_acme:{key}")) {
        assert!(keys.contains(&key), "{key}: {keys:?}");
    }
    assert!(keys.iter().any(|key| key.starts_with("ns:kong_acme:account:https://127.0.0.1:")), "{keys:?}");
    assert!(!keys.iter().any(|key| key.ends_with("#http-01")), "{keys:?}");
    let kept: Value = serde_json::from_str(&server.ask(&["get", "ns:kong_acme:cert_key:a.test"])).unwrap();
    assert!(kept["key"].as_str().unwrap().contains("PRIVATE KEY") && kept["cert"].is_string());
    // As many handshakes as come at once order it once.
    let handshakes = [&one, &other, &one, &other].map(|node| {
        let tls = node.proxy_ssl();
        std::thread::spawn(move || presented(tls, "x.b.test"))
    });
    handshakes.into_iter().for_each(|handshake| drop(handshake.join().unwrap()));
    for node in [&one, &other] {
        eventually("x.b.test has a certificate", || is_of_ca(&presented(node.proxy_ssl(), "x.b.test")));
    }
    assert_eq!(ca.issued(), 2);
    let listed = other.admin("/acme/certificates").json();
    assert_eq!(listed["data"].as_array().unwrap().len(), 2, "{listed}");
    for node in [&one, &other] {
        is_discreet(node);
    }
}

#[test]
fn nodes_share_certificates_in_redis() {
    shares_certificates(&RedisServer::start());
}

#[test]
fn nodes_share_certificates_in_valkey() {
    match RedisServer::valkey() {
        Some(server) => shares_certificates(&server),
        None => eprintln!("VALKEY WAS NOT TESTED: set VALKEY to a valkey-server, or install the package"),
    }
}

#[test]
fn what_kong_has_stored_is_presented() {
    let server = RedisServer::start();
    let redis = json!({ "host": "127.0.0.1", "port": server.port });
    let more = json!({ "storage": "redis", "storage_config": { "redis": redis } });
    let (authority, own) = (Identity::new("localhost"), Identity::new("of-kong.test"));
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let stored = json!({ "key": read(own.key()), "cert": read(own.cert()) }).to_string();
    server.ask(&["set", "kong_acme:cert_key:a.test", &stored]);
    server.ask(&["set", "kong_acme:cert_key:x.b.test", "rubbish"]);
    server.ask(&["set", "kong_acme:renew_config:a.test", r#"{"host":"a.test","expire_at":4102444800}"#]);
    let trusted = authority.cert().display().to_string();
    let gateway = declared("http://127.0.0.1:1/", &trusted, &more).start();
    assert!(presented(gateway.proxy_ssl(), "a.test").contains("CN=of-kong.test"));
    let listed = gateway.admin("/acme/certificates").json();
    assert_eq!(listed["data"][0]["host"], json!("of-kong.test"), "{listed}");
    assert!(!presented(gateway.proxy_ssl(), "x.b.test").contains("of-kong.test"));
    let refused = gateway.admin("/acme/certificates/x.b.test");
    let message = refused.json()["message"].as_str().unwrap().to_owned();
    let expected = "kong_acme:cert_key:x.b.test holds no certificate and key: delete it";
    assert!(refused.status == 500 && message.ends_with(expected), "{message}");
    is_discreet(&gateway);
}

#[test]
fn certificates_are_presented_over_http3_too() {
    let server = RedisServer::start();
    let redis = json!({ "host": "127.0.0.1", "port": server.port });
    let more = json!({ "storage": "redis", "storage_config": { "redis": redis } });
    let (authority, own) = (Identity::new("localhost"), Identity::new("own.test"));
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let stored = json!({ "key": read(own.key()), "cert": read(own.cert()) }).to_string();
    for name in ["a.test", "x.b.test"] {
        server.ask(&["set", &format!("kong_acme:cert_key:{name}"), &stored]);
    }
    let builder = declared("http://127.0.0.1:1/", &authority.cert().display().to_string(), &more);
    let gateway = builder.set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 ssl, 127.0.0.1:0 quic").start();
    let over_quic = |name: &str| {
        let (_client, begun) = Client::with(gateway.proxy_quic(), &json!({ "sni": name }));
        begun["connected"].as_str().unwrap().contains("own.test")
    };
    assert!(presented(gateway.proxy_ssl(), "a.test").contains("CN=own.test"));
    assert!(over_quic("a.test"), "it was presented over TCP");
    assert!(!over_quic("x.b.test"), "a first handshake cannot wait for it");
    eventually("a later one presents it", || over_quic("x.b.test"));
    let reload = |more: &Value, entities: &str| {
        let plugin = plugin("http://127.0.0.1:1/", more);
        let reloaded = gateway.reload(&document(&[], &format!("plugins: [{plugin}]\n{entities}")));
        assert!(reloaded.status.success(), "{reloaded:?}");
    };
    reload(&more, "consumers: [{ username: alice }]\n");
    assert!(over_quic("a.test") && over_quic("x.b.test"), "the plugin is configured as before");
    let mut changed = more;
    changed["renew_threshold_days"] = json!(15);
    reload(&changed, "");
    assert!(!over_quic("a.test"), "the plugin might decide otherwise");
    assert!(!over_quic("c.test"));
}

#[test]
fn a_storage_that_does_not_answer_is_told_and_holds_nothing_up() {
    let redis = json!({ "host": "127.0.0.1", "port": closed_port().port(), "timeout": 500 });
    let more = json!({ "storage": "redis", "storage_config": { "redis": redis } });
    let identity = Identity::new("localhost");
    let gateway = declared("http://127.0.0.1:1/", &identity.cert().display().to_string(), &more).start();
    assert!(presented(gateway.proxy_ssl(), "a.test").contains("Serverpublickey"));
    let message = order(&gateway, "a.test", 500);
    assert!(
        message.starts_with("failed to update certificate: the storage cannot be used: Redis at 127.0.0.1:"),
        "{message}"
    );
    let answer = gateway.send("GET /.well-known/acme-challenge/token HTTP/1.1\r\nHost: a.test\r\n\r\n");
    assert_eq!(answer.status, 500);
}

/// Certificates become entities; a renewed one replaces the one before.
fn writes_entities([one, other]: &[Gateway; 2], plan: &PebblePlan) {
    let ca = plan.start(other.proxy(), &json!({}));
    let config = plugin(&plan.directory(), &json!({ "storage": "kong", "renew_threshold_days": 36500 }));
    let created = one.ask_admin("POST", "/plugins?wait=true", &config.to_string());
    assert_eq!(created.status, 201, "{}", created.text());
    eventually("the other node has the plugin", || {
        other.send("GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: a.test\r\n\r\n").text()
            == "Not found\n"
    });
    order(one, "a.test", 201);
    for node in [one, other] {
        eventually("the node presents it", || is_of_ca(&presented(node.proxy_ssl(), "a.test")));
    }
    let entities = |path: &str| one.admin(path).json()["data"].as_array().unwrap().clone();
    let [sni] = &*entities("/snis") else { panic!("one SNI") };
    assert_eq!((&sni["name"], &sni["tags"]), (&json!("a.test"), &json!(["managed-by-acme"])));
    let [before] = &*entities("/certificates") else { panic!("one certificate") };
    assert_eq!((&before["id"], &before["tags"]), (&sni["certificate"]["id"], &json!(["managed-by-acme"])));
    eventually("the certificate is renewed", || {
        assert_eq!(one.ask_admin("PATCH", "/acme", "{}").status, 202);
        std::thread::park_timeout(std::time::Duration::from_millis(500));
        ca.issued() == 2 && entities("/certificates").iter().all(|entity| entity["id"] != before["id"])
    });
    let [after] = &*entities("/certificates") else { panic!("one certificate") };
    assert_eq!((&after["key"], entities("/snis").len()), (&before["key"], 1));
    eventually("a handshake orders one", || is_of_ca(&presented(one.proxy_ssl(), "x.b.test")));
    assert_eq!((ca.issued(), entities("/snis").len()), (3, 2));
    for node in [one, other] {
        is_discreet(node);
    }
}

#[test]
fn nodes_of_postgresql_write_entities() {
    let plan = PebblePlan::on_free_ports();
    let settings = PostgresServer::settings(PostgresServer::shared_port(), "acme");
    let more = [("lua_ssl_trusted_certificate".to_owned(), plan.trusted())];
    writes_entities(&Gateway::sharing_by(&[settings, more.to_vec()].concat()), &plan);
}

#[test]
fn a_node_with_sqlite_writes_entities() {
    let plan = PebblePlan::on_free_ports();
    let gateway = Gateway::empty().set("database", "sqlite");
    let gateway = gateway.set("lua_ssl_trusted_certificate", &plan.trusted()).start();
    let ca = plan.start(gateway.proxy(), &json!({}));
    let config = plugin(&plan.directory(), &json!({}));
    assert_eq!(gateway.ask_admin("POST", "/plugins?wait=true", &config.to_string()).status, 201);
    // Not the plugin's own: it stays.
    let own = Identity::new("a.test");
    let read = |path: std::path::PathBuf| std::fs::read_to_string(path).unwrap();
    let body = json!({ "cert": read(own.cert()), "key": read(own.key()), "snis": ["a.test", "own.test"] });
    assert_eq!(gateway.ask_admin("POST", "/certificates?wait=true", &body.to_string()).status, 201);
    assert!(!is_of_ca(&presented(gateway.proxy_ssl(), "a.test")));
    order(&gateway, "a.test", 201);
    eventually("the node presents it", || is_of_ca(&presented(gateway.proxy_ssl(), "a.test")));
    assert_eq!(gateway.admin("/certificates").json()["data"].as_array().unwrap().len(), 2);
    assert_eq!(ca.issued(), 1);
}

#[test]
fn the_memory_outlives_an_upgrade() {
    let plan = PebblePlan::on_free_ports();
    let node = Node::start(declared(&plan.directory(), &plan.trusted(), &json!({})));
    let ca = plan.start(node.gateway.proxy(), &json!({}));
    order(&node.gateway, "a.test", 201);
    node.upgrade();
    assert!(is_of_ca(&presented(node.gateway.proxy_ssl(), "a.test")));
    assert_eq!(ca.issued(), 1);
}
