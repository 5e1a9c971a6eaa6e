//! ai-proxy with a provider that tokens trickle from, one that fails in every way, and logs that must not know its key.

mod analytics;
mod failed_streams;
mod fallback;
mod limits;
mod transformers;

use crate::harness::{Gateway, Message, Peer, Upstream, closed_port, eventually};
use serde_json::{Value as Json, json};
use std::fs;
use std::path::Path;
use std::sync::mpsc;

const KEY: &str = "sk-5ecre7";

/// A gateway whose only route leads to this model; requests are logged in a file.
fn gateway(config: &Json, log: &Path) -> Gateway {
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "name": "models", "url": "http://127.0.0.1:1", "read_timeout": 1000, "routes": [{ "name": "chat", "paths": ["/"] }] }],
        "plugins": [
            { "name": "ai-proxy", "config": config },
            { "name": "file-log", "config": { "path": log } },
            { "name": "prometheus", "config": { "ai_metrics": true } },
        ],
    });
    Gateway::start(&document.to_string())
}

/// The configuration for a provider at an address.
fn config(provider: &str, url: &str, options: &Json) -> Json {
    let mut options = options.clone();
    options["upstream_url"] = url.into();
    json!({
        "route_type": "llm/v1/chat",
        "auth": { "header_name": "X-Api-Key", "header_value": KEY, "param_name": "key", "param_value": KEY, "param_location": "query" },
        "model": { "provider": provider, "name": "m", "options": options },
        "logging": { "log_statistics": true, "log_payloads": true },
    })
}

fn ask(gateway: &Gateway, stream: bool) -> Peer {
    let body = json!({ "messages": [{ "role": "user", "content": "say something nice" }], "stream": stream });
    let body = body.to_string();
    let mut client = gateway.connect();
    let length = body.len();
    client.send(format!("POST /chat HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{body}"));
    client
}

/// The next chunk of a response.
fn chunk(client: &mut Peer) -> String {
    use std::io::{BufRead, BufReader, Read};
    let mut reader = BufReader::with_capacity(1, client.reader());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let length = usize::from_str_radix(line.trim_end(), 16).unwrap_or_else(|_| panic!("{line:?}"));
    let mut data = vec![0; length + 2];
    reader.read_exact(&mut data).unwrap();
    String::from_utf8(data[..length].to_vec()).unwrap()
}

/// What a provider sends of a stream: its content type, events that each have some text, and its end.
struct Provider {
    name: &'static str,
    options: Json,
    content_type: &'static str,
    events: [&'static str; 2],
    end: &'static str,
    tokens: [u64; 2],
}

fn providers() -> Vec<Provider> {
    let sse = "text/event-stream";
    vec![
        Provider {
            name: "openai",
            options: json!({}),
            content_type: sse,
            events: [
                "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n",
                "data: {\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"}}]}\n\n",
            ],
            end: "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n",
            tokens: [7, 2],
        },
        Provider {
            name: "anthropic",
            options: json!({ "anthropic_version": "2023-06-01" }),
            content_type: sse,
            events: [
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"Hel\"}}\n\n",
                "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"lo\"}}\n\n",
            ],
            end: "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"input_tokens\":7,\"output_tokens\":2}}\n\nevent: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
            tokens: [7, 2],
        },
        Provider {
            name: "gemini",
            options: json!({}),
            content_type: sse,
            events: [
                "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hel\"}]}}]}\r\n\r\n",
                "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"lo\"}]}}],\"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":2}}\r\n\r\n",
            ],
            end: "",
            tokens: [7, 2],
        },
        Provider {
            name: "llama2",
            options: json!({ "llama2_format": "ollama" }),
            content_type: "application/x-ndjson",
            events: [
                "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"Hel\"},\"done\":false}\n",
                "{\"model\":\"m\",\"message\":{\"role\":\"assistant\",\"content\":\"lo\"},\"done\":false}\n",
            ],
            end: "{\"model\":\"m\",\"message\":{\"content\":\"\"},\"done\":true,\"prompt_eval_count\":7,\"eval_count\":2}\n",
            tokens: [7, 2],
        },
        Provider {
            name: "cohere",
            options: json!({}),
            content_type: "application/stream+json",
            events: [
                "{\"event_type\":\"text-generation\",\"text\":\"Hel\",\"is_finished\":false}\n",
                "{\"event_type\":\"text-generation\",\"text\":\"lo\",\"is_finished\":false}\n",
            ],
            end: "{\"event_type\":\"stream-end\",\"is_finished\":true,\"response\":{\"meta\":{\"billed_units\":{\"input_tokens\":7,\"output_tokens\":2}}}}\n",
            tokens: [7, 2],
        },
        Provider {
            name: "huggingface",
            options: json!({}),
            content_type: sse,
            events: [
                "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n",
                "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"lo\"}}]}\n\n",
            ],
            end: "data:[DONE]\n\n",
            // Nobody has counted them: three words at 1.8, and a token for each event.
            tokens: [5, 2],
        },
    ]
}

