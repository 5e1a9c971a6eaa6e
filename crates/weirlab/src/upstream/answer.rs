//! What is answered: heads and bodies made once, at the start; only templates are filled for each request.
use super::frame;
use std::fmt::Write;
use weir_http1::{Headers, RequestHead, encode};

/// The bytes of one chunk of a chunked body.
const CHUNK_BYTES: usize = 16 * 1024;

/// Every answer that there can be.
#[derive(Clone, Debug)]
pub struct Answers {
    mix: Vec<Heads>,
    weights: u32,
    body: Body,
    /// The message of calls of gRPC, if that is what HTTP/2 carries.
    message: Option<Vec<u8>>,
}

/// What an answer is made of in HTTP/2.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts<'a> {
    pub(super) head: &'a [u8],
    pub(super) body: &'a [u8],
    pub(super) trailers: Option<&'a [u8]>,
}

/// The heads of one status, without their Content-Length where the body is a template.
#[derive(Clone, Debug)]
struct Heads {
    weight: u32,
    has_body: bool,
    by_ending: [Vec<u8>; 3],
    /// In HTTP/2, and of a call.
    http2: Vec<u8>,
    grpc: Vec<u8>,
}

/// Whether the connection is kept after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It carries the next.
    Keep,
    /// It closes, as one of the two sides wanted.
    Close,
    /// It closes, as HTTP/1.0 does; there are no chunks either.
    Http10,
}

#[derive(Clone, Debug)]
enum Body {
    /// The bytes as they are, and as they are sent to HTTP/1.1.
    Fixed { plain: Vec<u8>, framed: Option<Chunks> },
    /// Text with places to fill.
    Template(String),
}

/// A body in chunks.
#[derive(Clone, Debug)]
struct Chunks {
    bytes: Vec<u8>,
    /// Where each ends; the last of them with the body.
    ends: Vec<usize>,
}

/// An answer chosen for a request.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    status: usize,
    ending: Ending,
    to_head: bool,
}

impl Choice {
    /// Whether the connection is kept.
    pub fn ending(self) -> Ending {
        self.ending
    }
}

impl Answers {
    /// Answers of a mix of statuses (`200` or `200:95,503:5`), with these fields and this body.
    ///
    /// # Errors
    /// What of that is not well written, and how it would be.
    pub fn new(mix: &str, fields: &[String], body: Vec<u8>, chunked: bool) -> Result<Self, String> {
        let body = Body::new(body, chunked);
        if chunked && matches!(body, Body::Template(_)) {
            return Err("a body with {places} is sent with its length: leave out --chunked".to_owned());
        }
        let fields = parse_fields(fields)?;
        let mix = parse_mix(mix)?
            .into_iter()
            .map(|(status, weight)| Heads::new(status, weight, &fields, &body))
            .collect::<Vec<_>>();
        let weights = mix.iter().map(|heads| heads.weight).sum();
        Ok(Self { mix, weights, body, message: None })
    }

    /// The same, where whatever comes over HTTP/2 is a call of gRPC.
    #[must_use]
    pub fn to_calls(mut self) -> Self {
        let body = self.body.plain();
        let length = (body.len() as u32).to_be_bytes();
        self.message = Some([&[0], &length[..], body].concat());
        self
    }

    /// The same, where each event of a chunked body is a chunk of its own. An event ends with an empty line.
    #[must_use]
    pub fn in_events(mut self) -> Self {
        if let Body::Fixed { plain, framed: Some(framed) } = &mut self.body {
            *framed = Chunks::new(events(plain));
        }
        self
    }

