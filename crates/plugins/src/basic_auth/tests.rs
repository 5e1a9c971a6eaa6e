//! basic-auth over exchanges in memory.

use super::*;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::{Gateway, check_cases_in, custom, id};

// sha1 of alice-secret and bob:secret, each followed by the consumer's id
const ALICE_STORED: &str = "df4037c76e9d01e8547077b385e60a68eaadd5c9";
const BOB_STORED: &str = "cc52b8b839806255a884d82fb2d9bf0c528f8ff3";

/// Alice and Bob with a password each.
fn gateway() -> Gateway {
    gateway_with(ALICE_STORED)
}

/// The same, with this stored in place of Alice's password.
fn gateway_with(stored: &str) -> Gateway {
    let mut gateway = Gateway::new(PLUGINS);
    let password = |number, owner, username: &str, stored: &str| -> BasicAuthCredential {
        let password = if stored.is_empty() { "x" } else { stored };
        let credential = custom(
            json!({ "id": id(number), "consumer": id(owner), "username": username, "password": password }),
        );
        BasicAuthCredential { password: stored.to_owned(), ..credential }
    };
    let passwords = [password(0xb1, 1, "alice", stored), password(0xb2, 2, "bob", BOB_STORED)];
    gateway.document.custom.set(passwords);
    gateway
}

#[test]
fn secrets_are_hashed_as_kong_does() {
    let mut alice: BasicAuthCredential =
        custom(json!({ "id": id(1), "consumer": id(1), "username": "alice", "password": "alice-secret" }));
    alice.hash_secrets();
    assert_eq!(alice.password, ALICE_STORED);
}

#[test]
fn cases() {
    check_cases_in(gateway, "basic-auth", include_str!("cases.json"));
}

fn header(name: &str, password: &str) -> String {
    format!("GET /\nAuthorization: Basic {}", BASE64.encode(format!("{name}:{password}")))
}

#[test]
fn a_password_seen_before_is_right_again_and_a_wrong_one_stays_wrong() {
    let gateway = gateway();
    let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
    let status = |password: &str| gateway.send(&[&*plugin], &header("alice", password)).status();
    let passwords = ["wrong", "alice-secret", "alice-secret", "wrong", "alice-secre", "alice-secret"];
    assert_eq!(passwords.map(status), [401, 200, 200, 401, 401, 200]);
}

#[test]
fn a_new_configuration_forgets_old_passwords() {
    let mut gateway = gateway();
    let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
    assert_eq!(gateway.send(&[&*plugin], &header("alice", "alice-secret")).status(), 200);
    gateway = gateway_with(&"0".repeat(40));
    let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
    assert_eq!(gateway.send(&[&*plugin], &header("alice", "alice-secret")).status(), 401);
}

#[test]
fn what_is_stored_must_be_a_hash() {
    for stored in ["alice-secret", "", &"é".repeat(20), &"+f".repeat(20)] {
        let gateway = gateway_with(stored);
        let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
        assert_eq!(gateway.send(&[&*plugin], &header("alice", "alice-secret")).status(), 401, "{stored}");
    }
}

#[test]
fn long_passwords_are_read_too() {
    let password = "x".repeat(1_000);
    let digest = stored_form(password.as_bytes(), &id(1).to_string());
    let stored: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    let gateway = gateway_with(&stored);
    let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
    assert_eq!(gateway.send(&[&*plugin], &header("alice", &password)).status(), 200);
    assert_eq!(gateway.send(&[&*plugin], &header("alice", &password[1..])).status(), 401);
}
