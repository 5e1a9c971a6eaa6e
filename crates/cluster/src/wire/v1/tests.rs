//! Messages of `/v1/outlet`: what is written is read, and what is not of this form is refused.
use super::*;
use crate::wire::compat::{KongVersion, Rules};
use crate::wire::hash::Hashes;
use crate::wire::payload::ConfigTable;
use crate::wire::sample::{PLUGINS, document};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;
use std::io::Write;

fn gzip(text: &[u8]) -> Vec<u8> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::fast());
    gzip.write_all(text).unwrap();
    gzip.finish().unwrap()
}

#[test]
fn a_configuration_is_written_and_read() {
    let document =
        document("_format_version: '3.0'\nservices: [{name: a, host: h, created_at: 1, updated_at: 1}]\n");
    let table = ConfigTable::new(&document, PLUGINS);
    let hashes = table.hashes(None);
    let message = Reconfigure { timestamp: 1700000000.123, table: &table, hashes: &hashes };
    let frame = message.encode(&Rules::of(KongVersion::CURRENT)).unwrap();
    let text = inflate(&frame, 10_000).unwrap();
    let value: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&value["type"], &value["timestamp"]), (&json!("reconfigure"), &json!(1700000000.123)));
    assert_eq!(serde_json::from_value::<Hashes>(value["hashes"].clone()).unwrap().parts(), hashes.parts());
    let Received::Reconfigure { hash, table } = Received::parse(&text).unwrap() else { panic!("{text}") };
    assert_eq!(hash, hashes.config);
    assert_eq!(crate::wire::payload::read(table, PLUGINS, 0).unwrap().document, document);
}

#[test]
fn a_frame_is_decompressed_up_to_the_limit() {
    let bomb = gzip(&vec![b' '; 1_000_000]);
    assert!(bomb.len() < 50_000);
    assert!(matches!(inflate(&bomb, 999_999), Err(MessageError::Inflated { limit: 999_999 })));
    assert_eq!(inflate(&bomb, 1_000_000).unwrap().len(), 1_000_000);
}

#[test]
fn a_frame_that_the_other_side_does_not_take_is_not_sent() {
    assert!(check_size(&[0; 100], 100).is_ok());
    let error = check_size(&[0; 101], 100).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the message has 101 bytes, and the other side takes 100: raise `cluster_max_payload` there"
    );
}

#[test]
fn frames_that_are_not_of_this_form_are_refused() {
    let whole = gzip(b"{}");
    for frame in [&b""[..], b"{}", &whole[..whole.len() - 1], &gzip(b"\xff")] {
        assert!(
            matches!(inflate(frame, 100), Err(MessageError::Compression(_) | MessageError::Form(_))),
            "{frame:?}"
        );
    }
    let zeros = "0".repeat(32);
    for text in [
        "",
        "[]",
        "{}",
        "{",
        r#"{"type":"reconfigure","config_table":{}}"#,
        r#"{"type":"reconfigure","config_hash":"short","config_table":{}}"#,
        &format!(r#"{{"type":"reconfigure","config_hash":"{zeros}","config_table":[]}}"#),
        &format!(r#"{{"type":"reconfigure","config_hash":"{zeros}"}}"#),
    ] {
        assert!(matches!(Received::parse(text), Err(MessageError::Form(_))), "{text}");
    }
    assert!(matches!(Received::parse(r#"{"type":"ping"}"#), Ok(Received::Other(other)) if other == "ping"));
}

#[test]
fn the_first_message_is_as_kong_writes_it() {
    let frame = json!({
        "type": "basic_info",
        "plugins": [{ "name": "acl", "version": "3.9.3" }, { "name": "custom" }],
        "process_conf": { "role": "data_plane", "cluster_max_payload": 4194304, "router_flavor": "expressions" },
        "filters": {},
        "labels": { "region": "eu" },
    });
    let info = BasicInfo::decode(frame.to_string().as_bytes()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&info.encode()).unwrap(), frame);
    assert_eq!((info.max_payload(), info.takes_expressions()), (4_194_304, true));
    let empty = br#"{"type":"basic_info","plugins":{},"filters":[]}"#;
    let empty = BasicInfo::decode(empty).unwrap();
    assert_eq!((empty.plugins.len(), empty.max_payload(), empty.takes_expressions()), (0, 16 << 20, false));
    for frame in [
        "",
        "{}",
        r#"{"type":"basic_info"}"#,
        r#"{"type":"other","plugins":[]}"#,
        r#"{"type":"basic_info","plugins":"x"}"#,
    ] {
        assert!(matches!(BasicInfo::decode(frame.as_bytes()), Err(MessageError::Form(_))), "{frame}");
    }
}

#[test]
fn errors_of_a_configuration_are_written_and_read() {
    let report = ErrorReport {
        name: ErrorMessage::INVALID.to_owned(),
        source: "kong.clustering.config_helper".to_owned(),
        message: "in 'services': expected a list".to_owned(),
        config_hash: "0".repeat(32),
        others: json!({ "fields": {} }).as_object().unwrap().clone(),
    };
    let message = ErrorMessage { error: report };
    assert_eq!(ErrorMessage::decode(&message.encode()).unwrap(), message);
    assert!(ErrorMessage::decode(b"{}").is_err());
}

#[test]
fn the_address_names_the_node() {
    let query = Query::parse("node_id=a&node_hostname=h&node_version=3.9.3").unwrap();
    assert_eq!(query.target(), "/v1/outlet?node_id=a&node_hostname=h&node_version=3.9.3");
    assert_eq!(Query::parse("node_id=a&node_version=3.9.3").unwrap().node_hostname, None);
    for query in ["", "node_id=a", "node_version=3.9.3", "node_id=&node_version=3.9.3"] {
        assert_eq!(Query::parse(query), None, "{query}");
    }
}
