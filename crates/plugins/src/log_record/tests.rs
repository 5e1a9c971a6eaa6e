use super::*;
use crate::PLUGINS;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;
use std::collections::BTreeMap;
use weir_plugin::testing::{self, Gateway, entity, id};
use weir_plugin::{ConsumerIndex, Credential, FailedTry};
use weir_plugin::{Headers, Json, LogFieldMode, Scripts, SessionTls, Uuid};

/// The record of a request, with these fields of the configuration.
fn written(exchange: &mut Exchange, custom: &Option<BTreeMap<String, String>>) -> Vec<u8> {
    log_record(custom).of(exchange)
}

fn log_record(custom: &Option<BTreeMap<String, String>>) -> LogRecord {
    <dyn Scripts>::install(&weir_guests::LuaScripts);
    let plugin = entity(json!({ "id": id(0xf1), "name": "file-log", "config": {} }));
    let gateway = Gateway::new(PLUGINS);
    gateway.build_with(&plugin, |build| LogRecord::new(custom, "file-log", build)).unwrap()
}

fn record(exchange: &mut Exchange, custom: &[(&str, &str)]) -> Json {
    let custom: BTreeMap<_, _> =
        custom.iter().map(|(path, code)| ((*path).to_owned(), (*code).to_owned())).collect();
    let text = written(exchange, &Some(custom));
    assert!(!text.contains(&b'\n'));
    serde_json::from_slice(&text)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&text)))
}

/// A request that was answered by the upstream.
fn answered(request: &str) -> Exchange {
    let mut exchange = Gateway::new(PLUGINS).exchange(request);
    exchange.response.status = 201;
    exchange.response.headers.append("X-Seen", b"yes");
    testing::upstream_asked(&mut exchange, "192.0.2.7:9000".parse().unwrap());
    let after = |milliseconds| Some(exchange.timing.start + Duration::from_millis(milliseconds));
    (exchange.timing.upstream_start, exchange.timing.upstream_head) = (after(2), after(7));
    exchange.timing.end = after(10);
    (exchange.bytes_in, exchange.bytes_out) = (123, 456);
    exchange
}

#[test]
fn a_record_has_kongs_members() {
    let mut exchange =
        answered("GET /p/a%20b?x=1&x=2&flag&y=%22&z=\nUser-Agent: t\nX-Two: 1\nX-Two: 2\nX-Odd: a\"b");
    exchange.authenticate(ConsumerIndex(0), Credential { id: id(0xa1), identifier: None });
    let record = record(&mut exchange, &[]);
    let request = &record["request"];
    assert_eq!(request["id"], "0123456789abcdef0123456789abcdef");
    assert_eq!(request["uri"], "/p/a%20b?x=1&x=2&flag&y=%22&z=");
    assert_eq!(request["url"], "http://gateway.test:8000/p/a%20b?x=1&x=2&flag&y=%22&z=");
    assert_eq!(request["querystring"], json!({ "x": ["1", "2"], "flag": true, "y": "\"", "z": "" }));
    assert_eq!((&request["method"], &request["size"]), (&json!("GET"), &json!(123)));
    let headers = &request["headers"];
    assert_eq!((&headers["x-two"], &headers["x-odd"]), (&json!(["1", "2"]), &json!("a\"b")));
    assert_eq!(
        (&headers["host"], &headers["x-consumer-username"]),
        (&json!("gateway.test:8000"), &json!("alice"))
    );
    assert_eq!(request.get("tls"), None);
    assert_eq!(record["response"], json!({ "status": 201, "headers": { "x-seen": "yes" }, "size": 456 }));
    assert_eq!(record["latencies"], json!({ "kong": 2, "proxy": 5, "request": 10, "receive": 3 }));
    assert_eq!((&record["upstream_status"], &record["source"]), (&json!("201"), &json!("upstream")));
    assert_eq!(record["upstream_uri"], "/p/a%20b?x=1&x=2&flag&y=%22&z=");
    assert_eq!((&record["client_ip"], &record["workspace_name"]), (&json!("192.0.2.1"), &json!("default")));
    assert_eq!(record["authenticated_entity"], json!({ "id": id(0xa1), "consumer_id": id(1) }));
    assert_eq!(record["consumer"]["username"], "alice");
    assert_eq!((&record["service"]["name"], &record["route"]["name"]), (&json!("orders"), &json!("all")));
    assert_eq!(record["route"]["service"], json!({ "id": record["service"]["id"] }));
    assert_eq!(
        (&record["route"]["ws_id"], &record["service"]["ws_id"]),
        (&json!(WORKSPACE), &json!(WORKSPACE))
    );
    assert_eq!(record["consumer"].get("ws_id"), None);
    let started = record["started_at"].as_u64().unwrap();
    let [only] = &record["tries"].as_array().unwrap()[..] else { panic!("{}", record["tries"]) };
    assert_eq!((&only["ip"], &only["port"]), (&json!("192.0.2.7"), &json!(9000)));
    assert!((started + 1..=started + 3).contains(&only["balancer_start"].as_u64().unwrap()));
    assert_eq!(
        only["balancer_start_ns"].as_u64().unwrap() / 1_000_000,
        only["balancer_start"].as_u64().unwrap()
    );
}

