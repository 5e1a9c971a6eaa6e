//! `examples/plugin`, a gateway with a plugin from outside the workspace: it builds, and it serves its own declarative
//! file.
use crate::harness::{Builder, Gateway, Upstream};
use crate::http3::client::Client;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

#[test]
fn a_plugin_from_outside_authenticates_waits_and_changes_the_body() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n");
    let gateway = start(&upstream);
    for headers in ["", "X-Api-Token: wrong\r\n"] {
        let rejected = gateway.get_with("/", headers);
        assert_eq!(rejected.status, 401, "{}", rejected.text());
        assert!(rejected.text().contains("No valid API token"), "{}", rejected.text());
    }
    assert_eq!(upstream.connections(), 0);
    let response = gateway.get_with("/", "X-Api-Token: demo-token\r\n");
    assert_eq!((response.status, response.text()), (200, "hello\nserved by api-token\n"));
    assert_eq!(gateway.admin("/api-token/accepted").json()["accepted"], 1);
}

#[test]
fn a_plugin_from_outside_filters_a_body_over_http3() {
    const CHUNKS: &str =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n3\r\nlo\n\r\n0\r\n\r\n";
    let token = json!({"add": [["x-api-token", "demo-token"]]});
    for answer in ["HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n", CHUNKS] {
        let upstream = Upstream::answering(answer);
        let gateway = builder(&upstream).set("proxy_listen", "127.0.0.1:0, 127.0.0.1:0 quic").start();
        let mut client = Client::connect(gateway.proxy_quic());
        let response = client.ask("get", ("GET", "/"), &token).response("get");
        assert_eq!(response.text(), "hello\nserved by api-token\n");
        assert_eq!(response.field("content-length"), None);
        let response = client.ask("head", ("HEAD", "/"), &token).response("head");
        assert_eq!((response.status(), response.text(), response.field("content-length")), (200, "", None));
    }
}

#[test]
fn a_plugin_from_outside_has_an_entity_in_the_admin_api() {
    let gateway = start(&Upstream::echoing());
    for path in ["/api-tokens", "/consumers/demo/api-tokens"] {
        let tokens = gateway.admin(path).json();
        assert_eq!(tokens["data"][0]["token"], "demo-token", "{path}: {tokens}");
    }
    let token = gateway.admin("/api-tokens/demo-token");
    assert_eq!(token.status, 200, "{}", token.text());
    assert_eq!(gateway.admin("/schemas/plugins/api-token").status, 200);
    assert_eq!(gateway.admin("/api-tokens/unknown").status, 404);
    let about = &gateway.admin("/").json()["plugins"]["available_on_server"]["api-token"];
    assert_eq!((about["version"].as_str(), about["priority"].as_i64()), (Some("1.0.0"), Some(1245)));
}

fn start(upstream: &Upstream) -> Gateway {
    builder(upstream).start()
}

fn builder(upstream: &Upstream) -> Builder {
    // Once for all tests of this process.
    static BINARY: LazyLock<PathBuf> = LazyLock::new(build);
    let configuration = fs::read_to_string(folder().join("kong.yml")).unwrap();
    let echo = format!("http://{}", upstream.address);
    Gateway::builder(&configuration).binary(BINARY.clone()).env("ECHO_URL", &echo)
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

fn folder() -> PathBuf {
    root().join("examples/plugin")
}

/// Builds the example from the sources that the workspace's lock file names, because these are on every machine that
/// has built the workspace. Returns the binary.
fn build() -> PathBuf {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    fs::copy(root().join("Cargo.lock"), folder().join("Cargo.lock")).unwrap();
    let built = Command::new(env!("CARGO"))
        .args(["build", "--offline", "--manifest-path"])
        .arg(folder().join("Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    target.join("debug/weir-with-api-token")
}
