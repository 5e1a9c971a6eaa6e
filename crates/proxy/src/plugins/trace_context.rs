//! Which trace a request belongs to, as headers tell it: W3C's `traceparent`, and Zipkin's B3 in one header or several.

use crate::plugin::{Exchange, Headers};

/// A way to tell of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    W3c,
    B3,
    B3Single,
}

impl Format {
    /// The format of this name, if it is one of those that are understood.
    pub(super) fn of(name: &str) -> Option<Self> {
        match name {
            "w3c" => Some(Self::W3c),
            "b3" => Some(Self::B3),
            "b3-single" => Some(Self::B3Single),
            _ => None,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::W3c => "w3c",
            Self::B3 => "b3",
            Self::B3Single => "b3-single",
        }
    }

    /// What the headers tell in this format, if anything.
    pub(super) fn extract(self, headers: &Headers) -> Option<Context> {
        match self {
            Self::W3c => w3c(headers),
            Self::B3 | Self::B3Single => b3(headers),
        }
    }
}

/// What is known of a trace; nothing of it need be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Context {
    /// The trace, and whether its id had half as many digits.
    pub(super) trace: Option<(u128, bool)>,
    /// The span that the request is part of.
    pub(super) span: Option<u64>,
    pub(super) sampled: Option<bool>,
    /// The flags of `traceparent`.
    pub(super) flags: u8,
    /// How it was told.
    pub(super) format: Format,
}

/// What the next server is told.
#[derive(Debug, Clone, Copy)]
pub(super) struct Onward {
    pub(super) trace: u128,
    /// Whether the trace's id has half as many digits, where a format knows such.
    pub(super) short: bool,
    pub(super) span: u64,
    pub(super) parent: Option<u64>,
    pub(super) sampled: bool,
    pub(super) flags: u8,
}

fn text<'h>(headers: &'h Headers, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| std::str::from_utf8(value).ok())
}

/// So many hexadecimal digits, no more and no fewer.
fn hex(text: &str, digits: usize) -> Option<u128> {
    let is_hex = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex.then(|| u128::from_str_radix(text, 16).ok())?
}

fn hex_span(text: &str) -> Option<u64> {
    hex(text, 16).and_then(|id| u64::try_from(id).ok())
}

/// Of version 00 alone. An id of zeros is none.
fn w3c(headers: &Headers) -> Option<Context> {
    let [version, trace, span, flags] = text(headers, "traceparent")?.split('-').collect::<Vec<_>>()[..]
    else {
        return None;
    };
    let (trace, span) = (hex(trace, 32).filter(|id| *id != 0)?, hex_span(span).filter(|id| *id != 0)?);
    let flags = hex(flags, 2)? as u8;
    let sampled = Some(flags & 1 == 1);
    let context =
        Context { trace: Some((trace, false)), span: Some(span), sampled, flags, format: Format::W3c };
    (version == "00").then_some(context)
}

fn b3(headers: &Headers) -> Option<Context> {
    let states = headers.get_all("tracestate").filter_map(|value| std::str::from_utf8(value).ok());
    let single = text(headers, "b3").or_else(|| states.filter_map(|value| value.strip_prefix("b3=")).next());
    single.map_or_else(|| b3_multiple(headers), |value| Some(b3_single(value)))
}

/// What cannot be read tells nothing, but that B3 is spoken.
fn b3_single(value: &str) -> Context {
    let told = |sampled: &str| match sampled {
        "1" | "d" => Some(true),
        "0" => Some(false),
        _ => None,
    };
    let context = Context { trace: None, span: None, sampled: None, flags: 0, format: Format::B3Single };
    let mut parts = value.split('-');
    let (first, second, third) = (parts.next().unwrap_or_default(), parts.next(), parts.next());
    let parent_is_well =
        parts.next().is_none_or(|parent| hex_span(parent).is_some()) && parts.next().is_none();
    match (second, trace_id(first), second.and_then(hex_span)) {
        (None, ..) => Context { sampled: told(first), ..context },
        (Some(_), Some(trace), Some(span)) if parent_is_well => {
            Context { trace: Some(trace), span: Some(span), sampled: third.and_then(told), ..context }
        }
        _ => context,
    }
}

fn b3_multiple(headers: &Headers) -> Option<Context> {
    const NAMES: [&str; 5] =
        ["X-B3-TraceId", "X-B3-SpanId", "X-B3-ParentSpanId", "X-B3-Sampled", "X-B3-Flags"];
    let [trace, span, parent, sampled, debug] = NAMES.map(|name| text(headers, name));
    if [trace, span, parent, sampled, debug].iter().all(Option::is_none) {
        return None;
    }
    let sampled = match (debug, sampled) {
        (Some("1"), _) | (_, Some("1" | "true")) => Some(true),
        (_, Some("0" | "false")) => Some(false),
        _ => None,
    };
    let is_well = |id: Option<&str>| id.is_none_or(|id| hex_span(id).is_some());
    let trace = trace.and_then(trace_id).filter(|_| is_well(span) && is_well(parent));
    let span = span.and_then(hex_span).filter(|_| trace.is_some());
    Some(Context { trace, span, sampled, flags: 0, format: Format::B3 })
}