    /// The parts of an answer in HTTP/2. Templates are not filled there.
    pub(super) fn parts(&self, choice: Choice) -> Parts<'_> {
        let heads = &self.mix[choice.status];
        match &self.message {
            Some(message) => Parts { head: &heads.grpc, body: message, trailers: Some(GRPC_STATUS_OK) },
            None if heads.has_body => Parts { head: &heads.http2, body: self.body.plain(), trailers: None },
            None => Parts { head: &heads.http2, body: &[], trailers: None },
        }
    }

    /// Chooses the answer to a request.
    pub fn choose(&self, ending: Ending, to_head: bool, random: &mut fastrand::Rng) -> Choice {
        let mut status = 0;
        if self.mix.len() > 1 {
            let mut drawn = random.u32(0..self.weights);
            while drawn >= self.mix[status].weight {
                drawn -= self.mix[status].weight;
                status += 1;
            }
        }
        Choice { status, ending, to_head }
    }

    /// Whether the body differs from request to request.
    pub fn is_template(&self) -> bool {
        matches!(self.body, Body::Template(_))
    }

    /// Appends the head of a fixed response and returns its body.
    pub fn write_head<'a>(&'a self, choice: Choice, out: &mut Vec<u8>) -> &'a [u8] {
        let heads = &self.mix[choice.status];
        out.extend_from_slice(&heads.by_ending[choice.ending as usize]);
        if choice.to_head || !heads.has_body { &[] } else { self.body(choice.ending) }
    }

    /// The body of fixed answers.
    pub fn body(&self, ending: Ending) -> &[u8] {
        match &self.body {
            Body::Fixed { framed: Some(framed), .. } if ending != Ending::Http10 => &framed.bytes,
            Body::Fixed { plain, .. } => plain,
            Body::Template(_) => &[],
        }
    }

    /// A chunk of the body of fixed answers, as it is sent, and whether another follows. A body without chunks is its first.
    pub fn chunk(&self, ending: Ending, number: usize) -> (&[u8], bool) {
        let Body::Fixed { framed: Some(framed), .. } = &self.body else { return (self.body(ending), false) };
        if ending == Ending::Http10 {
            return (self.body(ending), false);
        }
        let end = |number: usize| framed.ends.get(number).copied().unwrap_or(framed.bytes.len());
        let begin = number.checked_sub(1).map_or(0, end);
        (&framed.bytes[begin..end(number)], number + 1 < framed.ends.len())
    }

    /// Appends the whole answer of a template to this request, the n-th.
    pub fn fill(&self, choice: Choice, request: &RequestHead, number: u64, out: &mut Vec<u8>) {
        let Body::Template(template) = &self.body else { return };
        let heads = &self.mix[choice.status];
        out.extend_from_slice(&heads.by_ending[choice.ending as usize]);
        if heads.has_body {
            let body = filled(template, request, number);
            encode::content_length(out, body.len() as u64);
            encode::end(out);
            out.extend_from_slice(if choice.to_head { b"" } else { &body });
        }
    }
}

impl Body {
    fn new(bytes: Vec<u8>, chunked: bool) -> Self {
        match String::from_utf8(bytes) {
            Ok(text) if places(&text).any(|(_, place)| place.is_some()) => Self::Template(text),
            Ok(text) => Self::fixed(text.into_bytes(), chunked),
            Err(error) => Self::fixed(error.into_bytes(), chunked),
        }
    }

    fn plain(&self) -> &[u8] {
        match self {
            Self::Fixed { plain, .. } => plain,
            Self::Template(text) => text.as_bytes(),
        }
    }

    fn fixed(plain: Vec<u8>, chunked: bool) -> Self {
        let framed = chunked.then(|| Chunks::new(plain.chunks(CHUNK_BYTES)));
        Self::Fixed { plain, framed }
    }
}

impl Chunks {
    fn new<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut bytes, mut ends) = (Vec::new(), Vec::new());
        for piece in pieces {
            encode::chunk_header(&mut bytes, piece.len());
            bytes.extend_from_slice(piece);
            bytes.extend_from_slice(encode::CRLF);
            ends.push(bytes.len());
        }
        bytes.extend_from_slice(encode::LAST_CHUNK);
        ends.pop();
        ends.push(bytes.len());
        Self { bytes, ends }
    }
}

/// The parts of a stream of events, each with the empty line that ends it.
fn events(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = body;
    std::iter::from_fn(move || {
        let end = rest.windows(2).position(|pair| pair == b"\n\n").map_or(rest.len(), |at| at + 2);
        let (event, after) = rest.split_at(end);
        rest = after;
        (!event.is_empty()).then_some(event)
    })
}

impl Heads {
    fn new(status: u16, weight: u32, fields: &Headers, body: &Body) -> Self {
        let has_body = status != 204 && status != 304;
        let by_ending = [Ending::Keep, Ending::Close, Ending::Http10].map(|ending| {
            let mut head = Vec::new();
            encode::status_line(&mut head, status);
            encode::headers(&mut head, fields);
            if ending != Ending::Keep {
                encode::header(&mut head, "Connection", "close");
            }
            match body {
                Body::Template(_) if has_body => return head,
                Body::Fixed { framed: Some(_), .. } if has_body && ending != Ending::Http10 => {
                    encode::header(&mut head, "Transfer-Encoding", "chunked");
                }
                Body::Fixed { plain, .. } if has_body => {
                    encode::content_length(&mut head, plain.len() as u64)
                }
                _ => {}
            }
            encode::end(&mut head);
            head
        });
        let (mut http2, mut grpc) = (Vec::new(), Vec::new());
        frame::write_status(&mut http2, status);
        frame::write_status(&mut grpc, 200);
        frame::write_field(&mut grpc, b"content-type", b"application/grpc");
        for field in fields.iter() {
            frame::write_field(&mut http2, field.name, field.value);
            if !field.name.eq_ignore_ascii_case(b"content-type") {
                frame::write_field(&mut grpc, field.name, field.value);
            }
        }
        if has_body {
            frame::write_field(&mut http2, b"content-length", body.plain().len().to_string().as_bytes());
        }
        Self { weight, has_body, by_ending, http2, grpc }
    }
}

/// The trailers of a call that went well.
const GRPC_STATUS_OK: &[u8] = b"\x00\x0bgrpc-status\x010";

