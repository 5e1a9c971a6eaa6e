//! What fuzzing feeds: the readers of texts that servers and clients send. One byte chooses the reader, so that two targets of
//! `fuzz` suffice, and a test feeds them the committed corpus.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::llm::{Backend, Llm, Prompts, Stream, StreamFormat};
use crate::session::content::Session;
use crate::session::cookie::{self, Jar};
use crate::{PLUGINS, acme, aws_lambda, grpc_web, jwt, oauth2, openid_connect, shared};
use serde_json::{Value as Json, json};
use std::sync::Arc;
use weir_plugin::schema::Record;
use weir_plugin::testing::Gateway;
use weir_plugin::{Flow, Hooks};

/// The corpus names readers by their places: append only.
const ANSWERS: [fn(&[u8]); 6] = [model, model_stream, sts, lambda, acme::read_answer, openid_provider];
const TEXTS: [fn(&[u8]); 5] = [oauth2_request, base64_pieces, webhook, mocking_schema, validation_schema];

/// Reads an answer of a server.
pub fn server_answer(input: &[u8]) {
    choose(&ANSWERS, input);
}

/// Reads a text of a client, or of a configuration.
pub fn client_text(input: &[u8]) {
    choose(&TEXTS, input);
}

/// Reads a cookie of a session; what is set as cookies is read again, and what a session holds.
pub fn session_cookie(bytes: &[u8]) {
    if let Some(session) = Session::decode(bytes) {
        assert_eq!(Session::decode(&session.encode()), Some(session));
    }
    let text: String = bytes.iter().map(|byte| char::from(b'a' + byte % 26)).collect();
    if let Some(set) = cookie::set("session", &text, "; Path=/") {
        let pairs: Vec<_> = set.iter().map(|cookie| cookie.split(';').next().unwrap_or_default()).collect();
        let line = pairs.join("; ");
        let jar = Jar::of([line.as_bytes()].into_iter(), "session");
        let read: Vec<_> = jar.texts("session").collect();
        assert_eq!(read, [text.as_bytes()]);
    }
    for text in Jar::of([bytes].into_iter(), "s").texts("s") {
        let _ = Session::decode(&text);
    }
}

fn choose(readers: &[fn(&[u8])], input: &[u8]) {
    if let Some((reader, rest)) = input.split_first() {
        readers[usize::from(*reader) % readers.len()](rest);
    }
}

/// The first byte, and what is behind it.
fn split(input: &[u8]) -> (usize, &[u8]) {
    input.split_first().map_or((0, input), |(first, rest)| (usize::from(*first), rest))
}

thread_local! {
    static GATEWAY: Gateway = Gateway::new(PLUGINS);
    static MODELS: Vec<(Backend, crate::llm::Call)> = models();
    static WEBHOOKS: Arc<dyn Hooks> = plugin(
        "standard-webhooks",
        // The secret cannot be guessed.
        json!({ "secret_v1": "2d8c0b7e6f9f1e4ac35b", "tolerance_second": i64::MAX }),
    ).unwrap();
}

fn plugin(name: &str, config: Json) -> Result<Arc<dyn Hooks>, String> {
    GATEWAY.with(|gateway| gateway.plugin(name, config))
}

/// Each provider with each of its formats and routes.
fn models() -> Vec<(Backend, crate::llm::Call)> {
    let names = ["openai", "azure", "anthropic", "cohere", "gemini", "huggingface", "bedrock", "llama2"];
    let formats = names.map(|name| (name, "ollama")).into_iter().chain([("llama2", "raw")]);
    let models = formats.flat_map(|(name, format)| {
        ["llm/v1/chat", "llm/v1/completions"].map(|route| model_of(name, format, route))
    });
    models.collect()
}

fn model_of(provider: &str, format: &str, route: &str) -> (Backend, crate::llm::Call) {
    let config = json!({
        "route_type": route,
        "auth": { "header_name": "x-api-key", "header_value": "key" },
        "model": { "provider": provider, "name": "m", "options": {
            "anthropic_version": "1", "azure_instance": "i", "azure_deployment_id": "d", "max_tokens": 9,
            "llama2_format": format, "upstream_url": "http://a.test",
        } },
    });
    let backend = Backend::new(Llm::from_value(&config).unwrap_or_else(|found| panic!("{found:?}")));
    let call = GATEWAY
        .with(|gateway| backend.call(&gateway.exchange("POST /"), &Prompts(Default::default())).unwrap());
    (backend, call)
}

/// A whole response becomes OpenAI's or is refused.
fn model(answer: &[u8]) {
    let Ok(answer) = serde_json::from_slice::<Json>(answer) else { return };
    MODELS.with(|models| {
        for (backend, call) in models {
            if let Ok(Some(reply)) = backend.dialect.response(&answer, call) {
                let _ = reply.usage.total();
                assert!(reply.into_json(call)["choices"].is_array());
            }
        }
    });
}

/// A stream becomes events of OpenAI, however it is cut.
fn model_stream(answer: &[u8]) {
    let (at, bytes) = split(answer);
    let parts = bytes.split_at(at.min(bytes.len()));
    MODELS.with(|models| {
        for (backend, call) in models {
            for format in [StreamFormat::Sse, StreamFormat::Objects, StreamFormat::Aws] {
                let new = || Stream::new(call.clone(), (backend.dialect, format), ("ai-proxy", true));
                let sent = converted(new(), [bytes, b""]);
                assert_eq!(converted(new(), [parts.0, parts.1]), sent);
                new().fails_at_once(bytes, at % 2 == 0);
            }
        }
    });
}