/// A provider that sends its second event once the client has the first.
fn trickling(provider: &Provider) -> (Upstream, mpsc::Sender<()>) {
    let (go, wait) = mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let Provider { content_type, events: [first, second], end, .. } = *provider;
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            assert_eq!(request.header("x-api-key"), Some(KEY), "the provider gets its key");
            assert!(request.head.start.contains(&format!("key={KEY}")), "{}", request.head.start);
            let piece = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nTransfer-Encoding: chunked\r\n\r\n{}",
                piece(first)
            ));
            wait.lock().unwrap().recv().unwrap();
            peer.send(piece(second));
            peer.send(if end.is_empty() {
                "0\r\n\r\n".to_owned()
            } else {
                format!("{}0\r\n\r\n", piece(end))
            });
        }
    });
    (upstream, go)
}

/// The texts of a stream's events.
fn texts(events: &str) -> String {
    let data = events.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    let json = data.filter_map(|data| serde_json::from_str::<Json>(data).ok());
    json.filter_map(|chunk| chunk.pointer("/choices/0/delta/content")?.as_str().map(str::to_owned)).collect()
}

/// The only record of a log, once it is there.
fn record(log: &Path) -> Json {
    let read = || fs::read_to_string(log).unwrap_or_default();
    eventually("a request is logged", || read().ends_with('\n'));
    let text = read();
    assert!(!text.contains(KEY), "the key is in the log: {text}");
    serde_json::from_str(text.trim_end()).unwrap()
}

#[test]
fn each_token_arrives_before_the_provider_sends_the_next() {
    for provider in providers() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("requests.log");
        let (upstream, go) = trickling(&provider);
        let url = format!("http://{}/v1", upstream.address);
        let mut config = config(provider.name, &url, &provider.options);
        config["model"]["options"]["input_cost"] = json!(1000);
        config["model"]["options"]["output_cost"] = json!(2000);
        let gateway = gateway(&config, &log);
        let mut client = ask(&gateway, true);
        let head = client.head().unwrap();
        assert_eq!(head.field("content-type"), Some("text/event-stream"), "{}", provider.name);
        let mut got = chunk(&mut client);
        assert_eq!(texts(&got), "Hel", "{}", provider.name);
        go.send(()).unwrap();
        while !got.ends_with("data: [DONE]\n\n") {
            got.push_str(&chunk(&mut client));
        }
        assert_eq!(texts(&got), "Hello", "{}", provider.name);
        let record = record(&log);
        let [prompt, completion] = provider.tokens;
        let usage = &record["ai"]["proxy"]["usage"];
        assert_eq!(
            (&usage["prompt_tokens"], &usage["completion_tokens"]),
            (&json!(prompt), &json!(completion)),
            "{record}"
        );
        assert_eq!(usage["cost"], json!((prompt * 1000 + completion * 2000) as f64 / 1e6), "{record}");
        let meta = &record["ai"]["proxy"]["meta"];
        assert_eq!((&meta["provider_name"], &meta["request_model"]), (&json!(provider.name), &json!("m")));
        assert!(meta["time_to_first_token"].as_u64() <= meta["llm_latency"].as_u64(), "{meta}");
        assert!(meta["time_to_first_token"].is_u64(), "{meta}");
        assert_eq!(record["ai"]["proxy"]["payload"]["response"], "Hello");
    }
}

