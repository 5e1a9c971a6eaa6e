//! What clients get where a model cannot be asked or has not answered.

use super::Unreadable;
use serde_json::json;
use std::fmt;
use weir_plugin::{Exchange, Flow, LocalResponse};

/// What errors are sent as.
const CONTENT_TYPE: &str = "application/json; charset=utf-8";

/// Why there is no response of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LlmError {
    /// The request is at fault.
    Request(String),
    /// The provider is, or the gateway.
    Provider(String),
    /// What the provider has answered is of no use.
    Response(String),
    /// The client would get nothing of what a model answers.
    Head,
}

impl LlmError {
    /// The body of a request cannot be read.
    pub(crate) fn malformed(why: Unreadable) -> Self {
        Self::unreadable("content-type header does not match request body, or bad JSON formatting", why)
    }

    /// The same, by other plugins than ai-proxy.
    pub(crate) fn no_json(why: Unreadable) -> Self {
        Self::unreadable("this LLM route only supports application/json requests", why)
    }

    /// Kong's message. It says only of a body that is not JSON what to do.
    fn unreadable(message: &str, why: Unreadable) -> Self {
        Self::Request(match why {
            Unreadable::NotJson => message.to_owned(),
            why => format!("{message}: {why}"),
        })
    }

    /// The status that the client gets.
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Request(_) => 400,
            Self::Provider(_) => 500,
            Self::Response(_) => 502,
            Self::Head => 405,
        }
    }

    /// What the client gets.
    pub(crate) fn response(&self) -> LocalResponse {
        let response = LocalResponse::raw(self.status(), Some(CONTENT_TYPE), self.body());
        if *self == Self::Head { response.header("Allow", "POST") } else { response }
    }

    /// Makes it the response of an exchange whose head has not been sent, and returns the body.
    pub(crate) fn replace(&self, exchange: &mut Exchange) -> Vec<u8> {
        exchange.response.status = self.status();
        exchange.response.headers.remove("Content-Encoding");
        exchange.response.headers.set("Content-Type", CONTENT_TYPE.as_bytes());
        self.body().into_bytes()
    }

    /// Refuses a request by it.
    pub(crate) fn refuse(&self, exchange: &Exchange, plugin: &str) -> Flow {
        tracing::debug!(request_id = exchange.id(), "{plugin}: {self}");
        Flow::Respond(self.response())
    }

    /// The body of that.
    pub(crate) fn body(&self) -> String {
        json!({ "error": { "message": self.to_string() } }).to_string()
    }
}

impl fmt::Display for LlmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(message) | Self::Provider(message) | Self::Response(message) => {
                f.write_str(message)
            }
            Self::Head => f.write_str("a response to HEAD has no body: send POST"),
        }
    }
}

impl std::error::Error for LlmError {}
