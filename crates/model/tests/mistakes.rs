//! Many or long mistakes take little time, and their messages are short.
#![allow(clippy::unwrap_used, missing_docs)]

use serde_json::{Value, json};
use weir_model::entity::{Entity, EntityKind};
use weir_model::schema::FieldError;
use weir_model::{Document, Format, ReadOptions};

fn mistakes(kind: EntityKind, written: &Value) -> Vec<FieldError> {
    let reading = ReadOptions { plugins: crate::sample::PLUGINS, references: &(), hash_passwords: true };
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
        for FieldError { path, message } in mistakes(kind, &written) {
            assert!(path.len() + message.len() < 2200, "{} and {} bytes", path.len(), message.len());
        }
    }
}

#[test]
fn a_file_with_long_names_is_not_repeated_whole() {
    let long = "x".repeat(1 << 20);
    let service = json!({ "host": "a", "name": long });
    let twice = json!({ "_format_version": "3.0", "services": [service, service] }).to_string();
    let keys = format!("{{ \"{long}\": 1, \"{long}\": 2 }}");
    for text in [twice, keys] {
        let problems = Document::read(&text, Format::Json, crate::sample::PLUGINS, &|_| None).unwrap_err();
        assert!(problems.iter().all(|problem| problem.message.len() < 2100));
        assert!(problems.iter().any(|problem| problem.message.contains("is here twice")), "not reported");
    }
}

#[test]
fn the_first_mistakes_come_with_a_hint() {
    let misspelt = json!({ "host": "a", "retrys": 1, "protocol": "htps" });
    let many = json!({ "_format_version": "3.0", "services": vec![misspelt; 10_000] }).to_string();
    let problems = Document::read(&many, Format::Json, crate::sample::PLUGINS, &|_| None).unwrap_err();
    assert_eq!(problems.len(), 20_000);
    let with_hint = problems.iter().filter(|problem| problem.message.contains("did you mean"));
    assert_eq!(with_hint.count(), 20);
    assert!(problems.iter().any(|problem| problem.message == "unknown field `retrys`"));
}
