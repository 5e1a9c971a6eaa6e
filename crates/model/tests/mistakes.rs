//! Many or long mistakes take no time, and are told briefly.
#![allow(clippy::unwrap_used, missing_docs)]
mod sample;

use serde_json::{Value, json};
use weir_model::Reading;
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::Violation;

fn mistakes(kind: EntityKind, written: &Value) -> Vec<Violation> {
    let reading = Reading { plugins: sample::PLUGINS, references: &(), hash_passwords: true };
    Entity::read(kind, written, &[], reading).unwrap_err()
}

#[test]
fn a_hundred_violations_of_an_entity_are_enough() {
    let numbers = mistakes(EntityKind::Services, &json!({ "host": "a", "tags": vec![1; 300_000] }));
    let unknown: Value = (0..300_000).map(|number| (format!("x{number}"), Value::Null)).collect();
    let unknown = mistakes(EntityKind::Services, &unknown);
    let headers: Value = (0..300_000).map(|number| (format!("x{number}"), Value::from(1))).collect();
    let headers = mistakes(EntityKind::Routes, &json!({ "headers": headers }));
    assert_eq!([numbers.len(), unknown.len(), headers.len()], [100; 3]);
}

#[test]
fn what_is_long_is_not_repeated_whole() {
    let long = "x".repeat(1 << 20);
    for (kind, written) in [
        (EntityKind::Services, json!({ "host": "a", long.as_str(): 1 })),
        (EntityKind::Services, json!({ "host": "a", "protocol": long })),
        (EntityKind::Services, json!({ "host": "a", "client_certificate": long })),
        (EntityKind::Services, json!({ "host": "a b".repeat(1 << 20) })),
        (EntityKind::Services, json!({ "host": "a", "retries": "0".repeat(1 << 20) })),
        (EntityKind::Routes, json!({ "headers": { long.as_str(): 1 } })),
        (EntityKind::Routes, json!({ "paths": [long] })),
        (EntityKind::Plugins, json!({ "name": long })),
    ] {
        for Violation { path, message } in mistakes(kind, &written) {
            assert!(path.len() + message.len() < 2200, "{} and {} bytes", path.len(), message.len());
        }
    }
}
