//! What a start refuses, what it warns of, and what `weir check` says of the same files.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, Peer, eventually, weir};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::Stdio;

const EMPTY: &str = "_format_version: \"3.0\"\n";

#[test]
fn the_environment_of_a_kong_container_is_a_drop_in() {
    let gateway = Gateway::builder(EMPTY)
        .env("KONG_DATABASE", "off")
        .env("KONG_PG_BACKLOG", "16384")
        .env("KONG_CLUSTER_CJSON", "on")
        .env("KONG_STREAM_LISTEN", "127.0.0.1:0 reuseport backlog=64")
        .env("KONG_PROXY_STREAM_ACCESS_LOG", "logs/streams.log basic")
        .env("KONG_NGINX_SPROXY_PROXY_PROTOCOL", "on")
        .env("KONG_PROXY_ACCESS_LOG", "logs/access.log")
        .env("KONG_NGINX_DAEMON", "off")
        .env("KONG_NGINX_PROXY_GZIP", "on")
        .env("KONG_LOG_LEVLE", "info")
        .env("KONG_PROXY_ERROR_LOG", "/dev/stderr")
        .env("KONG_PROXY_LISTEN", "0.0.0.0:1")
        .start();
    assert_ne!(gateway.proxy().port(), 1, "a flag wins over the environment");
    let log = gateway.log();
    for variable in ["KONG_PG_BACKLOG", "KONG_NGINX_PROXY_GZIP"] {
        assert_eq!(log.matches(variable).count(), 1, "{log}");
    }
    for reason in
        ["KONG_CLUSTER_CJSON is ignored: it is about", "KONG_NGINX_SPROXY_PROXY_PROTOCOL is ignored: write"]
    {
        assert!(log.contains(reason), "{log}");
    }
    assert_ne!(gateway.stream(0).port(), 0);
    assert!(!log.contains("STREAM"), "{log}");
    for file in ["logs/access.log", "logs/streams.log"] {
        assert!(gateway.prefix().join(file).exists(), "{file}");
    }
    assert!(log.contains("KONG_LOG_LEVLE has no meaning here and is ignored: did you mean KONG_LOG_LEVEL?"));
    assert_eq!(log.matches("did you mean").count(), 1, "{log}");
    assert!(!log.contains("16384") && !log.contains("KONG_DATABASE"), "{log}");
    assert!(!log.contains("KONG_NGINX_DAEMON"), "{log}");
}

#[test]
fn a_file_beside_a_database_is_said_to_be_unread() {
    let declared = Gateway::builder("_format_version: \"3.0\"\nservices: [{name: a, host: hunter2}]");
    let gateway = declared.set("database", "sqlite").start();
    assert_eq!(gateway.admin("/services/a").status, 404);
    let mend = format!("`weir config db_import {}`", gateway.file().display());
    let log = gateway.log();
    assert!(
        log.contains("declarative_config is not read, as database=sqlite") && log.contains(&mend),
        "{log}"
    );
    let inline = Gateway::builder(EMPTY).inline().set("database", "sqlite").start();
    assert!(inline.log().contains("declarative_config_string is not read"), "{}", inline.log());
    assert!(!Gateway::empty().set("database", "sqlite").start().log().contains("is not read"));
}

