//! What holds for every message, however it arrives.

use proptest::collection::vec;
use proptest::prelude::*;
use weir_http1::{
    BodyDecoder, Framing, Headers, Limits, Method, ParseError, RequestHead, ResponseHead, encode,
};

const NAMES: [&str; 8] = ["Accept", "X-A", "x-b", "Cookie", "cookie", "X-Forwarded-For", "Keep-Alive", "Te"];

fn field() -> impl Strategy<Value = (String, String)> {
    let name = prop_oneof![
        prop::sample::select(&NAMES[..]).prop_map(str::to_owned),
        "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,40}".prop_filter("fields that decide framing", |name| {
            !["host", "connection", "upgrade", "expect", "content-length", "transfer-encoding"]
                .contains(&name.to_ascii_lowercase().as_str())
        }),
    ];
    (name, "([!-~é]([!-~é \t]{0,60}[!-~é])?)?")
}

fn fields() -> impl Strategy<Value = Headers> {
    vec(field(), 0..12).prop_map(|fields| {
        let mut headers = Headers::new();
        fields.iter().for_each(|(name, value)| headers.append(name, value.as_bytes()));
        headers
    })
}

fn chunked(pieces: &[Vec<u8>], trailers: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        encode::chunk_header(&mut out, piece.len());
        out.extend_from_slice(piece);
        out.extend_from_slice(encode::CRLF);
    }
    encode::trailers(&mut out, trailers);
    out
}

fn request(path: &str, fields: &Headers) -> Vec<u8> {
    let mut out = Vec::new();
    encode::request_line(&mut out, "POST", &[b"/", path.as_bytes()]);
    encode::header(&mut out, "Host", "h.test");
    encode::header(&mut out, "Transfer-Encoding", "chunked");
    encode::headers(&mut out, fields);
    encode::end(&mut out);
    out
}

fn shown(headers: &Headers) -> Vec<(Vec<u8>, Vec<u8>)> {
    headers.iter().map(|field| (field.name.to_vec(), field.value.to_vec())).collect()
}

type Outcome = Result<Option<(usize, Vec<(Vec<u8>, Vec<u8>)>, Framing, bool)>, ParseError>;

fn parse_request(head: &mut RequestHead, input: &[u8]) -> Outcome {
    let consumed = head.parse(input, &Limits::default())?;
    Ok(consumed.map(|consumed| (consumed, shown(&head.headers), head.framing, head.keep_alive)))
}

fn parse_response(head: &mut ResponseHead, input: &[u8]) -> Outcome {
    let consumed = head.parse(input, &Limits::default(), Method::Get)?;
    Ok(consumed.map(|consumed| (consumed, shown(&head.headers), head.framing, head.keep_alive)))
}

/// The outcome when `input` arrives up to each of `ends` in turn, then whole.
fn in_parts(input: &[u8], ends: &[usize], mut parse: impl FnMut(&[u8]) -> Outcome) -> Outcome {
    for end in ends {
        let outcome = parse(&input[..*end]);
        if outcome != Ok(None) {
            return outcome;
        }
    }
    parse(input)
}

#[derive(Debug, PartialEq)]
struct Body {
    data: Vec<u8>,
    trailers: Vec<(Vec<u8>, Vec<u8>)>,
    consumed: usize,
    done: bool,
}

fn decode(framing: Framing, input: &[u8], ends: &[usize]) -> Result<Body, ParseError> {
    decode_with(BodyDecoder::new(framing), input, ends)
}

fn decode_with(mut decoder: BodyDecoder, input: &[u8], ends: &[usize]) -> Result<Body, ParseError> {
    let (mut data, mut at) = (Vec::new(), 0);
    for end in ends.iter().copied().chain([input.len()]) {
        while at < end && !decoder.is_done() {
            let arrived = &input[at..end];
            let decoded = decoder.decode(arrived)?;
            assert!(decoded.consumed > 0 && decoded.consumed <= arrived.len(), "{decoded:?}");
            assert!(decoded.data.end <= decoded.consumed, "{decoded:?}");
            assert_eq!(decoded.done, decoder.is_done());
            data.extend_from_slice(&arrived[decoded.data]);
            at += decoded.consumed;
        }
    }
    Ok(Body { data, trailers: shown(decoder.trailers()), consumed: at, done: decoder.is_done() })
}

