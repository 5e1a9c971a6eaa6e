//! Reads trace headers. Malformed ones count as absent.

use super::inject::BAGGAGE;
use super::{Context, Format, TraceId};
use weir_plugin::Headers;

/// The formats that the headers may have, as bits, found in one pass.
pub(super) fn spoken(headers: &Headers) -> u16 {
    headers.iter().fold(0, |found, field| found | speaks(field.name).map_or(0, Format::bit))
}

/// Whether a trailer has the name of a trace header, or of baggage. Some applications take `_` in names for `-`.
pub(super) fn is_of_traces(name: &[u8]) -> bool {
    let name = name
        .to_ascii_lowercase()
        .iter()
        .map(|byte| if *byte == b'_' { b'-' } else { *byte })
        .collect::<Vec<_>>();
    let is_baggage = || BAGGAGE.iter().any(|(_, prefix)| name.starts_with(prefix.as_bytes()));
    speaks(&name).is_some() || is_baggage()
}

fn speaks(name: &[u8]) -> Option<Format> {
    let is = |expected: &str| name.eq_ignore_ascii_case(expected.as_bytes());
    let begins = |prefix: &str| {
        name.get(..prefix.len()).is_some_and(|start| start.eq_ignore_ascii_case(prefix.as_bytes()))
    };
    match name.first()? | 0x20 {
        b't' if is("traceparent") => Some(Format::W3c),
        b't' if is("tracestate") => Some(Format::B3),
        b'b' if is("b3") => Some(Format::B3),
        b'x' if begins("x-b3-") => Some(Format::B3),
        b'x' if begins("x-datadog-") => Some(Format::Datadog),
        b'x' if begins("x-instana-") => Some(Format::Instana),
        b'x' if is("x-amzn-trace-id") => Some(Format::Aws),
        b'x' if is("x-cloud-trace-context") => Some(Format::Gcp),
        b'u' if is("uber-trace-id") => Some(Format::Jaeger),
        b'o' if begins("ot-tracer-") => Some(Format::Ot),
        _ => None,
    }
}

/// The trace context that the headers have in a format, if any.
pub(super) fn extract(format: Format, headers: &Headers) -> Option<Context> {
    match format {
        Format::W3c => w3c(text(headers, "traceparent")?),
        Format::B3 | Format::B3Single => b3(headers),
        Format::Jaeger => jaeger(text(headers, "uber-trace-id")?),
        Format::Ot => ot(headers),
        Format::Datadog => datadog(headers),
        Format::Aws => aws(text(headers, "x-amzn-trace-id")?),
        Format::Gcp => gcp(text(headers, "x-cloud-trace-context")?),
        Format::Instana => instana(headers),
    }
}

fn text<'h>(headers: &'h Headers, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| std::str::from_utf8(value).ok())
}

