//! Runs the cases of `cases/*.toml`: each whole, and byte by byte, with the same outcome.
//!
//! A case gives `input`, or `field` to be put into a minimal head, and what must come of it: `reject` with status and
//! kind, `incomplete`, or what was read. `framing`, `keep_alive`, `rest` and the like are compared in every accepted
//! case; their defaults are those of an unremarkable message. A body that is refused may give the `data` before that.
//!
//! Escapes in `input`, `field`, `data` and `rest`: `\r \n \t \0 \\ \xNN`, and `\{text*count}` for repetition.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a case that cannot be read or run fails the test")]

use std::fmt::Write as _;
use std::path::Path;

use serde::Deserialize;
use weir_http1::{BodyDecoder, Framing, Headers, Limits, Method, ParseError, RequestHead, ResponseHead};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseFile {
    kind: Kind,
    case: Vec<Case>,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Request,
    Response,
    Body,
    /// The body of a response.
    #[serde(rename = "response body")]
    ResponseBody,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    input: Option<String>,
    field: Option<String>,
    /// The method that a response answers.
    #[serde(default = "get")]
    to: String,
    max_head_bytes: Option<usize>,
    max_fields: Option<usize>,
    max_target_bytes: Option<usize>,
    max_field_bytes: Option<usize>,

    reject: Option<String>,
    #[serde(default)]
    incomplete: bool,
    method: Option<String>,
    target: Option<String>,
    path: Option<String>,
    query: Option<String>,
    host: Option<String>,
    status: Option<u16>,
    /// The reason phrase of a response, or `registered`.
    reason: Option<String>,
    version: Option<String>,
    headers: Option<Vec<String>>,
    framing: Option<String>,
    #[serde(default = "yes")]
    keep_alive: bool,
    #[serde(default)]
    expect_continue: bool,
    #[serde(default)]
    upgrade: bool,
    data: Option<String>,
    trailers: Option<Vec<String>>,
    /// How many trailers pass, the last being `C: d`, where they are many.
    trailers_counted: Option<usize>,
    #[serde(default)]
    rest: String,
}

fn get() -> String {
    "GET".to_owned()
}

fn yes() -> bool {
    true
}

#[test]
fn cases() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut failures = String::new();
    let mut count = 0;
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        let file: CaseFile =
            toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for case in &file.case {
            count += 1;
            let expected = case.expected(file.kind);
            for (manner, step) in [("whole", usize::MAX), ("byte by byte", 1)] {
                let actual = case.run(file.kind, step);
                if actual != expected {
                    let file = path.file_name().unwrap().display();
                    write!(
                        failures,
                        "\n{file}: {} ({manner})\n  expected {expected}\n  but was  {actual}",
                        case.name
                    )
                    .unwrap();
                }
            }
        }
    }
    assert!(count >= 150, "only {count} cases were found");
    assert!(failures.is_empty(), "{failures}");
}

impl Case {
    fn input(&self, kind: Kind) -> Vec<u8> {
        let text = match (&self.input, &self.field, kind) {
            (Some(input), None, _) => input.clone(),
            (None, Some(field), Kind::Request) => format!(r"POST / HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n"),
            (None, Some(field), Kind::Response) => format!(r"HTTP/1.1 200 OK\r\n{field}\r\n\r\n"),
            _ => panic!("{}: give `input` or `field`", self.name),
        };
        unescape(&text)
    }

    fn limits(&self) -> Limits {
        let default = Limits::default();
        Limits {
            max_head_bytes: self.max_head_bytes.unwrap_or(default.max_head_bytes),
            max_fields: self.max_fields.unwrap_or(default.max_fields),
            max_target_bytes: self.max_target_bytes.unwrap_or(default.max_target_bytes),
            max_field_bytes: self.max_field_bytes.unwrap_or(default.max_field_bytes),
        }
    }

