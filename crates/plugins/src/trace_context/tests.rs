use super::*;
use weir_plugin::Headers;

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const ID: u128 = 0x4bf92f3577b34da6a3ce929d0e0e4736;
const SPAN: &str = "00f067aa0ba902b7";
const SPAN_ID: u64 = 0x00f067aa0ba902b7;
const ONWARD: Onward = Onward { trace: ID, span: 0x0102030405060708, parent: 9, sampled: true };

fn headers(fields: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    fields.iter().for_each(|(name, value)| headers.append(*name, value.as_bytes()));
    headers
}

fn extracted(format: Format, fields: &[(&str, &str)]) -> Option<Context> {
    let headers = headers(fields);
    let found = extract::extract(format, &headers);
    let is_seen = extract::spoken(&headers) & format.bit() != 0;
    assert!(is_seen || found.is_none(), "{format:?} is not looked for in {fields:?}");
    found
}

/// The trace, the span, the parent, whether it is sampled.
type Ids = (Option<u128>, Option<u64>, Option<u64>, Option<bool>);

fn ids(format: Format, fields: &[(&str, &str)]) -> Option<Ids> {
    extracted(format, fields).map(|it| (it.trace.map(|trace| trace.id), it.span, it.parent, it.sampled))
}

#[test]
fn a_traceparent_is_read_if_it_is_whole() {
    let read = |value: &str| extracted(Format::W3c, &[("traceparent", value)]);
    let context = read(&format!("00-{TRACE}-{SPAN}-01")).unwrap();
    assert_eq!(context.trace, Some(TraceId { id: ID, bytes: 16 }));
    assert_eq!((context.span, context.sampled), (Some(SPAN_ID), Some(true)));
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
    let short = Some(TraceId { id: SPAN_ID.into(), bytes: 8 });
    assert_eq!(
        (single("d").sampled, single("0").sampled, single("x").sampled),
        (Some(true), Some(false), None)
    );
    assert!(single("d").debug && !single("1").debug);
    let whole = single(&format!("{SPAN}-{SPAN}-1-{SPAN}"));
    assert_eq!((whole.trace, whole.span, whole.sampled), (short, Some(SPAN_ID), Some(true)));
    assert_eq!((whole.parent, whole.shares_span), (Some(SPAN_ID), true));
    assert_eq!(single(&format!("{TRACE}-{SPAN}")).sampled, None);
    for wrong in [format!("{TRACE}-1"), format!("{}-{SPAN}-1", &TRACE[1..]), format!("{TRACE}-{SPAN}-1-2")] {
        assert_eq!((single(&wrong).trace, single(&wrong).span), (None, None), "{wrong}");
    }
    let several = |fields: &[(&str, &str)]| extracted(Format::B3, fields);
    let found = several(&[("X-B3-TraceId", SPAN), ("X-B3-SpanId", SPAN), ("X-B3-Sampled", "false")]).unwrap();
    assert_eq!((found.trace, found.sampled, found.format), (short, Some(false), Format::B3));
    let debug = several(&[("X-B3-Flags", "1"), ("X-B3-Sampled", "0")]).unwrap();
    assert_eq!((debug.sampled, debug.debug), (Some(true), true));
    assert_eq!(several(&[("X-B3-TraceId", SPAN), ("X-B3-SpanId", "zz")]).unwrap().trace, None);
    assert_eq!(several(&[("tracestate", "a=b")]), None);
    assert!(several(&[("tracestate", &format!("b3={TRACE}-{SPAN}-1"))]).unwrap().trace.is_some());
}

#[test]
fn jaegers_ids_may_be_short() {
    let read = |value: &str| ids(Format::Jaeger, &[("uber-trace-id", value)]);
    assert_eq!(read(&format!("{TRACE}:{SPAN}:0:1")), Some((Some(ID), Some(SPAN_ID), None, Some(true))));
    assert_eq!(read("a:b:c:2"), Some((Some(10), Some(11), Some(12), Some(false))));
    for wrong in ["", "a:b:c", "0:b:c:1", "a:0:c:1", "a:b:c:100", "a:b:c:x", "a:b:c:1:2", ":b:c:1"] {
        assert_eq!(read(wrong), None, "{wrong}");
    }
    assert_eq!(read(&format!("1{TRACE}:b:c:1")), None);
    assert_eq!(read(&format!("{TRACE}:1{SPAN}:c:1")), None);
}

