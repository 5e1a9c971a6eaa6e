//! Secrets that configurations and settings refer to, and the vaults that have them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod command;
mod hcv;
mod settings;

use crate::harness::{Builder, Gateway, Identity, Upstream, eventually, handshake, weir};
use serde_json::{Value as Json, json};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A server for http-log, which tells of the header `x-secret` of each request.
pub(crate) struct Collector {
    server: Upstream,
    headers: Mutex<Receiver<String>>,
}

impl Collector {
    pub(crate) fn start() -> Collector {
        let (tell, headers) = channel();
        let server = Upstream::start(move |mut peer, _| {
            while let Some(request) = peer.request() {
                let header = request.header("x-secret").unwrap_or("none").to_owned();
                let _ = tell.send(header);
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
            }
        });
        Collector { server, headers: Mutex::new(headers) }
    }

    /// A plugin that sends the header to the collector.
    pub(crate) fn plugin(&self, secret: &str) -> Json {
        let endpoint = format!("http://{}/", self.server.address);
        let queue = json!({ "max_batch_size": 1 });
        json!({ "name": "http-log", "config": { "http_endpoint": endpoint, "headers": { "x-secret": secret }, "queue": queue } })
    }

    /// The header that comes of a request.
    #[track_caller]
    pub(crate) fn header(&self, gateway: &Gateway) -> String {
        assert_eq!(gateway.get("/").status, 404);
        self.headers.lock().unwrap().recv_timeout(crate::harness::PATIENCE).expect("the log is delivered")
    }

    /// Waits until requests bring this header. Some bring none, because the plugin is not there yet.
    #[track_caller]
    pub(crate) fn expect(&self, gateway: &Gateway, header: &str) {
        eventually(&format!("the header {header:?}"), || {
            assert_eq!(gateway.get("/").status, 404);
            let headers = self.headers.lock().unwrap();
            headers.recv_timeout(Duration::from_millis(100)).is_ok_and(|found| found == header)
        });
    }
}

/// A file with a plugin, and with vaults.
pub(crate) fn document(plugin: &Json, vaults: Json) -> String {
    json!({ "_format_version": "3.0", "plugins": [plugin], "vaults": vaults }).to_string()
}

