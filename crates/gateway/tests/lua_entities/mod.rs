//! Entities that a plugin in Lua declares: in the Admin API, in stores, in files, and in the plugin's code.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::fleet::{control_plane, data_plane, shared};
use crate::harness::{Builder, Gateway, Message, PostgresServer, eventually, weir};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The folder that holds the plugin, and the settings that name it.
pub(crate) struct Notes(TempDir);

impl Notes {
    pub(crate) fn new() -> Notes {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("kong/plugins/notes");
        fs::create_dir_all(&target).unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lua_entities/notes");
        for file in fs::read_dir(source).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), target.join(file.file_name())).unwrap();
        }
        Notes(folder)
    }

    pub(crate) fn settings(&self) -> Vec<(String, String)> {
        let path = format!("{}/?.lua", self.0.path().display());
        vec![("plugins".to_owned(), "bundled,notes".to_owned()), ("lua_package_path".to_owned(), path)]
    }

    fn of(&self, builder: Builder) -> Builder {
        self.settings().iter().fold(builder, |builder, (key, value)| builder.set(key, value))
    }
}

#[track_caller]
fn write(gateway: &Gateway, method: &str, path: &str, body: &Json, expected: u16) -> Json {
    let response = gateway.ask_admin(method, path, &body.to_string());
    assert_eq!(response.status, expected, "{method} {path}: {}", response.text());
    if response.text().is_empty() { Json::Null } else { response.json() }
}

/// What the plugin answers.
fn ask(gateway: &Gateway, method: &str, title: &str) -> Message {
    gateway.send(&format!("{method} /?title={title} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"))
}

/// A route with the plugin, and a consumer.
fn fill(gateway: &Gateway) {
    write(gateway, "POST", "/routes", &json!({ "name": "all", "paths": ["/"] }), 201);
    write(gateway, "POST", "/plugins", &json!({ "name": "notes" }), 201);
    write(gateway, "POST", "/consumers", &json!({ "username": "jane" }), 201);
    eventually("the plugin runs", || ask(gateway, "GET", "none").text().contains("no note"));
}

/// The Admin API has the entities by their names, with the rules of the schema.
fn administers(gateway: &Gateway) {
    let note = write(gateway, "POST", "/notes", &json!({ "title": "first", "tags": ["a"] }), 201);
    assert_eq!((&note["size"], &note["parts"], &note["ttl"]), (&json!(3), &json!([]), &Json::Null));
    assert!(note["created_at"].is_u64() && note["consumer"].is_null());
    assert_eq!(write(gateway, "POST", "/notes", &json!({ "title": "first" }), 409)["code"], 5);
    let too_large = write(gateway, "POST", "/notes", &json!({ "title": "large", "size": 10 }), 400);
    assert!(too_large["fields"]["size"].is_string(), "{too_large}");
    let unmatched = write(gateway, "POST", "/notes", &json!({ "title": "First" }), 400);
    assert!(unmatched["fields"]["title"].is_string(), "{unmatched}");
    let checked = write(gateway, "POST", "/notes", &json!({ "title": "tiny" }), 400);
    assert!(checked.to_string().contains("a tiny note has the size 1"), "{checked}");
    assert_eq!(write(gateway, "POST", "/notes", &json!({ "titel": "x" }), 400)["code"], 2);
    assert_eq!(write(gateway, "PATCH", "/notes/first", &json!({ "size": 9 }), 200)["size"], 9);
    write(gateway, "PATCH", "/notes/first", &json!({ "origin": "a" }), 200);
    for body in [json!({ "origin": "b" }), json!({ "origin": null })] {
        let refused = write(gateway, "PATCH", "/notes/first", &body, 400);
        assert_eq!(refused["fields"]["origin"], "immutable field cannot be updated", "{refused}");
    }
    write(gateway, "PUT", "/notes/first", &json!({ "title": "first", "size": 9 }), 400);
    write(
        gateway,
        "PUT",
        "/notes/first",
        &json!({ "title": "first", "size": 9, "origin": "a", "tags": ["a"] }),
        200,
    );
    let nested = write(gateway, "POST", "/consumers/jane/note", &json!({ "title": "janes" }), 201);
    assert_eq!(gateway.admin("/consumers/jane/note").json()["data"][0]["id"], nested["id"]);
    assert_eq!(gateway.admin("/notes/janes/consumer").json()["username"], "jane");
    assert_eq!(gateway.admin("/note_marks").status, 404, "generate_admin_api = false");
    assert_eq!(gateway.admin("/schemas/notes").status, 200);
}

