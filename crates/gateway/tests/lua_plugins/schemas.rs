//! What the Admin API and files know of a plugin by its `schema.lua`.
use super::Plugins;
use crate::harness::{Upstream, one_route};
use serde_json::{Value, json};

const HANDLER: &str = r#"
return {
  PRIORITY = 10, VERSION = "2.0.1",
  access = function(self, conf)
    local tags = table.concat(conf.tags, "+")
    kong.response.exit(200, ("%s:%d %s %s"):format(conf.redis.host, conf.redis.port, tags, tostring(conf.note)))
  end,
}
"#;

const SCHEMA: &str = r#"
local typedefs = require "kong.db.schema.typedefs"
return {
  name = "mine",
  fields = {
    { consumer = typedefs.no_consumer },
    { route = typedefs.no_route },
    { protocols = typedefs.protocols_http },
    { config = { type = "record", fields = {
      { redis = { type = "record", required = true, fields = {
        { host = typedefs.host { default = "127.0.0.1" } },
        { port = typedefs.port { default = 6379 } },
      } } },
      { tags = { type = "array", required = true, default = { "a" }, elements = { type = "string", len_max = 5 } } },
      { note = { type = "string", referenceable = true, description = "Anything." } },
      { low = { type = "integer", deprecation = { message = "use high", removal_in_version = "3.0" } } },
      { high = { type = "integer" } },
    } } },
  },
  entity_checks = {
    { custom_entity_check = { field_sources = { "config.low", "config.high" }, fn = function(entity)
      local low, high = entity.config.low, entity.config.high
      if low == ngx.null or high == ngx.null or low < high then return true end
      return nil, "low must be lower than high"
    end } },
  },
}
"#;

fn plugins() -> Plugins {
    Plugins::new(&[("mine/handler.lua", HANDLER), ("mine/schema.lua", SCHEMA)])
}

#[test]
fn the_admin_api_knows_the_schema() {
    let plugins = plugins();
    let gateway = plugins.start_empty("mine");
    let schema = gateway.admin("/schemas/plugins/mine").json();
    let field = |name: &str| -> Value {
        let fields = schema["fields"].as_array().unwrap();
        fields.iter().find_map(|field| field.get(name)).cloned().unwrap_or_default()
    };
    assert_eq!(field("consumer")["eq"], Value::Null);
    assert_eq!(field("protocols")["elements"]["one_of"], json!(["grpc", "grpcs", "http", "https"]));
    let config = &field("config")["fields"];
    assert_eq!(config[0]["redis"]["fields"][1]["port"]["default"], 6379, "{config}");
    assert_eq!(
        config[2]["note"],
        json!({"type": "string", "referenceable": true, "description": "Anything."})
    );
    let about = &gateway.admin("/").json()["plugins"]["available_on_server"]["mine"];
    assert_eq!(*about, json!({"version": "2.0.1", "priority": 10}));
    let enabled = gateway.admin("/plugins/enabled").json();
    assert!(enabled["enabled_plugins"].as_array().unwrap().contains(&"mine".into()), "{enabled}");
    let made =
        gateway.ask_admin("POST", "/plugins", &json!({"name": "mine", "config": {"note": "n"}}).to_string());
    assert_eq!(made.status, 201, "{}", made.text());
    let config = &made.json()["config"];
    let expected = json!({"redis": {"host": "127.0.0.1", "port": 6379}, "tags": ["a"], "note": "n", "low": null,
                          "high": null});
    assert_eq!(*config, expected);
    let id = made.json()["id"].as_str().unwrap().to_owned();
    let change = |config: Value| {
        gateway.ask_admin("PATCH", &format!("/plugins/{id}"), &json!({"config": config}).to_string())
    };
    let changed = change(json!({"redis": {"port": 1}, "tags": ["b", "c"]}));
    assert_eq!(changed.json()["config"]["redis"], json!({"host": "127.0.0.1", "port": 1}));
    assert_eq!(changed.header("X-Weir-Warning"), None);
    let changed = change(json!({"low": 1}));
    let warning = changed.header("X-Weir-Warning").unwrap_or_default();
    assert!(warning.contains("config.low: deprecated: use high; it will be removed in 3.0"), "{warning}");
    assert_eq!(gateway.get("/").status, 404, "without a route, access does not run");
}

