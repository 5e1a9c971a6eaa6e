//! The plugin's entities, teams and the badges of a team: in the Admin API, in stores and in files.
use super::{binary, gateway};
use crate::harness::{Builder, Gateway, PostgresServer, eventually, weir};
use serde_json::{Value, json};
use std::process::Command;

/// A gateway to be, whose Admin API can be written to.
fn empty(settings: &[(String, String)]) -> Builder {
    let builder = Gateway::empty().binary(binary());
    settings.iter().fold(builder, |builder, (key, value)| builder.set(key, value))
}

#[track_caller]
fn write(gateway: &Gateway, method: &str, path: &str, body: &Value, expected: u16) -> Value {
    let response = gateway.ask_admin(method, path, &body.to_string());
    assert_eq!(response.status, expected, "{method} {path}: {}", response.text());
    if response.text().is_empty() { Value::Null } else { response.json() }
}

/// How many badges there are.
fn badges(gateway: &Gateway) -> usize {
    gateway.admin("/badges").json()["data"].as_array().map_or(0, Vec::len)
}

/// Writes entities and breaks every rule once.
fn fill(gateway: &Gateway) {
    let team = write(gateway, "POST", "/teams", &json!({ "name": "ops" }), 201);
    write(gateway, "POST", "/teams/ops/badges", &json!({ "number": 7, "code": "hunter2" }), 201);
    write(gateway, "POST", "/badges", &json!({ "number": 8, "team": { "name": "ops" } }), 201);
    let taken = write(gateway, "POST", "/badges", &json!({ "number": 7, "team": { "id": team["id"] } }), 409);
    assert_eq!(taken["message"], "UNIQUE violation detected on '{number=7}'");
    let same_code = json!({ "number": 9, "code": "hunter2", "team": { "id": team["id"] } });
    let taken = write(gateway, "POST", "/badges", &same_code, 409);
    assert!(!taken.to_string().contains("hunter2"), "{taken}");
    let unknown = json!({ "number": 9, "team": { "id": "7c2b7b1e-3bb2-4c1d-8f0a-0242ac120002" } });
    let refused = write(gateway, "POST", "/badges", &unknown, 400);
    assert!(
        refused["message"].as_str().unwrap().contains("does not reference an existing 'teams'"),
        "{refused}"
    );
    let unknown = json!({ "number": 9, "team": { "name": "none" } });
    assert_eq!(write(gateway, "POST", "/badges", &unknown, 400)["code"], 13);
    assert_eq!(gateway.admin("/badges/hunter2/team").json()["id"], team["id"]);
    assert_eq!(gateway.admin("/teams/ops/badges").json()["data"].as_array().map(Vec::len), Some(2));
}

/// Deletes the team, and has another one end by itself.
fn empty_again(gateway: &Gateway) {
    write(gateway, "DELETE", "/teams/ops", &json!({}), 204);
    assert_eq!(badges(gateway), 0, "a team takes its badges along");
    write(gateway, "POST", "/teams", &json!({ "name": "brief", "ttl": 6000 }), 201);
    write(gateway, "POST", "/teams/brief/badges", &json!({ "number": 7 }), 201);
    write(gateway, "PATCH", "/teams/brief", &json!({ "created_at": 1_700_000_000 }), 200);
    eventually("the team and its badge have expired", || {
        gateway.admin("/teams/brief").status == 404 && badges(gateway) == 0
    });
}

#[test]
fn entities_that_refer_to_each_other_are_kept_in_sqlite() {
    let gateway = empty(&[]).start();
    fill(&gateway);
    let export = Command::new(binary())
        .args(["config", "db_export", "-", "--prefix"])
        .arg(gateway.prefix())
        .output()
        .unwrap();
    let exported = String::from_utf8(export.stdout).unwrap();
    assert!(exported.contains("name: ops") && exported.contains("number: 8"), "{exported}");
    let of_file = super::gateway(&exported).start();
    assert_eq!(of_file.admin("/badges").json()["data"], gateway.admin("/badges").json()["data"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kong.yml");
    std::fs::write(&file, &exported).unwrap();
    let import = Command::new(binary())
        .args(["config", "db_import"])
        .arg(&file)
        .args(["--set", "database=sqlite", "--prefix"])
        .arg(folder.path().join("prefix"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&import.stdout).into_owned();
    assert!(said.contains("3 entities imported"), "{said}{}", String::from_utf8_lossy(&import.stderr));
    empty_again(&gateway);
}

#[test]
fn entities_that_refer_to_each_other_are_kept_in_postgres() {
    let settings = PostgresServer::settings(PostgresServer::shared_port(), "facilities");
    let mut bootstrap = weir();
    bootstrap.args(["migrations", "bootstrap"]);
    bootstrap.args(settings.iter().flat_map(|(key, value)| ["--set".to_owned(), format!("{key}={value}")]));
    assert!(bootstrap.status().unwrap().success());
    let gateway = empty(&settings).start();
    fill(&gateway);
    let other_node = empty(&settings).start();
    assert_eq!(badges(&other_node), 2);
    empty_again(&gateway);
    eventually("the other node has none either", || badges(&other_node) == 0);
}

#[test]
fn a_file_with_mistakes_in_them_is_refused_without_its_secrets() {
    let file = "_format_version: \"3.0\"\nteams:\n- name: ops\n  badges:\n  - {number: 7, code: hunter2}\n\
                badges:\n- {number: 7, team: ops}\n- {number: 8, team: ops, code: hunter2}\n- {number: 9, team: opt}\n";
    let (_, said) = gateway(file).fail();
    for expected in [
        "badges[0].number: the number `7` is here twice; choose another (first at line 5)",
        "badges[1].code: the same code is here twice; choose another (first at line 5)",
        "badges[2].team: \"opt\" is none of the teams; did you mean `ops`?",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    assert!(!said.contains("hunter2"), "{said}");
}

#[test]
fn a_file_serves_them() {
    let file = "_format_version: \"3.0\"\nteams:\n- name: ops\n  badges:\n  - {number: 7, code: hunter2}\n\
                - {name: spent, ttl: 60, created_at: 1700000000, badges: [{number: 8}]}\n";
    let gateway = gateway(file).start();
    assert_eq!(gateway.admin("/badges/hunter2").json()["number"], 7);
    assert_eq!((badges(&gateway), gateway.admin("/teams/spent").status), (1, 404));
    assert_eq!(gateway.admin("/schemas/badges").status, 200);
}
