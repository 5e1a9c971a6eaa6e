//! Messages of `/v2/outlet`: those of Kong, byte by byte where it matters; and the cases of `deltas.json`.
use super::*;
use crate::wire::compat::{KongVersion, Rules};
use crate::wire::sample::{PLUGINS, cases, document};
use crate::wire::v1::MessageError;
use serde::Deserialize;
use serde_json::{Value, json};
use weir_model::entity::EntityKind;
use weir_model::{Change, Document};

const NOW: i64 = 1_700_000_100;

#[test]
fn a_frame_is_one_raw_block() {
    let call = Message::Call { method: GET_DELTA.to_owned(), params: Vec::new(), id: Some(json!(1)) };
    let frame = encode(&call).unwrap();
    assert_eq!(decode(&frame, 1000).unwrap(), [call]);
    // The block of `{}`, byte by byte, which is no message.
    let error = decode(&[2, 4, 0x7b, 0x7d], 1000).unwrap_err();
    assert!(matches!(error, MessageError::Form(_)), "{error}");
}

#[test]
fn frames_that_are_too_long_or_torn_are_refused() {
    let long = Message::Result { id: json!(1), result: "x".repeat(100_000).into() };
    let frame = encode(&long).unwrap();
    assert!(matches!(decode(&frame, 100_000), Err(MessageError::Inflated { limit: 100_000 })));
    for torn in [&frame[..frame.len() - 1], b"", b"\xff\xff\xff\xff\x0f", b"{}"] {
        let error = decode(torn, 1_000_000).unwrap_err();
        assert!(
            matches!(error, MessageError::Compression(_) | MessageError::Inflated { .. }),
            "{torn:?}: {error}"
        );
    }
}

#[test]
fn messages_are_those_of_json_rpc() {
    for (text, is_read) in [
        (json!({ "jsonrpc": "2.0", "method": "m", "params": [1], "id": 1 }), true),
        (json!({ "jsonrpc": "2.0", "method": "m", "params": [1] }), true),
        (json!({ "jsonrpc": "2.0", "result": true, "id": "a" }), true),
        (json!({ "jsonrpc": "2.0", "error": { "code": -32601, "message": "m" }, "id": 1 }), true),
        (json!({ "jsonrpc": "1.0", "method": "m", "params": [], "id": 1 }), false),
        (json!({ "jsonrpc": "2.0", "method": 1, "params": [], "id": 1 }), false),
        (json!({ "jsonrpc": "2.0", "method": "m", "params": { "a": 1 }, "id": 1 }), false),
        (json!({ "jsonrpc": "2.0", "method": "m", "params": [], "id": {} }), false),
        (json!({ "jsonrpc": "2.0", "method": "m", "params": [], "id": 1.5 }), false),
        (json!({ "jsonrpc": "2.0", "error": "e", "id": 1 }), false),
        (json!({ "jsonrpc": "2.0", "id": 1 }), false),
        (json!([]), false),
        (json!(1), false),
    ] {
        let read = Message::read(text.clone());
        assert_eq!(read.is_ok(), is_read, "{text}");
        if let Ok(message) = read {
            assert_eq!(message.to_value(), text);
        }
    }
    let batch = json!([{ "jsonrpc": "2.0", "method": "m", "params": [] }, { "jsonrpc": "2.0", "result": 1, "id": 1 }]);
    let block = snap::raw::Encoder::new().compress_vec(batch.to_string().as_bytes()).unwrap();
    assert_eq!(decode(&block, 1000).unwrap().len(), 2);
}

fn hello() -> Value {
    json!({ "jsonrpc": "2.0", "method": "kong.meta.v1.hello", "id": 1, "params": [{
        "rpc_capabilities": ["kong.sync.v2"], "rpc_frame_encodings": ["x-snappy-framed"], "kong_version": "3.9.3",
        "kong_hostname": "dp-1", "kong_node_id": "n", "kong_conf": {} }] })
}