#[test]
fn what_did_not_happen_is_written_as_by_kong() {
    let mut exchange = Gateway::new(PLUGINS).exchange("GET /");
    (exchange.source, exchange.response.status) = (Source::Kong, 403);
    let record = record(&mut exchange, &[]);
    assert_eq!((&record["upstream_status"], &record["tries"]), (&json!(""), &json!([])));
    assert_eq!((&record["latencies"]["proxy"], &record["latencies"]["receive"]), (&json!(-1), &json!(0)));
    assert_eq!((&record["source"], &record["request"]["querystring"]), (&json!("exit"), &json!({})));
    assert_eq!((record.get("consumer"), record.get("authenticated_entity")), (None, None));
    testing::no_route(&mut exchange);
    testing::failed(&mut exchange);
    let unmatched = self::record(&mut exchange, &[]);
    assert_eq!(
        (unmatched.get("tries"), unmatched.get("route"), unmatched.get("service")),
        (None, None, None)
    );
    assert_eq!((&unmatched["upstream_uri"], &unmatched["source"]), (&json!(""), &json!("error")));
}

#[test]
fn failed_tries_come_before_the_one_that_succeeded() {
    let mut exchange = answered("GET /");
    let start = exchange.timing.start;
    let (from, to) = (start + Duration::from_millis(1), start + Duration::from_millis(4));
    testing::try_failed(
        &mut exchange,
        FailedTry { address: None, port: 81, start: from, end: to, code: 504 },
    );
    let tries = record(&mut exchange, &[])["tries"].clone();
    let [failed, succeeded] = &tries.as_array().unwrap()[..] else { panic!("{tries}") };
    assert_eq!((failed.get("ip"), &failed["port"], &failed["state"]), (None, &json!(81), &json!("failed")));
    assert_eq!((&failed["balancer_latency"], &failed["balancer_latency_ns"]), (&json!(3), &json!(3_000_000)));
    assert_eq!(failed["code"], 504);
    assert_eq!((&succeeded["port"], succeeded.get("state")), (&json!(9000), None));
}

#[test]
fn what_proves_identity_is_redacted_however_often_it_is_sent() {
    let request = "GET /\nAuthorization: Basic c2VjcmV0\nPROXY-authorization: secret\nproxy-authorization: secret\nX-Other: 1";
    let headers = record(&mut answered(request), &[])["request"]["headers"].clone();
    assert_eq!(
        (&headers["authorization"], &headers["proxy-authorization"]),
        (&json!("REDACTED"), &json!("REDACTED"))
    );
    assert_eq!(headers["x-other"], "1");
}

#[test]
fn names_of_any_kind_are_found_to_repeat() {
    let lines: String = (0..90).map(|number| format!("\nX-{}: {number}", number % 45)).collect();
    let headers = record(&mut answered(&format!("GET /{lines}")), &[])["request"]["headers"].clone();
    for name in 0..45 {
        let expected = json!([name.to_string(), (name + 45).to_string()]);
        assert_eq!(headers[format!("x-{name}")], expected);
    }
}

