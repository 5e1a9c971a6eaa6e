//! datadog and loggly: what their servers get, read by the published grammars.
use crate::harness::{Gateway, PATIENCE, Upstream, closed_port, eventually};
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::io::Read;
use std::net::{TcpStream, UdpSocket};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
const FAILURE: &str = "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n";

/// A server that receives datagrams.
struct Collector(UdpSocket);

impl Collector {
    fn start() -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        Self(socket)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().unwrap().port()
    }

    fn next(&self) -> String {
        let mut datagram = vec![0; 65_536];
        let length = self.0.recv(&mut datagram).unwrap();
        String::from_utf8(datagram[..length].to_vec()).unwrap()
    }
}

/// A message of DogStatsD.
#[derive(Debug, PartialEq)]
struct Message {
    name: String,
    value: f64,
    kind: String,
    rate: f64,
    tags: BTreeMap<String, String>,
}

impl Message {
    /// Reads `NAME:VALUE|TYPE|@RATE|#TAG:VALUE,…` as Datadog's documentation of the protocol has it: a name begins with a
    /// letter and consists of letters, digits, underscores and dots; the rate and the tags may be absent.
    fn parse(text: &str) -> Message {
        let (head, rest) = text.split_once('|').unwrap_or_else(|| panic!("no type: {text}"));
        let (name, value) = head.split_once(':').unwrap_or_else(|| panic!("no value: {text}"));
        assert!(name.starts_with(|first: char| first.is_ascii_alphabetic()), "{text}");
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.".contains(&byte)), "{text}");
        let mut parts = rest.split('|').peekable();
        let kind = parts.next().unwrap().to_owned();
        assert!(["c", "g", "ms", "h", "s", "d"].contains(&&*kind), "{text}");
        let rate = parts.next_if(|part| part.starts_with('@'));
        let rate = rate.map_or(1.0, |rate| rate[1..].parse().unwrap());
        let tags = parts.next().map_or("", |tags| tags.strip_prefix('#').unwrap());
        assert_eq!(parts.next(), None, "{text}");
        let pair = |tag: &str| {
            let (name, value) = tag.split_once(':').unwrap_or((tag, ""));
            assert!(name.starts_with(|first: char| first.is_ascii_alphabetic()), "{text}");
            (name.to_owned(), value.to_owned())
        };
        let tags = tags.split(',').filter(|tag| !tag.is_empty()).map(pair).collect();
        Message { name: name.to_owned(), value: value.parse().unwrap(), kind, rate, tags }
    }

    fn tags(&self) -> Vec<(&str, &str)> {
        self.tags.iter().map(|(name, value)| (&**name, &**value)).collect()
    }
}

/// A gateway with a service, a plugin and a consumer with a key.
fn gateway(service: &str, plugin: &str) -> Gateway {
    Gateway::start(&format!(
        "_format_version: \"3.0\"\nservices:\n- {service}\n  routes: [{{paths: [/]}}]\nconsumers:\n- username: alice\n  custom_id: \
         \"a,b|c\"\n  keyauth_credentials: [{{key: k}}]\nplugins:\n- name: key-auth\n- {plugin}\n"
    ))
}

#[test]
fn datadogs_agent_gets_a_datagram_for_each_metric() {
    let (agent, upstream) = (Collector::start(), Upstream::answering(OK));
    let plugin = format!("{{name: datadog, config: {{host: localhost, port: {}}}}}", agent.port());
    let service = format!("name: shop.v1\n  url: http://{}", upstream.address);
    let gateway = gateway(&service, &plugin);
    assert_eq!(gateway.get_with("/", "apikey: k\r\n").status, 200);
    let expected = [
        ("kong.request.count", "c"),
        ("kong.latency", "ms"),
        ("kong.request.size", "ms"),
        ("kong.response.size", "ms"),
        ("kong.upstream_latency", "ms"),
        ("kong.kong_latency", "ms"),
    ];
    for (name, kind) in expected {
        let message = Message::parse(&agent.next());
        assert_eq!((&*message.name, &*message.kind, message.rate), (name, kind, 1.0));
        let tags = [("app", "kong"), ("consumer", "a_b_c"), ("name", "shop_v1"), ("status", "200")];
        assert_eq!(message.tags(), tags);
        match name {
            "kong.request.count" => assert_eq!(message.value, 1.0),
            "kong.request.size" | "kong.response.size" => assert!(message.value > 0.0, "{message:?}"),
            _ => {}
        }
    }
    // The upstream was not asked, so there is no latency of it, and nobody is known.
    assert_eq!(gateway.get("/").status, 401);
    let names: Vec<_> = (0..5)
        .map(|_| Message::parse(&agent.next()))
        .map(|message| {
            assert_eq!(message.tags(), [("app", "kong"), ("name", "shop_v1"), ("status", "401")]);
            message.name
        })
        .collect();
    assert!(!names.iter().any(|name| name == "kong.upstream_latency"), "{names:?}");
}