#[test]
fn what_a_model_costs_is_logged_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let answer = json!({ "model": "m-1", "choices": [{ "message": { "content": "Hello" } }], "usage": { "prompt_tokens": 4, "completion_tokens": 6, "total_tokens": 10 } });
    let answer = answer.to_string();
    let upstream = Upstream::answering(&format!(
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{answer}",
        answer.len()
    ));
    let options = json!({ "input_cost": 100, "output_cost": 200 });
    let gateway = gateway(&config("openai", &format!("http://{}/", upstream.address), &options), &log);
    assert_eq!(ask(&gateway, false).response().text(), answer);
    let record = record(&log);
    let usage = &record["ai"]["proxy"]["usage"];
    assert_eq!(usage["total_tokens"], 10, "{record}");
    assert_eq!(usage["cost"], 0.0016);
    assert_eq!(record["ai"]["proxy"]["meta"]["response_model"], "m-1");
    assert!(record["ai"]["proxy"]["payload"]["request"].as_str().unwrap().contains("nice"));
    assert_eq!(record["ai"]["proxy"]["payload"]["response"], answer);
    let metrics = gateway.status("/metrics");
    let labels = "ai_provider=\"openai\",ai_model=\"m\",cache_status=\"\",vector_db=\"\",embeddings_provider=\"\",embeddings_model=\"\"";
    for line in [
        format!("kong_ai_llm_requests_total{{{labels},workspace=\"default\"}} 1\n"),
        format!("kong_ai_llm_cost_total{{{labels},workspace=\"default\"}} 0.0016\n"),
        format!(
            "kong_ai_llm_tokens_total{{{labels},token_type=\"completion_tokens\",workspace=\"default\"}} 6\n"
        ),
        format!("kong_ai_llm_provider_latency_ms_count{{{labels},workspace=\"default\"}} 1\n"),
    ] {
        assert!(metrics.text().contains(&line), "{line} is not in {}", metrics.text());
    }
}

#[test]
fn what_a_provider_does_not_count_is_estimated() {
    let answer = json!({ "choices": [{ "message": { "content": "twelve bytes" } }] }).to_string();
    let length = answer.len();
    // The second breaks off.
    let upstream = Upstream::start(move |mut peer, number| {
        if peer.request().is_some() {
            let length = length + number;
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{answer}"
            ));
        }
    });
    for (status, completion) in [(200, 3), (502, 0)] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("requests.log");
        let url = format!("http://{}/", upstream.address);
        let gateway = gateway(&config("openai", &url, &json!({})), &log);
        assert_eq!(ask(&gateway, false).response().status, status);
        let usage = record(&log)["ai"]["proxy"]["usage"].clone();
        assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(3), &json!(completion)));
    }
}

#[test]
fn streams_in_a_form_of_their_own_are_read_for_what_is_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let events = "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"Hello\"}]}}],\
                  \"usageMetadata\":{\"promptTokenCount\":7,\"candidatesTokenCount\":500}}\r\n\r\n";
    let upstream = Upstream::answering(&format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{events}",
        events.len()
    ));
    let mut config = config("gemini", &format!("http://{}/", upstream.address), &json!({}));
    config["llm_format"] = json!("gemini");
    let gateway = gateway(&config, &log);
    let body = json!({ "contents": [{ "parts": [{ "text": "say something" }] }] }).to_string();
    let length = body.len();
    let request = format!(
        "POST /v1beta/models/m:streamGenerateContent HTTP/1.1\r\nHost: a.test\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    assert_eq!(gateway.connect().send(request).response().text(), events);
    let said = record(&log)["ai"]["proxy"].clone();
    let usage = &said["usage"];
    assert_eq!((&usage["prompt_tokens"], &usage["completion_tokens"]), (&json!(7), &json!(500)), "{said}");
    assert!(said["meta"]["time_to_first_token"].is_u64(), "{said}");
    assert_eq!(said["payload"]["response"], "Hello");
}

/// How a provider fails: what it sends, and what becomes of its connection then.
type Failure = (&'static str, &'static str);

/// A provider that fails as the test says, one request after another.
fn failing() -> (Upstream, mpsc::Sender<Failure>) {
    let (sender, receiver) = mpsc::channel::<Failure>();
    let receiver = std::sync::Mutex::new(receiver);
    let upstream = Upstream::start(move |mut peer, _| {
        if peer.request().is_none() {
            return;
        }
        let failure = receiver.lock().unwrap().recv().unwrap();
        fail(peer, failure);
    });
    (upstream, sender)
}

fn fail(mut peer: Peer, (sends, then): Failure) {
    peer.send(sends);
    match then {
        "reset" => peer.reset(),
        "silence" => {
            peer.is_closed();
        }
        _ => {}
    }
}

