//! A model's response as a stream: the provider's events become those of OpenAI.

use super::frames::{Event, EventReader, StreamFormat};
use super::reply::{estimated_tokens, finish_reason};
use super::{Call, Chunk, Dialect, LlmError, Route, Usage};
use memchr::memchr2_iter;
use serde_json::json;
use weir_plugin::Json;

/// The most text of a stream that is kept to be logged.
const MAX_KEPT_LEN: usize = 1024 * 1024;

/// What clients get of a stream that is corrupt.
const CORRUPT: &str = "the response of the AI provider cannot be read";

/// What they get of one that ends without an event.
const EMPTY: &str = "the AI provider sent no event that can be read";

/// What they get of one whose events say nothing.
const SILENT: &str = "the AI provider sent no answer";

/// The most of a provider's message that is logged.
const MAX_LOGGED_LEN: usize = 512;

/// Converts a provider's stream.
pub(crate) struct Stream {
    call: Call,
    /// The name of the plugin, for the log.
    plugin: &'static str,
    dialect: &'static dyn Dialect,
    reader: EventReader,
    events: Vec<Event>,
    output: Output,
}

/// What the client gets, and what is known of the stream so far.
#[derive(Debug, Default)]
pub(crate) struct Output {
    sent: Vec<u8>,
    /// The provider's name of the response.
    pub(crate) id: Option<String>,
    /// The model, where the provider names it.
    pub(crate) model: Option<String>,
    pub(crate) usage: Usage,
    /// The tokens of the texts so far, of which none is counted as less than a token of four bytes.
    estimated: u64,
    /// How many functions the model calls.
    tools: u64,
    /// The role was sent, which the first event of a chat has.
    has_role: bool,
    /// All text, if it is to be logged.
    text: Option<String>,
    /// What was sent are events of our own, not the provider's.
    is_converted: bool,
    /// An event was read.
    has_read: bool,
    /// Something was sent.
    has_begun: bool,
    /// Why the provider says nothing, if that is known.
    pub(crate) refusal: Option<String>,
    /// Why it has ended with an error.
    failure: Option<LlmError>,
    /// Nothing was sent before that error.
    is_error_alone: bool,
    is_done: bool,
}

impl Stream {
    /// For a stream that is cut so. `keeps_text` says whether the text is to be logged, and `plugin` who logs.
    pub(crate) fn new(
        call: Call,
        (dialect, format): (&'static dyn Dialect, StreamFormat),
        (plugin, keeps_text): (&'static str, bool),
    ) -> Self {
        let output = Output { text: keeps_text.then(String::new), ..Output::default() };
        Self { call, plugin, dialect, reader: EventReader::new(format), events: Vec::new(), output }
    }

    /// Whether a stream that begins so has nothing for the client: the first event that can be read is an error, or there
    /// are none but others.
    pub(crate) fn fails_at_once(mut self, begin: &[u8], is_whole: bool) -> bool {
        let is_corrupt = self.reader.push(begin, &mut self.events).is_err();
        if is_whole {
            self.events.extend(self.reader.finish());
        }
        let events = std::mem::take(&mut self.events);
        let mut events = events.iter().filter(|event| !event.data.is_empty()).peekable();
        let is_over = is_corrupt || is_whole || events.peek().is_some();
        match events.any(|event| self.read(event).is_ok()) {
            true => self.output.failure.is_some(),
            false => is_over,
        }
    }

    /// Takes what has come, and returns what the client gets for it.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.output.is_done {
            return Vec::new();
        }
        let pushed = self.reader.push(bytes, &mut self.events);
        for event in std::mem::take(&mut self.events) {
            self.take(&event);
        }
        if let Err(error) = pushed
            && !self.output.is_done
        {
            self.fail(CORRUPT, &error.to_string());
        }
        self.output.take()
    }

    /// The stream has ended. Returns what is left to send.
    pub(crate) fn end(&mut self) -> Vec<u8> {
        if !self.output.is_done
            && let Some(event) = self.reader.finish()
        {
            self.take(&event);
        }
        if self.output.is_done {
            return self.output.take();
        }
        match (self.output.has_read, self.output.has_begun) {
            (true, true) => self.output.done(&self.call),
            (true, false) => {
                let why = self.output.refusal.take().map(|why| format!(": {why}")).unwrap_or_default();
                self.output.fail(&format!("{SILENT}{why}"));
                self.log_failure();
            }
            (false, _) => self.fail(EMPTY, "it ended without an event that can be read"),
        }
        self.output.take()
    }