#[test]
fn settings_that_cannot_be_used_are_all_named_and_nothing_starts() {
    let (status, said) = Gateway::builder(EMPTY)
        .set("proxy_lisen", "127.0.0.1:0")
        .env("WEIR_WORKERS", "many")
        .env("KONG_DATABASE", "cassandra")
        .set("log_level", "loud")
        .fail();
    assert_eq!(status.code(), Some(1));
    assert!(
        said.contains("--set proxy_lisen: there is no setting `proxy_lisen`: did you mean `proxy_listen`?"),
        "{said}"
    );
    assert!(said.contains("--set log_level: `loud` is not one of"), "{said}");
    assert!(
        said.contains("environment variable KONG_DATABASE: database: `cassandra` is not one of `off`"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 3, "the flag `workers` hides WEIR_WORKERS: {said}");
}

#[test]
fn without_a_declarative_file_the_node_has_a_database_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = weir();
    command.arg("run").arg("--prefix").arg(folder.path().join("prefix"));
    for listener in ["proxy_listen", "admin_listen", "status_listen"] {
        command.args(["--set", &format!("{listener}=127.0.0.1:0")]);
    }
    let mut node = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
    node.kill().unwrap();
    let output = node.wait_with_output().unwrap();
    assert!(line.starts_with("{\"pid\":"), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(folder.path().join("prefix/weir.sqlite").is_file());
}

#[test]
fn a_taken_port_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for name in ["proxy_listen", "admin_listen", "status_listen"] {
        let (status, said) = Gateway::builder(EMPTY).set(name, &address).fail();
        assert_eq!(status.code(), Some(1));
        let mend = format!("{address} is in use: stop what listens there, or set another {name}");
        assert!(said.contains(&mend), "{said}");
    }
}

#[test]
fn a_certificate_that_is_not_there_is_named() {
    let key = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
    let (_, said) = Gateway::builder(EMPTY).set("ssl_cert", "/no/cert.pem").set("ssl_cert_key", key).fail();
    assert!(said.contains("/no/cert.pem: No such file"), "{said}");
    let (_, said) = Gateway::builder(EMPTY).set("ssl_cert", key).set("ssl_cert_key", "/no/key.pem").fail();
    assert!(said.contains("--set ssl_cert_key: /no/key.pem: no such file"), "{said}");
}

#[test]
fn an_open_admin_api_stays_closed_unless_asked_for() {
    let open = "127.0.0.1:0, 0.0.0.0:0";
    let gateway = Gateway::builder(EMPTY).set("admin_listen", open).start();
    assert_eq!(gateway.admin_addresses().len(), 1);
    assert!(gateway.log().contains("admin_allow_insecure=on"), "{}", gateway.log());
    assert_eq!(gateway.get("/").status, 404);

    let gateway = Gateway::builder(EMPTY).set("admin_listen", open).set("admin_allow_insecure", "on").start();
    assert_eq!(gateway.admin_addresses().len(), 2);
}

#[test]
fn http2_is_not_claimed_where_it_is_not_spoken() {
    let gateway = Gateway::builder(EMPTY)
        .set("proxy_listen", "127.0.0.1:0 http2")
        .set("admin_listen", "127.0.0.1:0 http2")
        .start();
    assert_eq!(gateway.log().matches("`http2` has no effect").count(), 1, "{}", gateway.log());
    let told = gateway.admin("/").json();
    assert_eq!(told["configuration"]["admin_listeners"][0]["http2"], false, "{told}");
    assert_eq!(told["configuration"]["proxy_listeners"][0]["http2"], true, "{told}");
}

#[test]
fn without_a_configuration_a_node_is_not_ready() {
    let gateway = Gateway::empty().set("database", "off").start();
    let unready = gateway.status("/status/ready");
    assert_eq!(unready.status, 503);
    let message = "no configuration available (empty configuration present)";
    assert_eq!(unready.json(), serde_json::json!({ "message": message }));
    assert_eq!(gateway.status("/status").json()["configuration_hash"], "0".repeat(32));
    let request = format!(
        "POST /config HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/yaml\r\nContent-Length: {}\r\n\r\n{EMPTY}",
        EMPTY.len()
    );
    let answer = Peer::connect(gateway.admin_addresses()[0]).send(request).response();
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(gateway.status("/status/ready").status, 200);
    assert_ne!(gateway.status("/status").json()["configuration_hash"], "0".repeat(32));
}

#[test]
fn listeners_can_be_off() {
    let gateway = Gateway::builder(EMPTY).set("admin_listen", "off").start();
    assert!(gateway.admin_addresses().is_empty());
}

