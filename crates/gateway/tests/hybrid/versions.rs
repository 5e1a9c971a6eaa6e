//! Which data planes of Kong get a configuration, and which control planes of Kong serve a data plane: the cases of
//! `versions.json`, by both protocols, with shared certificates and with authorities.
use super::fakes::Fake;
use crate::fleet::{control_plane, members, shared, with_authority, with_certificate, with_rpc};
use crate::harness::{Gateway, Identity, eventually};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Case {
    name: String,
    version: Option<String>,
    plugins: Option<Value>,
    status: String,
}

fn cases() -> Vec<Case> {
    serde_json::from_str(include_str!("versions.json")).expect("the cases are JSON")
}

/// Connects the data plane of each case to a control plane that configures key-auth. By the second protocol Kong refuses none.
fn data_planes_are_judged(
    control: &Gateway,
    identity: &Identity,
    options: &Value,
    is_refused: impl Fn(&Case) -> bool,
) {
    assert_eq!(control.ask_admin("POST", "/plugins", "{\"name\": \"key-auth\"}").status, 201);
    let port = control.cluster().port().into();
    for (index, case) in cases().iter().enumerate() {
        let node = format!("{index:08x}-3333-4333-8333-333333333333");
        let mut options = options.clone();
        options["node_id"] = node.as_str().into();
        options["version"] = case.version.as_deref().unwrap_or("3.9.3").into();
        if let Some(plugins) = &case.plugins {
            options["plugins"] = plugins.clone();
        }
        let data = Fake::data_plane(port, identity, options);
        let (event, status) = match is_refused(case) {
            true if case.status == "kong_version_incompatible" => ("dropped", case.status.as_str()),
            true => ("pong", case.status.as_str()),
            false => ("synced", "normal"),
        };
        data.event(event);
        let shown = || {
            let members = members(control);
            members.iter().find(|member| member["id"] == node).map(|member| member["sync_status"].clone())
        };
        eventually(&case.name, || shown() == Some(status.into()));
    }
}

#[test]
fn by_the_first_protocol_with_a_shared_certificate() {
    let identity = shared();
    let control = control_plane(&identity).start();
    data_planes_are_judged(&control, &identity, &json!({}), |case| case.status != "normal");
}

#[test]
fn by_the_first_protocol_with_an_authority() {
    let authority = Identity::new("authority");
    let (cp, dp) = (Identity::signed("cp.test", &authority), Identity::signed("dp.test", &authority));
    let control = with_authority(control_plane(&cp), &authority).start();
    let options = json!({ "ca": authority.cert(), "server_name": "cp.test" });
    data_planes_are_judged(&control, &dp, &options, |case| case.status != "normal");
}

#[test]
fn by_the_second_protocol_none_is_refused() {
    let identity = shared();
    let control = with_rpc(control_plane(&identity)).start();
    data_planes_are_judged(&control, &identity, &json!({ "rpc": true }), |_| false);
}

#[test]
fn by_the_second_protocol_none_is_refused_with_an_authority() {
    let authority = Identity::new("authority");
    let (cp, dp) = (Identity::signed("cp.test", &authority), Identity::signed("dp.test", &authority));
    let control = with_rpc(with_authority(control_plane(&cp), &authority)).start();
    let options = json!({ "ca": authority.cert(), "server_name": "cp.test", "rpc": true });
    data_planes_are_judged(&control, &dp, &options, |_| false);
}

#[test]
fn control_planes_of_kong_serve_a_data_plane_of_their_version_or_an_older_one() {
    for (version, event) in [
        ("3.9.0", "pushed"),
        ("3.9.3", "pushed"),
        ("3.10.0", "pushed"),
        ("3.8.0", "refused"),
        ("4.0.0", "refused"),
    ] {
        let identity = shared();
        let (control, port) = Fake::control_plane(&identity, json!({ "version": version }));
        let builder = Gateway::empty().set("role", "data_plane");
        let builder = builder.set("cluster_control_plane", &format!("127.0.0.1:{port}"));
        let _data = with_certificate(builder, &identity).start();
        control.event(event);
    }
}
