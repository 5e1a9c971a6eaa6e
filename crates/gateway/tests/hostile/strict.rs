//! A reader of HTTP/1.1 that shares nothing with the gateway's: it refuses what any two programs could read in two ways,
//! even where RFC 9112 lets a recipient be lenient.

/// A request or a response that leaves no doubt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// The first line, without its end.
    pub start: String,
    /// The fields in order, names in lower case.
    pub fields: Vec<(String, String)>,
    /// The body, decoded.
    pub body: Vec<u8>,
}

/// Where the end of a body is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Body {
    Sized(usize),
    Chunked,
    /// It ends with the connection.
    Open,
}

/// Why bytes are no message, or `Ok(None)` if more are to come.
pub(super) type Reading = Result<Option<(Message, usize)>, String>;

/// A field that may be there once.
const SINGLE: [&str; 9] = [
    "host",
    "content-length",
    "transfer-encoding",
    "authorization",
    "content-type",
    "expect",
    "x-forwarded-for",
    "x-forwarded-proto",
    "x-real-ip",
];
/// Fields that a trailer must not bring.
const NEVER_TRAILERS: [&str; 8] = [
    "host",
    "content-length",
    "transfer-encoding",
    "authorization",
    "connection",
    "x-consumer-username",
    "x-forwarded-for",
    "cookie",
];

impl Message {
    /// The values of a name.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        self.fields.iter().filter(|(field, _)| field == name).map(|(_, value)| value.as_str()).collect()
    }

    /// The status of a response.
    pub(super) fn status(&self) -> u16 {
        self.start.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_default()
    }

    /// The only value of a name.
    fn one(&self, name: &str) -> Option<&str> {
        self.all(name).first().copied()
    }
}

/// Reads the first request of these bytes.
pub(super) fn request(bytes: &[u8]) -> Reading {
    let Some((mut message, behind)) = head(bytes)? else { return Ok(None) };
    request_line(&message.start)?;
    if message.all("host").len() != 1 {
        return Err("a request has one Host".to_owned());
    }
    let body = match framing(&message)? {
        Some(Body::Open) | None => Body::Sized(0),
        Some(body) => body,
    };
    let Some((body, end)) = read_body(bytes, behind, body)? else { return Ok(None) };
    message.body = body;
    Ok(Some((message, end)))
}

/// Reads the first response of these bytes, to a request with this method. `is_over`: the connection has ended.
pub(super) fn response(bytes: &[u8], method: &str, is_over: bool) -> Reading {
    let Some((mut message, behind)) = head(bytes)? else { return Ok(None) };
    status_line(&message.start)?;
    let framed = framing(&message)?;
    let is_bodiless = method == "HEAD" || matches!(message.status(), 100..200 | 204 | 304);
    let body = match framed {
        _ if is_bodiless => Body::Sized(0),
        Some(body) => body,
        None => Body::Open,
    };
    if body == Body::Open {
        message.body = bytes[behind..].to_vec();
        return Ok(is_over.then_some((message, bytes.len())));
    }
    let Some((body, end)) = read_body(bytes, behind, body)? else { return Ok(None) };
    message.body = body;
    Ok(Some((message, end)))
}

fn request_line(line: &str) -> Result<(), String> {
    let parts: Vec<&str> = line.split(' ').collect();
    let [method, target, "HTTP/1.1"] = *parts else { return Err(format!("no request line: {line:?}")) };
    let is_path = target.starts_with('/') || method == "OPTIONS" && target == "*";
    let is_plain = target.bytes().all(|byte| byte.is_ascii_graphic() && !b"#\\\"<>^`{|}".contains(&byte));
    let path = target.split('?').next().unwrap_or_default().to_ascii_lowercase().replace("%2e", ".");
    let has_dots = path.split('/').any(|segment| segment == "." || segment == "..");
    if !is_token(method) || !is_path || !is_plain || has_dots {
        return Err(format!("an ambiguous request line: {line:?}"));
    }
    Ok(())
}

fn status_line(line: &str) -> Result<(), String> {
    let code = line.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.split_once(' ')).map(|(code, _)| code);
    match code {
        Some(code) if code.len() == 3 && code.bytes().all(|digit| digit.is_ascii_digit()) => Ok(()),
        _ => Err(format!("no status line: {line:?}")),
    }
}

/// The head, and where what follows it begins.
fn head(bytes: &[u8]) -> Result<Option<(Message, usize)>, String> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
        return match bytes.windows(2).any(|two| two[1] == b'\n' && two[0] != b'\r') {
            true => Err("a bare LF".to_owned()),
            false => Ok(None),
        };
    };
    let mut lines = lines(&bytes[..end + 2])?.into_iter();
    let start = lines.next().unwrap_or_default();
    let message = Message { start, fields: lines.map(field).collect::<Result<_, _>>()?, body: Vec::new() };
    for name in SINGLE {
        if message.all(name).len() > 1 {
            return Err(format!("{name} twice"));
        }
    }
    Ok(Some((message, end + 4)))
}

/// Lines that each end with CRLF, and have no other control character but tabs.
fn lines(mut bytes: &[u8]) -> Result<Vec<String>, String> {
    let mut lines = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.iter().position(|byte| *byte == b'\r').ok_or("a line without an end")?;
        let (line, rest) = bytes.split_at(end);
        bytes = rest.strip_prefix(b"\r\n").ok_or("a bare CR")?;
        if line.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t') {
            return Err(format!("a control character: {:?}", String::from_utf8_lossy(line)));
        }
        lines.push(String::from_utf8_lossy(line).into_owned());
    }
    Ok(lines)
}

