//! The messages of a response as JSON, on their way to the client.

use super::frames::Messages;
use serde_json::json;
use weir_plugin::{BodyFilter, Exchange, Headers};

/// How the messages of a response are written.
pub(crate) trait Translator: 'static {
    /// The plugin that translates.
    const PLUGIN: &'static str;

    /// Whether there may be several messages: each gets a line.
    fn is_stream(&self) -> bool;

    /// What the client gets of a message.
    fn translate(&self, message: &[u8]) -> Result<Vec<u8>, String>;
}

/// Translates a body.
pub(crate) struct Filter<T> {
    translator: T,
    messages: Messages,
    failed: bool,
}

impl<T: Translator> Filter<T> {
    pub(crate) fn new(translator: T) -> Self {
        Self { translator, messages: Messages::default(), failed: false }
    }

    /// The messages that are whole by now.
    fn translated(&mut self) -> Result<Vec<u8>, String> {
        let mut translated = Vec::new();
        while let Some(message) = self.messages.next().map_err(|error| error.to_string())? {
            translated.extend(self.translator.translate(&message)?);
            translated.extend_from_slice(self.line_end());
        }
        Ok(translated)
    }

    fn line_end(&self) -> &'static [u8] {
        if self.translator.is_stream() { b"\n" } else { b"" }
    }

    /// An error behind messages, whose status the head cannot have any more.
    fn error(&self, code: &str, message: &str) -> Vec<u8> {
        let code = code.parse::<u32>().unwrap_or(2);
        let mut error = json!({ "error": { "code": code, "message": message } }).to_string().into_bytes();
        error.extend_from_slice(self.line_end());
        error
    }
}

impl<T: Translator> BodyFilter for Filter<T> {
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        if self.failed {
            return Vec::new();
        }
        self.messages.push(&chunk);
        self.translated().unwrap_or_else(|why| {
            self.failed = true;
            tracing::error!(
                request_id = exchange.id(),
                "{}: the upstream's response cannot be translated: {why}",
                T::PLUGIN
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