#[test]
fn a_hello_names_all_that_kong_asserts() {
    let (read, id) = Hello::decode(hello().to_string().as_bytes()).unwrap();
    assert_eq!((read.kong_hostname.as_str(), &id), ("dp-1", &json!(1)));
    assert_eq!(serde_json::from_slice::<Value>(&read.encode(1)).unwrap(), hello());
    for member in [
        "rpc_capabilities",
        "rpc_frame_encodings",
        "kong_version",
        "kong_hostname",
        "kong_node_id",
        "kong_conf",
    ] {
        let mut lacking = hello();
        lacking["params"][0].as_object_mut().unwrap().remove(member);
        assert!(Hello::decode(lacking.to_string().as_bytes()).is_err(), "{member}");
    }
    let mut other = hello();
    other["params"][0]["rpc_frame_encodings"] = json!(["x-other"]);
    assert!(Hello::decode(other.to_string().as_bytes()).is_err());
}

#[test]
fn a_hello_is_answered() {
    let welcome = Welcome {
        rpc_capabilities: vec![SYNC_CAPABILITY.to_owned()],
        rpc_frame_encoding: ENCODING.to_owned(),
    };
    assert_eq!(Welcome::decode(&welcome.encode(&json!(1))).unwrap(), welcome);
    let other = Welcome { rpc_frame_encoding: "x-other".to_owned(), ..welcome };
    assert!(Welcome::decode(&other.encode(&json!(1))).is_err());
    let refused = br#"{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"no"}}"#;
    assert_eq!(
        Welcome::decode(refused).unwrap_err().to_string(),
        "the message is not understood: the hello is refused: no (-32000)"
    );
}

#[derive(Deserialize)]
struct Case {
    name: String,
    delta: Value,
    /// A file of the entity that it brings.
    file: Option<String>,
    #[serde(default)]
    deletes: Option<String>,
    #[serde(default)]
    refusals: Vec<(String, Option<String>)>,
}

#[test]
fn deltas_are_changes() {
    for case in cases::<Case>(include_str!("deltas.json")) {
        let name = &case.name;
        let delta: Delta = serde_json::from_value(case.delta).unwrap();
        let change = delta.change(PLUGINS, NOW);
        if let Some(file) = case.file {
            let mut entities = document(&file).into_entities();
            assert_eq!(change.unwrap(), entities.pop().map(Change::put), "{name}");
        } else if let Some(id) = case.deletes {
            let change = change.unwrap().unwrap();
            assert_eq!((change.id.to_string(), change.entity), (id, None), "{name}");
        } else if case.refusals.is_empty() {
            assert_eq!(change, Ok(None), "{name}");
        } else {
            let refusals: Vec<_> =
                change.unwrap_err().0.into_iter().map(|it| (it.entity, it.field)).collect();
            assert_eq!(refusals, case.refusals, "{name}");
        }
    }
}

#[test]
fn changes_are_deltas() {
    let file = "_format_version: '3.0'\nservices: [{id: 11111111-1111-4111-8111-111111111111, name: a, host: h, routes: [{name: r, paths: [/]}]}]\nplugins: [{name: own}, {name: rate-limiting}]\nconsumer_groups: [{name: gold}]\n";
    let entities = document(file).into_entities();
    assert_eq!(Delta::of_workspace(SyncVersion::Number(7)).change(PLUGINS, NOW), Ok(None));
    let mut changes = Vec::new();
    for entity in &entities {
        let Some(delta) = Delta::of_all(entity, SyncVersion::Number(7), PLUGINS) else { continue };
        let text = serde_json::to_value(&delta).unwrap();
        assert!(text.get("pk").is_none() && text["version"] == 7, "{text}");
        changes.push(delta.change(PLUGINS, NOW).unwrap().unwrap());
    }
    let names: Vec<_> = changes.iter().map(|change| change.kind.as_str()).collect();
    assert_eq!(names, ["services", "routes", "plugins"]);
    let route = Delta::of(&changes[1], SyncVersion::Number(8), PLUGINS).unwrap();
    assert_eq!(route.entity.unwrap()["service"], json!({ "id": "11111111-1111-4111-8111-111111111111" }));
    let deletion = Change::delete(changes[1].kind, changes[1].id);
    let deletion =
        serde_json::to_value(Delta::of(&deletion, SyncVersion::text(8), PLUGINS).unwrap()).unwrap();
    assert_eq!((&deletion["entity"], &deletion["pk"]["id"]), (&Value::Null, &json!(changes[1].id)));
    // One that Kong cannot have any more goes.
    let own = entities.iter().find(|entity| entity.to_value()["name"] == "own").unwrap();
    assert_eq!(Delta::of(&Change::put(own.clone()), SyncVersion::Number(9), PLUGINS).unwrap().entity, None);
}

