//! The providers' forms, by the cases in `cases`: what is sent for a request, and what responses and streams become.

use super::reply::estimated_of_openai;
use super::{Backend, Llm, Object, Prompts, Stream, StreamFormat};
use serde_json::json;
use weir_plugin::Json;
use weir_plugin::schema::Record;
use weir_plugin::testing::Gateway;

const FILES: [(&str, &str); 8] = [
    ("anthropic", include_str!("cases/anthropic.json")),
    ("azure", include_str!("cases/azure.json")),
    ("bedrock", include_str!("cases/bedrock.json")),
    ("cohere", include_str!("cases/cohere.json")),
    ("gemini", include_str!("cases/gemini.json")),
    ("huggingface", include_str!("cases/huggingface.json")),
    ("ollama", include_str!("cases/ollama.json")),
    ("openai", include_str!("cases/openai.json")),
];

#[test]
fn prompts_in_each_form_are_estimated() {
    for (prompts, words) in [
        (json!({ "prompt": "say something nice" }), 3),
        (json!({ "messages": [{ "role": "user", "content": "say something nice" }] }), 3),
        (
            json!({ "messages": [{ "content": [{ "text": "say something" }] }], "system": [{ "text": "be nice" }] }),
            4,
        ),
        (json!({ "contents": [{ "parts": [{ "text": "say something" }, { "text": "nice" }] }] }), 3),
        (
            json!({ "contents": [{ "parts": [{ "text": "say" }] }], "systemInstruction": { "parts": [{ "text": "be nice" }] } }),
            3,
        ),
        (json!({ "contents": "say", "system": 1 }), 0),
    ] {
        let prompts: Prompts = Prompts(prompts.as_object().unwrap().clone());
        assert_eq!(prompts.estimated_tokens(1.0), words, "{:?}", prompts.0);
    }
}

#[test]
fn each_provider_is_asked_and_answers_in_its_form() {
    for (file, text) in FILES {
        let cases: Vec<Json> = serde_json::from_str(text).unwrap_or_else(|error| panic!("{file}: {error}"));
        for case in cases {
            check(&format!("{file}: {}", case["case"].as_str().unwrap()), &case);
        }
    }
}

fn check(name: &str, case: &Json) {
    let known = [
        "case", "config", "request", "url", "headers", "sent", "refused", "response", "reply", "failed",
        "stream", "type", "chunks", "usage",
    ];
    assert!(
        case.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())),
        "{name}: unknown member"
    );
    let config = Llm::from_value(&case["config"]).unwrap_or_else(|found| panic!("{name}: {found:?}"));
    let backend = Backend::new(config);
    let mut exchange = Gateway::new(&[]).exchange("POST /asked");
    exchange.id = *b"00000000000000000000000000000001";
    let prompts = Prompts(case["request"].as_object().unwrap().clone());
    let mut call = backend.call(&exchange, &prompts).unwrap();
    call.created = 1;
    call.streams = case["request"]["stream"] == true;
    let sent = backend
        .target(&call, exchange.path())
        .and_then(|target| Ok((target.url(), backend.body(prompts, &call)?)));
    match (sent, case["refused"].as_str()) {
        (Ok((url, sent)), None) => {
            assert_eq!(Some(&*url), case["url"].as_str(), "{name}");
            assert_eq!(sent, case["sent"], "{name}: {sent}");
        }
        (Err(error), Some(expected)) => return assert_eq!(error.to_string(), expected, "{name}"),
        (sent, refused) => panic!("{name}: {sent:?} {refused:?}"),
    }
    let headers: Json = backend
        .dialect
        .headers(&call)
        .into_iter()
        .map(|(k, v)| (k.to_owned(), v.into()))
        .collect::<serde_json::Map<_, Json>>()
        .into();
    assert_eq!(headers, case.get("headers").cloned().unwrap_or(json!({})), "{name}");
    if let Some(response) = case.get("response") {
        match (backend.dialect.response(response, &call), case["failed"].as_str()) {
            (Ok(None), None) => assert_eq!(case["reply"], "same", "{name}"),
            (Ok(Some(reply)), None) => {
                let reply = reply.into_json(&call);
                assert_eq!(reply, case["reply"], "{name}: {reply}");
            }
            (Err(error), Some(expected)) => assert_eq!(error, expected, "{name}"),
            (reply, failed) => panic!("{name}: {reply:?} {failed:?}"),
        }
    }
    if let Some(stream) = case.get("stream") {
        check_stream(name, case, (&backend, call), stream.as_str().unwrap());
    }
}