    /// What must come of the case, as text to be compared with what [`Case::run`] says.
    fn expected(&self, kind: Kind) -> String {
        if let Some(reject) = &self.reject {
            return match &self.data {
                Some(data) => refused_text(reject, &unescape(data)),
                None => reject.clone(),
            };
        }
        if self.incomplete {
            return "incomplete".to_owned();
        }
        let framing = self.framing.as_deref().unwrap_or("none");
        let rest = unescape(&self.rest);
        match kind {
            Kind::Body | Kind::ResponseBody => {
                body_text(&unescape(self.data.as_deref().unwrap_or("")), &self.expected_trailers(), &rest)
            }
            _ => format!(
                "{}framing {framing}, keep-alive {}, expect-continue {}, upgrade {}, rest {:?}",
                self.stated(),
                self.keep_alive,
                self.expect_continue,
                self.upgrade,
                String::from_utf8_lossy(&rest)
            ),
        }
    }

    fn expected_trailers(&self) -> Vec<String> {
        let Some(count) = self.trailers_counted else { return self.trailers.clone().unwrap_or_default() };
        (1..count).map(|_| "A: b".to_owned()).chain(["C: d".to_owned()]).collect()
    }

    /// The properties that only some cases state.
    fn stated(&self) -> String {
        let texts = [
            ("method", &self.method),
            ("target", &self.target),
            ("path", &self.path),
            ("query", &self.query),
            ("host", &self.host),
            ("version", &self.version),
            ("status", &self.status.map(|status| status.to_string())),
            ("reason", &self.reason),
            ("headers", &self.headers.as_ref().map(|headers| format!("{headers:?}"))),
        ];
        texts.iter().filter_map(|(name, text)| Some(format!("{name} {}, ", text.as_ref()?))).collect()
    }

    fn run(&self, kind: Kind, step: usize) -> String {
        let input = self.input(kind);
        let result = match kind {
            Kind::Request => self.run_request(&input, step),
            Kind::Response => self.run_response(&input, step),
            Kind::Body => self.run_body(BodyDecoder::new(self.framing()), &input, step),
            Kind::ResponseBody => self.run_body(BodyDecoder::of_response(self.framing()), &input, step),
        };
        result.unwrap_or_else(|reject| format!("{} {reject:?}", reject.status()))
    }

    fn run_request(&self, input: &[u8], step: usize) -> Result<String, ParseError> {
        let mut head = RequestHead::default();
        let limits = self.limits();
        let Some(consumed) = arrive(input, step, |input| head.parse(input, &limits))? else {
            return Ok("incomplete".to_owned());
        };
        let mut text = String::new();
        let optional = |stated: &Option<String>, actual: Option<&str>| {
            stated.as_ref().map(|_| actual.unwrap_or("absent").to_owned())
        };
        for (name, actual) in [
            ("method", optional(&self.method, Some(head.method_str()))),
            ("target", optional(&self.target, Some(head.target()))),
            ("path", optional(&self.path, Some(head.path()))),
            ("query", optional(&self.query, head.query())),
            ("host", optional(&self.host, head.host())),
            ("version", optional(&self.version, Some(&format!("{:?}", head.version)))),
            ("headers", self.headers.as_ref().map(|_| format!("{:?}", lines(&head.headers)))),
        ] {
            actual.map_or(Ok(()), |actual| write!(text, "{name} {actual}, ")).unwrap();
        }
        Ok(format!(
            "{text}framing {}, keep-alive {}, expect-continue {}, upgrade {}, rest {:?}",
            framing_text(head.framing),
            head.keep_alive,
            head.expect_continue,
            head.upgrade,
            String::from_utf8_lossy(&input[consumed..])
        ))
    }

    fn run_response(&self, input: &[u8], step: usize) -> Result<String, ParseError> {
        let mut head = ResponseHead::default();
        let limits = self.limits();
        let method = Method::of(&self.to);
        let Some(consumed) = arrive(input, step, |input| head.parse(input, &limits, method))? else {
            return Ok("incomplete".to_owned());
        };
        let version = self.version.as_ref().map(|_| format!("version {:?}, ", head.version));
        let status = self.status.map(|_| format!("status {}, ", head.status));
        let reason = head.other_reason().map_or("registered".into(), String::from_utf8_lossy);
        let reason = self.reason.as_ref().map(|_| format!("reason {reason}, "));
        let headers = self.headers.as_ref().map(|_| format!("headers {:?}, ", lines(&head.headers)));
        Ok(format!(
            "{}{}{}{}framing {}, keep-alive {}, expect-continue false, upgrade {}, rest {:?}",
            version.unwrap_or_default(),
            status.unwrap_or_default(),
            reason.unwrap_or_default(),
            headers.unwrap_or_default(),
            framing_text(head.framing),
            head.keep_alive,
            head.upgrade,
            String::from_utf8_lossy(&input[consumed..])
        ))
    }