/// A document as control planes have it.
fn sorted(file: &str) -> Document {
    let mut document = document(file);
    document.sort();
    document
}

#[test]
fn data_planes_of_a_form_get_what_they_can_have() {
    let file = "_format_version: '3.0'\nservices: [{name: a, host: h, routes: [{name: r, paths: [/]}, {name: x, expression: 'http.path == \"/\"'}]}]\nplugins: [{name: own}, {name: rate-limiting}]\nconsumer_groups: [{name: gold}]\n";
    let document = sorted(file);
    let form = |takes_expressions, version: &str| DeltaForm {
        plugins: PLUGINS,
        rules: Rules::of(KongVersion::parse(version).unwrap()),
        takes_expressions,
        document: &document,
    };
    let traditional = form(false, "3.9.3");
    let withheld: Vec<_> =
        document.entities().flat_map(|it| traditional.withheld(&it)).map(|it| it.entity).collect();
    assert_eq!(withheld.len(), 3, "{withheld:?}");
    let whole = serde_json::to_value(traditional.everything(SyncVersion::Number(7))).unwrap();
    let result = SyncResult::read(whole).unwrap();
    let kinds = |result: &SyncResult| result.deltas.iter().map(|it| it.r#type.clone()).collect::<Vec<_>>();
    assert_eq!(
        (result.wipe, kinds(&result)),
        (true, ["workspaces", "services", "routes", "plugins"].map(str::to_owned).to_vec())
    );
    let whole = serde_json::to_value(form(true, "3.9.3").everything(SyncVersion::text(7))).unwrap();
    assert_eq!(
        (&whole["default"]["full_sync"], kinds(&SyncResult::read(whole.clone()).unwrap()).len()),
        (&json!(true), 5)
    );
    let route = document.entities().find(|it| it.name() == Some("x")).unwrap();
    let delta = traditional.delta(&Change::put(route), SyncVersion::Number(8)).unwrap();
    assert_eq!((delta.entity, delta.pk.is_some()), (None, true), "it goes if it was there before");
}

#[test]
fn routes_with_vars_are_withheld_with_their_plugins() {
    let file = "_format_version: '3.0'\nservices: [{name: s, host: h}]\nroutes:\n- {name: v, paths: [/], vars: [[arg_a, '==', b]], service: s, plugins: [{name: key-auth}]}\n- {name: p, paths: [/p], service: s}\n";
    let document = sorted(file);
    let (plugins, rules) = (PLUGINS, Rules::of(KongVersion::parse("3.9.3").unwrap()));
    let form = DeltaForm { plugins, rules, takes_expressions: true, document: &document };
    let whole = serde_json::to_value(form.everything(SyncVersion::Number(7))).unwrap();
    let sent = SyncResult::read(whole).unwrap().deltas.into_iter().map(|delta| delta.r#type);
    assert_eq!(sent.collect::<Vec<_>>(), ["workspaces", "services", "routes"]);
    let route = document.entities().find(|it| it.name() == Some("v")).unwrap();
    let withheld = form.withheld(&route);
    assert_eq!((withheld.len(), &withheld[0].field), (1, &None));
    let plugin = document.entities().find(|it| it.kind() == EntityKind::Plugins).unwrap();
    assert_eq!(form.withheld(&plugin)[0].reason, "its route is left out");
    for entity in [route, plugin] {
        let delta = form.delta(&Change::put(entity), SyncVersion::Number(8)).unwrap();
        assert_eq!((delta.entity, delta.pk.is_some()), (None, true), "it goes if it was there before");
    }
}

#[test]
fn a_result_that_is_written_already_is_framed() {
    let frame = encode_result(&json!("i"), "[1]").unwrap();
    assert_eq!(decode(&frame, 100).unwrap(), [Message::Result { id: json!("i"), result: json!([1]) }]);
}

#[test]
fn everything_together_breaks_no_rule_or_is_refused() {
    let document = document("_format_version: '3.0'\nservices: [{name: a, host: h}, {name: b, host: h}]\n");
    let changes: Vec<_> = document.into_entities().into_iter().map(Change::put).collect();
    assert_eq!(super::document(changes.clone(), PLUGINS).unwrap().services.len(), 2);
    let mut twice = changes;
    let other = crate::wire::sample::document(
        "_format_version: '3.0'\nservices: [{id: 11111111-1111-4111-8111-111111111111, name: a, host: h}]\n",
    );
    twice.extend(other.into_entities().into_iter().map(Change::put));
    let refusals = super::document(twice, PLUGINS).unwrap_err();
    assert_eq!((refusals[0].entity.as_str(), refusals[0].field.as_deref()), ("service `a`", Some("name")));
}

#[test]
fn results_are_read_in_both_forms() {
    let delta =
        json!({ "version": 7, "type": "services", "ws_id": "w", "entity": null, "pk": { "id": "i" } });
    for (name, form) in [("wipe", SyncVersion::NONE), ("full_sync", SyncVersion::text(1))] {
        let value = json!({ "default": { name: true, "deltas": [delta] } });
        let result = SyncResult::read(value.clone()).unwrap();
        assert!(result.wipe);
        assert_eq!(result.version(), Some(&SyncVersion::Number(7)));
        assert_eq!(result.to_value(&form), value);
    }
    let empty = SyncResult::read(json!({ "default": { "wipe": false, "deltas": {} } })).unwrap();
    assert_eq!((empty.wipe, empty.deltas.len(), empty.version()), (false, 0, None));
    assert_eq!(SyncResult::read(json!({ "default": {} })), None);
    assert_eq!(SyncResult::read(json!(true)), None);
}

#[test]
fn of_several_changes_of_an_entity_the_last_counts() {
    let delta = |version: u64, id: &str, entity: Value| json!({ "version": version, "type": "services", "pk": { "id": id }, "entity": entity });
    let deltas =
        json!([delta(7, "a", json!({ "id": "a" })), delta(8, "b", Value::Null), delta(9, "a", Value::Null)]);
    let result = SyncResult::read(json!({ "default": { "wipe": false, "deltas": deltas } })).unwrap();
    let versions: Vec<_> = result.effective().iter().map(|delta| delta.version.number()).collect();
    assert_eq!(versions, [Some(8), Some(9)]);
}

#[test]
fn parameters_are_read_in_both_forms() {
    let params = vec![json!({ "default": { "version": 0 } })];
    assert_eq!(GetDelta::read(params.clone()).unwrap().version, SyncVersion::NONE);
    assert_eq!(GetDelta { version: SyncVersion::NONE }.params(), params);
    let text = SyncVersion::text(17);
    assert_eq!(serde_json::to_value(&text).unwrap(), "v02_0000000000000000000000000011");
    assert_eq!((text.number(), text.hash().len(), text.with(7)), (Some(17), 32, SyncVersion::text(7)));
    assert_eq!(SyncVersion::Number(17).hash(), "00000000000000000000000000000017");
    let notified = NotifyNewVersion { new_version: text.clone() };
    assert_eq!(NotifyNewVersion::read(notified.params()), Some(notified));
    let error = ValidationError { version: text, error: json!("in 'services': …") };
    assert_eq!(ValidationError::read(error.params()), Some(error));
    assert_eq!(GetDelta::read(Vec::new()), None);
}

#[test]
fn versions_are_whole_numbers_in_whichever_form_lua_writes_them() {
    for (written, number) in [("7", 7), ("7.0", 7), ("1.796054321123e+12", 1_796_054_321_123)] {
        let version: SyncVersion = serde_json::from_str(written).unwrap();
        assert_eq!(version, SyncVersion::Number(number), "{written}");
    }
    for wrong in ["7.5", "-1", "1e300", "null"] {
        assert!(serde_json::from_str::<SyncVersion>(wrong).is_err(), "{wrong}");
    }
}