#[test]
fn datadogs_metrics_are_those_of_the_configuration() {
    let (agent, upstream) = (Collector::start(), Upstream::answering(OK));
    let metrics = "[{name: request_count, stat_type: counter, sample_rate: 0.25, tags: [\"env:prod\", canary]}, \
                   {name: latency, stat_type: distribution, consumer_identifier: username}]";
    let plugin = format!(
        "{{name: datadog, config: {{host: 127.0.0.1, port: {}, prefix: edge, service_name_tag: service, metrics: {metrics}}}}}",
        agent.port()
    );
    let gateway = gateway(&format!("url: http://{}", upstream.address), &plugin);
    gateway.get_with("/", "apikey: k\r\n");
    let count = Message::parse(&agent.next());
    assert_eq!((&*count.name, count.value, &*count.kind, count.rate), ("edge.request.count", 1.0, "c", 0.25));
    assert_eq!(count.tags(), [("canary", ""), ("env", "prod"), ("service", "127_0_0_1"), ("status", "200")]);
    let latency = Message::parse(&agent.next());
    assert_eq!((&*latency.name, &*latency.kind), ("edge.latency", "d"));
    assert_eq!(latency.tags(), [("consumer", "alice"), ("service", "127_0_0_1"), ("status", "200")]);
}

/// The parts of a message of RFC 5424 as loggly gets it: priority, time, host, application, element and record.
fn parse_syslog(text: &str) -> (u8, String, String, String, String, Json) {
    let (priority, rest) = text.strip_prefix('<').unwrap().split_once(">1 ").unwrap();
    let mut fields = rest.splitn(6, ' ');
    let mut field = || fields.next().unwrap().to_owned();
    let (time, host, application, process, message) = (field(), field(), field(), field(), field());
    assert_eq!((&*process, &*message), ("-", "-"));
    let rest = fields.next().unwrap();
    let (element, record) = rest.split_once("] ").unwrap();
    let record = serde_json::from_str(record).unwrap_or_else(|error| panic!("{error}: {record}"));
    (priority.parse().unwrap(), time, host, application, format!("{element}]"), record)
}

#[test]
fn loggly_gets_messages_with_the_severity_of_the_status() {
    let server = Collector::start();
    let upstream = Upstream::start(|mut peer, _| {
        while let Some(request) = peer.request() {
            let fails = request.head.start.contains("/fails");
            peer.send(if fails { FAILURE } else { OK });
        }
    });
    let plugin = format!(
        "{{name: loggly, config: {{host: localhost, port: {}, key: a-token, tags: [kong, 'x\"y'], log_level: warning, \
         successful_severity: info, client_errors_severity: warning, server_errors_severity: crit, \
         custom_fields_by_lua: {{own: \"return 'field'\"}}}}}}",
        server.port()
    );
    let gateway = gateway(&format!("url: http://{}\n  retries: 0", upstream.address), &plugin);
    assert_eq!(gateway.get_with("/fine", "apikey: k\r\n").status, 200);
    assert_eq!(gateway.get("/unknown").status, 401);
    let (priority, time, host, application, element, record) = parse_syslog(&server.next());
    assert_eq!((priority, &*application), (12, "kong"));
    assert_eq!(element, "[a-token@41058 tag=\"kong\" tag=\"x\\\"y\"]");
    let pattern =
        regex::Regex::new("^20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]Z$").unwrap();
    assert!(pattern.is_match(&time), "{time}");
    assert_eq!(host, std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap().trim());
    assert_eq!((&record["request"]["uri"], &record["response"]["status"]), (&"/unknown".into(), &401.into()));
    assert_eq!(record["own"], "field");
    assert_eq!(gateway.get_with("/fails", "apikey: k\r\n").status, 502);
    let (priority, .., record) = parse_syslog(&server.next());
    assert_eq!((priority, &record["request"]["uri"]), (10, &"/fails".into()));
}

#[test]
fn what_no_server_takes_is_counted_and_its_key_is_in_no_log() {
    let plugin = "{name: loggly, config: {host: nowhere.invalid, key: hunter2, timeout: 100}}";
    let gateway = gateway(&format!("url: http://{}\n  retries: 0", closed_port()), plugin);
    assert_eq!(gateway.get_with("/", "apikey: k\r\n").status, 502);
    let name = "weir_plugin_dropped_total{plugin=\"loggly\"";
    eventually("the message is dropped", || {
        let metrics = gateway.status("/metrics");
        metrics.text().lines().any(|line| line.starts_with(name) && line.ends_with(" 1"))
    });
    assert!(!gateway.log().contains("hunter2"), "{}", gateway.log());
}

#[test]
fn loggly_gets_sessions_of_streams_too() {
    let server = Collector::start();
    let upstream = Upstream::start(|mut peer, _| {
        let _ = peer.try_send(b"bye");
    });
    let document = format!(
        "_format_version: \"3.0\"\nservices:\n- name: raw\n  url: tcp://{}\n  routes: [{{name: all, protocols: [tcp], sources: \
         [{{ip: 127.0.0.1}}]}}]\nplugins:\n- name: loggly\n  protocols: [tcp]\n  config: {{host: 127.0.0.1, port: {}, key: k}}\n",
        upstream.address,
        server.port()
    );
    let gateway = Gateway::builder(&document).set("stream_listen", "127.0.0.1:0").start();
    let mut text = String::new();
    TcpStream::connect(gateway.stream(0)).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, "bye");
    let (priority, .., record) = parse_syslog(&server.next());
    assert_eq!((priority, &record["session"]["status"]), (14, &200.into()));
    assert_eq!(record["service"]["name"], "raw");
}
