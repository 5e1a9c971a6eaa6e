//! Control planes and data planes of Weir: what one is configured with, all serve.
use crate::harness::{Builder, Gateway, Identity, Upstream, eventually, unused_ports};
use rustix::process::Signal;
use serde_json::Value;
use std::path::Path;

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

/// A certificate of the kind that `kong hybrid gen_cert` generates.
pub(crate) fn shared() -> Identity {
    Identity::self_signed_version_1("kong_clustering")
}

pub(crate) fn with_certificate(builder: Builder, identity: &Identity) -> Builder {
    builder
        .set("cluster_cert", &identity.cert().display().to_string())
        .set("cluster_cert_key", &identity.key().display().to_string())
}

/// With certificates of an authority.
pub(crate) fn with_authority(builder: Builder, authority: &Identity) -> Builder {
    builder.set("cluster_mtls", "pki").set("cluster_ca_cert", &authority.cert().display().to_string())
}

/// With Kong's second protocol.
pub(crate) fn with_rpc(builder: Builder) -> Builder {
    builder.set("cluster_rpc", "on").set("cluster_incremental_sync", "on")
}

pub(crate) fn control_plane(identity: &Identity) -> Builder {
    let builder = Gateway::empty().set("role", "control_plane").set("cluster_listen", "127.0.0.1:0");
    with_certificate(builder, identity)
}

/// An address to listen on again after a restart. Its port is below those that connections of other tests get meanwhile.
pub(crate) fn lasting_address() -> String {
    format!("127.0.0.1:{}", unused_ports(1))
}

/// A control plane that listens here, and finds what one of the same folder has left.
pub(crate) fn lasting(identity: &Identity, folder: &Path, listen: &str) -> Gateway {
    let prefix = folder.join("control").display().to_string();
    control_plane(identity).set("prefix", &prefix).set("cluster_listen", listen).start()
}

pub(crate) fn data_plane(identity: &Identity, to: &Gateway) -> Builder {
    let builder = Gateway::empty().set("role", "data_plane");
    let builder = builder.set("cluster_control_plane", &to.cluster().to_string());
    with_certificate(builder, identity)
}

/// Makes a path lead to an upstream; returns the status of the last write, whose query is given.
pub(crate) fn route(node: &Gateway, name: &str, upstream: &Upstream, query: &str) -> u16 {
    let url = format!("{{\"url\": \"http://{}\"}}", upstream.address);
    assert_eq!(node.ask_admin("PUT", &format!("/services/{name}"), &url).status, 200);
    let route = format!("{{\"paths\": [\"/{name}\"], \"service\": {{\"name\": \"{name}\"}}}}");
    node.ask_admin("PUT", &format!("/routes/{name}{query}"), &route).status
}

/// The data planes as a control plane shows them.
pub(crate) fn members(node: &Gateway) -> Vec<Value> {
    node.admin("/clustering/data-planes").json()["data"].as_array().unwrap().clone()
}

pub(crate) fn state(node: &Gateway) -> String {
    members(node).first().map(|member| member["state"].as_str().unwrap().to_owned()).unwrap_or_default()
}

pub(crate) fn is_ready(node: &Gateway) -> bool {
    node.status("/status/ready").status == 200
}

#[test]
fn what_a_control_plane_has_a_data_plane_serves() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = control_plane(&identity).start();
    assert_eq!(route(&control, "before", &upstream, ""), 200);
    let data = data_plane(&identity, &control).set("cluster_dp_labels", "region:eu").start();
    eventually("it serves what was there", || data.get("/before").status == 200);
    assert_eq!(
        route(&control, "since", &upstream, "?wait=all,60000"),
        200,
        "it is answered when it is served"
    );
    assert_eq!(data.get("/since").status, 200);
    assert_eq!(control.ask_admin("DELETE", "/routes/before?wait=all,60000", "").status, 204);
    assert_eq!(data.get("/before").status, 404);
    let member = &members(&control)[0];
    assert_eq!((&member["state"], &member["sync_status"]), (&"connected".into(), &"normal".into()));
    assert_eq!((&member["labels"]["region"], &member["ip"]), (&"eu".into(), &"127.0.0.1".into()));
    assert_eq!(member["config_hash"], data.status("/status").json()["configuration_hash"]);
    assert!(member["cert_details"]["expiry_timestamp"].as_i64().unwrap() > 0);
    let path = format!("/clustering/data-planes/{}", member["id"].as_str().unwrap());
    assert_eq!(control.admin(&path).json()["hostname"], member["hostname"]);
    let in_force = control.admin("/clustering/in-force").json();
    assert_eq!((&in_force["in_force"], &in_force["serving"]), (&true.into(), &1.into()));
    let later = control.admin("/clustering/in-force?revision=9999");
    assert_eq!(later.status, 404);
    assert!(later.text().contains("no such revision: the newest is "), "{}", later.text());
    let link = &data.status("/status").json()["control_plane"];
    assert_eq!((&link["connected"], &link["protocol"]), (&true.into(), &"weir".into()));
}