/// An id of 32 digits, or of 16.
fn trace_id(text: &str) -> Option<(u128, bool)> {
    hex(text, 32).map(|id| (id, false)).or_else(|| hex(text, 16).map(|id| (id, true)))
}

impl Onward {
    /// The trace's id as a format writes it.
    pub(super) fn trace_text(&self, format: Format) -> String {
        match self.short && format != Format::W3c {
            true => format!("{:016x}", self.trace),
            false => format!("{:032x}", self.trace),
        }
    }

    /// Tells the upstream.
    pub(super) fn inject(&self, exchange: &mut Exchange, format: Format) {
        let (headers, trace) = (&mut exchange.request.headers, self.trace_text(format));
        let (span, sampled) = (self.span, u8::from(self.sampled));
        match format {
            Format::W3c => {
                let flags = self.flags & !1 | sampled;
                headers.set("traceparent", format!("00-{trace}-{span:016x}-{flags:02x}").as_bytes());
            }
            Format::B3Single => {
                let parent = self.parent.map(|parent| format!("-{parent:016x}")).unwrap_or_default();
                headers.set("b3", format!("{trace}-{span:016x}-{sampled}{parent}").as_bytes());
            }
            Format::B3 => {
                headers.set("X-B3-TraceId", trace.as_bytes());
                headers.set("X-B3-SpanId", format!("{span:016x}").as_bytes());
                match self.parent {
                    Some(parent) => headers.set("X-B3-ParentSpanId", format!("{parent:016x}").as_bytes()),
                    None => drop(headers.remove("X-B3-ParentSpanId")),
                }
                headers.set("X-B3-Sampled", sampled.to_string().as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    fn extracted(format: Format, fields: &[(&str, &str)]) -> Option<Context> {
        let mut headers = Headers::new();
        fields.iter().for_each(|(name, value)| headers.append(*name, value.as_bytes()));
        format.extract(&headers)
    }

    #[test]
    fn a_traceparent_is_read_if_it_is_whole() {
        let read = |value: &str| extracted(Format::W3c, &[("traceparent", value)]);
        let context = read(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
        assert_eq!(context.trace, Some((0x4bf92f3577b34da6a3ce929d0e0e4736, false)));
        assert_eq!((context.span, context.sampled), (Some(0x00f067aa0ba902b7), Some(true)));
        assert_eq!(read(&format!("00-{TRACE}-{SPAN}-02")).unwrap().sampled, Some(false));
        for wrong in [
            "".to_owned(),
            format!("01-{TRACE}-{SPAN}-01"),
            format!("00-{}-{SPAN}-01", "0".repeat(32)),
            format!("00-{TRACE}-{}-01", "0".repeat(16)),
            format!("00-{TRACE}-{SPAN}-1"),
            format!("00-{TRACE}-{SPAN}"),
            format!("00-{TRACE}-{SPAN}-01-02"),
            format!("00-+{}-{SPAN}-01", &TRACE[1..]),
            format!("00-{TRACE}é-{SPAN}-01"),
        ] {
            assert_eq!(read(&wrong), None, "{wrong}");
        }
    }

    #[test]
    fn b3_is_read_in_one_header_and_in_several() {
        let single = |value: &str| extracted(Format::B3, &[("b3", value)]).unwrap();
        let short = Some((0x00f067aa0ba902b7, true));
        assert_eq!(
            (single("d").sampled, single("0").sampled, single("x").sampled),
            (Some(true), Some(false), None)
        );
        let whole = single(&format!("{SPAN}-{SPAN}-1-{SPAN}"));
        assert_eq!((whole.trace, whole.span, whole.sampled), (short, Some(0x00f067aa0ba902b7), Some(true)));
        assert_eq!(single(&format!("{TRACE}-{SPAN}")).sampled, None);
        for wrong in
            [format!("{TRACE}-1"), format!("{}-{SPAN}-1", &TRACE[1..]), format!("{TRACE}-{SPAN}-1-2")]
        {
            assert_eq!((single(&wrong).trace, single(&wrong).span), (None, None), "{wrong}");
        }
        let several = |fields: &[(&str, &str)]| extracted(Format::B3, fields);
        let found =
            several(&[("X-B3-TraceId", SPAN), ("X-B3-SpanId", SPAN), ("X-B3-Sampled", "false")]).unwrap();
        assert_eq!((found.trace, found.sampled, found.format), (short, Some(false), Format::B3));
        assert_eq!(several(&[("X-B3-Flags", "1"), ("X-B3-Sampled", "0")]).unwrap().sampled, Some(true));
        assert_eq!(several(&[("X-B3-TraceId", SPAN), ("X-B3-SpanId", "zz")]).unwrap().trace, None);
        assert_eq!(several(&[("tracestate", "a=b")]), None);
        assert!(several(&[("tracestate", &format!("b3={TRACE}-{SPAN}-1"))]).unwrap().trace.is_some());
    }
}
