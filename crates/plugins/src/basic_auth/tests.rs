//! basic-auth over exchanges in memory.

use super::*;
use crate::PLUGINS;
use serde_json::json;
use weir_plugin::testing::{Gateway, check_cases};

#[test]
fn cases() {
    check_cases(PLUGINS, "basic-auth", include_str!("cases.json"));
}

fn header(name: &str, password: &str) -> String {
    format!("GET /\nAuthorization: Basic {}", BASE64.encode(format!("{name}:{password}")))
}

#[test]
fn a_password_seen_before_is_right_again_and_a_wrong_one_stays_wrong() {
    let gateway = Gateway::new(PLUGINS);
    let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
    let status = |password: &str| gateway.send(&[&*plugin], &header("alice", password)).status();
    let passwords = ["wrong", "alice-secret", "alice-secret", "wrong", "alice-secre", "alice-secret"];
    assert_eq!(passwords.map(status), [401, 200, 200, 401, 401, 200]);
}

#[test]
fn a_new_configuration_forgets_old_passwords() {
    let mut gateway = Gateway::new(PLUGINS);
    let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
    assert_eq!(gateway.send(&[&*plugin], &header("alice", "alice-secret")).status(), 200);
    gateway = Gateway::new(PLUGINS);
    Arc::make_mut(&mut gateway.document.basicauth_credentials[0]).password = "0".repeat(40);
    let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
    assert_eq!(gateway.send(&[&*plugin], &header("alice", "alice-secret")).status(), 401);
}

#[test]
fn what_is_stored_must_be_a_hash() {
    for stored in ["alice-secret", "", &"é".repeat(20), &"+f".repeat(20)] {
        let mut gateway = Gateway::new(PLUGINS);
        Arc::make_mut(&mut gateway.document.basicauth_credentials[0]).password = stored.to_owned();
        let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
        assert_eq!(gateway.send(&[&*plugin], &header("alice", "alice-secret")).status(), 401, "{stored}");
    }
}

#[test]
fn long_passwords_are_read_too() {
    let mut gateway = Gateway::new(PLUGINS);
    let password = "x".repeat(1_000);
    let digest = stored_form(password.as_bytes(), &gateway.document.consumers[0].id.to_string());
    let stored: String = digest.iter().map(|byte| format!("{byte:02X}")).collect();
    Arc::make_mut(&mut gateway.document.basicauth_credentials[0]).password = stored;
    let plugin = gateway.plugin("basic-auth", json!({})).unwrap();
    assert_eq!(gateway.send(&[&*plugin], &header("alice", &password)).status(), 200);
    assert_eq!(gateway.send(&[&*plugin], &header("alice", &password[1..])).status(), 401);
}
