//! Weir beside fakes of Kong 3.9 and 3.10, by Kong's second protocol.
use super::fakes::Fake;
use crate::fleet::{
    control_plane, is_ready, members, route, shared, with_authority, with_certificate, with_rpc,
};
use crate::harness::{Builder, Gateway, Identity, Message, Upstream, eventually};
use serde_json::{Value, json};

const HELLO: &str = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";

const GET_DELTA: &str = "kong.sync.v2.get_delta";

/// A data plane of the control plane at this port.
fn data_plane(identity: &Identity, port: u64) -> Builder {
    let builder = Gateway::empty().set("role", "data_plane");
    with_rpc(with_certificate(builder.set("cluster_control_plane", &format!("127.0.0.1:{port}")), identity))
}

/// The changes that make a path lead to an upstream.
fn deltas(path: &str, upstream: &Upstream) -> Value {
    let service = json!({
        "id": "11111111-1111-4111-8111-111111111111", "name": "a", "host": "127.0.0.1",
        "port": upstream.address.port(), "protocol": "http", "path": null,
    });
    json!([{ "type": "services", "pk": { "id": service["id"] }, "entity": service }, route_delta(path)])
}

fn route_delta(path: &str) -> Value {
    let route = json!({
        "id": "22222222-2222-4222-8222-222222222222", "name": "r", "paths": [path], "protocols": ["http"],
        "service": { "id": "11111111-1111-4111-8111-111111111111" },
    });
    json!({ "type": "routes", "pk": { "id": route["id"] }, "entity": route })
}

fn protocol(data: &Gateway) -> Value {
    data.status("/status").json()["control_plane"]["protocol"].clone()
}

/// Waits until the data plane of a fake has said that it has this version.
#[track_caller]
fn reports(control: &Fake, hash: &str) {
    while control.event("ping")["hash"] != hash {}
}

#[test]
fn a_data_plane_follows_the_increments_of_kongs_control_plane() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let options = json!({ "rpc": true, "deltas": deltas("/a", &upstream) });
    let (mut control, port) = Fake::control_plane(&identity, options);
    let data = data_plane(&identity, port).set("cluster_dp_labels", "region:eu").start();
    let hello = control.event("hello")["info"].clone();
    assert_eq!(hello["rpc_capabilities"], json!(["kong.sync.v2"]));
    assert_eq!(hello["kong_conf"]["cluster_cert_key"].as_str().map(|key| key.contains("BEGIN")), Some(false));
    reports(&control, &format!("{:032}", 1));
    assert_eq!((data.get("/a").status, is_ready(&data), protocol(&data)), (200, true, json!("v2")));
    control.command(&json!({ "deltas": [route_delta("/b")] }));
    reports(&control, &format!("{:032}", 2));
    assert_eq!((data.get("/a").status, data.get("/b").status), (404, 200));
    assert_eq!(data.status("/status").json()["configuration_hash"], format!("{:032}", 2));
    let gone = json!({ "type": "routes", "pk": route_delta("/")["pk"], "entity": null });
    control.command(&json!({ "deltas": [gone] }));
    reports(&control, &format!("{:032}", 3));
    assert_eq!(data.get("/b").status, 404);
}

#[test]
fn deltas_that_are_refused_leave_the_last_configuration_active() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let options = json!({ "rpc": true, "deltas": deltas("/a", &upstream) });
    let (mut control, port) = Fake::control_plane(&identity, options);
    let data = data_plane(&identity, port).start();
    eventually("it is served", || data.get("/a").status == 200);
    control.command(&json!({ "deltas": [route_delta("~/(")] }));
    let refused = || data.status("/status").json()["control_plane"]["refused"][0].clone();
    eventually("it says what is wrong", || refused().is_string());
    let why = refused().as_str().unwrap().to_owned();
    assert!(why.contains("route") && why.contains("paths"), "{why}");
    assert_eq!(data.get("/a").status, 200);
    control.command(&json!({ "deltas": [route_delta("/c")] }));
    reports(&control, &format!("{:032}", 3));
    assert_eq!((data.get("/c").status, refused()), (200, Value::Null));
}

