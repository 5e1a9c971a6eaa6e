//! The trace context of a request: read from headers in one of many formats, and written for the upstream.

mod extract;
mod inject;
mod propagation;
#[cfg(test)]
mod tests;

pub(super) use propagation::{Propagation, Traces};

/// A format of trace headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    W3c,
    B3,
    B3Single,
    Jaeger,
    Ot,
    Datadog,
    Aws,
    Gcp,
    Instana,
}

/// In the order in which they are tried if `extract` is unset.
const EVERY: [Format; 8] = [
    Format::B3,
    Format::W3c,
    Format::Jaeger,
    Format::Ot,
    Format::Datadog,
    Format::Aws,
    Format::Gcp,
    Format::Instana,
];

impl Format {
    /// The format of this name.
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "w3c" => Self::W3c,
            "b3" => Self::B3,
            "b3-single" => Self::B3Single,
            "jaeger" => Self::Jaeger,
            "ot" => Self::Ot,
            "datadog" => Self::Datadog,
            "aws" => Self::Aws,
            "gcp" => Self::Gcp,
            "instana" => Self::Instana,
            _ => return None,
        })
    }

    /// Its name in the records of log plugins.
    fn name(self) -> &'static str {
        match self {
            Self::W3c => "w3c",
            Self::B3 | Self::B3Single => "b3",
            Self::Jaeger => "jaeger",
            Self::Ot => "ot",
            Self::Datadog => "datadog",
            Self::Aws => "aws",
            Self::Gcp => "gcp",
            Self::Instana => "instana",
        }
    }

    fn bit(self) -> u16 {
        1 << match self {
            Self::B3Single => Self::B3 as u16,
            other => other as u16,
        }
    }
}

/// A trace id, and how many bytes it had in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TraceId {
    pub(super) id: u128,
    pub(super) bytes: usize,
}

/// The trace context of a client; any part may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) trace: Option<TraceId>,
    /// The client's span.
    pub(super) span: Option<u64>,
    /// The parent of that span.
    pub(super) parent: Option<u64>,
    /// Whether client and server share a span, as the format has it.
    pub(super) shares_span: bool,
    pub(super) sampled: Option<bool>,
    /// Whether the trace must be sampled, whatever the sampling rate.
    pub(super) debug: bool,
    /// The flags of `traceparent`.
    pub(super) flags: u8,
    /// The format of the headers.
    pub(super) format: Format,
}

impl Context {
    /// Nothing but the format.
    fn of(format: Format) -> Self {
        Self {
            trace: None,
            span: None,
            parent: None,
            shares_span: false,
            sampled: None,
            debug: false,
            flags: 0,
            format,
        }
    }
}

/// The trace context for the upstream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Onward {
    pub(super) trace: u128,
    pub(super) span: u64,
    pub(super) parent: u64,
    pub(super) sampled: bool,
}