fn parse_fields(fields: &[String]) -> Result<Headers, String> {
    let mut headers = Headers::new();
    for field in fields {
        let (name, value) =
            field.split_once(':').ok_or_else(|| format!("`{field}` is no field; write `Name: value`"))?;
        let count = headers.len();
        headers.append(name, value.trim().as_bytes());
        if headers.len() == count {
            return Err(format!("`{name}` cannot be the name of a field"));
        }
    }
    if headers.get("content-type").is_none() {
        headers.append("Content-Type", b"text/plain");
    }
    Ok(headers)
}

fn parse_mix(mix: &str) -> Result<Vec<(u16, u32)>, String> {
    let wrong = || format!("`{mix}` is no mix of statuses; write `200` or such as `200:95,503:5`");
    let parts = mix.split(',').map(|part| {
        let (status, weight) = part.split_once(':').unwrap_or((part, "1"));
        let status = status.parse().ok().filter(|status| (200..1000).contains(status)).ok_or_else(wrong)?;
        let weight =
            weight.parse().ok().filter(|weight| (1..=1_000_000).contains(weight)).ok_or_else(wrong)?;
        Ok((status, weight))
    });
    parts.collect()
}

/// The literal parts of a template, each with the place that follows it.
fn places(template: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let mut rest = Some(template);
    std::iter::from_fn(move || {
        let text = rest.take()?;
        let mut from = 0;
        while let Some(open) = text[from..].find('{').map(|at| from + at) {
            let place = text[open + 1..].find('}').map(|length| &text[open + 1..open + 1 + length]);
            match place.filter(|place| is_place(place)) {
                Some(place) => {
                    rest = Some(&text[open + place.len() + 2..]);
                    return Some((&text[..open], Some(place)));
                }
                None => from = open + 1,
            }
        }
        Some((text, None))
    })
}

fn is_place(place: &str) -> bool {
    matches!(place, "method" | "path" | "n" | "headers") || place.starts_with("header:")
}

fn filled(template: &str, request: &RequestHead, number: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for (literal, place) in places(template) {
        out.extend_from_slice(literal.as_bytes());
        match place {
            Some("method") => out.extend_from_slice(request.method_str().as_bytes()),
            Some("path") => out.extend_from_slice(request.path().as_bytes()),
            Some("headers") => encode::headers(&mut out, &request.headers),
            Some("n") => {
                let mut digits = String::new();
                // Writing to a String cannot fail.
                let _ = write!(digits, "{number}");
                out.extend_from_slice(digits.as_bytes());
            }
            Some(place) => {
                let name = place.trim_start_matches("header:");
                out.extend_from_slice(request.headers.get(name).unwrap_or_default());
            }
            None => {}
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_cut_at_known_places_only() {
        let cut: Vec<_> = places(r#"{"p":"{path}","h":"{header:x-a}"} {nope}"#).collect();
        let expected =
            [(r#"{"p":""#, Some("path")), (r#"","h":""#, Some("header:x-a")), (r#""} {nope}"#, None)];
        assert_eq!(cut, expected);
    }

    #[test]
    fn a_chunk_is_an_event() {
        let chunks = |body: &str, ending: Ending| {
            let answers = Answers::new("200", &[], body.as_bytes().to_vec(), true).unwrap().in_events();
            let (mut chunks, mut goes_on) = (Vec::new(), true);
            while goes_on {
                let (chunk, another) = answers.chunk(ending, chunks.len());
                chunks.push(String::from_utf8(chunk.to_vec()).unwrap());
                goes_on = another;
            }
            assert_eq!(chunks.concat().as_bytes(), answers.body(ending));
            chunks
        };
        let body = "data: a\n\ndata: b\nid: 1\n\nrest";
        let expected = ["9\r\ndata: a\n\n\r\n", "f\r\ndata: b\nid: 1\n\n\r\n", "4\r\nrest\r\n0\r\n\r\n"];
        assert_eq!(chunks(body, Ending::Keep), expected);
        assert_eq!(chunks(body, Ending::Http10), [body]);
        assert_eq!(chunks("", Ending::Keep), ["0\r\n\r\n"]);
    }

    #[test]
    fn a_mix_is_drawn_by_weight() {
        let answers = Answers::new("200:3,503:1", &[], b"x".to_vec(), false).unwrap();
        let mut random = fastrand::Rng::with_seed(7);
        let count =
            (0..10_000).filter(|_| answers.choose(Ending::Keep, false, &mut random).status == 1).count();
        assert!((2_300..2_700).contains(&count), "{count}");
    }

    #[test]
    fn what_is_not_well_written_is_refused() {
        for mix in ["", "abc", "99", "200:0", "200;503", "1000"] {
            assert!(Answers::new(mix, &[], Vec::new(), false).is_err(), "{mix}");
        }
        for field in ["no colon", "bad name: x", ": x"] {
            assert!(Answers::new("200", &[field.to_owned()], Vec::new(), false).is_err(), "{field}");
        }
    }
}
