//! Redis over TLS.
use super::{HELLO, left, limited};
use crate::harness::{Gateway, Identity, RedisServer, Upstream, eventually};
use serde_json::{Value, json};

/// A server that speaks nothing else.
fn server(identity: &Identity) -> RedisServer {
    let (cert, key) = (identity.cert().display().to_string(), identity.key().display().to_string());
    // The port of the harness is the one of TLS; there is none in clear.
    let files = ["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-auth-clients", "no"];
    let login = ["--tls", "--insecure"];
    RedisServer::over_tls(&files, &login)
}

/// The response of a node that trusts this authority, and what it logs.
fn asked(server: &RedisServer, authority: &Identity, redis: Value) -> (u16, Option<u64>, Gateway) {
    let mut redis = redis;
    redis["host"] = json!("127.0.0.1");
    redis["port"] = json!(server.port);
    redis["ssl"] = json!(true);
    let config = json!({ "policy": "redis", "year": 5, "fault_tolerant": false, "redis": redis });
    let upstream = Upstream::answering(HELLO);
    let node = Gateway::builder(&limited(&upstream, "rate-limiting", &config))
        .set("lua_ssl_trusted_certificate", &authority.cert().display().to_string())
        .start();
    let response = node.get("/");
    (response.status, (response.status == 200).then(|| left(&response)), node)
}

#[test]
fn certificates_are_verified_where_the_configuration_says_so() {
    let (authority, other) = (Identity::new("authority"), Identity::new("other"));
    let identity = Identity::signed("counts.example", &authority);
    let server = server(&identity);
    let (verified, named) =
        (json!({ "ssl_verify": true }), |name: &str| json!({ "ssl_verify": true, "server_name": name }));
    assert_eq!(asked(&server, &authority, verified.clone()).1, Some(4));
    assert_eq!(asked(&server, &authority, named("counts.example")).1, Some(3));
    assert_eq!(asked(&server, &other, json!({})).1, Some(2));
    for (authority, redis) in [(&other, verified), (&authority, named("another.example"))] {
        let (status, _, node) = asked(&server, authority, redis);
        assert_eq!(status, 500);
        eventually("the log says why", || node.log().contains("invalid peer certificate"));
    }
    assert_eq!(server.keys().iter().map(|key| server.number(key)).collect::<Vec<_>>(), [3]);
}