/// `input` with some bytes replaced by such as decide how messages are read.
fn damaged(mut input: Vec<u8>, damage: &[(prop::sample::Index, u8)]) -> Vec<u8> {
    for (at, byte) in damage {
        let at = at.index(input.len());
        input[at] = *byte;
    }
    input
}

fn damage() -> impl Strategy<Value = Vec<(prop::sample::Index, u8)>> {
    let byte = prop_oneof![prop::sample::select(&b"\r\n\t :;,0\0\x7f\xff#"[..]), any::<u8>()];
    vec((any::<prop::sample::Index>(), byte), 0..3)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_request_survives_encoding_and_any_split(path in "[a-z/?=é%]{0,20}", fields in fields()) {
        let input = request(&path, &fields);
        let mut head = RequestHead::default();
        let whole = parse_request(&mut head, &input);
        prop_assert_eq!(head.target(), format!("/{path}"));
        prop_assert_eq!(head.framing, Framing::Chunked);
        prop_assert_eq!(shown(&head.headers)[2..].to_vec(), shown(&fields));
        prop_assert!(matches!(whole, Ok(Some((consumed, ..))) if consumed == input.len()));
        for end in 0..input.len() {
            prop_assert_eq!(in_parts(&input, &[end], |input| parse_request(&mut head, input)), whole.clone());
        }
    }

    #[test]
    fn a_body_survives_encoding_and_any_split(
        pieces in vec(vec(any::<u8>(), 0..40), 0..5),
        fields in vec(("[a-z]{1,3}-[a-z]{1,9}", "[!-~]{0,9}"), 0..3),
    ) {
        let mut trailers = Headers::new();
        fields.iter().for_each(|(name, value)| trailers.append(name, value.as_bytes()));
        let mut input = chunked(&pieces, &trailers);
        let length = input.len();
        input.extend_from_slice(b"0\r\n\r\nGET / HTTP/1.1\r\n");
        for end in 0..input.len() {
            let body = decode(Framing::Chunked, &input, &[end])?;
            prop_assert_eq!(&body.data, &pieces.concat());
            prop_assert_eq!(body.trailers, shown(&trailers));
            prop_assert_eq!((body.consumed, body.done), (length, true));
        }
    }

    #[test]
    fn a_damaged_head_reads_alike_however_it_is_split(fields in fields(), damage in damage()) {
        let input = damaged(request("a?b", &fields), &damage);
        let ends: Vec<_> = (0..input.len()).collect();
        let mut head = RequestHead::default();
        let whole = parse_request(&mut head, &input);
        prop_assert_eq!(in_parts(&input, &ends, |input| parse_request(&mut head, input)), whole);

        let mut input = damaged(request("", &fields), &damage);
        input.splice(..b"POST / HTTP/1.1".len(), *b"HTTP/1.1 200 OK");
        let mut head = ResponseHead::default();
        let whole = parse_response(&mut head, &input);
        let ends: Vec<_> = (0..input.len()).collect();
        prop_assert_eq!(in_parts(&input, &ends, |input| parse_response(&mut head, input)), whole);
    }

    #[test]
    fn a_damaged_body_reads_alike_however_it_is_split(
        pieces in vec(vec(any::<u8>(), 0..20), 0..5),
        fields in fields(),
        damage in damage(),
    ) {
        let input = damaged(chunked(&pieces, &fields), &damage);
        let every: Vec<_> = (0..input.len()).collect();
        for decoder in [BodyDecoder::new, BodyDecoder::of_response] {
            let decode = |ends: &[usize]| decode_with(decoder(Framing::Chunked), &input, ends);
            prop_assert_eq!(decode(&every), decode(&[]));
        }
    }

    #[test]
    fn an_accepted_head_holds_nothing_that_ends_a_line(fields in fields(), damage in damage()) {
        let input = damaged(request("", &fields), &damage);
        let mut head = RequestHead::default();
        if head.parse(&input, &Limits::default()).is_ok_and(|consumed| consumed.is_some()) {
            for field in head.headers.iter() {
                prop_assert!(!field.name.is_empty());
                prop_assert!(!field.value.iter().any(|byte| byte.is_ascii_control() && *byte != b'\t'));
            }
        }
    }

    #[test]
    fn what_is_accepted_reads_the_same_when_sent_on(fields in fields(), damage in damage()) {
        let mut head = RequestHead::default();
        let first = parse_request(&mut head, &damaged(request("", &fields), &damage));
        if let Ok(Some((_, fields, framing, keep_alive))) = first {
            let mut out = Vec::new();
            encode::request_line(&mut out, head.method_str(), &[head.target().as_bytes()]);
            encode::headers(&mut out, &head.headers);
            encode::end(&mut out);
            let mut again = RequestHead::default();
            prop_assert_eq!(parse_request(&mut again, &out), Ok(Some((out.len(), fields, framing, keep_alive))));
        }
    }

    #[test]
    fn sized_bodies_take_exactly_their_length(input in vec(any::<u8>(), 0..50), length in 0u64..60, end in 0usize..50) {
        let body = decode(Framing::Length(length), &input, &[end.min(input.len())])?;
        let expected = input.len().min(usize::try_from(length)?);
        prop_assert_eq!(&body.data, &input[..expected]);
        prop_assert_eq!(body.done, expected as u64 == length);
    }

    #[test]
    fn arbitrary_bytes_harm_no_one(input in vec(any::<u8>(), 0..200)) {
        let _ = RequestHead::default().parse(&input, &Limits::default());
        let _ = ResponseHead::default().parse(&input, &Limits::default(), Method::Get);
        let _ = decode(Framing::Chunked, &input, &[]);
    }

    #[test]
    fn headers_do_as_a_plain_list_would(
        parsed in vec(field(), 0..6),
        changes in vec((0u8..4, 0usize..8, vec(any::<u8>(), 0..6)), 0..12),
    ) {
        let mut head = RequestHead::default();
        let mut input = b"GET / HTTP/1.0\r\n".to_vec();
        parsed.iter().for_each(|(name, value)| encode::header(&mut input, name, value));
        encode::end(&mut input);
        prop_assert!(head.parse(&input, &Limits::default())?.is_some());
        let headers = &mut head.headers;
        let mut model = Model(shown(headers));
        for (change, name, value) in changes {
            let name = NAMES[name];
            match change {
                0 => (headers.append(name, &value), model.append(name, &value)).1,
                1 => (headers.set(name, &value), model.set(name, &value)).1,
                _ => prop_assert_eq!(headers.remove(name), model.remove(name)),
            }
        }
        prop_assert_eq!(shown(headers), model.0.clone());
        prop_assert_eq!(headers.len(), model.0.len());
        for name in NAMES {
            let values: Vec<_> = headers.get_all(name).map(<[u8]>::to_vec).collect();
            prop_assert_eq!(headers.get(name), values.first().map(Vec::as_slice));
            prop_assert_eq!(values, model.values(name));
        }
        let mut written = Vec::new();
        encode::headers(&mut written, headers);
        prop_assert_eq!(String::from_utf8_lossy(&written).into_owned(), model.written());
    }
}