#[test]
fn roles_leave_out_what_they_do_not_have() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let data = data_plane(&identity, &control).start();
    assert_eq!(control.admin("/").json()["configuration"]["role"], "control_plane");
    assert!(control.log().is_empty() || !control.log().contains("ERROR"), "{}", control.log());
    assert!(data.admin_addresses().is_empty());
    eventually("an empty configuration makes it ready too", || is_ready(&data));
    let reload = data.command("reload");
    assert!(!reload.status.success());
    assert!(String::from_utf8_lossy(&reload.stderr).contains("the control plane sends the configuration"));
    let traditional = Gateway::empty().start();
    for path in ["/clustering/data-planes", "/clustering/status", "/clustering/in-force"] {
        let refused = traditional.admin(path);
        assert_eq!(refused.status, 400);
        assert_eq!(
            refused.json()["message"],
            "this endpoint is only available when Kong is configured to run as Control Plane for the cluster"
        );
    }
    let status = control.admin("/clustering/status");
    assert_eq!(status.header("deprecation"), Some("true"));
    assert_eq!(status.json().as_object().unwrap().len(), 1);
}

#[test]
fn a_data_plane_serves_on_while_its_control_plane_is_away() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let folder = tempfile::tempdir().unwrap();
    let start = |listen: &str| lasting(&identity, folder.path(), listen);
    let listen = lasting_address();
    let mut control = start(&listen);
    let data = data_plane(&identity, &control).start();
    assert_eq!(route(&control, "first", &upstream, ""), 200);
    eventually("it is served", || data.get("/first").status == 200);
    let id = members(&control)[0]["id"].clone();
    control.signal(Signal::KILL);
    control.exit();
    eventually("it is noticed", || data.status("/status").json()["control_plane"]["connected"] == false);
    assert_eq!((data.get("/first").status, is_ready(&data)), (200, true));
    let control = start(&listen);
    assert_eq!(route(&control, "second", &upstream, ""), 200);
    eventually("it comes back", || data.get("/second").status == 200);
    assert_eq!(members(&control)[0]["id"], id);
    let bytes = members(&control)[0]["pushed_bytes"].as_u64().unwrap();
    assert!(bytes < 2_000, "only what differs was sent: {bytes} bytes");
    eventually("it has said that it serves it", || members(&control)[0]["lag"] == 0);
    drop(data);
    eventually("it is shown as gone", || state(&control) == "offline");
    assert_eq!(members(&control)[0]["lag"], 0);
    assert_eq!(control.ask_admin("PUT", "/consumers/ann", "{}").status, 200);
    eventually("it lacks what is committed since", || members(&control)[0]["lag"] == 1);
}

#[test]
fn peers_that_are_not_verified_are_refused_on_both_sides() {
    let (identity, other) = (shared(), shared());
    let control = control_plane(&identity).start();
    let stranger = data_plane(&other, &control).start();
    eventually("the data plane says why", || {
        stranger.log().contains("the control plane has another certificate")
    });
    eventually("the control plane says who", || control.log().contains("the data plane at 127.0.0.1:"));
    assert!(members(&control).is_empty());
    assert_eq!(control.admin("/clustering/in-force").json()["in_force"], false, "no data plane serves it");
    let alone = control.ask_admin("POST", "/consumers?wait=all,1", "{\"username\": \"ann\"}");
    assert_eq!((alone.status, &alone.json()["serving"]), (202, &0.into()));
    assert_eq!(control.ask_admin("POST", "/explain", "{\"path\": \"/\"}").status, 400);
    let refused = stranger.status("/status/ready");
    assert_eq!(refused.status, 503);
    assert_eq!(
        refused.json()["message"],
        "no configuration available (configuration hash is not initialized)"
    );
    assert_eq!(stranger.get("/").status, 404);
}

#[test]
fn authorities_vouch_for_each_node() {
    let (authority, others) = (Identity::new("authority"), Identity::new("others"));
    let control =
        with_authority(control_plane(&Identity::signed("control.test", &authority)), &authority).start();
    let data = |identity: &Identity| {
        with_authority(data_plane(identity, &control), &authority)
            .set("cluster_server_name", "control.test")
            .start()
    };
    let good = data(&Identity::signed("data.test", &authority));
    eventually("it is ready", || is_ready(&good));
    let stranger = data(&Identity::signed("data.test", &others));
    eventually("it is refused with the reason", || {
        stranger.log().contains("403 Forbidden") && stranger.log().contains("its certificate is refused")
    });
    assert_eq!(members(&control).len(), 1);
}

