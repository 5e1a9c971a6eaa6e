//! Writes trace headers for the upstream.

use super::{Context, Format, Onward};
use weir_plugin::{Headers, Uuid};

/// The header prefixes of baggage.
pub(super) const BAGGAGE: [(Format, &str); 2] = [(Format::Jaeger, "uberctx-"), (Format::Ot, "ot-baggage-")];

impl Onward {
    /// Writes the headers of a format, beside other trace headers. Returns the trace id as the format writes it.
    pub(super) fn inject(&self, headers: &mut Headers, format: Format, found: Option<&Context>) -> String {
        let (trace, span) = (self.trace_text(format, found), self.span);
        let debug = found.is_some_and(|found| found.debug);
        let sampled = u8::from(self.sampled);
        let mut set = |name: &str, value: &str| headers.set(name, value.as_bytes());
        match format {
            Format::W3c => {
                let flags = found.map_or(0, |found| found.flags) & !1 | sampled;
                let mut value = String::with_capacity(64);
                value.push_str("00-");
                value.push_str(&trace);
                value.push('-');
                push_hex(&mut value, span.into(), 16);
                value.push('-');
                push_hex(&mut value, flags.into(), 2);
                set("traceparent", &value);
            }
            Format::B3Single => {
                let sampled = if debug { "d".to_owned() } else { sampled.to_string() };
                set("b3", &format!("{trace}-{span:016x}-{sampled}-{:016x}", self.parent));
            }
            Format::B3 => self.inject_b3(headers, &trace, debug),
            Format::Jaeger => {
                set("uber-trace-id", &format!("{trace}:{span:016x}:{:016x}:{sampled:02}", self.parent));
            }
            Format::Ot => {
                set("ot-tracer-traceid", &trace);
                set("ot-tracer-spanid", &format!("{span:016x}"));
                set("ot-tracer-sampled", &sampled.to_string());
            }
            Format::Datadog => {
                set("x-datadog-trace-id", &trace);
                set("x-datadog-parent-id", &span.to_string());
                set("x-datadog-sampling-priority", &sampled.to_string());
            }
            Format::Aws => {
                let (began, unique) = trace.split_at(8);
                let value = format!("Root=1-{began}-{unique};Parent={span:016x};Sampled={sampled}");
                set("x-amzn-trace-id", &value);
            }
            Format::Gcp => set("x-cloud-trace-context", &format!("{trace}/{span};o={sampled}")),
            Format::Instana => {
                set("x-instana-t", &trace);
                set("x-instana-s", &format!("{span:016x}"));
                set("x-instana-l", &sampled.to_string());
            }
        }
        pass_baggage(headers, format, found);
        trace
    }

    fn inject_b3(&self, headers: &mut Headers, trace: &str, debug: bool) {
        headers.set("X-B3-TraceId", trace.as_bytes());
        headers.set("X-B3-SpanId", format!("{:016x}", self.span).as_bytes());
        headers.set("X-B3-ParentSpanId", format!("{:016x}", self.parent).as_bytes());
        // Debug implies sampled, so `X-B3-Sampled` would be redundant.
        let (name, value, other) = match (debug, self.sampled) {
            (true, _) => ("X-B3-Flags", "1", "X-B3-Sampled"),
            (false, true) => ("X-B3-Sampled", "1", "X-B3-Flags"),
            (false, false) => ("X-B3-Sampled", "0", "X-B3-Flags"),
        };
        headers.remove(other);
        headers.set(name, value.as_bytes());
    }

    /// The trace id in a format: with its original length, if the format supports that.
    pub(super) fn trace_text(&self, format: Format, found: Option<&Context>) -> String {
        let came = found.and_then(|found| found.trace).map(|trace| trace.bytes);
        let is_short = match format {
            Format::W3c | Format::Aws | Format::Gcp => false,
            Format::B3 | Format::B3Single | Format::Jaeger | Format::Instana => came == Some(8),
            Format::Ot => came != Some(16),
            Format::Datadog => return (self.trace as u64).to_string(),
        };
        let mut text = String::with_capacity(32);
        push_hex(&mut text, self.trace, if is_short { 16 } else { 32 });
        text
    }
}

/// The last digits of an id in lower case; the standard library's formatting takes several times as long.
fn push_hex(out: &mut String, id: u128, digits: usize) {
    let mut text = Uuid::encode_buffer();
    out.push_str(&Uuid::from_u128(id).simple().encode_lower(&mut text)[32 - digits..]);
}

/// Copies baggage to the headers of the other format.
fn pass_baggage(headers: &mut Headers, format: Format, found: Option<&Context>) {
    let prefix = |format| BAGGAGE.iter().find(|(of, _)| *of == format).map(|(_, prefix)| *prefix);
    let (Some(from), Some(to)) = (found.and_then(|found| prefix(found.format)), prefix(format)) else {
        return;
    };
    if from == to {
        return;
    }
    let renamed = |name: &[u8]| {
        let (start, rest) = name.split_at_checked(from.len())?;
        start.eq_ignore_ascii_case(from.as_bytes()).then(|| [to.as_bytes(), rest].concat())
    };
    let baggage = headers.iter().filter_map(|field| Some((renamed(field.name)?, field.value.to_vec())));
    for (name, value) in baggage.collect::<Vec<_>>() {
        headers.set(&name, &value);
    }
}