/// The plugin reads and writes them by `kong.db`.
fn uses(gateway: &Gateway) {
    let found = ask(gateway, "GET", "first").json();
    assert_eq!(found, json!({ "title": "first", "size": 9, "parts": [], "marks": 0 }));
    assert_eq!(ask(gateway, "PUT", "first").json(), json!({ "marked": true }));
    assert_eq!(
        ask(gateway, "PUT", "first").json(),
        json!({ "code": 5 }),
        "the fields of its cache key are unique together"
    );
    assert_eq!(ask(gateway, "GET", "first").json()["marks"], 1);
    assert_eq!(ask(gateway, "POST", "made").json()["parts"], json!(["a"]));
    assert_eq!(gateway.admin("/notes/made").json()["size"], 2);
    let refused = ask(gateway, "POST", "9");
    assert!(refused.status == 400 && refused.json()["fields"]["title"].is_string(), "{}", refused.text());
}

/// Who is deleted takes along what refers to them; what has a ttl ends by itself.
fn ends(gateway: &Gateway) {
    write(gateway, "DELETE", "/consumers/jane", &json!({}), 204);
    assert_eq!(gateway.admin("/notes/janes").status, 404);
    write(gateway, "DELETE", "/notes/first", &json!({}), 204);
    write(gateway, "POST", "/notes", &json!({ "title": "first" }), 201);
    assert_eq!(ask(gateway, "GET", "first").json()["marks"], 0);
    write(
        gateway,
        "POST",
        "/notes",
        &json!({ "title": "brief", "ttl": 60, "created_at": 1_700_000_000 }),
        201,
    );
    eventually("the note has expired", || gateway.admin("/notes/brief").status == 404);
}

#[test]
fn entities_are_kept_in_sqlite() {
    let notes = Notes::new();
    let gateway = notes.of(Gateway::empty()).start();
    fill(&gateway);
    administers(&gateway);
    uses(&gateway);
    let mut export = weir();
    export.args(["config", "db_export", "-", "--prefix"]).arg(gateway.prefix());
    for (key, value) in notes.settings() {
        export.args(["--set".to_owned(), format!("{key}={value}")]);
    }
    let exported = export.output().unwrap();
    let text = String::from_utf8(exported.stdout).unwrap();
    assert!(text.contains("title: first"), "{text}{}", String::from_utf8_lossy(&exported.stderr));
    ends(&gateway);
}

#[test]
fn entities_are_kept_in_postgres() {
    let notes = Notes::new();
    let mut settings = PostgresServer::settings(PostgresServer::shared_port(), "lua_entities");
    settings.extend(notes.settings());
    let [one, other] = Gateway::sharing_by(&settings);
    fill(&one);
    administers(&one);
    uses(&one);
    eventually("the other node has them", || ask(&other, "GET", "made").status == 200);
    ends(&one);
}