#[test]
fn a_write_that_data_planes_do_not_serve_names_them() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = control_plane(&identity).start();
    let data = data_plane(&identity, &control).set("plugins", "off").start();
    eventually("it is connected", || state(&control) == "connected");
    assert_eq!(route(&control, "good", &upstream, "?wait=all,60000"), 200);
    // No time is spent on waiting for what it will not be sent.
    let plugin = control.ask_admin("POST", "/plugins?wait=all,60000", "{\"name\": \"key-auth\"}");
    assert_eq!(plugin.status, 202, "{}", plugin.text());
    let body = plugin.json();
    assert_eq!(body["behind"][0]["state"], "failed");
    let reason = body["behind"][0]["held_back"].to_string();
    assert!(reason.contains("key-auth"), "{reason}");
    let member = &members(&control)[0];
    assert_eq!(
        (&member["state"], &member["sync_status"]),
        (&"failed".into(), &"plugin_set_incompatible".into())
    );
    assert_eq!(data.get("/good").status, 200, "what was active stays so");

    let id = control.admin("/plugins").json()["data"][0]["id"].as_str().unwrap().to_owned();
    assert_eq!(control.ask_admin("DELETE", &format!("/plugins/{id}?wait=all,60000"), "").status, 204);
    assert_eq!(state(&control), "connected");
    assert_eq!(control.ask_admin("POST", "/consumers?wait=some", "{\"username\": \"ann\"}").status, 400);
}

#[test]
fn both_roles_have_metrics() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let data = data_plane(&identity, &control).start();
    eventually("it is connected", || state(&control) == "connected");
    let metrics = control.admin("/metrics");
    for name in [
        "kong_data_plane_last_seen{node_id=\"",
        "kong_data_plane_config_hash{node_id=\"",
        "kong_version=\"3.9.1\"} 1",
        "weir_data_plane_lag_revisions{",
    ] {
        assert!(metrics.text().contains(name), "{}", metrics.text());
    }
    let metrics = data.status("/metrics");
    for name in ["kong_data_plane_cluster_cert_expiry_timestamp ", "weir_control_plane_connected 1"] {
        assert!(metrics.text().contains(name), "{}", metrics.text());
    }
}

#[test]
fn a_data_plane_starts_with_what_it_received_last() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let folder = tempfile::tempdir().unwrap();
    let prefix = folder.path().join("data").display().to_string();
    let control = control_plane(&identity).start();
    let start = || data_plane(&identity, &control).set("prefix", &prefix).start();
    let data = start();
    eventually("it is ready", || is_ready(&data));
    assert_eq!(route(&control, "first", &upstream, "?wait=all,60000"), 200);
    let id = members(&control)[0]["id"].clone();
    data.signal(Signal::KILL);
    drop(data);
    // Nothing answers at the address of the control plane.
    let away = with_certificate(Gateway::empty().set("role", "data_plane"), &identity);
    let away = away.set("cluster_control_plane", &crate::harness::closed_port().to_string());
    let file = folder.path().join("fallback.yml");
    std::fs::write(&file, "_format_version: '3.0'\n").unwrap();
    let data = away.set("prefix", &prefix).set("declarative_config", &file.display().to_string()).start();
    assert_eq!((data.get("/first").status, is_ready(&data)), (200, true), "the cache counts, not the file");
    drop(data);
    let data = start();
    eventually("it is connected", || state(&control) == "connected");
    assert_eq!((data.get("/first").status, members(&control)[0]["id"].clone()), (200, id));
    assert_eq!(members(&control).len(), 1);
}

#[test]
fn labels_select_what_a_data_plane_gets() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = control_plane(&identity).set("cluster_select_by_labels", "region,tier").start();
    let [eu, us] = ["region:eu", "region:us,tier:gold"]
        .map(|labels| data_plane(&identity, &control).set("cluster_dp_labels", labels).start());
    assert_eq!(route(&control, "everywhere", &upstream, ""), 200);
    assert_eq!(route(&control, "europe", &upstream, ""), 200);
    let tag = |path: &str, tags: &str| {
        let body = format!("{{\"tags\": [{tags}]}}");
        assert_eq!(control.ask_admin("PATCH", &format!("{path}?wait=100%"), &body).status, 200);
    };
    eventually("both are connected", || members(&control).len() == 2);
    // A route follows its service.
    tag("/services/europe", "\"region:eu\", \"owner:ann\"");
    assert_eq!([&eu, &us].map(|data| data.get("/everywhere").status), [200, 200]);
    assert_eq!([&eu, &us].map(|data| data.get("/europe").status), [200, 404]);
    tag("/services/europe", "\"region:eu\", \"region:us\", \"tier:gold\"");
    assert_eq!([&eu, &us].map(|data| data.get("/europe").status), [404, 200], "each key must match");
    tag("/services/europe", "");
    assert_eq!([&eu, &us].map(|data| data.get("/europe").status), [200, 200]);
}
