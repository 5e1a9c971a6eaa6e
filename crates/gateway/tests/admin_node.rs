//! What the Admin API tells of the node: its schemas, its tags, its targets' health, its whole configuration.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use crate::harness::{Gateway, Identity, Message, Peer, eventually};
use serde_json::{Value, json};

const SAMPLE: &str = r#"
_format_version: "3.0"
services:
- name: orders
  url: http://orders.test
  tags: [shop, beta]
  routes:
  - name: orders
    paths: [/orders]
    tags: [shop]
upstreams:
- name: orders.test
  targets:
  - target: 10.0.0.1:80
    weight: 70
  - target: backend.test:80
plugins:
- name: rate-limiting
  config: { minute: 5 }
"#;

#[track_caller]
fn send(gateway: &Gateway, method: &str, path: &str, content_type: &str, body: &str) -> Message {
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    Peer::connect(gateway.admin_addresses()[0]).send(format!("{head}{body}")).response()
}

#[track_caller]
fn get(gateway: &Gateway, path: &str) -> Value {
    let answer = gateway.admin(path);
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

#[test]
fn the_root_says_what_tools_ask_for() {
    let gateway = Gateway::start(SAMPLE);
    let root = get(&gateway, "/");
    assert_eq!(root["version"], "3.9.1");
    assert_eq!(root["edition"], "community");
    assert_eq!(root["configuration"]["database"], "off");
    assert_eq!(root["plugins"]["enabled_in_cluster"], json!(["rate-limiting"]));
    let key_auth = json!({ "version": "3.9.1", "priority": 1250 });
    assert_eq!(root["plugins"]["available_on_server"]["key-auth"], key_auth);
    assert_eq!(root["pids"]["master"], gateway.pid());
    assert!(root["node_id"].as_str().is_some_and(|id| id.len() == 36), "{root}");
    let [plain, tls] = &root["configuration"]["proxy_listeners"].as_array().unwrap()[..] else {
        panic!("two listeners are set: {root}")
    };
    assert_eq!((&plain["port"], &plain["ssl"]), (&json!(gateway.proxy().port()), &json!(false)));
    assert_eq!((&tls["port"], &tls["ssl"]), (&json!(gateway.proxy_ssl().port()), &json!(true)));
}

#[test]
fn schemas_are_shown_by_the_names_of_entities_and_plugins() {
    let gateway = Gateway::start(SAMPLE);
    let fields = |path: &str| get(&gateway, path)["fields"].as_array().unwrap().clone();
    let find = |path: &str, name: &str| {
        fields(path)
            .iter()
            .find_map(|field| field.get(name))
            .cloned()
            .unwrap_or_else(|| panic!("{path}: {name}"))
    };
    assert_eq!(find("/schemas/services", "retries")["default"], 5);
    assert_eq!(find("/schemas/routes", "protocols")["default"], json!(["http", "https"]));
    assert_eq!(find("/schemas/upstreams", "healthchecks")["type"], "record");
    assert_eq!(find("/schemas/targets", "weight")["default"], 100);
    assert_eq!(find("/schemas/keyauth_credentials", "consumer")["reference"], "consumers");
    assert_eq!(
        find("/schemas/routes", "sources")["elements"]["entity_checks"],
        json!([{ "at_least_one_of": ["ip", "port"] }])
    );
    let config = find("/schemas/plugins/response-ratelimiting", "config")["fields"].clone();
    let limits = config.as_array().unwrap().iter().find_map(|field| field.get("limits")).unwrap();
    let periods = json!(["second", "minute", "hour", "day", "month", "year"]);
    assert_eq!(limits["values"]["entity_checks"], json!([{ "at_least_one_of": periods }]));
    let of_ldap = find("/schemas/plugins/ldap-auth", "config")["entity_checks"][0]["conditional"].clone();
    assert_eq!(of_ldap["then_err"], "'ldaps' and 'start_tls' cannot be enabled simultaneously");
    let config = find("/schemas/plugins/ai-request-transformer", "config")["fields"].clone();
    let llm = config.as_array().unwrap().iter().find_map(|field| field.get("llm")).unwrap();
    let header = json!({ "mutually_required": ["auth.header_name", "auth.header_value"] });
    assert!(llm["entity_checks"].as_array().unwrap().contains(&header), "{llm}");
    let of_lambda = get(&gateway, "/schemas/plugins/aws-lambda")["entity_checks"][0].clone();
    assert_eq!(of_lambda, json!({ "mutually_required": ["config.aws_key", "config.aws_secret"] }));
    assert_eq!(
        find("/schemas/plugins/key-auth", "config")["fields"][0]["key_names"]["default"],
        json!(["apikey"])
    );
    assert_eq!(find("/plugins/schema/key-auth", "key_names")["default"], json!(["apikey"]));
    let enabled = get(&gateway, "/plugins/enabled")["enabled_plugins"].clone();
    assert!(enabled.as_array().unwrap().contains(&json!("key-auth")), "{enabled}");
    for (path, message) in [
        ("/schemas/licenses", "No entity named 'licenses'"),
        ("/schemas/plugins/teleport", "No plugin named 'teleport'"),
        ("/plugins/schema/teleport", "No plugin named 'teleport'"),
    ] {
        let answer = gateway.admin(path);
        assert_eq!((answer.status, answer.json()), (404, json!({ "message": message })));
    }
    for path in ["/schemas/%FF", "/schemas/plugins/%FF", "/plugins/schema/%FF"] {
        let answer = gateway.admin(path);
        assert_eq!((answer.status, answer.json()), (404, json!({ "message": "Not found" })), "{path}");
    }
}

#[test]
fn entities_are_validated_without_being_made() {
    let gateway = Gateway::start(SAMPLE);
    let validate = |entity: &str, body: Value| {
        let path = format!("/schemas/{entity}/validate");
        send(&gateway, "POST", &path, "application/json", &body.to_string())
    };
    let new = "5a1fca30-0f9e-4a0e-8c3b-6cbd33a1b1c4";
    for (entity, body) in [
        ("services", json!({ "name": "a", "host": "example.com" })),
        ("routes", json!({ "paths": ["/x"], "service": { "id": new } })),
        ("plugins", json!({ "name": "key-auth", "config": { "hide_credentials": true } })),
    ] {
        let answer = validate(entity, body);
        assert_eq!(
            (answer.status, answer.json()["message"].as_str()),
            (200, Some("schema validation successful"))
        );
    }
    let identity = Identity::new("a.test");
    let read = |file| std::fs::read_to_string(file).unwrap();
    let (cert, key) = (read(identity.cert()), read(identity.key()));
    for (names, status) in [(["a.test", "*.b.test"], 200), (["a.test", "a b"], 400)] {
        let certificate = json!({ "cert": cert, "key": key, "snis": names });
        assert_eq!(validate("certificates", certificate).status, status, "{names:?}");
    }
    let refused = validate("services", json!({ "retries": -1 }));
    let body = refused.json();
    assert_eq!((refused.status, &body["code"], &body["name"]), (400, &json!(2), &json!("schema violation")));
    assert_eq!(body["fields"]["host"], "required field missing");
    assert!(body["fields"]["retries"].is_string(), "{body}");
    let config = json!({ "ldap_host": "a.test", "base_dn": "dc=a", "attribute": "uid", "ldaps": true, "start_tls": true });
    let refused = validate("plugins", json!({ "name": "ldap-auth", "config": config }));
    let words = json!({ "@entity": ["'ldaps' and 'start_tls' cannot be enabled simultaneously"], "start_tls": "value must be false" });
    assert_eq!((refused.status, &refused.json()["fields"]["config"]), (400, &words));
    assert_eq!(validate("plugins", json!({ "name": "teleport" })).status, 400);
    assert_eq!(validate("licenses", json!({})).status, 404);
    let long = validate("services", json!({ "host": "a", "tags": vec![1; 300_000], "x".repeat(1 << 20): 1 }));
    assert_eq!(long.status, 400);
    assert!(long.body.len() < 50_000, "{} bytes", long.body.len());
}

#[test]
fn tags_are_listed_page_by_page() {
    let gateway = Gateway::start(SAMPLE);
    let all = get(&gateway, "/tags");
    assert_eq!(all["data"].as_array().unwrap().len(), 3);
    assert_eq!(all["next"], Value::Null);
    let shop = get(&gateway, "/tags/shop");
    let kinds: Vec<_> = shop["data"].as_array().unwrap().iter().map(|entry| &entry["entity_name"]).collect();
    assert_eq!(kinds, ["services", "routes"]);
    assert_eq!(get(&gateway, "/tags/none")["data"], json!([]));
    let (mut path, mut seen) = ("/tags?size=2".to_owned(), 0);
    loop {
        let page = get(&gateway, &path);
        seen += page["data"].as_array().unwrap().len();
        match page["next"].as_str() {
            Some(next) => path = next.to_owned(),
            None => break,
        }
    }
    assert_eq!(seen, 3);
    for (query, code) in [("size=0", 9), ("size=1001", 9), ("size=x", 9), ("offset=x", 7)] {
        let answer = gateway.admin(&format!("/tags?{query}"));
        assert_eq!((answer.status, answer.json()["code"].as_u64()), (400, Some(code)), "{query}");
    }
}

#[test]
fn targets_that_nobody_checks_are_shown_and_cannot_be_marked() {
    let gateway = Gateway::start(SAMPLE);
    let health = get(&gateway, "/upstreams/orders.test/health");
    let data = health["data"].as_array().unwrap();
    assert_eq!(data.len(), 2);
    let first = data.iter().find(|target| target["target"] == "10.0.0.1:80").unwrap();
    assert_eq!(first["health"], "HEALTHCHECKS_OFF");
    assert_eq!(first["data"]["weight"], json!({ "total": 70, "available": 70, "unavailable": 0 }));
    assert_eq!(first["data"]["addresses"][0]["ip"], "10.0.0.1");
    assert!(first["upstream"]["id"].is_string());
    assert_eq!(
        get(&gateway, "/upstreams/orders.test/health?balancer_health=1")["data"]["balancer_health"],
        "HEALTHCHECKS_OFF"
    );
    for (path, status) in [
        ("/upstreams/orders.test/targets/10.0.0.1:80/healthy", 400),
        (&format!("/upstreams/orders.test/targets/{}/unhealthy", first["id"].as_str().unwrap()), 400),
        ("/upstreams/orders.test/targets/10.0.0.1:80/10.0.0.1:80/unhealthy", 400),
        ("/upstreams/orders.test/targets/10.0.0.9:80/healthy", 404),
        ("/upstreams/nobody.test/targets/10.0.0.1:80/healthy", 404),
    ] {
        assert_eq!(send(&gateway, "POST", path, "application/json", "").status, status, "{path}");
    }
    assert_eq!(gateway.admin("/upstreams/nobody.test/health").status, 404);
}

#[test]
fn a_configuration_can_be_taken_out_and_put_in() {
    let gateway = Gateway::start(SAMPLE);
    let text = get(&gateway, "/config")["config"].as_str().unwrap().to_owned();
    for (content_type, body) in [
        ("application/yaml", text.clone()),
        ("application/json", json!({ "config": text }).to_string()),
        (
            "multipart/form-data; boundary=b",
            format!("--b\r\nContent-Disposition: form-data; name=\"config\"\r\n\r\n{text}\r\n--b--\r\n"),
        ),
    ] {
        let answer = send(&gateway, "POST", "/config", content_type, &body);
        assert_eq!(answer.status, 201, "{content_type}: {}", answer.text());
        assert_eq!(answer.json()["services"].as_object().unwrap().len(), 1);
        assert_eq!(get(&gateway, "/config")["config"], text);
    }
}

#[test]
fn a_file_that_is_sent_as_a_form_is_answered_with_how_to_send_it() {
    let gateway = Gateway::start(SAMPLE);
    let before = get(&gateway, "/config");
    let dots = format!("_format_version: '3.0' # {}", "a.".repeat(50));
    for (content_type, body) in [
        ("application/x-www-form-urlencoded", SAMPLE),
        ("application/x-www-form-urlencoded", &dots),
        ("application/x-www-form-urlencoded", r#"{"_format_version": "3.0"}"#),
        ("application/x-www-form-urlencoded", "config=@kong.yml"),
        ("application/json", r#"{"config": "@kong.yml"}"#),
    ] {
        let answer = send(&gateway, "POST", "/config", content_type, body);
        assert_eq!(answer.status, 400, "{body}");
        let message = answer.json()["message"].as_str().unwrap().to_owned();
        let ways = ["`-F config=@kong.yml`", "`Content-Type: text/yaml`"];
        assert!(ways.iter().all(|way| message.contains(way)), "{body}: {message}");
    }
    assert_eq!(get(&gateway, "/config"), before);
    let form = format!("config={}", SAMPLE.replace('%', "%25").replace('&', "%26").replace('+', "%2B"));
    let answer = send(&gateway, "POST", "/config", "application/x-www-form-urlencoded", &form);
    assert_eq!(answer.status, 201, "{}", answer.text());
}

#[test]
fn a_configuration_with_what_has_no_effect_is_loaded_with_a_warning() {
    let gateway = Gateway::start(SAMPLE);
    let load = |text: &str| send(&gateway, "POST", "/config", "text/yaml", text);
    assert_eq!(load(SAMPLE).header("x-weir-warning"), None);
    let answer = load("_format_version: \"3.0\"\nroutes:\n- {name: r, paths: [/], path_handling: v1}\n");
    assert_eq!(answer.status, 201);
    let warning = "3:40: routes[0].path_handling: without effect in this version: paths are joined as by v0, unless router_flavor is traditional (route `r`)";
    assert_eq!(answer.header("x-weir-warning"), Some(warning));
    let answer = load(
        "_format_version: \"3.0\"\nupstreams:\n- {name: lonely.test}\nplugins:\n- {name: key-auth, config: {anonymous: guest}}\n",
    );
    let warning = "3:10: upstreams[0].name: no service uses the upstream `lonely.test`; write `host: lonely.test` in a service; \
                   5:40: plugins[0].config.anonymous: names no consumer; add one with this `username`, or leave `anonymous` out";
    assert_eq!((answer.status, answer.header("x-weir-warning")), (201, Some(warning)));
    let route = |index: usize| format!("- {{name: r-{index}, paths: [/], path_handling: v1}}\n");
    let many: String = (0..1000).map(route).collect();
    let answer = load(&format!("_format_version: \"3.0\"\nroutes:\n{many}"));
    let warning = answer.header("x-weir-warning").unwrap();
    assert!(warning.contains("(route `r-0`)") && warning.ends_with(" more"), "{warning}");
    assert!(warning.len() < 1100, "{}", warning.len());
}

#[test]
fn a_configuration_that_is_put_in_is_served() {
    let gateway = Gateway::start(SAMPLE);
    let config = json!({
        "_format_version": "3.0",
        "routes": [{ "name": "r", "paths": ["/new"] }],
        "plugins": [{ "name": "request-termination", "route": "r", "config": { "status_code": 418 } }],
    });
    assert_eq!(gateway.get("/new").status, 404);
    let load = |path: &str| send(&gateway, "POST", path, "application/json", &config.to_string());
    assert_eq!(load("/config?check_hash=1").status, 201);
    assert_eq!(gateway.get("/new").status, 418);
    assert_eq!(load("/config?check_hash=1").status, 304);
    assert_eq!(load("/config").status, 201);
}

#[test]
fn a_configuration_that_is_wrong_is_refused_entity_by_entity() {
    let gateway = Gateway::builder(SAMPLE).env("SECRET", "hush").start();
    let wrong = "_format_version: '3.0'\nservices:\n- name: s\n  host: a.test\n  retries: -1\n  routes:\n  - id: \
                 5a1fca30-0f9e-4a0e-8c3b-6cbd33a1b1c4\n    paths: [nope]\n";
    let answer = send(&gateway, "POST", "/config?flatten_errors=1", "text/yaml", wrong);
    let body = answer.json();
    assert_eq!((answer.status, &body["code"]), (400, &json!(14)), "{body}");
    assert_eq!(body["name"], "invalid declarative configuration");
    let told = &body["flattened_errors"];
    assert_eq!((&told[0]["entity_type"], &told[0]["entity_name"]), (&json!("service"), &json!("s")));
    assert_eq!(told[0]["errors"][0]["field"], "retries");
    assert_eq!(told[1]["entity_id"], "5a1fca30-0f9e-4a0e-8c3b-6cbd33a1b1c4");
    assert_eq!(told[1]["errors"][0]["field"], "paths.1");
    let many = json!({ "_format_version": "3.0", "services": vec![1; 1_000] }).to_string();
    let many = send(&gateway, "POST", "/config?flatten_errors=1", "application/json", &many).json();
    assert_eq!(many["flattened_errors"].as_array().unwrap().len(), 100);
    assert!(many["hint"].as_str().unwrap().ends_with("; and 900 more"));
    let deep = send(&gateway, "POST", "/config", "text/yaml", wrong).json();
    assert!(deep["fields"]["services"][0]["retries"].is_string(), "{deep}");
    for (content_type, body, status) in [
        ("text/yaml", "", 400),
        ("text/yaml", "services: [", 400),
        ("application/json", "{}", 400),
        ("application/json", "{", 400),
        ("image/png", "x", 415),
    ] {
        assert_eq!(
            send(&gateway, "POST", "/config", content_type, body).status,
            status,
            "{content_type} {body}"
        );
    }
    let reads = "_format_version: '3.0'\nservices:\n- host: a.test\n  name: ${SECRET}\n";
    let answer = send(&gateway, "POST", "/config", "text/yaml", reads);
    assert!(answer.status == 400 && !answer.text().contains("hush"), "{}", answer.text());
    assert_eq!(
        get(&gateway, "/")["plugins"]["enabled_in_cluster"],
        json!(["rate-limiting"]),
        "nothing has changed"
    );
}

#[test]
fn the_log_level_can_be_changed() {
    let gateway = Gateway::builder(SAMPLE).set("log_level", "error").start();
    let put = |level: &str| {
        send(&gateway, "PUT", &format!("/debug/node/log-level/{level}"), "application/json", "")
    };
    assert_eq!(get(&gateway, "/debug/node/log-level")["message"], "log level: error");
    assert_eq!(put("warn").status, 200);
    assert_eq!(get(&gateway, "/debug/node/log-level")["message"], "log level: warn");
    // Who makes the node say less is said all the same.
    assert!(gateway.log().contains("path=/debug/node/log-level/warn"), "{}", gateway.log());
    assert_eq!(put("info").status, 200);
    assert_eq!(get(&gateway, "/debug/node/log-level")["message"], "log level: info");
    assert!(gateway.log().contains("path=/debug/node/log-level/info"), "{}", gateway.log());
    assert_eq!(put("loud").status, 400);
}

#[test]
fn every_endpoint_is_listed() {
    let gateway = Gateway::start(SAMPLE);
    let listed = get(&gateway, "/endpoints")["data"].as_array().unwrap().clone();
    for path in ["/", "/services/{services}/routes", "/consumers/{consumers}/key-auth/{keyauth_credentials}"]
    {
        assert!(listed.contains(&json!(path)), "{path} is not among {listed:?}");
    }
    // The tail never ends.
    let is_whole = |path: &&str| !path.contains('{') && *path != "/analytics/requests/tail";
    for path in listed.iter().filter_map(Value::as_str).filter(is_whole) {
        let asked = path.ends_with("/validate") || ["/acme", "/explain", "/proxy-cache"].contains(&path);
        let needs_a_plugin = path == "/acme/certificates";
        let of_control_planes = path.starts_with("/clustering/") || path == "/analytics/nodes";
        let needs_arguments = path.starts_with("/vitals/");
        let status = if asked {
            405
        } else if of_control_planes || needs_arguments {
            400
        } else if needs_a_plugin {
            404
        } else {
            200
        };
        assert_eq!(gateway.admin(path).status, status, "{path}");
    }
}

#[test]
fn what_tools_tolerate_to_be_absent_is_absent() {
    let gateway = Gateway::start(SAMPLE);
    for path in ["/consumer_group_consumers", "/licenses", "/filter-chains", "/workspaces", "/targets"] {
        let answer = gateway.admin(path);
        assert_eq!((answer.status, answer.json()), (404, json!({ "message": "Not found" })), "{path}");
    }
    let answer = send(&gateway, "DELETE", "/endpoints", "application/json", "");
    assert_eq!((answer.status, answer.json()), (405, json!({ "message": "Method not allowed" })));
}

#[test]
fn every_answer_of_the_admin_api_tells_how_long_it_took() {
    let hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000";
    let (open, guarded) = (Gateway::start(SAMPLE), Gateway::builder(SAMPLE).set("admin_auth", hash).start());
    for (gateway, path, status) in [
        (&open, "/", 200),
        (&open, "/services", 200),
        (&open, "/services/none", 404),
        (&open, "/nothing", 404),
        (&guarded, "/", 401),
    ] {
        let answer = gateway.admin(path);
        assert_eq!(answer.status, status, "{path}");
        let latency = answer.header("x-kong-admin-latency").expect(path);
        assert!(latency.parse::<u64>().is_ok(), "{latency}");
        assert!(answer.header("server").is_some_and(|server| server.starts_with("weir/")), "{path}");
    }
    for (headers, latency, server) in
        [("off", false, false), ("server_tokens", false, true), ("off, X-Kong-Admin-Latency", true, false)]
    {
        let gateway = Gateway::builder(SAMPLE).set("headers", headers).start();
        let answer = gateway.admin("/");
        let present = ["x-kong-admin-latency", "server"].map(|name| answer.header(name).is_some());
        assert_eq!(present, [latency, server], "{headers}");
    }
}

#[test]
fn the_status_listener_serves_targets_and_health_for_reading() {
    let gateway = Gateway::start(SAMPLE);
    let target = gateway.admin("/upstreams/orders.test/targets").json()["data"][0]["id"].clone();
    let target = target.as_str().unwrap();
    for path in ["targets", "targets/all", &format!("targets/{target}"), "targets/10.0.0.1:80", "health"] {
        let path = format!("/upstreams/orders.test/{path}");
        let (own, admin) = (gateway.status(&path), gateway.admin(&path));
        assert_eq!((own.status, own.json()), (200, admin.json()), "{path}");
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n");
            let answer = Peer::connect(gateway.status_address()).send(request).response();
            assert_eq!(
                (answer.status, answer.json()),
                (405, json!({ "message": "Method not allowed" })),
                "{method}"
            );
        }
    }
    assert_eq!(gateway.status("/upstreams/none/targets").status, 404);
    assert_eq!(gateway.status("/upstreams").status, 404);
}

#[test]
fn the_status_counts_the_admin_api_too() {
    let gateway = Gateway::start(SAMPLE);
    let server = |answer: Message| {
        let server = answer.json()["server"].clone();
        (server["connections_accepted"].as_u64().unwrap(), server["total_requests"].as_u64().unwrap())
    };
    assert_eq!(server(gateway.status("/status")), (0, 0));
    assert_eq!(server(gateway.admin("/status")), (1, 1));
    gateway.admin("/services");
    assert_eq!(server(gateway.status("/status")), (2, 2));
}

#[test]
fn a_stored_configuration_has_no_hash() {
    let gateway = Gateway::empty().start();
    let status = gateway.status("/status").json();
    assert!(
        status.get("configuration_hash").is_none() && status["database"]["reachable"] == true,
        "{status}"
    );
}

#[test]
fn what_prometheus_counted_is_gone_once_it_is_disabled() {
    let document = |enabled: bool| {
        format!(
            "{SAMPLE}- {{name: prometheus, enabled: {enabled}, config: {{status_code_metrics: true, upstream_health_metrics: true}}}}\n\
             - {{name: request-termination}}\n"
        )
    };
    let gateway = Gateway::builder(&document(true)).set("stream_listen", "127.0.0.1:0").start();
    assert_eq!(gateway.get("/orders").status, 503);
    let metrics = || gateway.status("/metrics").text().to_owned();
    eventually("the request is counted", || metrics().contains("kong_http_requests_total{"));
    let text = metrics();
    assert!(text.contains("\nkong_nginx_metric_errors_total 0\n"), "{text}");
    for subsystem in ["http", "stream"] {
        let line = format!(
            "kong_upstream_target_health{{upstream=\"orders.test\",target=\"10.0.0.1:80\",address=\"10.0.0.1:80\",\
             state=\"healthchecks_off\",subsystem=\"{subsystem}\"}} 1"
        );
        assert!(text.contains(&line), "{line}\n{text}");
    }
    assert!(gateway.reload(&document(false)).status.success());
    // They are dropped once two scrapes have missed them.
    for _ in 0..2 {
        assert!(!metrics().contains("kong_http_requests_total"), "{}", metrics());
    }
    assert!(gateway.reload(&document(true)).status.success());
    assert!(!metrics().contains("kong_http_requests_total"), "{}", metrics());
}

#[test]
fn timers_have_kongs_shape() {
    let gateway = Gateway::start(SAMPLE);
    let timers = get(&gateway, "/timers");
    assert_eq!(timers["worker"], json!({ "id": 0, "count": 1 }));
    assert_eq!((&timers["stats"]["timers"], &timers["stats"]["sys"]["running"]), (&json!({}), &json!(0)));
    assert!(timers["stats"]["flamegraph"]["running"].is_string(), "{timers}");
}