#[test]
fn a_provider_may_fail_in_every_way() {
    let begun = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n\
                 2f\r\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n\r\n";
    // The connection is named as closed: the next request on a kept one would fail by chance.
    let rubbish = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: 7\r\n\r\nrubbish";
    let html = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nContent-Length: 13\r\n\r\n<html></html>";
    let whole = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: 14\r\n\r\n{\"choices\":[]}";
    let empty = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    let cases: [(Failure, bool, u16); 12] = [
        (("", "silence"), false, 504),
        (("", "silence"), true, 504),
        (("", "reset"), false, 502),
        (("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"choi", "close"), false, 502),
        (("rubbish\r\n\r\n", "close"), false, 502),
        ((rubbish, "close"), true, 502),
        ((html, "close"), true, 502),
        ((whole, "close"), true, 502),
        ((empty, "close"), true, 502),
        ((begun, "close"), true, 200),
        ((begun, "reset"), true, 200),
        ((begun, "silence"), true, 200),
    ];
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let (upstream, sender) = failing();
    let gateway = gateway(&config("openai", &format!("http://{}/", upstream.address), &json!({})), &log);
    for (failure, streams, status) in cases {
        sender.send(failure).unwrap();
        let mut client = ask(&gateway, streams);
        let head = client.head().unwrap();
        let is = |status: u16| head.start.contains(&format!(" {status} "));
        // Where the end comes with the begin, nothing of the response was sent yet.
        let is_retracted = failure.0 == begun && failure.1 != "silence" && is(502);
        assert!(is(status) || is_retracted, "{failure:?}: {}", head.start);
        if is_retracted {
            continue;
        }
        if status == 200 {
            let rest = String::from_utf8(client.rest()).unwrap();
            assert!(rest.contains("\"content\":\"a\""), "what has come is sent: {rest}");
            assert!(!rest.contains("[DONE]") && !rest.ends_with("0\r\n\r\n"), "there is no end: {rest}");
        }
    }
    let read = || fs::read_to_string(&log).unwrap_or_default();
    eventually("all requests are logged", || read().lines().count() == cases.len());
    assert!(!read().contains(KEY), "the key is in the log: {}", read());
}

/// An error that the client gets, by its message.
fn is_error(response: &Message, message: &str) {
    let error = json!({ "error": { "message": message } }).to_string();
    assert_eq!((response.status, response.text()), (502, &*error));
    assert_eq!(response.header("content-type"), Some("application/json; charset=utf-8"));
}

#[test]
fn rubbish_of_any_provider_is_an_error() {
    for provider in providers() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("requests.log");
        let (upstream, sender) = failing();
        let url = format!("http://{}/v1", upstream.address);
        let gateway = gateway(&config(provider.name, &url, &provider.options), &log);
        let head =
            |kind: &str| format!("HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nConnection: close\r\n\r\n");
        let bodies = [
            (
                head("text/html"),
                "<html>secret</html>",
                "the response of the AI provider is no stream of events",
            ),
            (
                head(provider.content_type),
                "data: secret\n\n{secret}\n",
                "the AI provider sent no event that can be read",
            ),
        ];
        for (head, body, message) in bodies {
            sender.send((format!("{head}{body}").leak(), "close")).unwrap();
            is_error(&ask(&gateway, true).response(), message);
        }
        eventually("both are logged", || {
            let log = gateway.log();
            log.contains("ai-proxy: the response of the AI provider is no stream")
                && log.contains("ai-proxy: the stream of the AI provider cannot be read")
        });
        assert!(!gateway.log().contains("secret"), "{}", gateway.log());
    }
}

#[test]
fn the_head_waits_for_the_first_event_that_can_be_read() {
    let (go, wait) = mpsc::channel::<&str>();
    let wait = std::sync::Mutex::new(wait);
    let upstream = Upstream::start(move |mut peer, _| {
        while peer.request().is_some() {
            peer.send(
                "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
            );
            peer.send("a\r\n: waiting\n\r\n");
            let sends = wait.lock().unwrap().recv().unwrap();
            peer.send(format!("{:x}\r\n{sends}\r\n0\r\n\r\n", sends.len()));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let gateway = gateway(&config("openai", &format!("http://{}/", upstream.address), &json!({})), &log);
    for (sends, text) in [
        ("data: {\n\n", None),
        ("data: {\n\ndata: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", Some("a")),
    ] {
        go.send(sends).unwrap();
        let response = ask(&gateway, true).response();
        match text {
            None => is_error(&response, "the AI provider sent no event that can be read"),
            Some(text) => {
                assert_eq!((response.status, &*texts(response.text())), (200, text));
                assert!(response.text().ends_with("data: [DONE]\n\n"));
            }
        }
    }
}

#[test]
fn a_response_that_is_too_long_to_be_converted_is_an_error() {
    const LEN: usize = 9 << 20;
    let upstream = Upstream::start(move |mut peer, _| {
        if peer.request().is_some() {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
            // The gateway takes no more than it needs.
            peer.send(format!("{head}\r\n\r\n{{\"content\":\"{}", "x".repeat(LEN)));
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let options = json!({ "anthropic_version": "2023-06-01" });
    let gateway = gateway(&config("anthropic", &format!("http://{}/", upstream.address), &options), &log);
    is_error(&ask(&gateway, false).response(), "the response of the AI provider is longer than 8 MiB");
    eventually("it is logged", || {
        gateway.log().contains("ai-proxy: the response of the AI provider is longer")
    });
    assert_eq!(record(&log)["response"]["status"], 502);
}

#[test]
fn requests_to_bedrock_are_signed_and_its_event_stream_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("requests.log");
    let (asked, requests) = mpsc::channel();
    let upstream = Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let body = [
                event("contentBlockDelta", r#"{"delta":{"text":"Hello"}}"#),
                event("messageStop", r#"{"stopReason":"end_turn"}"#),
                event("metadata", r#"{"usage":{"inputTokens":7,"outputTokens":1}}"#),
            ];
            let body = body.concat();
            asked.send(request).unwrap();
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Type: application/vnd.amazon.eventstream\r\nContent-Length: {}\r\n\r\n", body.len()));
            peer.send(body);
        }
    });
    let mut config = config(
        "bedrock",
        &format!("http://{}/model/m:1/converse-stream", upstream.address),
        &json!({ "bedrock": { "aws_region": "eu-west-1" } }),
    );
    config["auth"] = json!({ "aws_access_key_id": "AKIDEXAMPLE", "aws_secret_access_key": KEY });
    let gateway = gateway(&config, &log);
    let got = ask(&gateway, true).response();
    assert_eq!(texts(got.text()), "Hello");
    assert!(got.text().ends_with("data: [DONE]\n\n"));
    let request = requests.recv().unwrap();
    assert!(request.head.start.starts_with("POST /model/m:1/converse-stream "), "{}", request.head.start);
    let signature = request.header("authorization").unwrap();
    let parts = [
        "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/",
        "/eu-west-1/bedrock/aws4_request",
        "SignedHeaders=host;x-amz-date",
    ];
    parts.into_iter().for_each(|part| assert!(signature.contains(part), "{signature}"));
    assert_eq!(request.header("host"), Some(&*upstream.address.to_string()));
    let record = record(&log);
    assert_eq!(record["request"]["headers"].get("authorization"), None, "{record}");
    assert_eq!(record["ai"]["proxy"]["usage"]["prompt_tokens"], 7);
}

/// A message of AWS's event stream.
fn event(kind: &str, payload: &str) -> Vec<u8> {
    let header = [&b"\x0b:event-type\x07"[..], &(kind.len() as u16).to_be_bytes(), kind.as_bytes()].concat();
    let length = (16 + header.len() + payload.len()) as u32;
    let mut out = [length.to_be_bytes(), (header.len() as u32).to_be_bytes()].concat();
    out.extend(crc32(&out).to_be_bytes());
    out.extend(header);
    out.extend_from_slice(payload.as_bytes());
    out.extend(crc32(&out).to_be_bytes());
    out
}

/// The checksum of Ethernet, bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |sum: u32, _| if sum & 1 == 1 { sum >> 1 ^ 0xedb8_8320 } else { sum >> 1 };
    !bytes.iter().fold(!0, |sum, byte| (0..8).fold(sum ^ u32::from(*byte), step))
}

#[test]
fn the_log_names_the_model_that_cannot_be_reached() {
    let closed = closed_port();
    let folder = tempfile::tempdir().unwrap();
    let config = config("openai", &format!("http://{closed}/"), &json!({}));
    let gateway = gateway(&config, &folder.path().join("requests.log"));
    let response = ask(&gateway, false).response();
    assert_eq!(response.status, 502);
    let id = response.header("x-kong-request-id").unwrap();
    let lines = || -> Vec<_> {
        let log = gateway.log();
        log.lines().filter(|line| line.contains("WARN") && line.contains(id)).map(str::to_owned).collect()
    };
    let is_last = |line: &String| !line.contains("passed over");
    eventually("the failure is logged", || lines().iter().any(is_last));
    let lines = lines();
    let last = lines.iter().find(|line| is_last(line)).unwrap();
    assert!(last.contains(&format!(" host={closed} model=openai/m")) && !last.contains(KEY), "{last}");
}