/// The stream, whole and byte by byte.
fn check_stream(name: &str, case: &Json, (backend, call): (&Backend, super::Call), text: &str) {
    let content_type = case["type"].as_str().unwrap_or("text/event-stream");
    for size in [1, usize::MAX] {
        let format = StreamFormat::of(content_type.as_bytes()).unwrap();
        assert!(backend.dialect.stream_formats().contains(&format), "{name}: {content_type}");
        let mut stream = Stream::new(call.clone(), (backend.dialect, format), ("ai-proxy", false));
        let mut sent = Vec::new();
        text.as_bytes().chunks(size.min(text.len())).for_each(|part| sent.extend(stream.push(part)));
        sent.extend(stream.end());
        let sent = String::from_utf8(sent).unwrap();
        let chunks: Vec<Json> = sent
            .split_terminator("\n\n")
            .map(|event| event.strip_prefix("data: ").unwrap_or_else(|| panic!("{name}: {event}")))
            .map(|data| serde_json::from_str(data).unwrap_or_else(|_| data.into()))
            .collect();
        let chunks = Json::Array(chunks);
        assert_eq!(chunks, case["chunks"], "{name}: {chunks}");
        let usage = stream.usage(0);
        assert_eq!(json!([usage.prompt, usage.completion]), case["usage"], "{name}");
    }
}

/// The tokens of a stream of a provider that breaks off.
fn usage_of(provider: &str, bytes: &str) -> [Option<u64>; 3] {
    let model = json!({ "provider": provider, "name": "m", "options": { "anthropic_version": "2023-06-01", "max_tokens": 9 } });
    let auth = json!({ "header_name": "x-api-key", "header_value": "key" });
    let llm = Llm::from_value(&json!({ "route_type": "llm/v1/chat", "model": model, "auth": auth })).unwrap();
    let backend = Backend::new(llm);
    let call = backend.call(&Gateway::new(&[]).exchange("POST /"), &Prompts(Default::default())).unwrap();
    let mut stream = Stream::new(call, (backend.dialect, StreamFormat::Sse), ("ai-proxy", false));
    stream.push(bytes.as_bytes());
    let usage = stream.usage(0);
    [usage.prompt, usage.completion, usage.total]
}

#[test]
fn a_stream_that_is_left_has_used_what_has_come() {
    let start = "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3,\
                 \"cache_creation_input_tokens\":100,\"cache_read_input_tokens\":20,\"output_tokens\":1}}}\n\n";
    let some =
        |delta: &str| format!("{start}data: {{\"type\":\"content_block_delta\",\"delta\":{{{delta}}}}}\n\n");
    assert_eq!(usage_of("anthropic", start), [Some(123), Some(1), None]);
    for delta in
        ["\"text\":\"twelve bytes\"", "\"partial_json\":\"twelve bytes\"", "\"thinking\":\"twelve bytes\""]
    {
        assert_eq!(usage_of("anthropic", &some(delta)), [Some(123), Some(3), None], "{delta}");
    }
    let failed = some("\"text\":\"twelve bytes\"")
        + "data: {\"type\":\"error\",\"error\":{\"message\":\"Overloaded\"}}\n\n";
    assert_eq!(usage_of("anthropic", &failed), [Some(123), Some(3), None], "an error is no end");
    for choices in [
        "{\"delta\":{\"content\":\"twelve bytes\"}}",
        "{\"delta\":{}},{\"delta\":{\"content\":\"twelve bytes\"}}",
        "{\"delta\":{\"reasoning_content\":\"twelve bytes\"}}",
        "{\"delta\":{\"tool_calls\":[{\"function\":{\"arguments\":\"twelve bytes\"}}]}}",
    ] {
        let event = format!("data: {{\"choices\":[{choices}]}}\n\n");
        assert_eq!(usage_of("openai", &event), [Some(0), Some(3), None], "{choices}");
    }
}