#[test]
fn check_names_every_error_with_its_place() {
    let folder = tempfile::tempdir().unwrap();
    let (good, bad) = (folder.path().join("good.yml"), folder.path().join("bad.yml"));
    std::fs::write(&good, EMPTY).unwrap();
    std::fs::write(&bad, "services: []\n").unwrap();
    let check = |files: &[&std::path::Path]| weir().arg("check").args(files).output().unwrap();

    let output = check(&[&good]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty());

    let output = check(&[&bad, &good, &folder.path().join("none.yml")]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("bad.yml:1:1: ") && said.contains("none.yml: cannot be read"), "{said}");
    assert!(String::from_utf8(output.stdout).unwrap().contains("good.yml: good"));
}

#[test]
fn check_reads_the_standard_input_and_the_settings() {
    let mut child = weir()
        .args(["check", "-"])
        .env("KONG_PLUGINS", "key-auth")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let file = format!("{EMPTY}plugins:\n- name: basic-auth\n");
    child.stdin.take().unwrap().write_all(file.as_bytes()).unwrap();
    let said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    let expected = "-:3:9: plugins[0].name: plugin `basic-auth` is switched off: the setting `plugins` names only \
                    key-auth\n";
    assert_eq!(said, expected);
}

#[test]
fn a_file_in_another_encoding_is_told_from_one_that_cannot_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("latin1.yml");
    std::fs::write(&path, b"_comment: caf\xe9\n").unwrap();
    let output = weir().arg("check").arg(&path).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("latin1.yml: is not UTF-8 text"), "{said}");
}

#[test]
fn a_bad_file_stops_the_start_with_its_errors() {
    let (status, said) = Gateway::builder("services: []\n").fail();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("kong.yml:1:1: "), "{said}");
}

#[test]
fn the_configuration_can_be_a_setting() {
    for text in [
        "_format_version: '3.0'\nroutes:\n- paths: [/]\n  plugins: [{name: request-termination}]\n",
        r#"{"_format_version": "3.0", "plugins": [{"name": "request-termination"}], "routes": [{"paths": ["/"]}]}"#,
    ] {
        let gateway = Gateway::builder(text).inline().start();
        assert_eq!(gateway.get("/").status, 503);
        let reload = gateway.command("reload");
        assert_eq!(reload.status.code(), Some(1));
        let said = String::from_utf8(reload.stderr).unwrap();
        assert!(said.contains("declarative_config_string: there is no file to reload"), "{said}");
        assert_eq!(gateway.get("/").status, 503);
    }
    let (status, said) = Gateway::builder("\n_format_version: '3.0'\nservises: []\n").inline().fail();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("declarative_config_string:3:1: "), "{said}");
    let (_, said) = Gateway::builder(EMPTY).env("KONG_DECLARATIVE_CONFIG_STRING", "hunter2").fail();
    assert!(said.contains("`declarative_config` is given as well") && !said.contains("hunter2"), "{said}");
}

#[test]
fn control_listeners_answer_in_kongs_shape() {
    let gateway = Gateway::start(EMPTY);
    gateway.get("/");
    eventually("the request is counted", || {
        gateway.status("/status").json()["server"]["total_requests"] == 1
    });
    for status in [gateway.status("/status"), gateway.admin("/status")] {
        assert_eq!(status.status, 200);
        assert_eq!(status.header("content-type"), Some("application/json; charset=utf-8"));
        let json = status.json();
        // The Admin API counts its own request.
        assert!(json["server"]["total_requests"].as_u64() >= Some(1), "{json}");
        assert_eq!(json["configuration_hash"].as_str().map(str::len), Some(32));
        assert!(json.get("database").is_none());
    }
    for metrics in [gateway.status("/metrics"), gateway.admin("/metrics")] {
        assert!(metrics.text().contains("kong_nginx_requests_total"), "{}", metrics.text());
    }
    let absent = gateway.admin("/nothing");
    assert_eq!((absent.status, absent.json()), (404, serde_json::json!({"message": "Not found"})));
}

#[test]
fn requests_to_the_admin_api_can_be_logged() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("admin.log");
    let gateway = Gateway::builder(EMPTY).set("admin_access_log", &path.display().to_string()).start();
    gateway.admin("/status");
    let log = std::fs::read_to_string(path).unwrap();
    assert!(log.starts_with("127.0.0.1 ") && log.ends_with("\"GET /status HTTP/1.1\" 200\n"), "{log}");
}