#[test]
fn a_data_plane_serves_on_when_the_control_plane_sends_rubbish() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let options = json!({ "rpc": true, "deltas": deltas("/a", &upstream) });
    let (mut control, port) = Fake::control_plane(&identity, options);
    let data = data_plane(&identity, port).start();
    reports(&control, &format!("{:032}", 1));
    control.command(&json!({ "send": { "opcode": 2, "hex": "ffffffff0f00" } }));
    control.event("dropped");
    eventually("it says why", || data.log().contains("bytes when it is decompressed"));
    assert_eq!((data.get("/a").status, is_ready(&data)), (200, true));
    control.event("hello");
    reports(&control, &format!("{:032}", 1));
}

#[test]
fn a_data_plane_follows_versions_that_are_texts() {
    let (authority, upstream) = (Identity::new("authority"), Upstream::answering(HELLO));
    let (cp, dp) = (Identity::signed("cp.test", &authority), Identity::signed("dp.test", &authority));
    let options =
        json!({ "ca": authority.cert(), "rpc": true, "texts": true, "deltas": deltas("/a", &upstream) });
    let (mut control, port) = Fake::control_plane(&cp, options);
    let data = with_authority(data_plane(&dp, port), &authority);
    let data = data.set("cluster_server_name", "cp.test").start();
    reports(&control, "v02_0000000000000000000000000001");
    assert_eq!((data.get("/a").status, protocol(&data)), (200, json!("v2")));
    control.command(&json!({ "deltas": [route_delta("~/(")] }));
    let mut call = control.event("call");
    while call["method"] == GET_DELTA {
        call = control.event("call");
    }
    assert_eq!(call["method"], "kong.sync.v2.notify_validation_error");
    assert_eq!(call["params"][0]["version"], "v02_0000000000000000000000000002");
    assert_eq!(data.get("/a").status, 200);
}

#[test]
fn a_control_plane_that_sends_nothing_by_it_is_followed_by_the_first_protocol() {
    for (options, why) in [
        (json!({ "rpc": true, "rpc_capabilities": [] }), "it does not offer kong.sync.v2"),
        (json!({}), "404 Not Found"),
    ] {
        let identity = shared();
        let (control, port) = Fake::control_plane(&identity, options);
        let data = data_plane(&identity, port).start();
        control.event("pushed");
        eventually("it is connected", || protocol(&data) == "v1");
        let log = data.log();
        assert!(log.contains("cluster_incremental_sync has no effect") && log.contains(why), "{log}");
    }
}

#[test]
fn kongs_data_plane_gets_increments() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = with_rpc(control_plane(&identity)).start();
    assert_eq!(route(&control, "first", &upstream, ""), 200);
    let port = control.cluster().port().into();
    let data = Fake::data_plane(port, &identity, json!({ "rpc": true, "labels": { "region": "eu" } }));
    assert_eq!(data.event("connected")["capabilities"], json!(["kong.sync.v2"]));
    let first = data.event("deltas");
    let kinds: Vec<_> =
        first["deltas"].as_array().unwrap().iter().map(|delta| delta["type"].clone()).collect();
    assert_eq!(
        (&first["wipe"], kinds),
        (&json!(true), ["workspaces", "services", "routes"].map(Value::from).to_vec())
    );
    assert_eq!(control.ask_admin("POST", "/consumers?wait=all,60000", "{\"username\": \"ann\"}").status, 201);
    let second = data.event("deltas");
    assert_eq!((&second["wipe"], &second["deltas"][0]["entity"]["username"]), (&json!(false), &json!("ann")));
    assert_eq!(control.ask_admin("DELETE", "/consumers/ann?wait=all,60000", "").status, 204);
    // The fake may have asked twice for what was there before.
    let mut deletion = data.event("deltas")["deltas"][0].clone();
    while !deletion["entity"].is_null() {
        deletion = data.event("deltas")["deltas"][0].clone();
    }
    assert!(deletion["pk"]["id"].is_string(), "{deletion}");
    let member = members(&control)[0].clone();
    assert_eq!((&member["sync_status"], &member["state"]), (&json!("normal"), &json!("connected")));
    assert_eq!((&member["protocol"], &member["labels"]["region"]), (&json!("v2"), &json!("eu")));
    assert_eq!(member["rpc_capabilities"], json!(["kong.sync.v2"]));
    assert_eq!(member["config_hash"], format!("{:032}", deletion["version"].as_u64().unwrap()));
    assert_eq!(member["revision"], deletion["version"]);
}

