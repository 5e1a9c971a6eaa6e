//! What plugins may use beside hooks, by a plugin of its own in the whole gateway: `program.rs`, which cargo builds as
//! the example `facilities`.
mod custom_entities;

use crate::harness::{Builder, Gateway, Identity, PATIENCE, TlsUpstream, Upstream, closed_port, eventually};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, mpsc};

/// A file with the plugin; `/` goes to nobody.
fn file(collector: impl Display, server: impl Display) -> String {
    format!(
        "_format_version: \"3.0\"\nroutes: [{{name: r, paths: [/], service: s}}]\nservices:\n- {{name: s, url: \
         \"http://{}\"}}\nplugins:\n- name: facilities\n  config: {{collector: \"{collector}\", server: \"{server}\"}}\n",
        closed_port()
    )
}

fn gateway(configuration: &str) -> Builder {
    Gateway::builder(configuration).binary(binary())
}

/// Of the whole workspace, because its features are those that `make test` has built with. Once for all tests.
fn binary() -> PathBuf {
    static BINARY: LazyLock<PathBuf> = LazyLock::new(|| {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let built = Command::new(env!("CARGO"))
            .args(["build", "--offline", "--workspace", "--example", "facilities", "--target-dir"])
            .arg(target)
            .output()
            .unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        target.join("debug/examples/facilities")
    });
    BINARY.clone()
}

#[test]
fn a_shared_dictionary_is_that_of_all_workers_and_survives_reloads() {
    let configuration = file("http://127.0.0.1:1", "http://127.0.0.1:1");
    let gateway = gateway(&configuration).set("workers", "2").start();
    let count = || gateway.get("/count").text().to_owned();
    let counts: Vec<_> = (0..20).map(|_| count()).collect();
    assert_eq!((counts[0].as_str(), counts[19].as_str()), ("1", "20"));
    assert!(gateway.reload(&format!("{configuration}consumers: [{{username: a}}]\n")).status.success());
    assert_eq!(count(), "21");
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the thread is the test's own")]
fn a_timer_runs_for_as_long_as_its_plugin_is_configured() {
    let configuration = file("http://127.0.0.1:1", "http://127.0.0.1:1");
    let gateway = gateway(&configuration).start();
    let ticks = || gateway.admin("/facilities/ticks").json()["ticks"].as_u64().unwrap();
    let runs = || {
        let before = ticks();
        eventually("the timer runs", || ticks() > before + 2);
    };
    runs();
    assert!(gateway.reload(&configuration.replace("name: r,", "name: other,")).status.success());
    runs();
    let without = configuration.split("plugins:").next().unwrap();
    assert!(gateway.reload(without).status.success());
    eventually("the timer has stopped", || {
        let before = ticks();
        std::thread::sleep(std::time::Duration::from_millis(50));
        ticks() == before
    });
}

#[test]
fn a_metric_of_a_plugin_is_among_those_of_the_node() {
    let configuration = file("http://127.0.0.1:1", "http://127.0.0.1:1");
    let gateway = gateway(&configuration).start();
    gateway.get("/count");
    gateway.get("/count");
    assert!(gateway.reload(&configuration.replace("name: r,", "name: other,")).status.success());
    gateway.get("/other");
    let metrics = gateway.status("/metrics");
    for line in [
        "# TYPE facilities_requests_total counter",
        "facilities_requests_total{path=\"/count\"} 2",
        "facilities_requests_total{path=\"/other\"} 1",
    ] {
        assert!(metrics.text().lines().any(|found| found == line), "{line}: {}", metrics.text());
    }
}

#[test]
fn a_queue_delivers_to_a_server_and_tries_again() {
    let (delivered, batches) = mpsc::channel();
    let collector = Upstream::start(move |mut peer, number| {
        while let Some(request) = peer.request() {
            // The first connection breaks off without an answer.
            if number == 0 {
                return;
            }
            delivered.send(String::from_utf8(request.body).unwrap()).unwrap();
            peer.send("HTTP/1.1 204 No Content\r\n\r\n");
        }
    });
    let collector = format!("http://{}/batches", collector.address);
    let gateway = gateway(&file(collector, "http://127.0.0.1:1")).start();
    for path in ["/count", "/count?a", "/b"] {
        gateway.get(path);
    }
    let batches: Vec<_> = (0..3).map(|_| batches.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(batches, ["/count", "/count", "/b"]);
}

#[test]
fn a_hook_asks_a_server_over_http() {
    let server = Upstream::answering("HTTP/1.1 203 So\r\nContent-Length: 6\r\n\r\nhello\n");
    let gateway = gateway(&file("http://127.0.0.1:1", format!("http://{}/", server.address))).start();
    let response = gateway.get("/ask");
    assert_eq!((response.status, response.text()), (203, "hello\n"));
}

#[test]
fn a_hook_asks_a_server_over_tls_that_it_trusts() {
    let authority = Identity::new("authority");
    let server = TlsUpstream::start(&Identity::signed("localhost", &authority), &[]);
    let configuration = file("http://127.0.0.1:1", format!("https://localhost:{}/", server.address.port()));
    let trusting = authority.cert().display().to_string();
    let trusting = gateway(&configuration).set("lua_ssl_trusted_certificate", &trusting).start();
    let response = trusting.get("/ask");
    assert!(response.status == 200 && response.text().contains("TLSv1.3"), "{}", response.text());
    let wary = gateway(&configuration).start().get("/ask");
    assert!(wary.status == 502 && wary.text().contains("certificate of localhost"), "{}", wary.text());
}

#[test]
fn a_route_of_the_admin_api_has_its_own_status_and_body() {
    let gateway = gateway(&file("http://127.0.0.1:1", "http://127.0.0.1:1")).start();
    let missing = gateway.admin("/facilities/files/a/b.txt");
    assert_eq!((missing.status, &missing.json()["message"]), (404, &"there is no file a/b.txt".into()));
    let accepted = gateway.ask_admin("POST", "/facilities/files/a", r#"{"size": 1}"#);
    assert_eq!((accepted.status, &accepted.json()["accepted"]["size"]), (202, &1.into()));
    assert_eq!(gateway.ask_admin("DELETE", "/facilities/files/a", "").status, 405);
    assert_eq!(gateway.admin("/facilities/other").status, 404);
    let endpoints = gateway.admin("/endpoints").text().to_owned();
    assert!(endpoints.contains("\"/facilities/files/{path}\""), "{endpoints}");
    let described = gateway.admin("/openapi.json").json()["paths"]["/facilities/files/{path}"].clone();
    assert_eq!(described["parameters"][0]["name"], "path", "{described}");
}

#[test]
fn a_plugin_named_like_a_path_of_the_gateway_is_refused() {
    let configuration = file("http://127.0.0.1:1", "http://127.0.0.1:1");
    let (status, said) = gateway(&configuration).env("WITH_CONFLICT", "1").fail();
    assert_eq!(status.code(), Some(1));
    assert!(said.contains("plugin `status`: `/status` is a path of the gateway's Admin API"), "{said}");
}