#[test]
fn what_is_wrong_is_said_as_in_kong() {
    let plugins = plugins();
    let gateway = plugins.start_empty("mine");
    for (config, message, fields) in [
        (
            json!({"redis": {"port": 70000}}),
            "schema violation (config.redis: {\n  port = \"value should be between 0 and 65535\"\n})",
            json!({"config": {"redis": {"port": "value should be between 0 and 65535"}}}),
        ),
        (
            json!({"tags": ["a", "too-long"]}),
            "schema violation (config.tags: {\n  [2] = \"length must be at most 5\"\n})",
            json!({"config": {"tags": [null, "length must be at most 5"]}}),
        ),
        (
            json!({"redis": {"prot": 1}}),
            "schema violation (config.redis: {\n  prot = \"unknown field\"\n})",
            json!({"config": {"redis": {"prot": "unknown field"}}}),
        ),
        (
            json!({"nothing": 1}),
            "schema violation (config.nothing: unknown field)",
            json!({"config": {"nothing": "unknown field"}}),
        ),
        (
            json!({"low": 2, "high": 1}),
            "schema violation (low must be lower than high)",
            json!({"@entity": ["low must be lower than high"]}),
        ),
    ] {
        let refused =
            gateway.ask_admin("POST", "/plugins", &json!({"name": "mine", "config": config}).to_string());
        assert_eq!(refused.status, 400, "{}", refused.text());
        let said = refused.json();
        assert_eq!((said["message"].as_str(), &said["fields"]), (Some(message), &fields), "{config}: {said}");
    }
    let of_route = json!({"name": "mine", "route": {"id": "5a1e7d2c-0d2b-4f62-9d1a-6f1f0e9f3c11"}});
    let refused = gateway.ask_admin("POST", "/plugins", &of_route.to_string());
    let said = refused.json()["fields"]["route"].as_str().unwrap().to_owned();
    assert!(refused.status == 400 && said.starts_with("value must be null"), "{}", refused.text());
}

#[test]
fn a_file_is_checked_and_conf_has_its_defaults() {
    let plugins = plugins();
    let upstream = Upstream::echoing();
    let with = |config: &str| {
        format!("{}  plugins:\n  - name: mine\n    config: {{{config}}}\n", one_route(upstream.address))
    };
    let gateway =
        plugins.builder("mine", &with("note: \"{vault://env/my-note}\", redis: {port: \"${REDIS_PORT}\"}"));
    let gateway = gateway.env("MY_NOTE", "secret").env("REDIS_PORT", "7000").start();
    assert_eq!(gateway.get("/").text(), "127.0.0.1:7000 a secret");
    let (status, said) =
        plugins.builder("mine", &with("redis: {host: \"a b\", prot: 1}, low: x, nots: 1")).fail();
    assert!(!status.success());
    assert!(
        said.contains("kong.yml:10:28: services[0].plugins[0].config.redis.host: invalid value: a b"),
        "{said}"
    );
    assert!(said.contains("services[0].plugins[0].config.low: expected an integer"), "{said}");
    for (field, meant) in [("redis.prot", "port"), ("nots", "note")] {
        let expected = format!("plugins[0].config.{field}: unknown field; did you mean `{meant}`?");
        assert!(said.contains(&expected), "{said}");
    }
}

#[test]
fn a_schema_that_cannot_be_read_is_refused_with_its_file() {
    for (schema, expected) in [
        ("return {", "mine/schema.lua:1: unexpected symbol near '<eof>'"),
        ("return 5", "mine/schema.lua: return a table with `name` and `fields`"),
        ("return { name = 'mine', fields = {} }", "add a field `config` of the type record"),
        ("return require('kong.db.schema.typedefs').nothing", "definition nothing does not exist"),
        (
            "return { name = 'mine', fields = { { config = { type = 'record', fields = { { a = { type = 'sting' } } } } } } }",
            "mine/schema.lua: config.a: there is no type `sting`; did you mean `string`?",
        ),
        (
            "return { name = 'mine', fields = { { config = { type = 'record', fields = { { a = { type = 'string', \
             requried = true } } } } } }, entity_check = {} }",
            "mine/schema.lua: there is no member `entity_check`; did you mean `entity_checks`?; config.a: there is no \
             attribute `requried`; did you mean `required`?",
        ),
    ] {
        let plugins = Plugins::new(&[("mine/handler.lua", HANDLER), ("mine/schema.lua", schema)]);
        let (status, said) = plugins.builder("mine", "_format_version: '3.0'\n").fail();
        assert!(!status.success() && said.contains(expected), "{schema}\nexpected {expected}\nfound {said}");
    }
    let plugins = Plugins::new(&[("mine/handler.lua", HANDLER)]);
    let (_, said) = plugins.builder("mine", "_format_version: '3.0'\n").fail();
    assert!(said.contains("no configuration schema found for plugin: mine"), "{said}");
}