/// The headers that the record must contain.
fn expected(headers: &Headers) -> Json {
    let mut expected = BTreeMap::<String, Vec<String>>::new();
    for field in headers.iter() {
        let is_secret = matches!(field.known, Known::Authorization | Known::ProxyAuthorization);
        let value = if is_secret { "REDACTED".into() } else { String::from_utf8_lossy(field.value) };
        let values = expected.entry(String::from_utf8_lossy(field.name).to_lowercase()).or_default();
        if !is_secret || values.is_empty() {
            values.push(value.into_owned());
        }
    }
    let one_or_list =
        |values: Vec<String>| if let [only] = &values[..] { json!(only) } else { json!(values) };
    expected.into_iter().map(|(name, values)| (name, one_or_list(values))).collect()
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![any::<u8>(), b' '..=b'~', Just(b'"'), Just(b'\\')];
    prop_oneof![vec(byte, 0..40), vec(b'a'..=b'z', 0..40), any::<String>().prop_map(String::into_bytes)]
}

proptest! {
    #[test]
    fn headers_of_any_kind_come_back(
        fields in vec((select(NAMES), value()), 0..12),
        removed in select(NAMES),
    ) {
        let mut headers = Headers::new();
        fields.iter().for_each(|(name, value)| headers.append(name, value));
        headers.remove(removed);
        let mut out = br#"{"headers""#.to_vec();
        super::headers(&mut out, &headers, json_text::are_plain(headers.lines()));
        out.push(b'}');
        let read: Json = serde_json::from_slice(&out).unwrap();
        prop_assert_eq!(&read["headers"], &expected(&headers));
    }
}

const NAMES: &[&str] = &[
    "Host",
    "host",
    "User-Agent",
    "Accept",
    "Set-Cookie",
    "set-cookie",
    "Authorization",
    "AUTHORIZATION",
    "X-Kong-Request-Debug-Token",
    "X",
    "x-a",
    "X-A",
    "x-b",
    "X-Some-Long-Name-Of-Some-Header",
    "X-0123456",
];

#[test]
fn fields_that_plugins_set_are_in_the_record_before_those_of_the_configuration() {
    let mut exchange = answered("GET /");
    exchange.set_log_field("request.tenant", Some(json!("blue")), LogFieldMode::Set);
    exchange.set_log_field("env", Some(json!("test")), LogFieldMode::Set);
    exchange.set_log_field("source", Some(json!("x")), LogFieldMode::Add);
    exchange.set_log_field("upstream_status", Some(json!(1)), LogFieldMode::Replace);
    let found = record(&mut exchange, &[]);
    assert_eq!((&found["request"]["tenant"], &found["env"]), (&json!("blue"), &json!("test")));
    assert_eq!((&found["source"], &found["upstream_status"]), (&json!("upstream"), &json!(1)));
    let text = written(&mut exchange, &Some([("env".to_owned(), "return 'prod'".to_owned())].into()));
    assert_eq!(text.windows(6).filter(|part| part == b"\"env\":").count(), 1);
    assert_eq!(serde_json::from_slice::<Json>(&text).unwrap()["env"], "prod");
}

#[test]
fn a_credentials_id_may_be_any_text() {
    let mut exchange = answered("GET /");
    exchange.set_authenticated(exchange.find_consumer(id(1)), Some("auth0|1"));
    assert_eq!(
        record(&mut exchange, &[])["authenticated_entity"],
        json!({ "id": "auth0|1", "consumer_id": id(1) })
    );
}

#[test]
fn custom_fields_are_added_changed_and_removed() {
    let custom = [
        ("env", "return 'prod'"),
        ("weight", "return 1.5"),
        ("request.headers.x-secret", "return nil"),
        ("request.method", "return \"a\\\"b\""),
        ("my.new.flag", "return true;"),
        ("client_ip.deep", "return 1"),
        ("source", "return nil"),
        ("workspace_name", "return 'mine'"),
    ];
    let record = record(&mut answered("GET /\nX-Secret: s\nX-Kept: k"), &custom);
    assert_eq!((&record["env"], &record["weight"]), (&json!("prod"), &json!(1.5)));
    assert_eq!(
        (record["request"]["headers"].get("x-secret"), &record["request"]["headers"]["x-kept"]),
        (None, &json!("k"))
    );
    assert_eq!(
        (&record["request"]["method"], &record["my"]),
        (&json!("a\"b"), &json!({ "new": { "flag": true } }))
    );
    assert_eq!((&record["client_ip"], record.get("source")), (&json!("192.0.2.1"), None));
    assert_eq!(record["workspace_name"], "mine");
}