#[test]
fn opentracing_is_read() {
    let read = |fields: &[(&str, &str)]| ids(Format::Ot, fields);
    let (trace, span) = (("ot-tracer-traceid", TRACE), ("ot-tracer-spanid", SPAN));
    assert_eq!(
        read(&[trace, span, ("ot-tracer-sampled", "true")]),
        Some((Some(ID), Some(SPAN_ID), None, Some(true)))
    );
    assert_eq!(read(&[("ot-tracer-sampled", "0")]), Some((None, None, None, Some(false))));
    assert_eq!(read(&[trace, ("ot-tracer-spanid", "1")]), None);
    assert_eq!(read(&[span]), None);
}

#[test]
fn datadogs_ids_are_decimal() {
    let read = |fields: &[(&str, &str)]| ids(Format::Datadog, fields);
    let (trace, span) = (("x-datadog-trace-id", " 18446744073709551615 "), ("x-datadog-parent-id", "7"));
    let priority = |value: &'static str| ("x-datadog-sampling-priority", value);
    assert_eq!(read(&[trace, span]), Some((Some(u64::MAX.into()), Some(7), None, None)));
    assert_eq!(read(&[trace, span, priority("2")]).unwrap().3, Some(true));
    assert_eq!(read(&[priority("-1")]), Some((None, None, None, Some(false))));
    assert_eq!(read(&[trace, span, priority("x")]), None);
    assert_eq!(read(&[("x-datadog-trace-id", "+1"), span]), None);
    assert_eq!(read(&[("x-datadog-trace-id", "0"), span]), None);
    assert_eq!(read(&[("x-datadog-trace-id", "18446744073709551616")]), None);
}

#[test]
fn aws_is_read_in_any_order() {
    let read = |value: &str| ids(Format::Aws, &[("X-Amzn-Trace-Id", value)]);
    let root = format!("Root=1-{}-{}", &TRACE[..8], &TRACE[8..]);
    assert_eq!(
        read(&format!("Self=x; Sampled=1;Parent={SPAN}; {root}")),
        Some((Some(ID), Some(SPAN_ID), None, Some(true)))
    );
    assert_eq!(read(&root), Some((Some(ID), None, None, None)));
    for wrong in [
        String::new(),
        format!("{root};Sampled=?"),
        format!("{root};Parent=1"),
        format!("Root=1-{}-{}", "0".repeat(8), "0".repeat(24)),
        root.replace("=1-", "=2-"),
        format!("{root}0"),
    ] {
        assert_eq!(read(&wrong), None, "{wrong}");
    }
}

#[test]
fn gcp_has_a_decimal_span() {
    let read = |value: &str| ids(Format::Gcp, &[("x-cloud-trace-context", value)]);
    assert_eq!(read(&format!("{TRACE}/11;o=1")), Some((Some(ID), Some(11), None, Some(true))));
    assert_eq!(read(&format!("{TRACE}/11")).unwrap().3, Some(false));
    for wrong in
        ["/11;o=1".to_owned(), format!("{TRACE}/;o=1"), format!("{TRACE}/a"), format!("{TRACE}/1;o=12")]
    {
        assert_eq!(read(&wrong), None, "{wrong}");
    }
}

#[test]
fn instanas_level_may_be_followed_by_more() {
    let read = |level: &str| {
        ids(Format::Instana, &[("X-INSTANA-T", TRACE), ("X-INSTANA-S", SPAN), ("X-INSTANA-L", level)])
    };
    assert_eq!(
        read("1,correlationType=web;correlationId=a"),
        Some((Some(ID), Some(SPAN_ID), None, Some(true)))
    );
    assert_eq!(read("0").unwrap().3, Some(false));
    assert_eq!(ids(Format::Instana, &[("X-INSTANA-T", TRACE)]), None);
    assert_eq!(ids(Format::Instana, &[("X-INSTANA-T", "zz"), ("X-INSTANA-S", SPAN)]), None);
}