#[test]
fn what_kong_lacks_is_named() {
    let identity = shared();
    let control = with_rpc(control_plane(&identity)).start();
    let data = Fake::data_plane(control.cluster().port().into(), &identity, json!({ "rpc": true }));
    data.event("deltas");
    assert_eq!(control.ask_admin("PUT", "/consumer_groups/gold?wait=all,60000", "{}").status, 200);
    let altered = || members(&control)[0]["altered"].to_string();
    eventually("it is named", || altered().contains("gold"));
    assert_eq!(control.ask_admin("DELETE", "/consumer_groups/gold?wait=all,60000", "").status, 204);
    eventually("it is not any more", || altered() == "[]");
}

/// The types of the entities that a data plane is sent with the revision of a write, and whether each is put.
#[track_caller]
fn sent_with(data: &Fake, write: &Message) -> Vec<(String, bool)> {
    assert_eq!(write.status, 200, "{}", write.text());
    let revision: u64 = write.header("x-weir-revision").unwrap().parse().unwrap();
    let mut event = data.event("deltas");
    while event["number"] != revision {
        event = data.event("deltas");
    }
    let deltas = event["deltas"].as_array().unwrap().iter();
    deltas.map(|it| (it["type"].as_str().unwrap().to_owned(), !it["entity"].is_null())).collect()
}

#[test]
fn plugins_go_and_come_with_the_route_that_kong_lacks() {
    let (identity, upstream) = (shared(), Upstream::answering(HELLO));
    let control = with_rpc(control_plane(&identity)).start();
    assert_eq!(route(&control, "r", &upstream, ""), 200);
    let plugin = "/routes/r/plugins/00000000-0000-4000-8000-000000000001";
    let write = |path: &str, body: Value| {
        control.ask_admin("PATCH", &format!("{path}?wait=all,60000"), &body.to_string())
    };
    assert_eq!(control.ask_admin("PUT", plugin, "{\"name\": \"key-auth\"}").status, 200);
    let data = Fake::data_plane(control.cluster().port().into(), &identity, json!({ "rpc": true }));
    data.event("deltas");
    let both = |are_put| [("routes".to_owned(), are_put), ("plugins".to_owned(), are_put)];
    let lacking = write("/routes/r", json!({ "vars": [["arg_a", "==", "b"]] }));
    assert_eq!(sent_with(&data, &lacking), both(false));
    let altered = || members(&control)[0]["altered"].to_string();
    assert!(altered().contains("route `r`") && altered().contains("plugin `key-auth`"), "{}", altered());
    let changed = write(plugin, json!({ "config": { "key_names": ["other"] } }));
    assert_eq!(sent_with(&data, &changed), both(false)[1..], "it is not sent alone");
    assert_eq!(sent_with(&data, &write("/routes/r", json!({ "vars": null }))), both(true));
    assert_eq!(altered(), "[]");
}

