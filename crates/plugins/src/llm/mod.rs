//! Large language models, as AI plugins ask them: requests in the form of OpenAI's API become those of a provider, and its
//! responses become OpenAI's again.
//!
//! Nothing here does any I/O but [`TokenLimits`] in Redis. [`Llm`] is the configuration; a [`Backend`] made of it turns the body of a request into a
//! [`Call`] with what is sent; the provider's [`Dialect`] reads what comes back, whole or as a [`Stream`] of events. A
//! [`Provider`] is a backend that requests are sent to in the place of the service, and an [`InFlight`] one such request.

pub(crate) mod aws;
mod call;
mod chunk;
mod config;
mod error;
mod format;
mod frames;
mod in_flight;
mod prompts;
mod provider;
mod providers;
mod reply;
mod rewriter;
mod statistics;
mod stream;
mod target;
#[cfg(test)]
mod tests;
mod token_limits;

pub(crate) use call::{Backend, Call, Route};
pub(crate) use chunk::Chunk;
pub(crate) use config::{Auth, Bedrock, Llm, Logging, Model, Options, key_header};
pub(crate) use error::LlmError;
pub(crate) use format::Format;
pub(crate) use frames::StreamFormat;
pub(crate) use in_flight::{InFlight, Reporting};
pub(crate) use prompts::{Prompts, Unreadable, body_within};
pub(crate) use provider::Provider;
pub(crate) use providers::Dialect;
pub(crate) use reply::{Reply, Usage};
pub(crate) use rewriter::{Answer, Rewriter, Rewriting};
pub(crate) use statistics::{LlmCall, LlmCalls, log_field, log_payload};
pub(crate) use stream::Stream;
pub(crate) use target::Target;
pub(crate) use token_limits::{
    Concerns, SharedTokens, Standing, TokenKind, TokenLimit, TokenLimiter, TokenLimits,
};

use serde_json::Map;
use weir_plugin::Json;

/// A JSON object.
pub(crate) type Object = Map<String, Json>;