    /// Ends the stream with an error, and says in the log why.
    fn fail(&mut self, message: &str, why: &str) {
        self.log_error(&format!("the stream of the AI provider cannot be read: {why}"));
        self.output.fail(message);
    }

    /// Says in the log with which of its own errors the provider has ended the stream, if it has.
    fn log_failure(&self) {
        let Some(failure) = self.output.failure.as_ref().map(ToString::to_string) else { return };
        let said = &failure[..failure.floor_char_boundary(MAX_LOGGED_LEN)];
        self.log_error(&format!("the AI provider ended its stream with an error: {said}"));
    }

    fn log_error(&self, error: &str) {
        let (plugin, Call { provider, model, .. }) = (self.plugin, &self.call);
        tracing::error!(request_id = self.call.request_id(), provider, model, "{plugin}: {error}");
    }

    fn take(&mut self, event: &Event) {
        if self.output.is_done || event.data.is_empty() {
            return;
        }
        match self.read(event) {
            Ok(()) => self.log_failure(),
            Err(error) => tracing::warn!(
                request_id = self.call.request_id(),
                provider = self.call.provider,
                "{}: an event of the AI provider cannot be read: {error}",
                self.plugin
            ),
        }
    }

    fn read(&mut self, event: &Event) -> Result<(), String> {
        if event.data.trim() == "[DONE]" {
            self.output.done(&self.call);
        } else {
            self.dialect.event(event, &self.call, &mut self.output)?;
        }
        self.output.has_read = true;
        Ok(())
    }

    /// Whether it has ended with an error, so that nothing more of it is of use.
    pub(crate) fn has_failed(&self) -> bool {
        self.output.failure.is_some()
    }

    /// Why the stream has failed before anything of it was sent.
    pub(crate) fn failure(&self) -> Option<LlmError> {
        self.output.failure.clone().filter(|_| self.output.is_error_alone)
    }

    /// The tokens so far: what the provider has counted, and an estimate of what it has not.
    pub(crate) fn usage(&self, estimated_prompt: u64) -> Usage {
        let known = self.output.usage;
        let is_whole = self.output.is_done && !self.has_failed();
        Usage {
            prompt: known.prompt.or(Some(estimated_prompt)),
            // Before the end, a provider may have counted the first token alone.
            completion: match known.completion {
                Some(counted) if is_whole => Some(counted),
                counted => Some(counted.unwrap_or(0).max(self.output.estimated)),
            },
            total: known.total.filter(|_| is_whole),
        }
    }

    /// Whether some text has come.
    pub(crate) fn has_text(&self) -> bool {
        self.output.estimated > 0
    }

    /// The model that has answered, where the provider has named it.
    pub(crate) fn model(&self) -> Option<&str> {
        self.output.model.as_deref()
    }

    /// All text so far, if it is kept.
    pub(crate) fn text(&self) -> Option<&str> {
        self.output.text.as_deref()
    }
}

