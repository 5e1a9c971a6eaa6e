//! `kong.db`: code of the operator that reads and writes entities.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use crate::harness::{Gateway, PostgresServer, eventually};
use serde::Deserialize;
use serde_json::{Value as Json, json};

/// Runs the body of a request, and answers with what it returns.
const RUN: &str = "local chunk = assert(loadstring(kong.request.get_raw_body())) \
                   local ok, value = pcall(chunk) \
                   if value == nil then value = ngx.null end \
                   kong.response.exit(ok and 200 or 422, require('cjson').encode({ value = value }))";

/// Entities, in the order in which they are created.
const ENTITIES: [(&str, &str); 7] = [
    ("/services", r#"{"name": "orders", "url": "http://127.0.0.1:1/", "tags": ["a", "b"]}"#),
    ("/services/orders/routes", r#"{"name": "all", "paths": ["/"]}"#),
    ("/consumers", r#"{"username": "jane", "custom_id": "j-1", "tags": ["a"]}"#),
    ("/consumers", r#"{"username": "joe"}"#),
    ("/consumers/jane/key-auth", r#"{"key": "janes-key"}"#),
    ("/consumers/jane/acls", r#"{"group": "gold"}"#),
    ("/routes/all/plugins", r#"{"name": "correlation-id", "instance_name": "ids"}"#),
];

/// One piece of code, and what it returns.
#[derive(Deserialize)]
struct Case {
    name: String,
    code: String,
    returns: Option<Json>,
    /// What the error of code that fails says.
    says: Option<String>,
}

#[derive(Deserialize)]
struct Cases {
    case: Vec<Case>,
}

fn run(gateway: &Gateway, code: &str) -> (u16, Json) {
    let length = code.len();
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n{code}");
    let answer = gateway.send(&request);
    (answer.status, answer.json()["value"].clone())
}

fn check(gateway: &Gateway, cases: &str) {
    let cases: Cases = toml::from_str(cases).unwrap();
    for Case { name, code, returns, says } in cases.case {
        let (status, value) = run(gateway, &code);
        match says {
            Some(says) => {
                assert!(status == 422 && value.as_str().unwrap().contains(&says), "{name}: {value}")
            }
            None => assert_eq!((status, value), (200, returns.unwrap_or_default()), "{name}"),
        }
    }
}

/// Gives a gateway with an empty store the entities.
fn fill(gateway: &Gateway) {
    for (path, body) in ENTITIES {
        let created = gateway.ask_admin("POST", path, body);
        assert_eq!(created.status, 201, "{path}: {}", created.text());
    }
    let plugin = json!({ "name": "pre-function", "config": { "access": [RUN] } });
    assert_eq!(gateway.ask_admin("POST", "/plugins?wait=true", &plugin.to_string()).status, 201);
    eventually("the plugin runs", || run(gateway, "return 1") == (200, json!(1)));
}

#[test]
fn entities_of_sqlite_are_read_and_written() {
    let gateway = Gateway::empty().set("untrusted_lua", "on").start();
    fill(&gateway);
    check(&gateway, include_str!("reads.toml"));
    check(&gateway, include_str!("writes.toml"));
    let made = gateway.admin("/consumers/made").json();
    assert_eq!((&made["custom_id"], &made["tags"]), (&json!("changed"), &json!([])));
    assert_eq!(gateway.admin("/key-auths/made-key").json()["consumer"]["id"], made["id"]);
    assert_eq!(gateway.admin("/consumers/joe").status, 404);
}

#[test]
fn entities_of_postgres_are_read_and_written() {
    let mut settings = PostgresServer::settings(PostgresServer::shared_port(), "lua_db");
    settings.push(("untrusted_lua".to_owned(), "on".to_owned()));
    let [gateway] = Gateway::sharing_by(&settings);
    fill(&gateway);
    check(&gateway, include_str!("reads.toml"));
    check(&gateway, include_str!("writes.toml"));
    let (_, strategy) = run(&gateway, "return kong.db.strategy");
    assert_eq!(strategy, "postgres");
}

/// A declared configuration with the entities, and this code.
fn declared(mode: &str, code: &str) -> Gateway {
    let code = code.replace('"', "\\\"");
    Gateway::builder(&format!(
        "_format_version: \"3.0\"\nservices:\n- name: orders\n  url: http://127.0.0.1:1/\n  tags: [a, b]\n  routes:\n  - \
         name: all\n    paths: [/]\n    plugins: [{{name: correlation-id, instance_name: ids}}]\nconsumers:\n- username: \
         jane\n  custom_id: j-1\n  tags: [a]\n  keyauth_credentials: [{{key: janes-key}}]\n  acls: [{{group: gold}}]\n- \
         username: joe\nplugins:\n- name: pre-function\n  config:\n    access: [\"{code}\"]\n"
    ))
    .set("untrusted_lua", mode)
    .start()
}

#[test]
fn a_declared_configuration_is_read_and_not_written() {
    let gateway = declared("on", RUN);
    check(&gateway, include_str!("reads.toml"));
    let refused = "local entity, message, err = kong.db.consumers:insert({ username = 'x' }) \
                   return { entity == nil, message, err.code, err.name, tostring(err) == message }";
    let message = "[off] cannot create 'consumers' entities when not using a database";
    assert_eq!(run(&gateway, refused), (200, json!([true, message, 12, "operation unsupported", true])));
}

#[test]
fn code_in_the_sandbox_sees_no_entities() {
    let gateway = declared("sandbox", "kong.response.exit(200, { value = tostring(kong.db) })");
    assert_eq!(run(&gateway, ""), (200, json!("nil")));
}
