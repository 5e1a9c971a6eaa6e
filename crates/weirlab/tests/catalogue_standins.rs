//! Kong and APISIX cannot be had from a registry here. Programs that stand in for them check what they are given and
//! serve with it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::catalogue_bench::{Bench, Gateway, UPSTREAM_SAYS, cases, target, weir};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use weirlab::scenario::Scheme;

fn program(folder: &Path, name: &str, text: &str) -> PathBuf {
    let path = folder.join(name);
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn yaml(file: &Path) -> Value {
    serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Weir reads the environment of a Kong container, refuses values that Kong would refuse, and answers as Kong does.
#[test]
fn the_environment_for_kong_starts_a_gateway_that_reads_kongs() {
    let folder = tempfile::tempdir().unwrap();
    let script = format!("#!/bin/sh\n[ \"$1\" = start ] || exit 9\nexec {} run\n", weir().display());
    let kong = program(folder.path(), "kong", &script);
    for (scheme, scenario) in
        [(Scheme::Http, "kong/rate-limiting-key-auth-1"), (Scheme::Https, "kong/plain-1")]
    {
        let case = &cases(scenario, scheme)[0];
        let bench = Bench::new(1);
        let launch = bench.prepare(&target("kong"), &kong, case, &bench.document(case));
        assert_eq!(launch.image, None);
        let gateway = Gateway::start(launch, &case.case.scheme);
        for check in &case.parity {
            let reply = gateway.ask(check);
            assert_eq!(reply.status, check.status, "{reply:?}");
            assert_eq!(reply.body.contains(UPSTREAM_SAYS), check.upstream_body, "{reply:?}");
        }
        assert!(!gateway.log().contains("KONG_PROXY_LISTEN"), "{}", gateway.log());
    }
}

#[test]
fn kong_runs_in_its_container_with_the_same_environment() {
    let case = &cases("kong/plain-1", Scheme::Https)[0];
    let bench = Bench::without_upstream(1);
    let launch = bench.prepare_in(&target("kong"), Path::new("kong"), case, &bench.document(case), true);
    assert_eq!(launch.image.as_deref(), Some("kong:3.9"));
    assert_eq!(launch.command, ["kong", "docker-start"]);
    assert_eq!(launch.environment["KONG_DATABASE"], "off");
    assert!(launch.folder.join("kong.yml").is_file());
}

/// `apisix init` makes an nginx that listens where config.yaml says, with the certificate of apisix.yaml.
const APISIX: &str = r#"#!/bin/sh
set -eu
[ "$1" = init ] && [ "$PWD" = "$APISIX_HOME" ] && [ -f lua/installed ]
port=$(sed -n '/node_listen/,/ssl/ s/ *port: //p' conf/config.yaml)
[ "$(tail -n 1 conf/apisix.yaml)" = '#END' ]
cat > conf/nginx.conf <<CONF
events {}
http { access_log off; server { listen 127.0.0.1:$port; location / { return 200 "apisix"; } } }
CONF
"#;

#[test]
fn apisix_is_started_from_a_copy_with_its_configuration() {
    let folder = tempfile::tempdir().unwrap();
    let installed = folder.path().join("apisix-home");
    std::fs::create_dir_all(installed.join("lua")).unwrap();
    std::fs::write(installed.join("lua/installed"), "").unwrap();
    let apisix = program(folder.path(), "apisix", APISIX);
    program(folder.path(), "openresty", "#!/bin/sh\nexec nginx -e logs/error.log \"$@\"\n");
    let case = &cases("apisix/no-plugins", Scheme::Http)[0];
    let bench = Bench::without_upstream(1);
    let mut launch = bench.prepare(&target("apisix"), &apisix, case, &bench.document(case));
    let path = format!("{}:{}:/usr/sbin", folder.path().display(), std::env::var("PATH").unwrap());
    launch.environment.insert("PATH".to_owned(), path);
    launch.environment.insert("APISIX_SOURCE".to_owned(), installed.display().to_string());
    let gateway = Gateway::start(launch, "http");
    assert_eq!(gateway.get("/hello").body, "apisix");
}

/// The routes that APISIX is given for a scenario.
fn translated(scenario: &str) -> Value {
    let case = &cases(scenario, Scheme::Https)[0];
    let bench = Bench::without_upstream(case.upstream.listeners);
    let apisix = target("apisix");
    assert_eq!(apisix.lacks(&case.needs), None);
    let launch = bench.prepare(&apisix, Path::new("apisix"), case, &bench.document(case));
    let config = yaml(&launch.folder.join("config.yaml"));
    assert_eq!(config["apisix"]["node_listen"][0]["port"], launch.listeners.http.unwrap().port());
    yaml(&launch.folder.join("apisix.yaml"))
}

#[test]
fn plain_routes_become_apisix_routes() {
    let plain = translated("kong/plain-1");
    let route = &plain["routes"][0];
    assert_eq!(route["uris"], json!(["/route-1/*", "/route-1"]));
    assert_eq!(route["plugins"], json!({"proxy-rewrite": {"regex_uri": ["^/route-1/?(.*)", "/$1"]}}));
    assert_eq!(plain["upstreams"][0]["nodes"], json!([{"host": "127.0.0.1", "port": 1, "weight": 100}]));
    assert!(plain["ssls"][0]["cert"].as_str().unwrap().starts_with("-----BEGIN CERTIFICATE-----\n"));
    assert_eq!(translated("apisix/no-plugins")["routes"][0]["plugins"], json!({}));
}

#[test]
fn kongs_plugins_become_apisix_plugins() {
    let keyed = translated("kong/rate-limiting-key-auth-100");
    let plugins = &keyed["routes"][0]["plugins"];
    let limit = json!({
        "count": 1_000_000_000_000_u64, "time_window": 86400, "rejected_code": 429, "policy": "local",
        "key": "consumer_name", "group": "consumer",
    });
    assert_eq!((&plugins["limit-count"], &plugins["key-auth"]), (&limit, &json!({"header": "apikey"})));
    let consumer = json!({"username": "consumer_1", "plugins": {"key-auth": {"key": "key-of-consumer-1"}}});
    assert_eq!((&keyed["consumers"][0], keyed["consumers"].as_array().unwrap().len()), (&consumer, 100));
    let basic = translated("kong/rate-limiting-basic-auth-1");
    let credential = json!({"username": "consumer-1", "password": "password-1"});
    assert_eq!(basic["consumers"][0]["plugins"]["basic-auth"], credential);
    let counted = translated("apisix/limit-count-prometheus");
    assert_eq!(counted["routes"][0]["plugins"]["limit-count"]["key"], "remote_addr");
    assert_eq!(counted["routes"][0]["plugins"]["prometheus"], json!({}));
}