#[test]
fn entities_are_declared_in_files() {
    let notes = Notes::new();
    let file = "_format_version: \"3.0\"\nroutes: [{name: all, paths: [/]}]\nplugins: [{name: notes}]\nconsumers:\n- username: \
                jane\n  notes: [{title: janes, size: 1}]\nnotes:\n- title: first\n  parts: [x]\n  note_marks: [{number: \
                4}, {number: 5}]\n";
    let gateway = notes.of(Gateway::builder(file)).start();
    let found = ask(&gateway, "GET", "first").json();
    assert_eq!(found, json!({ "title": "first", "size": 3, "parts": ["x"], "marks": 2 }));
    assert_eq!(gateway.admin("/notes/janes/consumer").json()["username"], "jane");
    let refused = ask(&gateway, "POST", "made").json();
    let message = "[off] cannot create 'notes' entities when not using a database";
    assert_eq!(refused["message"], message);
    let wrong = file.replace("size: 1", "size: 0");
    let (_, said) = notes.of(Gateway::builder(&wrong)).fail();
    assert!(said.contains("consumers[0].notes[0].size: expected a number between 1 and 9, got 0"), "{said}");
}

#[test]
fn a_data_plane_has_those_of_its_control_plane() {
    let (notes, identity) = (Notes::new(), shared());
    let control = notes.of(control_plane(&identity)).start();
    let data = notes.of(data_plane(&identity, &control)).start();
    write(&control, "POST", "/routes", &json!({ "name": "all", "paths": ["/"] }), 201);
    write(&control, "POST", "/plugins", &json!({ "name": "notes" }), 201);
    write(&control, "POST", "/notes", &json!({ "title": "first", "parts": ["x"] }), 201);
    eventually("the data plane has the note", || ask(&data, "GET", "first").status == 200);
    assert_eq!(ask(&data, "GET", "first").json()["parts"], json!(["x"]));
    write(&control, "PATCH", "/notes/first", &json!({ "size": 7 }), 200);
    eventually("the data plane has the change", || ask(&data, "GET", "first").json()["size"] == 7);
    let message = "[off] cannot create 'notes' entities when not using a database";
    assert_eq!(ask(&data, "POST", "made").json()["message"], message);
}

#[test]
fn routes_of_the_plugins_own_are_named() {
    let notes = Notes::new();
    let api = "local endpoints = require 'kong.api.endpoints' local notes = kong.db.notes \
               return { ['/notes'] = { methods = { GET = endpoints.get_collection_endpoint({}) } }, \
               ['/consumers/:consumers/note/:notes'] = { methods = { GET = endpoints.get_entity_endpoint({}) } }, \
               ['/notes/:notes/print'] = { methods = { POST = function(self, db, helpers) end } } }";
    fs::write(notes.0.path().join("kong/plugins/notes/api.lua"), api).unwrap();
    let gateway = notes.of(Gateway::builder("_format_version: \"3.0\"\n")).start();
    let said = "the Admin API does not have /notes/:notes/print: Weir generates";
    assert!(gateway.log().contains(said), "{}", gateway.log());
}

#[test]
fn a_schema_that_cannot_be_used_is_named() {
    let cases = [
        (
            "primary_key = { \"id\" },\n    endpoint_key",
            "primary_key = { \"title\" },\n    endpoint_key",
            "primary_key",
        ),
        (
            "endpoint_key = \"title\"",
            "endpoint_key = \"size\"",
            "its endpoint_key `size` must be one of its fields",
        ),
        ("cache_key = { \"title\" }", "cache_key = { \"tilte\" }", "its cache_key names `tilte`"),
        ("reference = \"consumers\"", "reference = \"people\"", "`consumer` refers to people"),
        (
            "unique = true",
            "uniqe = true",
            "notes: title: there is no attribute `uniqe`; did you mean `unique`?",
        ),
        ("    primary_key = { \"id\" },\n    end", "    end", "notes: primary_key: required field missing"),
        ("name = \"notes\"", "name = \"services\"", "the gateway has entities of this name"),
    ];
    for (old, new, expected) in cases {
        let notes = Notes::new();
        let path = notes.0.path().join("kong/plugins/notes/daos.lua");
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(old), "{old}");
        fs::write(&path, text.replacen(old, new, 1)).unwrap();
        let (_, said) = notes.of(Gateway::builder("_format_version: \"3.0\"\n")).fail();
        assert!(said.contains("daos.lua") && said.contains(expected), "{new}: {said}");
    }
}