#[test]
fn checks_see_the_whole_entity() {
    let schema = r#"
      local function is_set(value) return value ~= nil and value ~= ngx.null end
      return { name = "mine", fields = {
        { config = { type = "record", fields = { { mode = { type = "string", default = "a" } } } } },
      }, entity_checks = {
        { at_least_one_of = { "service", "route" } },
        { custom_entity_check = { field_sources = { "config.mode", "protocols", "consumer" }, run_with_missing_fields = true,
          fn = function(entity)
            if entity.config.mode == "tls" and table.concat(entity.protocols, " ") ~= "https" then
              return nil, "the mode tls needs https"
            end
            return not is_set(entity.consumer) or #entity.consumer.id == 36 and nil, "not for a consumer"
          end } },
      } }"#;
    let plugins = Plugins::new(&[("mine/handler.lua", HANDLER), ("mine/schema.lua", schema)]);
    let gateway = plugins.start_empty("mine");
    let send = |path: &str, body: Value| gateway.ask_admin("PUT", path, &body.to_string());
    assert_eq!(send("/services/one", json!({"url": "http://127.0.0.1:1"})).status, 200);
    assert_eq!(send("/consumers/alice", json!({})).status, 200);
    let id = "00000000-0000-4000-8000-000000000001";
    let put = |body: Value| send(&format!("/plugins/{id}"), body);
    let refused = |body: Value, message: &str| {
        let answer = put(body);
        assert!(answer.status == 400 && answer.text().contains(message), "{}", answer.text());
    };
    let of_service = |more: Value| {
        let mut body = json!({"name": "mine", "service": {"name": "one"}});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    refused(json!({"name": "mine"}), "at least one of these fields must be non-empty: 'service', 'route'");
    refused(of_service(json!({"config": {"mode": "tls"}})), "the mode tls needs https");
    refused(of_service(json!({"consumer": {"username": "alice"}})), "not for a consumer");
    for good in [json!({}), json!({"config": {"mode": "tls"}, "protocols": ["https"]})] {
        let answer = put(of_service(good));
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    let file = json!({"_format_version": "3.0", "plugins": [{"name": "mine"}]}).to_string();
    let (_, said) = plugins.builder("mine", &file).fail();
    assert!(said.contains("plugins[0]: at least one of these fields must be non-empty"), "{said}");
}

#[test]
fn automatic_fields_are_filled_in_by_writes_and_by_files() {
    let schema = "local typedefs = require 'kong.db.schema.typedefs' \
        return { name = 'mine', fields = { { config = { type = 'record', fields = { \
          { secret = { type = 'string', required = true, auto = true } }, { key = typedefs.uuid { required = true } }, \
          { created_at = typedefs.auto_timestamp_s }, { note = { type = 'string' } } } } } } }";
    let handler = "return { PRIORITY = 1, VERSION = '1.0', access = function(self, conf) \
        kong.response.exit(200, conf.secret .. ' ' .. conf.key) end }";
    let plugins = Plugins::new(&[("mine/handler.lua", handler), ("mine/schema.lua", schema)]);
    let gateway = plugins.start_empty("mine");
    let made = gateway.ask_admin("POST", "/plugins", &json!({"name": "mine"}).to_string());
    assert_eq!(made.status, 201, "{}", made.text());
    let made = made.json();
    let config = &made["config"];
    assert_eq!(config["secret"].as_str().map(str::len), Some(32), "{made}");
    assert_eq!(config["key"].as_str().map(str::len), Some(36), "{made}");
    assert!(config["created_at"].as_i64() > Some(1_700_000_000), "{made}");
    let path = format!("/plugins/{}", made["id"].as_str().unwrap());
    assert_eq!(gateway.admin(&path).json()["config"], *config);
    let change = json!({"config": {"note": "n"}});
    let changed = gateway.ask_admin("PATCH", &path, &change.to_string()).json();
    for kept in ["secret", "key", "created_at"] {
        assert_eq!(changed["config"][kept], config[kept], "{changed}");
    }
    let upstream = Upstream::echoing();
    let gateway = plugins.start_mine(upstream.address);
    assert_eq!(gateway.get("/").text().len(), 32 + 1 + 36);
    let log = gateway.log();
    let said = "is made up each time that the file is read";
    assert!(log.contains(&format!("plugins[0].config.secret: {said}")), "{log}");
    assert!(log.contains("write one of at least 32 random characters"), "{log}");
    let of_key = log.lines().find(|line| line.contains(&format!("plugins[0].config.key: {said}"))).unwrap();
    assert!(of_key.contains("write a UUID") && !of_key.contains("32 random"), "{of_key}");
}
