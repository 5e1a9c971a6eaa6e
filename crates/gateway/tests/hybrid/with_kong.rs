//! Weir beside fakes of Kong 3.9, by Kong's first protocol.
use super::drills::without_control_plane;
use super::fakes::Fake;
use crate::fleet::{control_plane, is_ready, members, route, shared, with_certificate};
use crate::harness::{Builder, Gateway, Identity, Upstream, eventually};
use serde_json::{Value, json};

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A data plane of the control plane at this port.
fn data_plane(identity: &Identity, port: u64) -> Builder {
    let builder = Gateway::empty().set("role", "data_plane");
    with_certificate(builder.set("cluster_control_plane", &format!("127.0.0.1:{port}")), identity)
}

/// A configuration with one route.
pub(super) fn table(path: &str, upstream: &Upstream) -> Value {
    let service = json!({
        "id": "11111111-1111-4111-8111-111111111111", "name": "a", "host": "127.0.0.1",
        "port": upstream.address.port(), "protocol": "http", "path": null,
    });
    let route = json!({
        "id": "22222222-2222-4222-8222-222222222222", "name": "r", "paths": [path], "service": service["id"],
        "protocols": ["http"],
    });
    json!({ "services": [service], "routes": [route] })
}

#[test]
fn a_data_plane_serves_what_kongs_control_plane_sends() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let (mut control, port) =
        Fake::control_plane(&identity, json!({ "config_table": table("/a", &upstream) }));
    let data = data_plane(&identity, port).set("cluster_dp_labels", "region:eu").start();
    let info = control.event("basic_info")["info"].clone();
    assert_eq!((&info["labels"]["region"], &info["filters"]), (&json!("eu"), &json!({})));
    assert_eq!(info["process_conf"]["role"], "data_plane");
    assert_eq!(
        info["process_conf"]["cluster_cert_key"].as_str().map(|key| key.contains("BEGIN")),
        Some(false)
    );
    let pushed = control.event("pushed");
    while control.event("ping")["hash"] != pushed["hash"] {}
    assert_eq!((data.get("/a").status, is_ready(&data)), (200, true));
    assert_eq!(data.status("/status").json()["configuration_hash"], pushed["hash"]);
    assert_eq!(data.status("/status").json()["control_plane"]["protocol"], "v1");
    control.command(&json!({ "push": table("/b", &upstream) }));
    let pushed = control.event("pushed");
    while control.event("ping")["hash"] != pushed["hash"] {}
    assert_eq!((data.get("/a").status, data.get("/b").status), (404, 200));
}

#[test]
fn what_a_data_plane_refuses_leaves_the_last_configuration_active() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let (mut control, port) =
        Fake::control_plane(&identity, json!({ "config_table": table("/a", &upstream) }));
    let data = data_plane(&identity, port).start();
    eventually("it is served", || data.get("/a").status == 200);
    let mut wrong = table("/b", &upstream);
    wrong["routes"][0]["paths"] = json!(["~/("]);
    control.command(&json!({ "push": wrong }));
    let refused = || data.status("/status").json()["control_plane"]["refused"][0].clone();
    eventually("it says what is wrong", || refused().is_string());
    let why = refused().as_str().unwrap().to_owned();
    assert!(why.contains("route") && why.contains("paths"), "{why}");
    assert_eq!((data.get("/a").status, data.get("/b").status), (200, 404));
    control.command(&json!({ "push": table("/c", &upstream) }));
    eventually("the next one is served", || data.get("/c").status == 200);
    eventually("nothing is refused any more", || refused().is_null());
}

#[test]
fn a_data_plane_that_moves_from_kong_to_an_empty_control_plane_serves_nothing() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("data").display().to_string();
    let (kong, port) = Fake::control_plane(&identity, json!({ "config_table": table("/a", &upstream) }));
    let data = data_plane(&identity, port).set("prefix", &prefix).start();
    let pushed = kong.event("pushed");
    while kong.event("ping")["hash"] != pushed["hash"] {}
    drop((data, kong));
    let alone = without_control_plane(&identity).set("prefix", &prefix).start();
    assert_eq!(alone.get("/a").status, 200, "it is still cached");
    drop(alone);
    let control = control_plane(&identity).start();
    let data = data_plane(&identity, control.cluster().port().into()).set("prefix", &prefix).start();
    eventually("the empty configuration is served", || data.get("/a").status == 404);
    assert!(is_ready(&data));
    assert_eq!(route(&control, "b", &upstream, "?wait=all,60000"), 200);
    assert_eq!(data.get("/b").status, 200);
}