#[test]
fn bedrock_speaks_by_the_event_stream_of_aws() {
    // What stands in a message is tested where the messages are read; these are the results.
    let backend = Backend::new(
        Llm::from_value(&json!({
            "route_type": "llm/v1/chat",
            "model": { "provider": "bedrock", "name": "m", "options": { "bedrock": { "aws_region": "r" } } }
        }))
        .unwrap(),
    );
    let exchange = Gateway::new(&[]).exchange("POST /");
    let call = backend.call(&exchange, &Prompts(Default::default())).unwrap();
    let mut out = super::stream::Output::default();
    for (name, data) in [
        ("messageStart", r#"{"role":"assistant"}"#),
        ("contentBlockDelta", r#"{"delta":{"text":"Hi"},"contentBlockIndex":0}"#),
        ("contentBlockStop", r#"{"contentBlockIndex":0}"#),
        ("messageStop", r#"{"stopReason":"max_tokens"}"#),
        ("metadata", r#"{"usage":{"inputTokens":3,"outputTokens":1,"totalTokens":4}}"#),
        ("throttlingException", r#"{"message":"slow down"}"#),
    ] {
        let event = super::frames::Event { name: name.to_owned(), data: data.to_owned() };
        backend.dialect.event(&event, &call, &mut out).unwrap();
    }
    let sent = String::from_utf8(out.take()).unwrap();
    let part = |text: &str| assert!(sent.contains(text), "{text}: {sent}");
    [r#""content":"Hi""#, r#""finish_reason":"length""#, "slow down"].into_iter().for_each(part);
    assert_eq!((out.usage.prompt, out.usage.completion), (Some(3), Some(1)));
}

/// A call of this provider, and what reads its streams.
fn streaming(provider: &str) -> (Backend, super::Call) {
    let options = json!({ "upstream_url": "http://a", "anthropic_version": "2023-06-01", "max_tokens": 9, "llama2_format": "ollama", "mistral_format": "openai", "azure_instance": "i", "azure_deployment_id": "d" });
    let llm = json!({
        "route_type": "llm/v1/chat",
        "model": { "provider": provider, "name": "m", "options": options },
        "auth": { "header_name": "x-api-key", "header_value": "key" },
    });
    let backend = Backend::new(Llm::from_value(&llm).unwrap_or_else(|found| panic!("{provider}: {found:?}")));
    let call = backend.call(&Gateway::new(&[]).exchange("POST /"), &Prompts(Default::default())).unwrap();
    (backend, call)
}

const PROVIDERS: [&str; 8] =
    ["openai", "azure", "mistral", "anthropic", "cohere", "gemini", "llama2", "huggingface"];

const EMPTY: &str = "data: {\"error\":{\"message\":\"the AI provider sent no event that can be read\"}}\n\n";
const CORRUPT: &str =
    "data: {\"error\":{\"message\":\"the response of the AI provider cannot be read\"}}\n\n";

#[test]
fn a_stream_without_an_event_that_can_be_read_ends_with_an_error() {
    let rubbish =
        [&b""[..], b"rubbish", b"<html>no</html>", b"data: {\n\n\xff\xfe: x\n\n", b"data: 5\n\n: ping\n\n"];
    for provider in PROVIDERS {
        let (backend, call) = streaming(provider);
        for bytes in rubbish {
            for format in backend.dialect.stream_formats() {
                let new = || Stream::new(call.clone(), (backend.dialect, *format), ("ai-proxy", false));
                let mut stream = new();
                let mut sent = stream.push(bytes);
                sent.extend(stream.end());
                assert_eq!(String::from_utf8(sent).unwrap(), EMPTY, "{provider}: {bytes:?}");
                assert_eq!(stream.failure().map(|error| error.status()), Some(502));
                assert!(new().fails_at_once(bytes, true), "{provider}: {bytes:?}");
                assert!(!new().fails_at_once(b"data: {\"half", false), "an event may still come");
            }
        }
    }
}

#[test]
fn what_is_corrupt_ends_with_an_error_and_keeps_what_was_read() {
    let (bedrock, call) = streaming("bedrock");
    let new = || Stream::new(call.clone(), (bedrock.dialect, StreamFormat::Aws), ("ai-proxy", false));
    let mut stream = new();
    assert_eq!(String::from_utf8(stream.push(b"rubbish rubbish")).unwrap(), CORRUPT);
    assert!(stream.failure().is_some() && stream.end().is_empty() && stream.has_failed());
    assert!(new().fails_at_once(b"rubbish rubbish", false));
    let (openai, call) = streaming("openai");
    let new = || Stream::new(call.clone(), (openai.dialect, StreamFormat::Sse), ("ai-proxy", false));
    let event = b"data: {\"choices\":[]}\n\n";
    let mut stream = new();
    stream.push(&[&event[..], &vec![b'x'; 2 * 1024 * 1024]].concat());
    assert!(stream.failure().is_none(), "something was sent before");
    assert!(stream.has_failed());
    let mut stream = new();
    let ended = stream.push(&[b"data: [DONE]\n\n", &vec![b'x'; 2 * 1024 * 1024][..]].concat());
    assert_eq!((&*ended, stream.has_failed()), (&b"data: [DONE]\n\n"[..], false), "it is over");
    let mut stream = new();
    stream.push(b"data: {\n\ndata: {\r}\n\n");
    stream.push(event);
    let sent = String::from_utf8(stream.end()).unwrap();
    assert_eq!(sent, "data: [DONE]\n\n", "an event that cannot be read is left out");
    assert!(!new().fails_at_once(&[b"data: {\n\n", &event[..]].concat(), false));
    assert!(new().fails_at_once(b"data: {\n\n", false));
    assert!(!new().fails_at_once(b"data: [DONE]\n\n", true), "a response may be empty");
}

#[test]
fn an_error_of_the_provider_is_a_failure_if_it_comes_first() {
    let (anthropic, call) = streaming("anthropic");
    let new = || Stream::new(call.clone(), (anthropic.dialect, StreamFormat::Sse), ("ai-proxy", false));
    let error = "data: {\"type\":\"error\",\"error\":{\"message\":\"Overloaded\"}}\n\n";
    let text = "data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"Hi\"}}\n\n";
    assert!(new().fails_at_once(error.as_bytes(), false));
    let mut stream = new();
    stream.push(error.as_bytes());
    assert_eq!(stream.failure().unwrap().to_string(), "Overloaded");
    let mut stream = new();
    stream.push([text, error].concat().as_bytes());
    assert_eq!((stream.failure(), stream.has_failed()), (None, true));
    assert!(stream.end().is_empty(), "there is no [DONE]");
}

#[test]
fn an_error_in_the_place_of_choices_is_a_failure() {
    let error = "{\"error\":{\"message\":\"busy\",\"code\":503}}";
    for (provider, error) in [
        ("openai", error),
        ("azure", error),
        ("mistral", error),
        ("huggingface", error),
        ("gemini", error),
        ("openai", "{\"error\":\"busy\"}"),
        ("huggingface", "{\"error\":\"busy\",\"error_type\":\"overloaded\"}"),
        ("cohere", "{\"message\":\"busy\"}"),
    ] {
        let (backend, call) = streaming(provider);
        let new = || Stream::new(call.clone(), (backend.dialect, StreamFormat::Sse), ("ai-proxy", false));
        let event = format!("data: {error}\n\n");
        assert!(new().fails_at_once(event.as_bytes(), false), "{provider}: {error}");
        let mut stream = new();
        stream.push(event.as_bytes());
        let failure = stream.failure().map(|failure| (failure.status(), failure.to_string()));
        assert_eq!(failure, Some((502, "busy".to_owned())), "{provider}: {error}");
        assert!(stream.end().is_empty(), "{provider}: there is no [DONE]");
    }
    let (openai, call) = streaming("openai");
    let mut stream = Stream::new(call, (openai.dialect, StreamFormat::Sse), ("ai-proxy", false));
    stream.push(b"data: {\"choices\":[],\"error\":null}\n\ndata: {\"choices\":[{}],\"error\":{}}\n\n");
    assert!(!stream.has_failed());
}

#[test]
fn a_stream_whose_events_say_nothing_is_a_failure() {
    for (event, message) in [
        ("{\"usageMetadata\":{\"promptTokenCount\":7}}", "the AI provider sent no answer"),
        (
            "{\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}",
            "the AI provider sent no answer: the prompt is blocked: SAFETY",
        ),
    ] {
        let (gemini, call) = streaming("gemini");
        let new = || Stream::new(call.clone(), (gemini.dialect, StreamFormat::Sse), ("ai-proxy", false));
        let event = format!("data: {event}\n\n");
        let mut stream = new();
        assert!(stream.push(event.as_bytes()).is_empty() && stream.failure().is_none());
        stream.end();
        let failure = stream.failure().map(|failure| (failure.status(), failure.to_string()));
        assert_eq!(failure, Some((502, message.to_owned())));
        // The prompt is to blame: another instance is not asked.
        assert!(!new().fails_at_once(event.as_bytes(), true));
    }
}

#[test]
fn whole_responses_without_counts_are_estimated() {
    let estimated = |message: Json| estimated_of_openai(&json!({ "choices": [{ "message": message }] }));
    for message in [
        json!({ "content": "twelve bytes" }),
        json!({ "content": [{ "type": "text", "text": "twelve" }, { "type": "text", "text": " bytes" }] }),
        json!({ "content": null, "reasoning_content": "twelve bytes" }),
        json!({ "tool_calls": [{ "function": { "arguments": "twelve bytes" } }] }),
    ] {
        assert_eq!(estimated(message.clone()), 3, "{message}");
    }
    assert_eq!(estimated_of_openai(&json!({ "choices": [{ "text": "twelve bytes" }, { "text": "x" }] })), 4);
    assert_eq!(estimated_of_openai(&json!({ "object": "list" })), 0);
    let (anthropic, call) = streaming("anthropic");
    let tool = json!({ "type": "tool_use", "id": "1", "name": "f", "input": { "a": "b" } });
    let reply = json!({ "content": [{ "type": "text", "text": "twelve bytes" }, tool] });
    let reply = anthropic.dialect.response(&reply, &call).unwrap().unwrap();
    assert_eq!(reply.estimated_tokens(), 3 + 3);
}

#[test]
fn a_name_that_requests_choose_is_not_configured() {
    for (name, is_configured) in
        [(json!("m"), true), (json!("$(headers.x-model)"), false), (Json::Null, false)]
    {
        let model = json!({ "provider": "openai", "name": name });
        let llm = Llm::from_value(&json!({ "route_type": "llm/v1/chat", "model": model })).unwrap();
        let exchange = Gateway::new(&[]).exchange("POST /\nX-Model: m");
        let prompts = Prompts(json!({ "model": "m" }).as_object().unwrap().clone());
        assert_eq!(
            Backend::new(llm).call(&exchange, &prompts).unwrap().is_configured,
            is_configured,
            "{name}"
        );
    }
}

#[test]
fn each_request_goes_where_its_own_url_leads() {
    let options = json!({ "upstream_url": "http://$(headers.x-url)/" });
    let model = json!({ "provider": "openai", "name": "m", "options": options });
    let backend =
        Backend::new(Llm::from_value(&json!({ "route_type": "llm/v1/chat", "model": model })).unwrap());
    for url in ["http://a.test/x", "http://b.test/y", "no URL", "http://a.test/x"] {
        let exchange = Gateway::new(&[]).exchange(&format!("POST /\nX-Url: {url}"));
        let call = backend.call(&exchange, &Prompts(Object::new())).unwrap();
        let target = backend.target(&call, "/").ok().map(|target| target.url());
        assert_eq!(target.as_deref(), Some(url).filter(|url| url.starts_with("http")));
    }
}

#[test]
fn lines_within_an_event_stay_within_it() {
    let (openai, call) = streaming("openai");
    let mut stream = Stream::new(call, (openai.dialect, StreamFormat::Sse), ("ai-proxy", false));
    let lines = String::from_utf8(stream.push(b"data: {\ndata: }\n\n")).unwrap();
    assert!(!lines.contains('\r') && lines.starts_with("data: {\ndata: }\n\n"), "{lines:?}");
}