#[test]
fn code_adds_changes_and_removes_fields() {
    let custom = [
        ("tenant", "return kong.request.get_header('x-tenant') or 'none'"),
        ("sum", "local n = 0 for i = 1, 10 do n = n + i end return n"),
        ("parts", "return { 'a', { b = true } }"),
        (
            "request.headers.x-tenant",
            "if kong.request.get_method() == 'GET' then return nil end return 'kept'",
        ),
        ("response.phase", "return ngx.get_phase()"),
        ("failed", "return nothing.at.all"),
        ("endless", "return 'constant'"),
    ];
    let record = record(&mut answered("GET /\nX-Tenant: acme"), &custom);
    assert_eq!((&record["tenant"], &record["sum"]), (&json!("acme"), &json!(55)));
    assert_eq!((&record["parts"], &record["endless"]), (&json!(["a", { "b": true }]), &json!("constant")));
    assert_eq!(record["request"]["headers"].get("x-tenant"), None);
    assert_eq!(record["response"]["phase"], "log");
    assert_eq!(record.get("failed"), None);
}

#[test]
fn code_that_does_not_parse_is_refused_with_its_line() {
    <dyn Scripts>::install(&weir_guests::LuaScripts);
    for code in ["return 1", "return'x'", "return nil", "return 1 + 1", "local x = 1 return x", "return {}"] {
        assert_eq!(lua_code(code), Ok(()), "{code}");
    }
    for (code, line) in
        [("return 'a", ":1: "), ("local x =\n= 1", ":2: "), ("returnnil", ":1: "), ("1", ":1: ")]
    {
        let refusal = lua_code(code).unwrap_err();
        assert!(refusal.starts_with("Error parsing function: ") && refusal.contains(line), "{refusal}");
    }
}

#[test]
fn sessions_have_a_record_of_their_own() {
    let address = |text: &str| text.parse().unwrap();
    let mut session = Session::new(address("192.0.2.1:50000"), address("127.0.0.1:5000"));
    (session.status, session.received, session.sent) = (200, 10, 20);
    let text = log_record(&None).of_session(&session);
    let record: Json = serde_json::from_slice(&text).unwrap();
    assert_eq!(record["session"], json!({ "received": 10, "sent": 20, "status": 200, "server_port": 5000 }));
    assert_eq!(record["upstream"], json!({ "received": 20, "sent": 10 }));
    assert_eq!((&record["client_ip"], record.get("route")), (&json!("192.0.2.1"), None));
    session.tls = Some(SessionTls { version: "TLSv1.3", cipher: "TLS_AES_256_GCM_SHA384".to_owned() });
    let text = log_record(&None).of_session(&session);
    let record: Json = serde_json::from_slice(&text).unwrap();
    let tls = json!({ "version": "TLSv1.3", "cipher": "TLS_AES_256_GCM_SHA384", "client_verify": "NONE" });
    assert_eq!(record["session"]["tls"], tls);
}

#[test]
fn entities_are_written_without_unset_fields() {
    let mut gateway = Gateway::new(PLUGINS);
    gateway.document.routes =
        vec![entity(json!({ "id": id(0x61), "name": "tagged", "paths": ["/"], "tags": ["a b"] }))];
    let record = record(&mut gateway.exchange("GET /"), &[]);
    assert_eq!((&record["route"]["name"], &record["route"]["tags"]), (&json!("tagged"), &json!(["a b"])));
    assert_eq!((record["route"].get("methods"), record.get("service")), (None, None));
    assert_eq!(record["route"]["id"], json!(Uuid::from_u128(0x61)));
}