/// What clients get of a stream that comes in these parts.
fn converted(mut stream: Stream, parts: [&[u8]; 2]) -> String {
    let mut sent: Vec<u8> = parts.into_iter().flat_map(|part| stream.push(part)).collect();
    sent.extend(stream.end());
    let sent = String::from_utf8(sent).unwrap();
    assert!(sent.ends_with("\n\n"), "there is an end or an error");
    assert!(sent.split_terminator('\n').all(|line| line.is_empty() || line.starts_with("data: ")), "{sent}");
    let _ = stream.usage(1).total();
    sent
}

fn sts(answer: &[u8]) {
    shared::aws::is_sts_response(&String::from_utf8_lossy(answer));
}

/// The result of a function, as it is, and as the description of a response.
fn lambda(answer: &[u8]) {
    let (flags, body) = split(answer);
    let config = json!({
        "function_name": "f", "aws_region": "r", "is_proxy_integration": flags % 2 == 0, "unhandled_status": 502,
        "empty_arrays_mode": if flags & 2 == 0 { "legacy" } else { "correct" },
    });
    let config = aws_lambda::Config::from_value(&config).unwrap_or_else(|found| panic!("{found:?}"));
    let result = http::Response::builder().header("Content-Type", "application/json");
    let answer = aws_lambda::answer_of(&config, result.body(body.to_vec().into()).unwrap());
    assert!((100..600).contains(&answer.status));
}

/// A discovery document, a set of keys, and what is said of a token.
fn openid_provider(answer: &[u8]) {
    let config = json!({
        "client_id": "c", "client_secret": "2d8c0b7e6f9f1e4a", "discovery": "https://issuer.test/d", "bearer_only": true,
        "claim_validator": { "issuer": { "valid_issuers": ["https://issuer.test"] } },
    });
    let is_active = openid_connect::read_answer(&config, answer);
    let says_so = || serde_json::from_slice::<Json>(answer).is_ok_and(|said| said["active"] == true);
    assert!(!is_active || says_so());
    let _ = jwt::jwk::Keys::read(answer.to_vec().into());
}

/// Parameters in a form, JSON or parts, and a hash of a secret.
fn oauth2_request(text: &[u8]) {
    let (kind, body) = split(text);
    let types = ["application/x-www-form-urlencoded", "application/json", "multipart/form-data; boundary=b"];
    let request = format!("POST /oauth2/token\nContent-Type: {}", types[kind % types.len()]);
    let mut exchange = GATEWAY.with(|gateway| gateway.exchange(&request));
    exchange.set_body(body.to_vec());
    oauth2::read_parameters(&mut exchange);
    oauth2::is_hash(&String::from_utf8_lossy(body));
}

fn base64_pieces(text: &[u8]) {
    let (at, body) = split(text);
    let (first, second) = body.split_at(at.min(body.len()));
    grpc_web::read_text(body, [first, second]);
}

/// The headers of a message, each on a line: no message is signed without the secret.
fn webhook(text: &[u8]) {
    let mut exchange = GATEWAY.with(|gateway| gateway.exchange("POST /"));
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    for (name, value) in names.into_iter().zip(text.split(|byte| *byte == b'\n')) {
        exchange.request.headers.append(name, value);
    }
    exchange.set_body(b"{}".to_vec());
    WEBHOOKS.with(|plugin| assert!(matches!(plugin.access(&mut exchange), Flow::Respond(_)), "a forgery"));
}

/// A schema that is accepted has values.
fn mocking_schema(text: &[u8]) {
    let Ok(schema) = serde_json::from_slice::<Json>(text) else { return };
    let Ok(plugin) = plugin("mocking", json!({ "response_schema": schema })) else { return };
    let mut exchange = GATEWAY.with(|gateway| gateway.exchange("GET /"));
    assert!(matches!(plugin.access(&mut exchange), Flow::Respond(_)));
}

/// A schema, and behind NUL a body that it is applied to.
fn validation_schema(text: &[u8]) {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let Ok(schema) = serde_json::from_slice::<Json>(&text[..end]) else { return };
    let config = json!({ "body_schema": schema, "header_schema": schema });
    let Ok(plugin) = plugin("request-validation", config) else { return };
    let mut exchange = GATEWAY.with(|gateway| gateway.exchange("POST /\nContent-Type: application/json"));
    exchange.set_body(text.get(end + 1..).unwrap_or_default().to_vec());
    assert!(!matches!(plugin.access(&mut exchange), Flow::Wait(_)));
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    /// Feeds what is committed, and all of it cut short, to a reader; returns how many files there are.
    fn feed(name: &str, read: fn(&[u8])) -> usize {
        let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz/corpus")).join(name);
        let files = fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
        let files: Vec<_> = files.collect();
        for input in &files {
            (0..input.len()).step_by(7).chain([input.len()]).for_each(|length| read(&input[..length]));
        }
        files.len()
    }

    #[test]
    fn the_corpus_has_each_reader_and_breaks_none() {
        assert!(feed("server_answer", super::server_answer) >= super::ANSWERS.len());
        assert!(feed("client_text", super::client_text) >= super::TEXTS.len());
        assert!(feed("session_cookie", super::session_cookie) > 0);
    }
}