impl Output {
    /// What was sent since the last time.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.sent)
    }

    /// Sends an event as it has come: it is in OpenAI's form.
    pub(crate) fn same(&mut self, data: &str, chunk: &Chunk<'_>) {
        self.count(chunk.text());
        self.estimated += chunk.estimated_beside_text();
        self.usage.update(Usage::of_openai(chunk.counts()));
        if self.model.is_none() {
            self.model = chunk.model().map(str::to_owned);
        }
        self.send(data.as_bytes());
    }

    /// Sends some text.
    pub(crate) fn text(&mut self, call: &Call, text: &str) {
        self.count(text);
        self.delta(call, json!({ "content": text }), text);
    }

    /// The place of another call of a function.
    pub(crate) fn next_tool(&mut self) -> u64 {
        self.tools += 1;
        self.tool()
    }

    /// Sends whole calls of functions, which the provider has not numbered.
    pub(crate) fn tool_calls(&mut self, call: &Call, mut calls: Vec<Json>) {
        for one in &mut calls {
            let index = self.next_tool();
            one["index"] = index.into();
            one["id"] = format!("call_{index}").into();
        }
        if !calls.is_empty() {
            self.delta(call, json!({ "tool_calls": calls }), "");
        }
    }

    /// The place of the call that has begun last.
    pub(crate) fn tool(&self) -> u64 {
        self.tools.saturating_sub(1)
    }

    /// Sends the begin of a message.
    pub(crate) fn begin(&mut self, call: &Call) {
        if call.route == Route::Chat {
            self.delta(call, json!({ "content": "" }), "");
        }
    }

    /// Sends a part of a chat's message. A completion gets the text of it.
    pub(crate) fn delta(&mut self, call: &Call, delta: Json, text: &str) {
        let choice = match call.route {
            Route::Completions => {
                json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": null })
            }
            _ => {
                let delta = self.with_role(delta);
                json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": null })
            }
        };
        self.chunk(call, json!([choice]), None);
    }

    /// The part of a message; the first says whose it is.
    fn with_role(&mut self, mut delta: Json) -> Json {
        if !std::mem::replace(&mut self.has_role, true) {
            delta["role"] = "assistant".into();
        }
        delta
    }

    /// Sends why the response has ended, which is a provider's word.
    pub(crate) fn finish(&mut self, call: &Call, word: &str) {
        let mut reason = finish_reason(word);
        // The calls may have come in earlier events, and some providers do not say that they are why.
        if self.tools > 0 && reason == "stop" {
            reason = "tool_calls".to_owned();
        }
        let choice = match call.route {
            Route::Completions => {
                json!({ "index": 0, "text": "", "logprobs": null, "finish_reason": reason })
            }
            _ => {
                let delta = self.with_role(json!({}));
                json!({ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason })
            }
        };
        self.chunk(call, json!([choice]), None);
    }

    /// Ends the stream. Before that come the tokens, if the client wants them and the provider counts them, but has not sent
    /// them itself.
    pub(crate) fn done(&mut self, call: &Call) {
        let wants_usage = call.includes_usage && self.is_converted;
        if let Some(usage) = self.usage.json().filter(|_| wants_usage) {
            self.chunk(call, json!([]), Some(usage));
        }
        self.send(b"[DONE]");
        self.is_done = true;
    }

    /// Ends the stream with an error.
    pub(crate) fn fail(&mut self, message: &str) {
        let error = LlmError::Response(message.to_owned());
        self.is_error_alone = !self.has_begun;
        self.send(error.body().as_bytes());
        (self.failure, self.is_done) = (Some(error), true);
    }

    fn chunk(&mut self, call: &Call, choices: Json, usage: Option<Json>) {
        self.is_converted = true;
        let object =
            if call.route == Route::Completions { "text_completion" } else { "chat.completion.chunk" };
        let mut chunk = json!({
            "id": self.id.as_ref().unwrap_or(&call.id),
            "object": object,
            "created": call.created,
            "model": self.model.as_ref().unwrap_or(&call.model),
            "choices": choices,
        });
        if let Some(usage) = usage {
            chunk["usage"] = usage;
        }
        self.send(chunk.to_string().as_bytes());
    }

    fn send(&mut self, data: &[u8]) {
        self.has_begun = true;
        // Each of the two ends a line of an event. In JSON both are blanks.
        let mut begin = 0;
        for end in memchr2_iter(b'\n', b'\r', data).chain([data.len()]) {
            self.sent.extend_from_slice(b"data: ");
            self.sent.extend_from_slice(&data[begin..end]);
            self.sent.push(b'\n');
            begin = end + 1;
        }
        self.sent.push(b'\n');
    }

    /// Counts what costs tokens and is no text.
    pub(crate) fn estimate(&mut self, text: &str) {
        self.estimated += estimated_tokens(text);
    }

    fn count(&mut self, text: &str) {
        self.estimate(text);
        if let Some(all) = self.text.as_mut().filter(|all| all.len() + text.len() <= MAX_KEPT_LEN) {
            all.push_str(text);
        }
    }
}