/// The headers of a format, and the id for records.
fn written(format: Format, found: Option<&Context>) -> (String, String) {
    let mut headers = Headers::new();
    let id = ONWARD.inject(&mut headers, format, found);
    let line = |name: &[u8], value: &[u8]| {
        format!("{}: {}", String::from_utf8_lossy(name).to_lowercase(), String::from_utf8_lossy(value))
    };
    let lines: Vec<_> = headers.iter().map(|field| line(field.name, field.value)).collect();
    (lines.join("\n"), id)
}

#[test]
fn every_format_is_written_as_its_readers_want_it() {
    for (format, expected) in [
        (Format::W3c, "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-0102030405060708-01"),
        (
            Format::B3,
            "x-b3-traceid: 4bf92f3577b34da6a3ce929d0e0e4736\nx-b3-spanid: 0102030405060708\n\
             x-b3-parentspanid: 0000000000000009\nx-b3-sampled: 1",
        ),
        (Format::B3Single, "b3: 4bf92f3577b34da6a3ce929d0e0e4736-0102030405060708-1-0000000000000009"),
        (
            Format::Jaeger,
            "uber-trace-id: 4bf92f3577b34da6a3ce929d0e0e4736:0102030405060708:0000000000000009:01",
        ),
        (
            Format::Ot,
            "ot-tracer-traceid: a3ce929d0e0e4736\not-tracer-spanid: 0102030405060708\not-tracer-sampled: 1",
        ),
        (
            Format::Datadog,
            "x-datadog-trace-id: 11803532876627986230\nx-datadog-parent-id: 72623859790382856\n\
             x-datadog-sampling-priority: 1",
        ),
        (
            Format::Aws,
            "x-amzn-trace-id: Root=1-4bf92f35-77b34da6a3ce929d0e0e4736;Parent=0102030405060708;Sampled=1",
        ),
        (Format::Gcp, "x-cloud-trace-context: 4bf92f3577b34da6a3ce929d0e0e4736/72623859790382856;o=1"),
        (
            Format::Instana,
            "x-instana-t: 4bf92f3577b34da6a3ce929d0e0e4736\nx-instana-s: 0102030405060708\nx-instana-l: 1",
        ),
    ] {
        let (lines, id) = written(format, None);
        assert_eq!(lines, expected, "{format:?}");
        assert!(id == TRACE || expected.contains(&id), "{format:?}: {id}");
        let fields = lines.lines().map(|line| line.split_once(": ").unwrap()).collect::<Vec<_>>();
        let found = extracted(format, &fields).unwrap();
        assert_eq!((found.span, found.sampled), (Some(ONWARD.span), Some(true)), "{format:?}");
    }
}

#[test]
fn ids_stay_as_long_as_they_came_where_the_format_knows_such() {
    let came = |bytes| Context { trace: Some(TraceId { id: ID, bytes }), ..Context::of(Format::B3) };
    for (format, short, long) in [
        (Format::W3c, 32, 32),
        (Format::B3, 16, 32),
        (Format::B3Single, 16, 32),
        (Format::Jaeger, 16, 32),
        (Format::Ot, 16, 32),
        (Format::Aws, 32, 32),
        (Format::Gcp, 32, 32),
        (Format::Instana, 16, 32),
    ] {
        let digits = |bytes| written(format, Some(&came(bytes))).1.len();
        assert_eq!((digits(8), digits(16)), (short, long), "{format:?}");
    }
}

#[test]
fn debugging_is_passed_on() {
    let debug = Context { debug: true, ..Context::of(Format::B3) };
    assert!(written(Format::B3Single, Some(&debug)).0.contains("-d-"));
    let lines = written(Format::B3, Some(&debug)).0;
    assert!(lines.contains("x-b3-flags: 1") && !lines.contains("sampled"), "{lines}");
}

#[test]
fn baggage_goes_from_one_format_to_the_other() {
    let mut sent = headers(&[("uberctx-user", "a%20b"), ("Uberctx-", "x"), ("Other", "y")]);
    ONWARD.inject(&mut sent, Format::Ot, Some(&Context::of(Format::Jaeger)));
    assert_eq!(sent.get("ot-baggage-user"), Some(&b"a%20b"[..]));
    assert_eq!(sent.get("uberctx-user"), Some(&b"a%20b"[..]));
    let mut sent = headers(&[("uberctx-user", "a")]);
    ONWARD.inject(&mut sent, Format::Ot, Some(&Context::of(Format::B3)));
    assert_eq!(sent.get("ot-baggage-user"), None);
}
