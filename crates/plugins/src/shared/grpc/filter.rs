//! The messages of a response as JSON, on their way to the client.

use super::frames::Messages;
use percent_encoding::percent_decode;
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

    /// The status of HTTP for a status of gRPC.
    fn status(&self, code: &[u8]) -> u16;

    /// The body for the trailers of a call that failed before its first message.
    fn failure(&self, _trailers: &Headers) -> Vec<u8> {
        Vec::new()
    }
}

/// The status of what cannot be translated.
const INTERNAL: &str = "13";

/// Translates a body. The head waits for the first message, because the call may still fail before it.
pub(crate) struct Filter<T> {
    translator: T,
    messages: Messages,
    holds_head: bool,
    failed: bool,
}

impl<T: Translator> Filter<T> {
    pub(crate) fn new(translator: T) -> Self {
        Self { translator, messages: Messages::default(), holds_head: true, failed: false }
    }

    /// The messages that are whole by now, and why there are no others, if they cannot be translated.
    fn translated(&mut self) -> (Vec<u8>, Result<(), String>) {
        let mut translated = Vec::new();
        loop {
            let message = self.messages.next().map_err(|error| error.to_string());
            let json =
                message.and_then(|message| message.map(|it| self.translator.translate(&it)).transpose());
            match json {
                Ok(None) => return (translated, Ok(())),
                Ok(Some(json)) => translated.extend(json),
                Err(why) => return (translated, Err(why)),
            }
            translated.extend_from_slice(self.line_end());
        }
    }

    fn line_end(&self) -> &'static [u8] {
        if self.translator.is_stream() { b"\n" } else { b"" }
    }

    /// Whether nothing was sent, so that the head may be another. It has been sent all the same, if another plugin has buffered
    /// the body.
    fn may_change_head(&mut self, exchange: &Exchange) -> bool {
        std::mem::take(&mut self.holds_head) && exchange.bytes_out == 0
    }

    /// An error as the last line of the body; its status is that of the head, too, if it is also the first.
    fn error(&mut self, exchange: &mut Exchange, code: &str, message: &str) -> Vec<u8> {
        if self.may_change_head(exchange) {
            exchange.response.status = self.translator.status(code.as_bytes());
        }
        let code = code.parse::<u32>().unwrap_or(2);
        let mut error = json!({ "error": { "code": code, "message": message } }).to_string().into_bytes();
        error.extend_from_slice(self.line_end());
        error
    }

    /// What the client gets of a call that has failed, by its trailers: the status alone, as long as nothing was sent.
    fn failure(&mut self, exchange: &mut Exchange, code: &[u8], trailers: &Headers) -> Vec<u8> {
        let message = trailers.get("grpc-message");
        if !self.may_change_head(exchange) {
            let message = percent_decode(message.unwrap_or_default()).decode_utf8_lossy();
            return self.error(exchange, &String::from_utf8_lossy(code), &message);
        }
        exchange.response.status = self.translator.status(code);
        exchange.response.headers.set("grpc-status", code);
        if let Some(message) = message {
            exchange.response.headers.set("grpc-message", message);
        }
        self.translator.failure(trailers)
    }
}

impl<T: Translator> BodyFilter for Filter<T> {
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        if self.failed {
            return Vec::new();
        }
        self.messages.push(&chunk);
        let (mut sent, translated) = self.translated();
        self.holds_head &= sent.is_empty();
        if let Err(why) = translated {
            self.failed = true;
            tracing::error!(
                request_id = exchange.id(),
                "{}: the upstream's response cannot be translated: {why}",
                T::PLUGIN
            );
            sent.extend(self.error(exchange, INTERNAL, &why));
        }
        sent
    }

    fn holds_head(&self) -> bool {
        self.holds_head
    }

    /// What cannot be translated is not read on.
    fn is_done(&self) -> bool {
        self.failed
    }

    fn end(mut self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        let trailers = exchange.take_response_trailers();
        if self.failed {
            return Vec::new();
        }
        let code = trailers.as_ref().and_then(|trailers| trailers.get("grpc-status")).map(<[u8]>::to_vec);
        match (code.as_deref(), &trailers) {
            (Some(code), Some(trailers)) if !matches!(code, b"0" | b"") => {
                self.failure(exchange, code, trailers)
            }
            _ if self.messages.is_empty() => Vec::new(),
            _ => self.error(exchange, INTERNAL, "the last message is not whole"),
        }
    }
}