#[test]
fn versions_of_another_control_plane_count_for_nothing() {
    let authority = Identity::new("authority");
    let (cp, dp) = (Identity::signed("cp.test", &authority), Identity::signed("dp.test", &authority));
    let control = with_rpc(with_authority(control_plane(&cp), &authority)).start();
    assert_eq!(control.ask_admin("POST", "/consumers", "{\"username\": \"ann\"}").status, 201);
    let port = control.cluster().port().into();
    for number in [1, 1_000_000] {
        let options =
            json!({ "ca": authority.cert(), "server_name": "cp.test", "rpc": true, "number": number });
        let data = Fake::data_plane(port, &dp, options);
        assert_eq!(data.event("deltas")["wipe"], true, "{number}");
    }
}

#[test]
fn a_version_counts_for_the_labels_that_it_was_sent_for() {
    let identity = shared();
    let control = with_rpc(control_plane(&identity)).set("cluster_select_by_labels", "region").start();
    assert_eq!(control.ask_admin("POST", "/consumers", "{\"username\": \"ann\"}").status, 201);
    let port = control.cluster().port().into();
    let connect = |region: &str, number: &Value| {
        let node = "44444444-4444-4444-8444-444444444444";
        let options =
            json!({ "rpc": true, "node_id": node, "number": number, "labels": { "region": region } });
        Fake::data_plane(port, &identity, options)
    };
    let number = connect("eu", &json!(0)).event("deltas")["number"].clone();
    assert_eq!(connect("eu", &number).event("unchanged")["number"], number);
    assert_eq!(connect("us", &number).event("deltas")["wipe"], true);
}

#[test]
fn a_data_plane_of_kong_3_10_gets_texts() {
    let identity = shared();
    let control = with_rpc(control_plane(&identity)).start();
    assert_eq!(control.ask_admin("POST", "/consumers", "{\"username\": \"bob\"}").status, 201);
    let port = control.cluster().port().into();
    let options = json!({ "rpc": true, "texts": true, "version": "3.10.0" });
    let mut data = Fake::data_plane(port, &identity, options);
    assert_eq!(data.event("deltas")["wipe"], true);
    assert_eq!(control.ask_admin("POST", "/consumers?wait=all,60000", "{\"username\": \"ann\"}").status, 201);
    let deltas = data.event("deltas");
    let version = deltas["number"].as_str().unwrap();
    assert_eq!(
        (deltas["wipe"].clone(), members(&control)[0]["config_hash"].as_str()),
        (json!(true), Some(version))
    );
    let error = json!({ "version": version, "error": "no such plugin" });
    data.command(&json!({ "notify": "kong.sync.v2.notify_validation_error", "params": [error] }));
    eventually("the refusal is shown", || {
        members(&control)[0]["last_refusal"][0]["message"] == "no such plugin"
    });
}

#[test]
fn a_data_plane_may_have_several_connections() {
    let identity = shared();
    let control = with_rpc(control_plane(&identity)).start();
    let port = control.cluster().port().into();
    let node = "33333333-3333-4333-8333-333333333333";
    let connect = || Fake::data_plane(port, &identity, json!({ "rpc": true, "node_id": node }));
    let (mut one, other) = (connect(), connect());
    one.event("deltas");
    other.event("deltas");
    one.command(&json!({ "drop": true }));
    one.event("dropped");
    assert_eq!(control.ask_admin("POST", "/consumers?wait=all,60000", "{\"username\": \"ann\"}").status, 201);
    let members = members(&control);
    assert_eq!(
        (members.len(), &members[0]["id"], &members[0]["state"]),
        (1, &json!(node), &json!("connected"))
    );
}

