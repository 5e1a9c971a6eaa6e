//! Which formats are read and written: Kong's `propagation`.

use super::{Context, EVERY, Format, Onward, extract};
use crate::log_record::TraceIds;
use weir_plugin::{Exchange, Headers, Record, is_same_header};

/// How traces are propagated.
#[derive(Debug, Clone, Record)]
pub(crate) struct Propagation {
    /// The formats that are read, in order; the first one found counts.
    #[field(
        one_of = ["w3c", "b3", "jaeger", "ot", "datadog", "aws", "gcp", "instana"],
        extension_values = ["instana"]
    )]
    pub extract: Option<Vec<String>>,
    /// Headers that the upstream does not get.
    #[field(check = weir_plugin::rule::header_name)]
    pub clear: Option<Vec<String>>,
    /// The formats that the upstream gets.
    #[field(
        one_of = ["preserve", "w3c", "b3", "b3-single", "jaeger", "ot", "datadog", "aws", "gcp", "instana"],
        extension_values = ["instana"]
    )]
    pub inject: Option<Vec<String>>,
    /// The format for `preserve` if the client has sent none.
    #[field(
        one_of = ["w3c", "b3", "b3-single", "jaeger", "ot", "datadog", "aws", "gcp", "instana"],
        extension_values = ["instana"]
    )]
    pub default_format: String,
}

impl Propagation {
    fn is_set(&self) -> bool {
        self.extract.is_some() || self.clear.is_some() || self.inject.is_some()
    }
}

/// How trace headers are read and written.
pub(crate) struct Traces {
    extract: Vec<Format>,
    clear: Vec<String>,
    /// None stands for the client's format.
    inject: Vec<Option<Format>>,
    default: Format,
}

impl Traces {
    /// From `propagation`, or else `header_type`; `default_header_type` is for plugins that have this field.
    pub(crate) fn new(
        propagation: &Propagation,
        header_type: &str,
        default_header_type: Option<&str>,
    ) -> Self {
        let default = default_header_type.filter(|_| !propagation.is_set());
        let default = Format::of(default.unwrap_or(&propagation.default_format)).unwrap_or(Format::W3c);
        if propagation.is_set() {
            let formats = |names: &Option<Vec<String>>| {
                names.iter().flatten().map(|name| Format::of(name)).collect::<Vec<_>>()
            };
            return Self {
                extract: formats(&propagation.extract).into_iter().flatten().collect(),
                clear: propagation.clear.clone().unwrap_or_default(),
                inject: formats(&propagation.inject),
                default,
            };
        }
        let (extract, inject) = match header_type {
            "preserve" => (EVERY.to_vec(), vec![None]),
            "ignore" => (Vec::new(), vec![Some(default)]),
            format => (EVERY.to_vec(), vec![None, Format::of(format)]),
        };
        Self { extract, clear: Vec::new(), inject, default }
    }

    /// Whether what a trailer of this name says is the plugin's to say: which trace the request is of, in whatever format, or
    /// what a header says that it removes.
    pub(crate) fn own(&self, name: &[u8]) -> bool {
        let is_cleared = || self.clear.iter().any(|clear| is_same_header(clear.as_bytes(), name));
        !self.inject.is_empty() && extract::is_of_traces(name) || is_cleared()
    }

    /// The trace context that a client sends.
    pub(crate) fn extract(&self, headers: &Headers) -> Option<Context> {
        let spoken = extract::spoken(headers);
        let mut formats = self.extract.iter().filter(|format| spoken & format.bit() != 0);
        formats.find_map(|format| extract::extract(*format, headers))
    }

    /// Writes the headers for the upstream, and stores the trace ids for log plugins.
    pub(crate) fn inject(&self, exchange: &mut Exchange, found: Option<&Context>, onward: &Onward) {
        let headers = &mut exchange.request.headers;
        for name in &self.clear {
            headers.remove(name);
        }
        let own = found.map_or(self.default, |found| found.format);
        let mut ids = TraceIds::default();
        if let Some(found) = found.filter(|found| found.trace.is_some()) {
            ids.add(found.format.name(), onward.trace_text(found.format, Some(found)));
        }
        for format in self.inject.iter().map(|format| format.unwrap_or(own)) {
            ids.add(format.name(), onward.inject(headers, format, found));
        }
        // If several plugins trace a request, logs have the ids of the first.
        if exchange.extensions.get::<TraceIds>().is_none() {
            exchange.extensions.insert(ids);
        }
    }
}