fn field(line: String) -> Result<(String, String), String> {
    let (name, value) = line.split_once(':').ok_or_else(|| format!("no colon: {line:?}"))?;
    let name = name.to_ascii_lowercase();
    if !is_token(&name) {
        return Err(format!("no field name: {line:?}"));
    }
    // What reads names as environment variables takes one for the other.
    let alias = name.replace('_', "-");
    if alias != name && (SINGLE.contains(&alias.as_str()) || alias.starts_with("x-consumer-")) {
        return Err(format!("an alias of {alias}"));
    }
    Ok((name, value.trim_matches([' ', '\t']).to_owned()))
}

fn is_token(text: &str) -> bool {
    let is_of_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_of_token)
}

fn framing(message: &Message) -> Result<Option<Body>, String> {
    match (message.one("content-length"), message.one("transfer-encoding")) {
        (Some(_), Some(_)) => Err("a length and an encoding".to_owned()),
        (None, Some("chunked")) => Ok(Some(Body::Chunked)),
        (None, Some(other)) => Err(format!("an encoding: {other:?}")),
        (Some(length), None) => number(length, 10).map(|length| Some(Body::Sized(length))),
        (None, None) => Ok(None),
    }
}

/// A number of digits alone, which is not written with a zero in front.
fn number(text: &str, radix: u32) -> Result<usize, String> {
    let is_plain = text.chars().all(|digit| digit.is_digit(radix)) && (text == "0" || !text.starts_with('0'));
    let number = usize::from_str_radix(text, radix).ok().filter(|_| is_plain && text.len() < 16);
    number.ok_or_else(|| format!("no size: {text:?}"))
}

/// The body, and where what follows it begins.
fn read_body(bytes: &[u8], from: usize, body: Body) -> Result<Option<(Vec<u8>, usize)>, String> {
    match body {
        Body::Sized(length) => Ok(bytes.get(from..from + length).map(|body| (body.to_vec(), from + length))),
        _ => chunks(bytes, from),
    }
}

fn chunks(bytes: &[u8], mut at: usize) -> Result<Option<(Vec<u8>, usize)>, String> {
    let mut body = Vec::new();
    loop {
        let Some(line) = line_at(bytes, at)? else { return Ok(None) };
        let size = number(&line, 16)?;
        at += line.len() + 2;
        if size == 0 {
            return Ok(trailers(bytes, at)?.map(|end| (body, end)));
        }
        let Some(chunk) = bytes.get(at..at + size + 2) else { return Ok(None) };
        body.extend_from_slice(chunk.strip_suffix(b"\r\n").ok_or("a chunk without an end")?);
        at += size + 2;
    }
}

/// Where the trailers end.
fn trailers(bytes: &[u8], mut at: usize) -> Result<Option<usize>, String> {
    loop {
        let Some(line) = line_at(bytes, at)? else { return Ok(None) };
        at += line.len() + 2;
        if line.is_empty() {
            return Ok(Some(at));
        }
        let (name, _) = field(line)?;
        if NEVER_TRAILERS.contains(&name.as_str()) {
            return Err(format!("{name} among the trailers"));
        }
    }
}

fn line_at(bytes: &[u8], at: usize) -> Result<Option<String>, String> {
    let rest = bytes.get(at..).unwrap_or_default();
    let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
    let line = lines(&rest[..=end])?;
    Ok(line.into_iter().next())
}

#[test]
fn it_refuses_what_can_be_read_in_two_ways() {
    let good = "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nhi";
    assert_eq!(request(good.as_bytes()).unwrap().unwrap().1, good.len());
    for (from, to) in [
        ("POST", "PO ST"),
        ("/a", "/a#b"),
        ("/a", "/a/%2E%2e/b"),
        ("/a", "http://a/"),
        ("HTTP/1.1", "HTTP/1.0"),
        ("\r\nHost", "\nHost"),
        ("Host: a", "Host : a"),
        ("Host: a", "Host: a\r\n b"),
        ("Host: a", "Host: a\r\nHost: a"),
        ("Host: a", ": a"),
        ("Host: a", "Host: a\0"),
        ("Host: a", "Host: a\r\nContent_Length: 2"),
        ("Length: 2", "Length: +2"),
        ("Length: 2", "Length: 02"),
        ("Length: 2", "Length: 2\r\nContent-Length: 2"),
        ("Length: 2", "Length: 2\r\nTransfer-Encoding: chunked"),
        ("Content-Length: 2", "Transfer-Encoding: gzip, chunked"),
    ] {
        let bad = good.replacen(from, to, 1);
        assert!(request(bad.as_bytes()).is_err(), "{bad:?}");
    }
    let chunked =
        "POST /a HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n";
    assert_eq!(request(chunked.as_bytes()).unwrap().unwrap().0.body, b"hi");
    for (from, to) in [
        ("2\r\n", "2;a\r\n"),
        ("2\r\n", "2 \r\n"),
        ("2\r\n", "02\r\n"),
        ("hi\r\n", "hi\n"),
        ("A: b", "Host: b"),
    ] {
        let bad = chunked.replacen(from, to, 1);
        assert!(request(bad.as_bytes()).is_err(), "{bad:?}");
    }
}
