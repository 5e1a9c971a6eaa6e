//! Peers that break rules, stall, or want too much: each is refused with a reason, and disturbs no other.
use super::fakes::Fake;
use crate::fleet::{control_plane, is_ready, members, shared, with_certificate};
use crate::harness::{Gateway, Peer, Upstream, eventually};
use serde_json::json;
use std::io;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[test]
fn frames_that_kong_does_not_send_end_the_connection() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let port: u64 = control.cluster().port().into();
    let good = Fake::data_plane(port, &identity, json!({}));
    good.event("pong");
    for (command, why) in [
        (json!({ "ping": "short" }), "a ping of 5 bytes is no hash"),
        (json!({ "send": { "opcode": 1, "hex": "7b7d" } }), "it sent a text message"),
        (json!({ "send": { "opcode": 2, "hex": "7b7d" } }), "its `type` is not `error`"),
        (json!({ "send": { "opcode": 2, "hex": "7b7d", "masked": false } }), "nmasked"),
        (json!({ "send": { "opcode": 2, "hex": "7b7d", "rsv": 4 } }), "eserved"),
    ] {
        let mut bad = Fake::data_plane(port, &identity, json!({}));
        bad.event("pong");
        bad.command(&command);
        bad.event("dropped");
        eventually(why, || control.log().contains(why));
    }
    assert_eq!(members(&control).iter().filter(|member| member["state"] != "offline").count(), 1);
}

#[test]
fn a_data_plane_that_takes_too_little_is_not_sent_what_is_longer() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let port = control.cluster().port().into();
    let data = Fake::data_plane(port, &identity, json!({ "max_payload": 64 }));
    data.event("pong");
    eventually("it is held back", || {
        members(&control).first().is_some_and(|member| {
            member["held_back"].as_str().is_some_and(|why| why.contains("cluster_max_payload"))
        })
    });
    assert_eq!(members(&control)[0]["state"], "failed");
}

#[test]
fn a_data_plane_without_a_plugin_is_not_sent_its_configuration() {
    let identity = shared();
    let control = control_plane(&identity).start();
    assert_eq!(control.ask_admin("POST", "/plugins", "{\"name\": \"key-auth\"}").status, 201);
    let port = control.cluster().port().into();
    let data = Fake::data_plane(port, &identity, json!({ "plugins": ["acl"] }));
    data.event("pong");
    eventually("Kong's word says so", || {
        members(&control).first().is_some_and(|member| member["sync_status"] == "plugin_set_incompatible")
    });
    assert!(members(&control)[0]["held_back"].as_str().unwrap().contains("key-auth"));
}

#[test]
fn a_message_beyond_the_limit_names_the_setting() {
    let identity = shared();
    let (mut control, port) = Fake::control_plane(&identity, json!({}));
    let data = with_certificate(Gateway::empty().set("role", "data_plane"), &identity)
        .set("cluster_control_plane", &format!("127.0.0.1:{port}"))
        .set("cluster_max_payload", "4194304")
        .start();
    control.event("basic_info");
    control.command(&json!({ "send": { "opcode": 2, "hex": "00".repeat(4_194_305) } }));
    eventually("the data plane says which", || {
        data.log().contains("longer than cluster_max_payload (4194304)")
    });
}

#[test]
fn connections_that_stall_keep_no_data_plane_away() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let _silent: Vec<_> = (0..100).map(|_| TcpStream::connect(control.cluster()).unwrap()).collect();
    let mut rubbish = Peer::connect(control.cluster());
    rubbish.send("GET /v1/outlet HTTP/1.1\r\n\r\n");
    eventually("it is refused", || control.log().contains("is refused: TLS: "));
    let data = with_certificate(Gateway::empty().set("role", "data_plane"), &identity)
        .set("cluster_control_plane", &control.cluster().to_string())
        .start();
    eventually("it is ready", || is_ready(&data));
}

#[test]
fn a_wrong_port_is_named_with_the_right_one() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let data = |address: &str| {
        with_certificate(Gateway::empty().set("role", "data_plane"), &identity)
            .set("admin_listen", "127.0.0.1:0")
            .set("cluster_control_plane", address)
    };
    let gateway = data(&control.admin_addresses()[0].to_string()).start();
    for expected in [
        "TLS: this port does not speak TLS; name the port of the control plane's `cluster_listen`",
        "nothing is served before a control plane has sent a configuration",
        "admin_listen has no effect when role = \"data_plane\": leave it out",
    ] {
        eventually(expected, || gateway.log().contains(expected));
    }
    let (_, log) = data("http://cp.test:8005").fail();
    assert!(log.contains("write it without `http://` and path, as `host.example.com:8005`"), "{log}");
}

/// A proxy that demands credentials, and counts the tunnels that it opens.
fn forward_proxy(tunnels: Arc<AtomicUsize>) -> Upstream {
    Upstream::start(move |mut peer, _| {
        let Some(request) = peer.request() else { return };
        if request.header("proxy-authorization") != Some("Basic dXNAZXI6cGE6c3M=") {
            peer.send("HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n");
            return;
        }
        let target = request.header("host").unwrap().to_owned();
        tunnels.fetch_add(1, Ordering::SeqCst);
        peer.send("HTTP/1.1 200 Connection established\r\n\r\n");
        let (mut client, mut server) = (peer.into_socket(), TcpStream::connect(target).unwrap());
        let (mut answers, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || drop(io::copy(&mut answers, &mut to_client)));
        let _ = io::copy(&mut client, &mut server);
    })
}

#[test]
fn a_data_plane_connects_through_a_proxy() {
    let identity = shared();
    let control = control_plane(&identity).start();
    let tunnels = Arc::new(AtomicUsize::new(0));
    let proxy = forward_proxy(tunnels.clone());
    let data = |credentials: &str| {
        with_certificate(Gateway::empty().set("role", "data_plane"), &identity)
            .set("cluster_control_plane", &control.cluster().to_string())
            .set("cluster_use_proxy", "on")
            .set("proxy_server", &format!("http://{credentials}@{}", proxy.address))
            .start()
    };
    let refused = data("us%40er:wrong");
    eventually("it says why", || refused.log().contains("it demands other credentials (407)"));
    assert!(!refused.log().contains("wrong@"), "{}", refused.log());
    let good = data("us%40er:pa%3Ass");
    eventually("it is ready", || is_ready(&good));
    assert_eq!(tunnels.load(Ordering::SeqCst), 1);
}