#[test]
fn without_sync_connections_are_kept_and_the_first_protocol_goes_on() {
    let identity = shared();
    let control = control_plane(&identity).set("cluster_rpc", "on").set("db_update_frequency", "1").start();
    let port = control.cluster().port().into();
    let node = "33333333-3333-4333-8333-333333333333";
    let first = Fake::data_plane(port, &identity, json!({ "node_id": node }));
    first.event("applied");
    let options = json!({ "rpc": true, "node_id": node, "rpc_capabilities": ["kong.debug.v1"] });
    let mut second = Fake::data_plane(port, &identity, options);
    assert_eq!(second.event("connected")["capabilities"], json!([]));
    for command in ["call", "notify"] {
        second.command(&json!({ command: GET_DELTA, "params": [{ "default": { "version": 0 } }] }));
    }
    second.command(&json!({ "call": "kong.none.v1.none", "params": [] }));
    for _ in 0..2 {
        assert_eq!(second.event("error")["error"], json!({ "code": -32601, "message": "Method not found" }));
    }
    assert_eq!(control.ask_admin("POST", "/consumers?wait=all,60000", "{\"username\": \"ann\"}").status, 201);
    let member = members(&control)[0].clone();
    assert_eq!((&member["protocol"], &member["state"]), (&json!("v1"), &json!("connected")));
    assert_eq!(member["rpc_capabilities"], json!(["kong.debug.v1"]));
}

#[test]
fn it_is_refused_where_it_is_off_and_not_used_between_nodes_of_weir() {
    let identity = shared();
    let off = control_plane(&identity).start();
    Fake::data_plane(off.cluster().port().into(), &identity, json!({ "rpc": true })).event("dropped");
    eventually("the log says why", || off.log().contains("cluster_rpc is off at the control plane"));
    let control = with_rpc(control_plane(&identity)).start();
    let data = data_plane(&identity, control.cluster().port().into()).start();
    eventually("it is ready", || is_ready(&data));
    assert_eq!(protocol(&data), "weir");
    let lacking = control_plane(&identity).set("cluster_incremental_sync", "on").start();
    assert!(lacking.log().contains("cluster_rpc is off: switch both on"), "{}", lacking.log());
}

#[test]
fn frames_that_are_not_calls_end_the_connection_alone() {
    let identity = shared();
    let control = with_rpc(control_plane(&identity)).start();
    let port: u64 = control.cluster().port().into();
    let good = Fake::data_plane(port, &identity, json!({ "rpc": true }));
    good.event("deltas");
    let frame = |hex: &str| json!({ "send": { "opcode": 2, "hex": hex } });
    let text = |text: &str| json!({ "text": text });
    for (command, why) in [
        (frame("7b7d"), "compress"),
        (frame("ffffffff0f00"), "bytes"),
        (text("{}"), "JSON-RPC 2.0"),
        (text("{"), "Eof error at line 1"),
        (text("[]"), "it is no object"),
        (text(r#"{"jsonrpc":"2.0","method":"m","params":{"a":1},"id":1}"#), "its parameters are no list"),
    ] {
        let mut bad = Fake::data_plane(port, &identity, json!({ "rpc": true }));
        bad.event("deltas");
        bad.command(&command);
        bad.event("dropped");
        eventually(why, || control.log().contains(why));
    }
    assert_eq!(
        control.ask_admin("POST", "/consumers?wait=100%25,60000", "{\"username\": \"ann\"}").status,
        201
    );
    assert_eq!(members(&control).iter().filter(|member| member["state"] == "connected").count(), 1);
}

#[test]
fn answers_to_no_call_and_lists_of_calls_are_taken() {
    let identity = shared();
    let control = with_rpc(control_plane(&identity)).start();
    let mut data = Fake::data_plane(control.cluster().port().into(), &identity, json!({ "rpc": true }));
    data.event("deltas");
    let unknown = |id: u64| format!(r#"{{"jsonrpc":"2.0","method":"m","params":[],"id":{id}}}"#);
    for text in [
        r#"{"jsonrpc":"2.0","result":true,"id":99}"#.to_owned(),
        r#"{"jsonrpc":"2.0","result":true,"id":"a"}"#.to_owned(),
        format!("[{},{}]", unknown(50), unknown(51)),
    ] {
        data.command(&json!({ "text": text }));
    }
    assert_eq!((&data.event("error")["id"], &data.event("error")["id"]), (&json!(50), &json!(51)));
    data.command(&json!({ "call": GET_DELTA, "params": [{}] }));
    assert_eq!(data.event("error")["error"]["code"], -32000);
}