/// The obvious implementation of [`Headers`].
struct Model(Vec<(Vec<u8>, Vec<u8>)>);

impl Model {
    fn append(&mut self, name: &str, value: &[u8]) {
        self.0.push((name.as_bytes().to_vec(), Self::harmless(value)));
    }

    fn set(&mut self, name: &str, value: &[u8]) {
        let Some(first) = self.0.iter().position(|field| field.0.eq_ignore_ascii_case(name.as_bytes()))
        else {
            return self.append(name, value);
        };
        let sent_name = self.0[first].0.clone();
        self.remove(name);
        self.0.insert(first, (sent_name, Self::harmless(value)));
    }

    fn remove(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|field| !field.0.eq_ignore_ascii_case(name.as_bytes()));
        self.0.len() < before
    }

    fn values(&self, name: &str) -> Vec<Vec<u8>> {
        let same = |field: &&(Vec<u8>, Vec<u8>)| field.0.eq_ignore_ascii_case(name.as_bytes());
        self.0.iter().filter(same).map(|field| field.1.clone()).collect()
    }

    fn written(&self) -> String {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        self.0.iter().map(|(name, value)| format!("{}: {}\r\n", text(name), text(value))).collect()
    }

    fn harmless(value: &[u8]) -> Vec<u8> {
        value.iter().map(|byte| if matches!(byte, b'\r' | b'\n' | 0) { b' ' } else { *byte }).collect()
    }
}