fn with_secrets(builder: Builder) -> Builder {
    builder
        .env("MY_SECRET", "hunter2")
        .env("MY_SECRET_PREVIOUS", "hunter1")
        .env("APP_MY_SECRET", "hunter3")
        .env("PG_CREDS", r#"{"username": "ann", "password": 5}"#)
}

#[test]
fn references_lead_to_secrets() {
    let collector = Collector::start();
    for (reference, expected) in [
        ("{vault://env/my-secret}", "hunter2"),
        ("{vault://env/MY_SECRET}", "hunter2"),
        ("{vault://env/my-secret#2}", "hunter1"),
        ("{vault://env/my-secret?prefix=app_}", "hunter3"),
        ("{vault://app/my-secret}", "hunter3"),
        ("{vault://env/pg-creds/username}", "ann"),
        ("a {vault://env/my-secret}", "a {vault://env/my-secret}"),
    ] {
        let vaults = json!([{ "prefix": "app", "name": "env", "config": { "prefix": "app-" } }]);
        let gateway = with_secrets(Gateway::builder(&document(&collector.plugin(reference), vaults))).start();
        assert_eq!(collector.header(&gateway), expected, "{reference}");
        let shown = gateway.admin("/plugins").json()["data"][0]["config"]["headers"]["x-secret"].clone();
        assert_eq!(shown, reference);
        assert!(!gateway.admin("/config").text().contains("hunter"), "{reference}");
        assert!(!gateway.log().contains("hunter"), "{reference}: {}", gateway.log());
    }
}

#[test]
fn what_leads_to_no_secret_becomes_an_empty_text() {
    let collector = Collector::start();
    for (reference, expected) in [
        ("{vault://env/none}", "no value found (the environment has no NONE)"),
        ("{vault://none/my-secret}", "could not find vault (none)"),
        ("{vault://env/pg-creds/none}", "subfield none not found in JSON secret"),
        ("{vault://env/pg-creds/password}", "unexpected value in JSON secret for subfield password"),
        ("{vault://env/my-secret/none}", "unable to json decode value"),
        ("{vault://env/my-secret#x}", "reference url has invalid version"),
    ] {
        let document = document(&collector.plugin(reference), json!([]));
        let gateway = with_secrets(Gateway::builder(&document)).start();
        assert_eq!(collector.header(&gateway), "", "{reference}");
        let log = gateway.log();
        let line = log.lines().find(|line| line.contains("unable to resolve reference"));
        let line = line.unwrap_or_else(|| panic!("{reference}: {log}"));
        assert!(line.contains(expected) && line.contains("http-log") && !line.contains("hunter"), "{line}");
    }
}

#[test]
fn vaults_that_are_not_enabled_are_not_asked() {
    let collector = Collector::start();
    let document = document(&collector.plugin("{vault://env/my-secret}"), json!([]));
    for (vaults, expected) in [("off", ""), ("file,hcv", ""), ("env", "hunter2"), ("bundled", "hunter2")] {
        let gateway = with_secrets(Gateway::builder(&document)).set("vaults", vaults).start();
        assert_eq!(collector.header(&gateway), expected, "{vaults}");
        assert_eq!(gateway.log().contains("could not find vault (env)"), expected.is_empty(), "{vaults}");
    }
}

#[test]
fn the_setting_of_the_prefix_is_for_references_by_name() {
    let collector = Collector::start();
    let vaults = json!([{ "prefix": "plain", "name": "env" }]);
    for (reference, expected) in
        [("{vault://env/my-secret}", "hunter3"), ("{vault://plain/my-secret}", "hunter2")]
    {
        let document = document(&collector.plugin(reference), vaults.clone());
        let gateway = with_secrets(Gateway::builder(&document)).env("KONG_VAULT_ENV_PREFIX", "app_").start();
        assert_eq!(collector.header(&gateway), expected, "{reference}");
    }
}

#[test]
fn secrets_in_files_are_rotated_without_a_reload() {
    let (collector, folder) = (Collector::start(), tempfile::tempdir().unwrap());
    let file = folder.path().join("db-password");
    let document = document(&collector.plugin("{vault://file/db-password}"), json!([]));
    let directory = folder.path().display().to_string();
    let builder = Gateway::builder(&document).set("vault_file_directory", &directory);
    let gateway = builder.set("vault_rotation_interval", "100ms").start();
    assert_eq!(collector.header(&gateway), "");
    std::fs::write(&file, "hunter2\n").unwrap();
    collector.expect(&gateway, "hunter2");
    std::fs::write(&file, "hunter3\n").unwrap();
    collector.expect(&gateway, "hunter3");
    std::fs::remove_file(&file).unwrap();
    eventually("it cannot be read again", || gateway.log().contains("the one read before is used"));
    assert_eq!(collector.header(&gateway), "hunter3");
}

#[test]
fn a_reload_that_fails_leaves_the_rotation_as_it_is() {
    let (collector, folder) = (Collector::start(), tempfile::tempdir().unwrap());
    let document = document(&collector.plugin("{vault://file/secret}"), json!([]));
    let directory = folder.path().display().to_string();
    let builder = Gateway::builder(&document).set("vault_file_directory", &directory);
    let gateway = builder.set("vault_rotation_interval", "100ms").start();
    // What is wrong with it is found by the compiler alone.
    let route = json!({ "paths": ["~/(\\w{100}){100}"] });
    let broken = json!({ "_format_version": "3.0", "routes": [route] }).to_string();
    let reload = gateway.reload(&broken);
    assert!(!reload.status.success(), "{reload:?}");
    std::fs::write(folder.path().join("secret"), "hunter2").unwrap();
    collector.expect(&gateway, "hunter2");
}

#[test]
fn a_reload_reads_secrets_again() {
    let (collector, folder) = (Collector::start(), tempfile::tempdir().unwrap());
    let document = document(&collector.plugin("{vault://file/secret}"), json!([]));
    let directory = folder.path().display().to_string();
    let gateway = Gateway::builder(&document).set("vault_file_directory", &directory).start();
    assert_eq!(collector.header(&gateway), "");
    std::fs::write(folder.path().join("secret"), "hunter2").unwrap();
    let reload = gateway.command("reload");
    assert!(reload.status.success(), "{reload:?}");
    collector.expect(&gateway, "hunter2");
}

#[test]
fn secrets_that_a_failed_reload_has_read_are_used() {
    let (collector, folder) = (Collector::start(), tempfile::tempdir().unwrap());
    let document = document(&collector.plugin("{vault://file/secret}"), json!([]));
    let directory = folder.path().display().to_string();
    let gateway = Gateway::builder(&document).set("vault_file_directory", &directory).start();
    assert_eq!(collector.header(&gateway), "");
    std::fs::write(folder.path().join("secret"), "hunter2").unwrap();
    let reload = gateway.reload("nonsense");
    assert!(!reload.status.success(), "{reload:?}");
    collector.expect(&gateway, "hunter2");
}

#[test]
fn vaults_in_a_database_are_used_at_once() {
    let (collector, folder) = (Collector::start(), tempfile::tempdir().unwrap());
    std::fs::write(folder.path().join("my-secret"), "hunter4").unwrap();
    let directory = folder.path().display().to_string();
    let builder = Gateway::empty().set("vault_file_directory", &directory);
    let gateway = with_secrets(builder.set("vault_rotation_interval", "100ms")).start();
    let plugin = collector.plugin("{vault://mine/my-secret}").to_string();
    assert_eq!(gateway.ask_admin("POST", "/plugins", &plugin).status, 201);
    collector.expect(&gateway, "");
    let vault = json!({ "name": "env", "config": { "prefix": "app_" } }).to_string();
    assert_eq!(gateway.ask_admin("PUT", "/vaults/mine", &vault).status, 200);
    collector.expect(&gateway, "hunter3");
    assert_eq!(gateway.ask_admin("PATCH", "/vaults/mine", r#"{"config":{"prefix":null}}"#).status, 200);
    collector.expect(&gateway, "hunter2");
    assert_eq!(gateway.ask_admin("PUT", "/vaults/mine", r#"{"name":"file"}"#).status, 200);
    collector.expect(&gateway, "hunter4");
    std::fs::write(folder.path().join("my-secret"), "hunter5").unwrap();
    collector.expect(&gateway, "hunter5");
    assert_eq!(gateway.ask_admin("DELETE", "/vaults/mine", "").status, 204);
    collector.expect(&gateway, "");
}

#[test]
fn exports_show_references() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kong.yml");
    let plugin = json!({ "name": "http-log", "config": { "http_endpoint": "http://a.test/", "headers": { "x": "{vault://mine/my-secret}" } } });
    std::fs::write(&file, document(&plugin, json!([{ "prefix": "mine", "name": "env" }]))).unwrap();
    let run = |command: &str, file: &str| {
        let mut weir = weir();
        weir.args(["config", command, file, "--set", "database=sqlite", "--prefix"])
            .arg(folder.path().join("prefix"));
        let output = weir.env("MY_SECRET", "hunter2").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    run("db_import", &file.display().to_string());
    let exported = run("db_export", "-");
    assert!(exported.contains("{vault://mine/my-secret}") && exported.contains("prefix: mine"), "{exported}");
    assert!(!exported.contains("hunter"), "{exported}");
}

#[test]
fn certificates_come_from_vaults() {
    let (identity, folder) = (Identity::new("a.test"), tempfile::tempdir().unwrap());
    let read = |path: &std::path::Path| std::fs::read_to_string(path).unwrap();
    let certificate =
        |cert: &str, name: &str| json!({ "cert": cert, "key": "{vault://env/key}", "snis": [name] });
    let document = json!({
        "_format_version": "3.0",
        "certificates": [certificate("{vault://env/cert}", "a.test"), certificate("{vault://file/cert}", "b.test")],
    });
    let builder = Gateway::builder(&document.to_string()).set("vault_rotation_interval", "100ms");
    let builder = builder.set("vault_file_directory", &folder.path().display().to_string());
    let gateway = builder.env("CERT", &read(&identity.cert())).env("KEY", &read(&identity.key())).start();
    let subject = |name: &str| handshake(gateway.proxy_ssl(), &["-servername", name]);
    assert!(subject("a.test").contains("CN=a.test"), "{}", subject("a.test"));
    assert!(!subject("b.test").contains("CN=a.test"), "the default certificate is presented");
    assert!(gateway.log().contains("the certificate is left out"), "{}", gateway.log());
    std::fs::write(folder.path().join("cert"), read(&identity.cert())).unwrap();
    eventually("the certificate is there", || subject("b.test").contains("CN=a.test"));
}

#[test]
fn a_certificate_stays_in_use_until_its_key_is_replaced_too() {
    let (old, new) = (Identity::new("a.test"), Identity::new("a.test"));
    let folder = tempfile::tempdir().unwrap();
    let replace = |name: &str, by: &std::path::Path| {
        std::fs::write(folder.path().join(name), std::fs::read_to_string(by).unwrap()).unwrap();
    };
    replace("cert", &old.cert());
    replace("key", &old.key());
    let certificate =
        json!({ "cert": "{vault://file/cert}", "key": "{vault://file/key}", "snis": ["a.test"] });
    let document = json!({ "_format_version": "3.0", "certificates": [certificate] }).to_string();
    let builder = Gateway::builder(&document).set("vault_rotation_interval", "100ms");
    let gateway = builder.set("vault_file_directory", &folder.path().display().to_string()).start();
    let presented = || handshake(gateway.proxy_ssl(), &["-servername", "a.test"]);
    replace("cert", &new.cert());
    eventually("the pair does not match", || gateway.log().contains("the pair before is used"));
    assert!(presented().contains("CN=a.test"), "{}", presented());
    let reload = gateway.command("reload");
    let warning = String::from_utf8_lossy(&reload.stderr);
    assert!(reload.status.success() && warning.contains("the pair before is used"), "{reload:?}");
    assert!(presented().contains("CN=a.test"), "{}", presented());
    replace("key", &new.key());
    let new = std::fs::read_to_string(new.cert()).unwrap().replace(' ', "");
    eventually("the new certificate is presented", || presented().contains(new.trim()));
}

#[test]
fn a_secret_that_a_plugin_cannot_be_built_with_is_logged_without_it() {
    let http_log = json!({ "name": "http-log", "config": { "http_endpoint": "{vault://env/endpoint}" } });
    let traces =
        json!({ "name": "opentelemetry", "config": { "traces_endpoint": "{vault://env/endpoint}" } });
    for (plugin, secret) in [
        (&http_log, "hunter2 is no URL"),
        (&http_log, "hunter2"),
        (&traces, "hunter2"),
        (&traces, "hunter2:80"),
    ] {
        let gateway = Gateway::builder(&document(plugin, json!([]))).env("ENDPOINT", secret).start();
        assert_eq!(gateway.get("/").status, 404, "a log is no reason to refuse requests");
        assert!(gateway.log().contains("cannot be built with the secrets"), "{}", gateway.log());
        let reload = gateway.command("reload");
        let warning = String::from_utf8_lossy(&reload.stderr);
        assert!(
            reload.status.success() && warning.contains("cannot be built with the secrets"),
            "{reload:?}"
        );
        assert!(!gateway.log().contains("hunter2"), "{}", gateway.log());
    }
}
