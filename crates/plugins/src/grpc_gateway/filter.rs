//! The messages of a response as JSON, on their way to the client.

use super::rules::Endpoint;
use crate::shared::grpc::frames::Messages;
use crate::shared::grpc::schema;
use serde_json::{Value as Json, json};
use std::sync::Arc;
use weir_plugin::{BodyFilter, Exchange, Headers};

/// Translates a body.
pub(super) struct Filter {
    endpoint: Arc<Endpoint>,
    messages: Messages,
    failed: bool,
}

impl Filter {
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint, messages: Messages::default(), failed: false }
    }

    /// The messages that are whole by now.
    fn translated(&mut self) -> Result<Vec<u8>, String> {
        let mut translated = Vec::new();
        while let Some(message) = self.messages.next().map_err(|error| error.to_string())? {
            let json = schema::to_json(self.endpoint.method.output(), &message)?;
            translated.extend(self.member(json)?);
            if self.endpoint.method.is_server_streaming() {
                translated.push(b'\n');
            }
        }
        Ok(translated)
    }

    /// What the client gets of a message.
    fn member(&self, message: Vec<u8>) -> Result<Vec<u8>, String> {
        let Some(name) = &self.endpoint.response_body else { return Ok(message) };
        let mut message: Json = serde_json::from_slice(&message).map_err(|error| error.to_string())?;
        Ok(message.get_mut(name.as_str()).map(Json::take).unwrap_or_default().to_string().into_bytes())
    }

    /// An error behind messages, whose status the head cannot have any more.
    fn error(&self, code: &str, message: &str) -> Vec<u8> {
        let code = code.parse::<u32>().unwrap_or(2);
        let end = if self.endpoint.method.is_server_streaming() { "\n" } else { "" };
        format!("{}{end}", json!({ "error": { "code": code, "message": message } })).into_bytes()
    }
}

impl BodyFilter for Filter {
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        if self.failed {
            return Vec::new();
        }
        self.messages.push(&chunk);
        self.translated().unwrap_or_else(|why| {
            self.failed = true;
            tracing::error!(
                request_id = exchange.id(),
                "grpc-gateway: the upstream's response cannot be translated: {why}"
            );
            self.error("13", &why)
        })
    }

    fn end(self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        let trailers = exchange.take_response_trailers();
        let text = |name: &str| {
            let value =
                trailers.as_ref().and_then(|trailers: &Headers| trailers.get(name)).unwrap_or_default();
            String::from_utf8_lossy(value).into_owned()
        };
        match &*text("grpc-status") {
            _ if self.failed => Vec::new(),
            "0" | "" if self.messages.is_empty() => Vec::new(),
            "0" | "" => self.error("13", "the last message is not whole"),
            code => self.error(code, &text("grpc-message")),
        }
    }
}
