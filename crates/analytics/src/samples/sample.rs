//! One request in full, without what might be secret.
use crate::record::Record;

/// The most bytes of a sample's texts.
pub const MAX_TEXT_LEN: usize = 384;
/// The longest header value.
const MAX_VALUE_LEN: usize = 64;
/// Headers whose values are kept. Of others only the length is.
const PLAIN_HEADERS: [&str; 12] = [
    "accept",
    "accept-encoding",
    "content-length",
    "content-type",
    "grpc-status",
    "host",
    "origin",
    "retry-after",
    "server",
    "user-agent",
    "via",
    "x-kong-request-id",
];

/// Why a request was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It ended in an error.
    Error,
    /// It was among the slow ones.
    Slow,
    /// It was one in N.
    Chance,
}

impl Reason {
    /// The name in queries and answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Slow => "slow",
            Self::Chance => "chance",
        }
    }
}

/// A request in full: what was counted of it, and texts of bounded length.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// The place in the order of all samples; set when the sample is stored.
    pub number: u64,
    /// When the request ended, in milliseconds since 1970.
    pub at: u64,
    /// Why it was sampled.
    pub reason: Reason,
    /// What was counted.
    pub record: Record,
    texts: Box<str>,
    /// Where the method, the path and the request's id end in the texts.
    ends: [u16; 3],
}

impl Sample {
    /// The request's method.
    pub fn method(&self) -> &str {
        &self.texts[..usize::from(self.ends[0])]
    }

    /// The path, with the length of each query argument in the place of its value.
    pub fn path(&self) -> &str {
        &self.texts[usize::from(self.ends[0])..usize::from(self.ends[1])]
    }

    /// The request's id.
    pub fn request_id(&self) -> &str {
        &self.texts[usize::from(self.ends[1])..usize::from(self.ends[2])]
    }

    /// Headers, as `name: value`. Values that might be secret are their length, such as `<12 bytes>`.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.texts[usize::from(self.ends[2])..].lines();
        lines.filter_map(|line| line.split_once(": "))
    }

    /// The memory of the sample, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Sample>() + self.texts.len()
    }
}

/// Builds a sample. Texts beyond [`MAX_TEXT_LEN`] are left out.
#[derive(Debug)]
pub struct SampleBuilder {
    at: u64,
    reason: Reason,
    record: Record,
    texts: String,
    ends: [u16; 3],
}

impl SampleBuilder {
    /// Begins with the request line and the request's id. Control characters become spaces.
    pub fn new(
        at: u64,
        reason: Reason,
        record: Record,
        method: &str,
        target: &str,
        id: &str,
    ) -> SampleBuilder {
        let mut builder = SampleBuilder { at, reason, record, texts: String::new(), ends: [0; 3] };
        builder.push(method, 16);
        builder.ends[0] = builder.texts.len() as u16;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        builder.push(path, 160);
        builder.push_query(query, 64);
        builder.ends[1] = builder.texts.len() as u16;
        builder.push(id, 40);
        builder.ends[2] = builder.texts.len() as u16;
        builder
    }

    /// Adds a header of the request or the response, if there is room.
    pub fn header(&mut self, name: &str, value: &[u8]) -> &mut SampleBuilder {
        let is_plain = PLAIN_HEADERS.iter().any(|plain| plain.eq_ignore_ascii_case(name));
        let value = match std::str::from_utf8(value) {
            Ok(text) if is_plain => clean(text, MAX_VALUE_LEN),
            _ => length_of(value),
        };
        let line = format!("{}: {value}\n", clean(name, MAX_VALUE_LEN));
        if self.texts.len() + line.len() <= MAX_TEXT_LEN {
            self.texts.push_str(&line);
        }
        self
    }

    /// The sample.
    pub fn build(self) -> Sample {
        Sample {
            number: 0,
            at: self.at,
            reason: self.reason,
            record: self.record,
            texts: self.texts.into_boxed_str(),
            ends: self.ends,
        }
    }

    fn push(&mut self, text: &str, max_len: usize) {
        self.texts.push_str(&clean(text, max_len));
    }

    /// Adds a query with the length of each value. The name of an argument without `=` may be a value, too.
    fn push_query(&mut self, query: &str, max_len: usize) {
        let mut lengths = String::new();
        for (place, argument) in query.split('&').filter(|argument| !argument.is_empty()).enumerate() {
            lengths.push(if place == 0 { '?' } else { '&' });
            match argument.split_once('=') {
                Some((name, value)) => lengths.push_str(&format!("{name}={}", length_of(value.as_bytes()))),
                None => lengths.push_str(&length_of(argument.as_bytes())),
            }
        }
        self.push(&lengths, max_len);
    }
}

fn length_of(value: &[u8]) -> String {
    format!("<{} bytes>", value.len())
}

/// A text without control characters, cut between characters.
fn clean(text: &str, max_len: usize) -> String {
    let cut = &text[..text.floor_char_boundary(max_len)];
    cut.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;

    const SECRET: &str = "canary-7f3a";

    fn sample(target: &str) -> SampleBuilder {
        SampleBuilder::new(0, Reason::Error, record(1), "GET", target, "id-1")
    }

    #[test]
    fn values_that_may_be_secret_are_lengths() {
        let mut builder = sample(&format!("/a/b?token={SECRET}&{SECRET}&empty="));
        builder.header("Authorization", SECRET.as_bytes()).header("X-Other", SECRET.as_bytes());
        builder.header("User-Agent", b"curl\n: evil").header("Host", b"\xff");
        let sample = builder.build();
        assert!(!format!("{sample:?}").contains(SECRET));
        assert_eq!((sample.method(), sample.request_id()), ("GET", "id-1"));
        assert_eq!(sample.path(), "/a/b?token=<11 bytes>&<11 bytes>&empty=<0 bytes>");
        let headers: Vec<_> = sample.headers().collect();
        let expected = [
            ("Authorization", "<11 bytes>"),
            ("X-Other", "<11 bytes>"),
            ("User-Agent", "curl : evil"),
            ("Host", "<1 bytes>"),
        ];
        assert_eq!(headers, expected);
    }

    #[test]
    fn a_sample_is_small() {
        let mut builder = sample(&format!("/{}?{}=x", "é".repeat(3_000), "n".repeat(3_000)));
        for _ in 0..100 {
            builder.header("user-agent", &[b'a'; 3_000]);
        }
        let sample = builder.build();
        assert!(sample.heap_bytes() <= 512, "{} bytes", sample.heap_bytes());
        assert!(sample.headers().count() > 0 && sample.path().len() > 200);
    }
}
