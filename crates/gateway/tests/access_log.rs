//! Every request leaves its line, and says where it went.
#![allow(clippy::unwrap_used, clippy::expect_used)]
mod harness;

use harness::{Gateway, Upstream, document, nobody, service};
use rustix::process::Signal;
use serde_json::Value;

#[test]
fn a_stop_loses_no_line() {
    let upstream = Upstream::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi");
    let services = [service("/up", upstream.address, "", ""), service("/down", nobody(), "retries: 0", "")];
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let mut gateway = Gateway::builder(&document(&services, ""))
        .set("proxy_access_log", log.to_str().unwrap())
        .set("proxy_access_log_format", "json")
        .set("workers", "2")
        .start();
    for _ in 0..20 {
        assert_eq!(gateway.get("/up/x?a=1").status, 200);
    }
    assert_eq!(gateway.get("/down").status, 502);
    assert_eq!(gateway.get("/none").status, 404);
    gateway.signal(Signal::TERM);
    assert!(gateway.exit().success());

    let text = std::fs::read_to_string(&log).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 22);
    // Workers hand their lines over independently: there is no order between them.
    let of = |status: u16| lines.iter().find(|line| line["response"]["status"] == status).unwrap();
    let (up, down, none) = (of(200), of(502), of(404));
    let place = upstream.address;
    assert_eq!(up["tries"], serde_json::json!([{ "ip": place.ip().to_string(), "port": place.port() }]));
    assert_eq!((&up["upstream_uri"], &up["upstream_status"]), (&"/x?a=1".into(), &"200".into()));
    assert_eq!(
        (&up["source"], &down["source"], &none["source"]),
        (&"upstream".into(), &"error".into(), &"error".into())
    );
    assert_eq!(none["tries"], serde_json::json!([]));
    assert!(gateway.log().contains("connecting to the upstream failed"), "{}", gateway.log());
}
