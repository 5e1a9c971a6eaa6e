//! The plugin kafka-logger, with a broker and a consumer of Apache Kafka.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use crate::harness::{Gateway, Identity, KafkaBroker, KafkaMessage, Upstream, document, eventually, service};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{SystemTime, UNIX_EPOCH};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";

/// Each record in a message of its own, at once, and again until it arrives.
const ALONE: &str = "batch_max_size: 1, producer_type: sync, max_retry_count: 1000, retry_delay: 1";

fn not_tested() {
    eprintln!("KAFKA WAS NOT TESTED: set KAFKA to a folder with its jars, as `make test` does");
}

/// A route whose requests go to a topic of brokers; more fields of the plugin's are given as YAML.
fn route(path: &str, upstream: &Upstream, broker: &str, topic: &str, more: &str) -> String {
    let config = format!("brokers: [{{host: 127.0.0.1, {broker}}}], kafka_topic: {topic}, {more}");
    let plugins = format!("plugins: [{{name: kafka-logger, config: {{{config}}}}}]");
    service(path, upstream.address, &plugins, "")
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

fn post(gateway: &Gateway, path: &str, headers: &str, body: &str) {
    let length = body.len();
    let head =
        format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n{headers}Content-Length: {length}\r\n\r\n");
    assert_eq!(gateway.send(&(head + body)).status, 200);
}

/// The records in messages of one each, by the requests' paths.
fn by_uri(messages: &[KafkaMessage]) -> BTreeMap<String, Json> {
    let record = |message: &KafkaMessage| {
        let record: Json = serde_json::from_str(&message.value).unwrap();
        let uri = record["request"]["uri"].as_str().or(record["path"].as_str()).expect(&message.value);
        (uri.to_owned(), record)
    };
    messages.iter().map(record).collect()
}

fn dropped(gateway: &Gateway) -> u64 {
    let message = gateway.status("/metrics");
    let lines = message.text().lines().filter(|line| line.starts_with("weir_plugin_dropped_total{"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

fn routes(broker: &KafkaBroker, upstream: &Upstream) -> Vec<String> {
    let clear = format!("port: {}", broker.port());
    let login = |mechanism: &str| {
        let login = format!("{{mechanism: {mechanism}, user: weir, password: hunter2}}");
        format!("port: {}, sasl_config: {login}", broker.sasl_port())
    };
    let to = |path: &str, broker: &str, topic: &str, more: &str| {
        route(path, upstream, broker, topic, &format!("{ALONE}, {more}"))
    };
    let tls = format!("port: {}", broker.tls_port());
    let bodies = "include_req_body: true, include_resp_body: true, max_req_body_bytes: 4";
    let conditions =
        "include_req_body_expr: [[status, '>=', 500]], include_resp_body_expr: [[arg_b, ==, '1']]";
    vec![
        to("/one/", &clear, "requests", ""),
        to("/plain/", &login("PLAIN"), "requests", ""),
        to("/scram-256/", &login("SCRAM-SHA-256"), "requests", ""),
        to("/scram-512/", &login("SCRAM-SHA-512"), "requests", ""),
        to("/tls/", &tls, "requests", "tls: {verify: true}"),
        to("/bodies/", &clear, "requests", bodies),
        to("/conditions/", &clear, "requests", &format!("{bodies}, {conditions}")),
        to(
            "/format/",
            &clear,
            "requests",
            "required_acks: 0, log_format: {path: $uri, code: $status, env: test}",
        ),
        to("/keyed/", &clear, "keyed", "key: key1, required_acks: -1"),
        to("/original/", &clear, "originals", "meta_format: origin, include_req_body: true"),
        route(
            "/listed/",
            upstream,
            &clear,
            "lists",
            "batch_max_size: 3, inactive_timeout: 3600, buffer_duration: 3600, max_retry_count: 1000",
        ),
    ]
}

#[test]
fn records_arrive() {
    let identity = Identity::new("kafka.test");
    let Some(broker) = KafkaBroker::start(&identity, true) else { return not_tested() };
    let (upstream, start) = (Upstream::answering(OK), now());
    let gateway = Gateway::builder(&document(&routes(&broker, &upstream), ""))
        .set("lua_ssl_trusted_certificate", &identity.cert().display().to_string())
        .start();
    let plain = ["/one/1", "/one/2", "/one/3", "/plain/", "/scram-256/", "/scram-512/", "/tls/", "/format/"];
    for path in plain.iter().chain(&["/keyed/1", "/keyed/2", "/listed/1", "/listed/2", "/listed/3"]) {
        assert_eq!(gateway.get(path).status, 200, "{path}");
    }
    post(&gateway, "/bodies/", "", "0123456789");
    post(&gateway, "/conditions/?b=1", "", "0123456789");
    post(&gateway, "/original/?a=b", "Authorization: hunter2\r\nX-A: 1\r\n", "a body\nof two lines");

    let messages = broker.consume("requests", 10);
    is_what_was_requested(&messages, &plain);
    assert!(messages.iter().all(|message| message.key == "null"), "{messages:?}");
    assert!(messages.iter().all(|message| (start..=now()).contains(&message.timestamp)), "{messages:?}");
    let partitions: BTreeSet<_> = messages.iter().map(|message| message.partition).collect();
    assert!(partitions.len() > 1, "without a key, they are spread: {messages:?}");

    // The CRC-32 of `key1` is 744252496.
    let keyed = broker.consume("keyed", 2);
    assert!(keyed.iter().all(|it| (it.key.as_str(), it.partition) == ("key1", 744_252_496 % 3)), "{keyed:?}");
    let [list] = &broker.consume("lists", 1)[..] else { unreachable!() };
    let records: Vec<Json> = serde_json::from_str(&list.value).unwrap();
    let uris: Vec<_> = records.iter().map(|record| record["request"]["uri"].as_str().unwrap()).collect();
    assert_eq!(uris, ["/listed/1", "/listed/2", "/listed/3"]);
    let [original] = &broker.consume("originals", 1)[..] else { unreachable!() };
    assert_eq!(
        original.value,
        "POST /original/?a=b HTTP/1.1\r\nhost: localhost\r\nauthorization: REDACTED\r\nx-a: 1\r\n\
         content-length: 19\r\n\r\na body\nof two lines"
    );
    assert_eq!(broker.message_count(), 14, "each is sent once");
}

fn is_what_was_requested(messages: &[KafkaMessage], plain: &[&str]) {
    let records = by_uri(messages);
    let expected: BTreeSet<_> = plain.iter().chain(&["/bodies/", "/conditions/?b=1"]).copied().collect();
    assert_eq!(records.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected);
    assert_eq!(records["/one/1"]["response"]["status"], 200);
    assert!(records["/one/1"]["request"].get("body").is_none());
    assert_eq!(records["/bodies/"]["request"]["body"], "0123");
    assert_eq!(records["/bodies/"]["response"]["body"], "hi");
    let conditional = &records["/conditions/?b=1"];
    assert!(conditional["request"].get("body").is_none(), "{conditional}");
    assert_eq!(conditional["response"]["body"], "hi");
    assert_eq!(records["/format/"]["code"], "200");
    assert_eq!(records["/format/"]["env"], "test");
}

#[test]
fn what_fails_is_retried_and_explained() {
    let Some(mut broker) = KafkaBroker::start(&Identity::new("kafka.test"), false) else {
        return not_tested();
    };
    let upstream = Upstream::answering(OK);
    let clear = format!("port: {}", broker.port());
    let login = |mechanism: &str| {
        let login = format!("{{mechanism: {mechanism}, user: weir, password: hunter3}}");
        format!("port: {}, sasl_config: {login}", broker.sasl_port())
    };
    let to = |path: &str, broker: &str, more: &str| {
        route(path, &upstream, broker, "later", &format!("{ALONE}, {more}"))
    };
    let large = "include_req_body: true, max_req_body_bytes: 2000000";
    let gateway = Gateway::start(&document(
        &[
            to("/later/", &clear, ""),
            to("/plain/", &login("PLAIN"), ""),
            to("/scram/", &login("SCRAM-SHA-512"), ""),
            to("/large/", &clear, large),
            route(
                "/unexpected/",
                &upstream,
                &format!("port: {}", broker.sasl_port()),
                "later",
                "batch_max_size: 1",
            ),
        ],
        "",
    ));
    let says = |text: &str| eventually(text, || gateway.log().contains(text));
    let get = |path: &str| assert_eq!(gateway.get(path).status, 200, "{path}");

    get("/later/0");
    says(&format!("topic later at 127.0.0.1:{}: the broker answered UnknownTopicOrPartition", broker.port()));
    says("create the topic, or correct kafka_topic");
    broker.create_topic("later");
    assert_eq!(by_uri(&broker.consume("later", 1)).into_keys().collect::<Vec<_>>(), ["/later/0"]);

    get("/plain/");
    get("/scram/");
    eventually("both logins fail", || gateway.log().matches("the login failed").count() >= 2);
    says("check sasl_config.user and sasl_config.password");
    get("/unexpected/");
    says("a listener closes connections that lack what it expects");
    post(&gateway, "/large/", "", &"x".repeat(1_500_000));
    says("raise the topic's max.message.bytes");
    eventually("four records are dropped", || dropped(&gateway) == 4);
    assert!(!gateway.log().contains("hunter"), "{}", gateway.log());

    broker.kill();
    let paths: Vec<_> = (1..=10).map(|number| format!("/later/{number}")).collect();
    paths.iter().for_each(|path| get(path));
    says("check brokers, and that the broker runs");
    broker.restart();
    let arrived = by_uri(&broker.consume("later", 11));
    let expected: BTreeSet<_> = paths.iter().map(String::as_str).chain(["/later/0"]).collect();
    assert_eq!(arrived.keys().map(String::as_str).collect::<BTreeSet<_>>(), expected);
    assert_eq!((broker.message_count(), dropped(&gateway)), (11, 4));
}
