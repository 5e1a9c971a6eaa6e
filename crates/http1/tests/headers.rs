//! Headers on their own, and what is shown and written of messages.

use weir_http1::{BodyDecoder, Framing, Headers, Known, Limits, ParseError, RequestHead, Version, encode};

fn headers(fields: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    fields.iter().for_each(|(name, value)| headers.append(name, value.as_bytes()));
    headers
}

fn names(headers: &Headers) -> Vec<String> {
    headers.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()).collect()
}

#[test]
fn hop_by_hop_fields_go_and_those_connection_names() {
    let mut headers = headers(&[
        ("Connection", "close, X-One , ,x-two"),
        ("X-ONE", "1"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Trailer", "x"),
        ("Transfer-Encoding", "chunked"),
        ("Upgrade", "websocket"),
        ("X-Three", "3"),
        ("X-Two", "2"),
        ("connection", "X-Four"),
        ("X-Four", "4"),
        ("X-One", "again"),
    ]);
    headers.remove_hop_by_hop();
    assert_eq!(names(&headers), ["X-Three"]);
    assert_eq!(headers.len(), 1);
}

#[test]
fn connection_cannot_name_away_what_decides_framing_routing_or_identity() {
    let kept = [
        "Host",
        "Content-Length",
        "Content-Type",
        "Authorization",
        "Cookie",
        "X-Forwarded-For",
        "X-Forwarded-Proto",
        "X-Forwarded-Host",
        "X-Forwarded-Port",
        "X-Forwarded-Path",
        "X-Forwarded-Prefix",
        "X-Real-IP",
        "Forwarded",
        "Via",
        "X-Consumer-ID",
        "X-Consumer-Username",
        "X-Credential-Identifier",
        "X-Anonymous-Consumer",
        "X-Kong-Request-Id",
        "apikey",
    ];
    let mut headers = headers(&kept.map(|name| (name, "1")));
    headers.append("Connection", kept.join(", ").to_ascii_lowercase().as_bytes());
    headers.remove_hop_by_hop();
    assert_eq!(names(&headers), kept);
}

#[test]
fn a_value_cannot_end_its_line() {
    let mut fields = headers(&[("X-A", "1\r\nX-Evil: 1"), ("X-B", "\n\r\0")]);
    fields.set("X-A", b"2\r\n\r\nevil");
    let mut out = Vec::new();
    encode::headers(&mut out, &fields);
    assert_eq!(String::from_utf8_lossy(&out), "X-A: 2    evil\r\nX-B:    \r\n");
}

#[test]
fn a_name_that_is_no_token_adds_nothing() {
    let mut headers = Headers::new();
    for name in ["", "a b", "a:", "a\r\nb", "é", "\0", "x-real\rip"] {
        headers.append(name, b"1");
        headers.set(name, b"1");
    }
    assert!(headers.is_empty());
}

#[test]
fn clear_leaves_nothing_behind() {
    let mut headers = headers(&[("Host", "h"), ("X-A", "1")]);
    headers.clear();
    assert!(headers.is_empty());
    assert!(!headers.contains_known(Known::Host));
    assert_eq!(headers.get("x-a"), None);
}

#[test]
fn a_head_is_reused_without_traces() {
    let mut head = RequestHead::default();
    let first = b"POST http://a.test?secret HTTP/1.0\r\nConnection: close\r\nContent-Length: 5\r\n\r\n";
    assert_eq!(head.parse(first, &Limits::default()), Ok(Some(first.len())));
    let second = b"GET /b HTTP/1.1\r\nHost: b.test\r\n\r\n";
    assert_eq!(head.parse(second, &Limits::default()), Ok(Some(second.len())));
    assert_eq!((head.method_str(), head.target(), head.path(), head.query()), ("GET", "/b", "/b", None));
    assert_eq!((head.host(), head.framing, head.keep_alive), (Some("b.test"), Framing::None, true));
    assert_eq!(names(&head.headers), ["Host"]);
}

#[test]
fn connection_names_fields_away_among_many() {
    let mut input = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: X-7, x-250, host\r\n".to_vec();
    (0..300).for_each(|at| encode::header(&mut input, format!("x-{at}"), "1"));
    encode::header(&mut input, "Connection", "X-9");
    encode::end(&mut input);
    let mut head = RequestHead::default();
    assert_eq!(head.parse(&input, &Limits::default()), Ok(Some(input.len())));
    assert_eq!(head.headers.len(), 303);
    head.headers.remove_hop_by_hop();
    assert_eq!(head.headers.len(), 298);
    assert_eq!(["x-7", "x-250", "x-9"].map(|name| head.headers.get(name)), [None; 3]);
    assert!(head.headers.get("x-8").is_some() && head.host() == Some("h"));
}

#[test]
fn debug_shows_no_values() {
    let mut head = RequestHead::default();
    let input = b"GET /path?apikey=hunter2 HTTP/1.1\r\nHost: h\r\nAuthorization: Basic hunter2\r\n\r\n";
    assert_eq!(head.parse(input, &Limits::default()), Ok(Some(input.len())));
    let shown = format!("{head:?} {:?}", head.headers.iter().collect::<Vec<_>>());
    assert!(shown.contains("/path") && shown.contains("Authorization"), "{shown}");
    assert!(!shown.contains("hunter2"), "{shown}");
}

#[test]
fn a_rejected_body_stays_rejected() {
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    assert_eq!(decoder.decode(b"x"), Err(ParseError::ChunkSize));
    assert_eq!(decoder.decode(b"0\r\n\r\n"), Err(ParseError::ChunkSize));
    assert_eq!(decoder.finish(), Err(ParseError::ChunkSize));
    assert!(!decoder.is_done());
}

#[test]
fn one_call_takes_payload_and_the_frames_after_it() {
    let mut decoder = BodyDecoder::new(Framing::Chunked);
    let input = b"2\r\nhi\r\n1\r\n!\r\n0\r\n\r\nnext";
    let first = decoder.decode(input);
    assert_eq!(first.map(|it| (it.consumed, it.data, it.done)), Ok((10, 3..5, false)));
    let second = decoder.decode(&input[10..]);
    assert_eq!(second.map(|it| (it.consumed, it.data, it.done)), Ok((8, 0..1, true)));
}

#[test]
fn status_lines() {
    let line = |status| {
        let mut out = Vec::new();
        encode::status_line(&mut out, status);
        String::from_utf8_lossy(&out).into_owned()
    };
    assert_eq!(line(200), "HTTP/1.1 200 OK\r\n");
    assert_eq!(line(431), "HTTP/1.1 431 Request Header Fields Too Large\r\n");
    assert_eq!(line(299), "HTTP/1.1 299 \r\n");
}

#[test]
fn lengths() {
    let mut out = Vec::new();
    encode::content_length(&mut out, u64::MAX);
    for length in [0, 1, 15, 16, 255, 4096, 65_535, 1_048_576, usize::MAX] {
        encode::chunk_header(&mut out, length);
    }
    let expected = "Content-Length: 18446744073709551615\r\n\
                    0\r\n1\r\nf\r\n10\r\nff\r\n1000\r\nffff\r\n100000\r\nffffffffffffffff\r\n";
    assert_eq!(String::from_utf8_lossy(&out), expected);
}

#[test]
fn names_may_hold_every_token_character_and_no_other() {
    for byte in 0..=u8::MAX {
        let mut headers = Headers::new();
        headers.append([b'x', byte], b"1");
        let is_token = byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
        assert_eq!(headers.len() == 1, is_token, "{byte:#x}");
    }
}

#[test]
fn a_head_that_comes_in_pieces_is_checked_as_a_parsed_one() {
    let limits = Limits { max_target_bytes: 8, ..Limits::default() };
    let assemble = |method, target, authority| {
        let mut head = RequestHead::default();
        head.assemble(Version::Http2, (method, target), authority, &limits).map(|()| head)
    };
    let head = assemble("PUT", "/a?b", "a:80").unwrap();
    assert_eq!((head.method_str(), head.path(), head.query()), ("PUT", "/a", Some("b")));
    assert_eq!((head.host(), head.version, head.framing), (Some("a:80"), Version::Http2, Framing::None));
    assert_eq!(assemble("OPTIONS", "*", "a").unwrap().path(), "*");
    assert_eq!(assemble("GET", "/12345678", "a").unwrap_err(), ParseError::TargetTooLong);
    for target in ["http://b", "*", "b", "a:1"] {
        assert_eq!(assemble("GET", target, "a").unwrap_err(), ParseError::Target, "{target}");
    }
    assert_eq!(assemble("GET", "/#a", "a").unwrap_err(), ParseError::TargetFragment);
    for authority in ["", "u@a", "a b", "a:x"] {
        assert_eq!(assemble("GET", "/", authority).unwrap_err(), ParseError::Authority, "{authority}");
    }
}

#[test]
fn a_clone_knows_what_there_is_several_times() {
    let original = headers(&[("Connection", "keep-alive"), ("X-One", "1"), ("Connection", "x-one")]);
    let mut clone = Headers::new();
    clone.clone_from(&original);
    clone.remove_hop_by_hop();
    assert!(clone.is_empty());
}
