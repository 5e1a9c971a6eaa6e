//! Against another implementation of the protocols, in Python, that was written from their description alone.
use super::compat::{KongVersion, Rules};
use super::payload::{ConfigTable, read};
use super::sample::{PLUGINS, document};
use super::v1::{Received, Reconfigure, inflate};
use super::v2::{Message, decode, encode};
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

/// What the other implementation makes of bytes.
fn kong(what: &str, bytes: &[u8]) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("bytes");
    std::fs::write(&file, bytes).unwrap();
    let script = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/tests/hybrid/kong/kong.py"));
    let output = Command::new("/usr/bin/python3").arg("-B").arg(script).arg(what).arg(file).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {errors}"))
}

const FILE: &str = "
_format_version: '3.0'
services:
- {name: a, host: u, tags: [x, y], routes: [{name: r, paths: [/a, /b, /c, /d, /e, /f], headers: {x: [y]}, snis: [a.test]}]}
upstreams: [{name: u, targets: [{target: '10.0.0.1:80', created_at: 1700000000.123}]}]
plugins: [{name: rate-limiting, service: a, config: {minute: 5, window: sliding}}, {name: own}, {name: key-auth}]
key_sets: [{name: ks}]
vaults: [{name: env, prefix: my-env, config: {prefix: WEIR}}]
consumers: [{username: ann, keyauth_credentials: [{key: k, ttl: 60, created_at: 1700000000}], basicauth_credentials: [{password: p}]}]
consumer_groups: [{name: gold}]
";

#[test]
fn configurations_are_understood_by_the_other_implementation() {
    let document = document(FILE);
    let table = ConfigTable::new(&document, PLUGINS);
    let hashes = table.hashes(None);
    let message = Reconfigure { timestamp: 1_700_000_000.123, table: &table, hashes: &hashes };
    let frame = message.encode(&Rules::of(KongVersion::CURRENT)).unwrap();
    let kinds = [
        "_format_version",
        "_transform",
        "basicauth_credentials",
        "consumers",
        "key_sets",
        "keyauth_credentials",
        "plugins",
        "routes",
        "services",
        "targets",
        "upstreams",
        "vaults",
        "workspaces",
    ];
    assert_eq!(kong("frame", &frame), json!({ "refusals": [], "hash_matches": true, "kinds": kinds }));
}

#[test]
fn many_rows_are_hashed_as_by_the_other_implementation() {
    let mut file = "_format_version: '3.0'\nconsumers:\n".to_owned();
    for number in 0..6_000 {
        writeln!(file, "- {{username: consumer-{number}, keyauth_credentials: [{{key: key-{number}}}]}}")
            .unwrap();
    }
    let document = document(&file);
    let table = ConfigTable::new(&document, PLUGINS);
    let hashes = table.hashes(None);
    let frame = Reconfigure { timestamp: 1.0, table: &table, hashes: &hashes };
    let frame = frame.encode(&Rules::of(KongVersion::CURRENT)).unwrap();
    assert_eq!(kong("frame", &frame)["hash_matches"], true);
    let text = inflate(&frame, 100_000_000).unwrap();
    let Ok(Received::Reconfigure { table, .. }) = Received::parse(&text) else {
        panic!("it is not understood")
    };
    assert_eq!(read(table, PLUGINS, 0).unwrap().document, document);
}

#[test]
fn blocks_of_snappy_are_those_of_the_other_implementation() {
    let result: Vec<_> = (0..500).map(|number| json!({ "version": number, "type": "routes" })).collect();
    let message = Message::Result { id: json!(1), result: json!({ "default": { "deltas": result } }) };
    assert_eq!(kong("unsnappy", &encode(&message).unwrap()), message.to_value());
    let Value::String(block) = kong("snappy", message.to_value().to_string().as_bytes()) else {
        panic!("no text")
    };
    let digits = block.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
    let block: Vec<u8> = digits.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
    assert_eq!(decode(&block, 1_000_000).unwrap(), [message]);
}