#[test]
fn kongs_data_planes_get_the_newest_configuration_after_none_was_there() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = control_plane(&identity).set("db_update_frequency", "1").start();
    let port = control.cluster().port().into();
    let first = Fake::data_plane(port, &identity, json!({}));
    let before = first.event("applied")["hash"].clone();
    drop(first);
    eventually("no data plane is connected", || {
        members(&control).iter().all(|one| one["state"] == "offline")
    });
    assert_eq!(route(&control, "since", &upstream, ""), 200);
    let second = Fake::data_plane(port, &identity, json!({}));
    let applied = second.event("applied");
    assert_eq!(applied["hash_matches"], true);
    assert_ne!(applied["hash"], before);
}

#[test]
fn a_connection_that_ends_while_its_configuration_is_applied_leaves_it_whole() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let (mut control, port) =
        Fake::control_plane(&identity, json!({ "config_table": table("/a", &upstream) }));
    let data = data_plane(&identity, port).start();
    let pushed = control.event("pushed");
    while control.event("ping")["hash"] != pushed["hash"] {}
    let mut larger = table("/b", &upstream);
    let routes = (0..3000).map(|nth| {
        let mut route = larger["routes"][0].clone();
        route["id"] = format!("33333333-3333-4333-8333-{nth:012}").into();
        route["name"] = format!("more-{nth}").into();
        route["paths"] = json!([format!("/more-{nth}")]);
        route
    });
    let routes: Vec<Value> = routes.collect();
    larger["routes"] = routes.into();
    control.command(&json!({ "push": larger }));
    let pushed = control.event("pushed");
    control.command(&json!({ "drop": true }));
    while control.event("ping")["hash"] != pushed["hash"] {}
    for (path, status) in [("/a", 404), ("/more-0", 200), ("/more-2999", 200)] {
        assert_eq!(data.get(path).status, status, "{path}");
    }
}

#[test]
fn kongs_data_plane_gets_what_a_control_plane_has() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = control_plane(&identity).set("db_update_frequency", "1").start();
    let port = control.cluster().port().into();
    let data = Fake::data_plane(port, &identity, json!({ "labels": { "region": "eu" } }));
    data.event("applied");
    assert_eq!(route(&control, "first", &upstream, "?wait=all,60000"), 200, "a ping acknowledges it");
    let member = members(&control)[0].clone();
    assert_eq!((&member["sync_status"], &member["state"]), (&json!("normal"), &json!("connected")));
    assert_eq!((&member["labels"]["region"], &member["protocol"]), (&json!("eu"), &json!("v1")));
    assert_eq!(member["version"], "3.9.3");
}

#[test]
fn a_data_plane_of_another_version_is_refused_with_kongs_word() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let port = control.cluster().port().into();
    let data = Fake::data_plane(port, &identity, json!({ "version": "4.0.0" }));
    data.event("dropped");
    let member = members(&control)[0].clone();
    assert_eq!(member["sync_status"], "kong_version_incompatible");
    assert!(member["held_back"].as_str().unwrap().contains("4.0.0"), "{member}");
}

#[test]
fn a_control_plane_that_stops_closes_the_connection_as_going_away() {
    let identity = shared();
    let mut control = control_plane(&identity).start();
    let data = Fake::data_plane(control.cluster().port().into(), &identity, json!({}));
    data.event("pong");
    control.signal(rustix::process::Signal::TERM);
    assert_eq!(data.event("dropped")["why"], "a close frame 1001");
    control.exit();
}

#[test]
fn labels_select_what_kongs_data_plane_gets() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = control_plane(&identity).set("cluster_select_by_labels", "region").start();
    assert_eq!(route(&control, "everywhere", &upstream, ""), 200);
    assert_eq!(route(&control, "europe", &upstream, ""), 200);
    let tags = "{\"tags\": [\"region:eu\"]}";
    assert_eq!(control.ask_admin("PATCH", "/services/europe", tags).status, 200);
    let port = control.cluster().port().into();
    for (region, count) in [("eu", 2), ("us", 1)] {
        let data = Fake::data_plane(port, &identity, json!({ "labels": { "region": region } }));
        let applied = data.event("applied");
        let table = &applied["config_table"];
        for kind in ["services", "routes"] {
            assert_eq!(table[kind].as_array().unwrap().len(), count, "{region}: {table}");
        }
        assert_eq!(applied["hash_matches"], true);
    }
}