/// Hexadecimal digits, at most `most`.
fn hex(text: &str, most: usize) -> Option<u128> {
    let is_hex = (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?
}

/// Sixteen hexadecimal digits.
fn hex_span(text: &str) -> Option<u64> {
    hex(text, 16).filter(|_| text.len() == 16).and_then(|id| u64::try_from(id).ok())
}

/// An id of 32 digits, or of 16. All zeros are invalid.
fn trace_id(text: &str) -> Option<TraceId> {
    let id = hex(text, 32).filter(|id| [16, 32].contains(&text.len()) && *id != 0)?;
    Some(TraceId { id, bytes: text.len() / 2 })
}

fn yes_or_no(text: Option<&str>) -> Option<bool> {
    match text? {
        "1" | "true" => Some(true),
        "0" | "false" => Some(false),
        _ => None,
    }
}

/// Version 00 only. An id of zeros is invalid.
fn w3c(value: &str) -> Option<Context> {
    let [version, trace, span, flags] = value.split('-').collect::<Vec<_>>()[..] else { return None };
    let trace = trace_id(trace).filter(|trace| trace.bytes == 16)?;
    let span = hex_span(span).filter(|id| *id != 0)?;
    let flags = hex(flags, 2).filter(|_| flags.len() == 2)? as u8;
    (version == "00").then_some(Context {
        trace: Some(trace),
        span: Some(span),
        sampled: Some(flags & 1 == 1),
        flags,
        ..Context::of(Format::W3c)
    })
}

fn b3(headers: &Headers) -> Option<Context> {
    let states = headers.get_all("tracestate").filter_map(|value| std::str::from_utf8(value).ok());
    let single = text(headers, "b3").or_else(|| states.filter_map(|value| value.strip_prefix("b3=")).next());
    let found = single.map_or_else(|| b3_multiple(headers), |value| Some(b3_single(value)));
    found.map(|found| Context { shares_span: true, ..found })
}

/// What is malformed counts as absent, but the format is B3.
fn b3_single(value: &str) -> Context {
    let decision = |sampled: &str| match sampled {
        "1" | "d" => Some(true),
        "0" => Some(false),
        _ => None,
    };
    let context = Context::of(Format::B3Single);
    let mut parts = value.split('-');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let parent = parts.next();
    let is_well = parent.is_none_or(|parent| hex_span(parent).is_some()) && parts.next().is_none();
    match (second, trace_id(first), second.and_then(hex_span)) {
        (None, ..) => Context { sampled: decision(first), debug: first == "d", ..context },
        (Some(_), Some(trace), Some(span)) if is_well => Context {
            trace: Some(trace),
            span: Some(span),
            parent: parent.and_then(hex_span),
            sampled: third.and_then(decision),
            debug: third == Some("d"),
            ..context
        },
        _ => context,
    }
}

fn b3_multiple(headers: &Headers) -> Option<Context> {
    const NAMES: [&str; 5] =
        ["X-B3-TraceId", "X-B3-SpanId", "X-B3-ParentSpanId", "X-B3-Sampled", "X-B3-Flags"];
    let values = NAMES.map(|name| text(headers, name));
    if values.iter().all(Option::is_none) {
        return None;
    }
    let [trace, span, parent, sampled, flags] = values;
    let debug = flags == Some("1");
    let is_well = |id: Option<&str>| id.is_none_or(|id| hex_span(id).is_some());
    let trace = trace.and_then(trace_id).filter(|_| is_well(span) && is_well(parent));
    let within = |id: Option<&str>| trace.and(id.and_then(hex_span));
    Some(Context {
        trace,
        span: within(span),
        parent: within(parent),
        sampled: if debug { Some(true) } else { yes_or_no(sampled) },
        debug,
        ..Context::of(Format::B3)
    })
}

/// Digits may be left out at the front.
fn jaeger(value: &str) -> Option<Context> {
    let [trace, span, parent, flags] = value.split(':').collect::<Vec<_>>()[..] else { return None };
    let bytes = trace.len().div_ceil(2);
    let trace = hex(trace, 32).filter(|id| *id != 0)?;
    let span = hex(span, 16).filter(|id| *id != 0)?;
    let parent = hex(parent, 32)?;
    let sampled = hex(flags, 2)? & 1 == 1;
    Some(Context {
        trace: Some(TraceId { id: trace, bytes }),
        span: u64::try_from(span).ok(),
        parent: u64::try_from(parent).ok().filter(|id| *id != 0),
        shares_span: true,
        sampled: Some(sampled),
        ..Context::of(Format::Jaeger)
    })
}

fn ot(headers: &Headers) -> Option<Context> {
    let (trace, span) = (text(headers, "ot-tracer-traceid"), text(headers, "ot-tracer-spanid"));
    let sampled = yes_or_no(text(headers, "ot-tracer-sampled"));
    let trace = trace.and_then(trace_id).filter(|_| span.is_none_or(|span| hex_span(span).is_some()));
    let span = trace.and(span.and_then(hex_span));
    let is_told = trace.is_some() || sampled.is_some();
    is_told.then_some(Context { trace, span, sampled, ..Context::of(Format::Ot) })
}

/// A number of a 64-bit id, spaces around it or not.
fn decimal(text: &str) -> Option<u64> {
    let digits = text.trim();
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn datadog(headers: &Headers) -> Option<Context> {
    let sampled = match text(headers, "x-datadog-sampling-priority") {
        None => None,
        Some("1" | "2") => Some(true),
        Some("0" | "-1") => Some(false),
        Some(_) => return None,
    };
    let trace = text(headers, "x-datadog-trace-id").and_then(decimal).filter(|id| *id != 0);
    let span = trace.and(text(headers, "x-datadog-parent-id").and_then(decimal));
    let trace = trace.map(|id| TraceId { id: id.into(), bytes: 8 });
    let is_told = trace.is_some() || sampled.is_some();
    is_told.then_some(Context { trace, span, sampled, ..Context::of(Format::Datadog) })
}

/// `Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1`, in any order, with unknown keys.
fn aws(value: &str) -> Option<Context> {
    let mut context = Context::of(Format::Aws);
    for (key, value) in value.split(';').filter_map(|pair| pair.split_once('=')) {
        match (key.trim(), value.trim()) {
            ("Root", root) => context.trace = Some(aws_root(root)?),
            ("Parent", parent) => context.span = Some(hex_span(parent)?),
            ("Sampled", "1") => context.sampled = Some(true),
            ("Sampled", "0") => context.sampled = Some(false),
            ("Sampled", _) => return None,
            _ => {}
        }
    }
    context.span = context.trace.and(context.span);
    (context.trace.is_some() || context.sampled.is_some()).then_some(context)
}

/// The trace id consists of the start time and the unique part.
fn aws_root(root: &str) -> Option<TraceId> {
    let ["1", began, unique] = root.split('-').collect::<Vec<_>>()[..] else { return None };
    let (high, low) = (hex(began, 8)?, hex(unique, 24)?);
    let (id, is_whole) = (high << 96 | low, began.len() == 8 && unique.len() == 24);
    (is_whole && id != 0).then_some(TraceId { id, bytes: 16 })
}

/// `TRACE/SPAN;o=1`, with the span as a decimal number.
fn gcp(value: &str) -> Option<Context> {
    let (trace, rest) = value.split_once('/')?;
    let (span, flag) = rest.split_once(";o=").map_or((rest, None), |(span, flag)| (span, Some(flag)));
    let trace = trace_id(trace).filter(|trace| trace.bytes == 16)?;
    let is_well = flag.is_none_or(|flag| flag.len() == 1 && flag.as_bytes()[0].is_ascii_digit());
    is_well.then_some(Context {
        trace: Some(trace),
        span: Some(decimal(span)?),
        sampled: Some(flag == Some("1")),
        ..Context::of(Format::Gcp)
    })
}

/// The level may be followed by more, such as `1,correlationType=web`.
fn instana(headers: &Headers) -> Option<Context> {
    let trace = trace_id(text(headers, "x-instana-t")?)?;
    let span = text(headers, "x-instana-s")?;
    let span = hex(span, 16).and_then(|id| u64::try_from(id).ok())?;
    let sampled = text(headers, "x-instana-l").is_some_and(|level| level.starts_with('1'));
    Some(Context {
        trace: Some(trace),
        span: Some(span),
        sampled: Some(sampled),
        ..Context::of(Format::Instana)
    })
}