    /// How a body is framed.
    fn framing(&self) -> Framing {
        framing_of(self.framing.as_deref().unwrap_or("chunked"))
    }

    fn run_body(&self, mut decoder: BodyDecoder, input: &[u8], step: usize) -> Result<String, ParseError> {
        let mut data = Vec::new();
        let mut at = 0;
        for arrived in arrivals(input.len(), step) {
            while at < arrived && !decoder.is_done() {
                let decoded = match decoder.decode(&input[at..arrived]) {
                    Ok(decoded) => decoded,
                    Err(reject) if self.data.is_some() => {
                        return Ok(refused_text(&format!("{} {reject:?}", reject.status()), &data));
                    }
                    Err(reject) => return Err(reject),
                };
                data.extend_from_slice(&input[at..arrived][decoded.data]);
                at += decoded.consumed;
            }
        }
        if decoder.finish() == Err(ParseError::BodyTruncated) {
            return Ok("incomplete".to_owned());
        }
        Ok(body_text(&data, &lines(decoder.trailers()), &input[at..]))
    }
}

fn refused_text(reject: &str, data: &[u8]) -> String {
    format!("{reject} behind {:?}", String::from_utf8_lossy(data))
}

fn body_text(data: &[u8], trailers: &[String], rest: &[u8]) -> String {
    let (data, rest) = (String::from_utf8_lossy(data), String::from_utf8_lossy(rest));
    format!("data {data:?}, trailers {trailers:?}, rest {rest:?}")
}

/// How many bytes there are after each read of `step` bytes.
fn arrivals(length: usize, step: usize) -> impl Iterator<Item = usize> {
    (1..=length.div_ceil(step).max(1)).map(move |reads| reads.saturating_mul(step).min(length))
}

/// Feeds ever more of `input` to a parser until it is done.
fn arrive(
    input: &[u8],
    step: usize,
    mut parse: impl FnMut(&[u8]) -> Result<Option<usize>, ParseError>,
) -> Result<Option<usize>, ParseError> {
    for arrived in arrivals(input.len(), step) {
        if let Some(consumed) = parse(&input[..arrived])? {
            return Ok(Some(consumed));
        }
    }
    Ok(None)
}

fn lines(headers: &Headers) -> Vec<String> {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    headers.iter().map(|field| format!("{}: {}", text(field.name), text(field.value))).collect()
}

fn framing_text(framing: Framing) -> String {
    match framing {
        Framing::None => "none".to_owned(),
        Framing::Length(length) => format!("length {length}"),
        Framing::Chunked => "chunked".to_owned(),
        Framing::UntilClose => "until close".to_owned(),
    }
}

fn framing_of(text: &str) -> Framing {
    match text {
        "none" => Framing::None,
        "chunked" => Framing::Chunked,
        "until close" => Framing::UntilClose,
        _ => Framing::Length(text.strip_prefix("length ").unwrap().parse().unwrap()),
    }
}

fn unescape(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        out.extend_from_slice(plain.as_bytes());
        let (code, after) = escaped.split_at(1);
        rest = after;
        match code {
            "r" => out.push(b'\r'),
            "n" => out.push(b'\n'),
            "t" => out.push(b'\t'),
            "0" => out.push(0),
            "\\" => out.push(b'\\'),
            "x" => {
                out.push(u8::from_str_radix(&rest[..2], 16).unwrap());
                rest = &rest[2..];
            }
            "{" => {
                let (repetition, after) = rest.split_once('}').unwrap();
                let (unit, count) = repetition.rsplit_once('*').unwrap();
                out.extend_from_slice(unescape(unit).repeat(count.parse().unwrap()).as_slice());
                rest = after;
            }
            _ => panic!("unknown escape \\{code}"),
        }
    }
    out.extend_from_slice(rest.as_bytes());
    out
}
