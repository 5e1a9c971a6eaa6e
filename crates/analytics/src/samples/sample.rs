//! One request in full, without what might be secret.
use super::excerpt::{MAX_QUERY_LEN, clean, cut, length_of, masked};
use crate::record::Record;
use std::net::{IpAddr, SocketAddr};

/// The most bytes of a sample's texts.
const MAX_TEXT_LEN: usize = 1_024;
/// The longest value of a header.
const MAX_VALUE_LEN: usize = 96;
/// The longest path.
const MAX_PATH_LEN: usize = 160;
/// Headers whose values are never kept, whatever the list of those that are.
const SECRET_HEADERS: [&str; 7] =
    ["apikey", "authorization", "cookie", "proxy-authorization", "set-cookie", "x-api-key", "x-auth-token"];

/// Why a request was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// It ended in an error.
    Error,
    /// It was among the slowest of its route.
    Slow,
    /// It was one of the others.
    Chance,
}

impl Reason {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Slow => "slow",
            Self::Chance => "chance",
        }
    }
}

/// Where the time of a request went, in microseconds. The parts add up to the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Phases {
    /// Until the upstream was asked; until the response was made if none was.
    pub gateway: u64,
    /// For new connections to upstreams: names, TCP, TLS.
    pub connect: u64,
    /// Until the head of the upstream's response had arrived.
    pub wait: u64,
    /// Until the last byte was sent.
    pub body: u64,
}

impl Phases {
    /// The whole time.
    pub fn total(self) -> u64 {
        self.gateway + self.connect + self.wait + self.body
    }
}

/// An attempt that got no response from an upstream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Failure {
    /// The address, if there was one.
    pub address: Option<SocketAddr>,
    /// 504 if it took too long, else 502.
    pub code: u16,
    /// How long it took, in microseconds.
    pub micros: u64,
}

/// What the hooks of a plugin took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hook {
    /// The plugin.
    pub plugin: &'static str,
    /// The time that they ran.
    pub ran: u64,
    /// The time that they waited for others.
    pub waited: u64,
}

/// The texts of a request as the worker has them. A sample keeps the beginning of each, with `…` where it was cut, and of
/// the values in the query only their lengths.
#[derive(Debug, Clone, Copy, Default)]
pub struct RequestTexts<'a> {
    /// The method.
    pub method: &'a str,
    /// The authority that was asked for.
    pub host: &'a str,
    /// The path as sent.
    pub path: &'a str,
    /// The query as sent.
    pub query: &'a str,
    /// The request's id.
    pub id: &'a str,
    /// The id of its trace.
    pub trace_id: &'a str,
    /// The names of the route, the service and the consumer.
    pub names: [&'a str; 3],
}

/// Whose header it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The request's.
    Request,
    /// The response's.
    Response,
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
    /// The address of the client.
    pub client: IpAddr,
    /// Whether the client came over TLS.
    pub is_tls: bool,
    /// Where the time went.
    pub phases: Phases,
    /// The attempts that failed.
    pub failures: Box<[Failure]>,
    /// The plugins that ran, if they were measured.
    pub hooks: Box<[Hook]>,
    texts: Box<str>,
    /// Where each of the texts ends, in the order of the accessors; headers follow.
    ends: [u16; 8],
}

impl Sample {
    fn text(&self, place: usize) -> &str {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.texts[usize::from(start)..usize::from(self.ends[place])]
    }

    /// The request's method.
    pub fn method(&self) -> &str {
        self.text(0)
    }

    /// The authority that was asked for.
    pub fn host(&self) -> &str {
        self.text(1)
    }

    /// The path, with the length of each query argument in the place of its value.
    pub fn path(&self) -> &str {
        self.text(2)
    }

    /// The request's id.
    pub fn request_id(&self) -> &str {
        self.text(3)
    }

    /// The id of its trace; empty without a trace.
    pub fn trace_id(&self) -> &str {
        self.text(4)
    }

    /// The names that the route, the service and the consumer had; empty without a name.
    pub fn names(&self) -> [&str; 3] {
        [self.text(5), self.text(6), self.text(7)]
    }

    /// Names and values of headers. Values that might be secret are their length, such as `<12 bytes>`.
    pub fn headers(&self, side: Side) -> impl Iterator<Item = (&str, &str)> {
        let lines = self.texts[usize::from(self.ends[7])..].lines();
        lines.filter_map(move |line| line.strip_prefix(mark(side))?.split_once(": "))
    }

    /// The value of a header of the request.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers(Side::Request)
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// When the request began, in milliseconds since 1970.
    pub fn began(&self) -> u64 {
        self.at.saturating_sub(self.phases.total() / 1_000)
    }

    /// The memory of the sample, in bytes.
    pub(crate) fn heap_bytes(&self) -> usize {
        size_of::<Sample>() + self.texts.len() + size_of_val(&*self.failures) + size_of_val(&*self.hooks)
    }
}

fn mark(side: Side) -> char {
    match side {
        Side::Request => '>',
        Side::Response => '<',
    }
}

/// Builds a sample.
#[derive(Debug)]
pub struct SampleBuilder {
    sample: Sample,
    texts: String,
}

impl SampleBuilder {
    /// Begins with what every request has. Control characters in texts become spaces.
    pub fn new(at: u64, reason: Reason, record: Record, client: IpAddr, texts: &RequestTexts<'_>) -> Self {
        let sample = Sample {
            number: 0,
            at,
            reason,
            record,
            client,
            is_tls: false,
            phases: Phases::default(),
            failures: Box::default(),
            hooks: Box::default(),
            texts: Box::default(),
            ends: [0; 8],
        };
        let mut builder = SampleBuilder { sample, texts: String::new() };
        let query = masked(texts.query);
        let [route, service, consumer] = texts.names;
        let path = format!("{}{}", cut(texts.path, MAX_PATH_LEN), cut(&query, MAX_QUERY_LEN));
        let places = [
            (texts.method, 16),
            (texts.host, 64),
            (&path, MAX_PATH_LEN + MAX_QUERY_LEN),
            (texts.id, 40),
            (texts.trace_id, 32),
            (route, 64),
            (service, 64),
            (consumer, 64),
        ];
        for (place, (text, max_len)) in places.into_iter().enumerate() {
            builder.texts.push_str(&clean(text, max_len));
            builder.sample.ends[place] = builder.texts.len() as u16;
        }
        builder
    }

    /// Sets where the time went.
    pub fn phases(mut self, phases: Phases) -> Self {
        self.sample.phases = phases;
        self
    }

    /// Sets whether the client came over TLS.
    pub fn tls(mut self, is_tls: bool) -> Self {
        self.sample.is_tls = is_tls;
        self
    }

    /// Adds what happened on the way: the attempts that failed, and the plugins that were measured.
    pub fn steps(mut self, failures: Box<[Failure]>, hooks: Box<[Hook]>) -> Self {
        (self.sample.failures, self.sample.hooks) = (failures, hooks);
        self
    }

    /// Adds a header, and says whether there was room. Its value is kept if the name is in `plain`, which has small
    /// letters.
    pub fn header(&mut self, side: Side, name: &str, value: &[u8], plain: &[String]) -> bool {
        let is_plain = plain.iter().any(|plain| plain.eq_ignore_ascii_case(name))
            && !SECRET_HEADERS.iter().any(|secret| secret.eq_ignore_ascii_case(name));
        let text = if is_plain { std::str::from_utf8(value).ok() } else { None };
        let value = text.map_or_else(|| length_of(value), |text| clean(text, MAX_VALUE_LEN));
        let line = format!("{}{}: {value}\n", mark(side), clean(name, MAX_VALUE_LEN));
        let has_room = self.texts.len() + line.len() <= MAX_TEXT_LEN;
        if has_room {
            self.texts.push_str(&line);
        }
        has_room
    }

    /// The sample.
    pub fn build(self) -> Sample {
        Sample { texts: self.texts.into_boxed_str(), ..self.sample }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{LOCALHOST, record};

    const SECRET: &str = "canary-7f3a";

    fn sample(texts: &RequestTexts<'_>) -> SampleBuilder {
        SampleBuilder::new(2_500, Reason::Error, record(1), LOCALHOST, texts)
    }

    fn plain(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn values_that_may_be_secret_are_lengths() {
        let query = format!("token={SECRET}&{SECRET}&&{SECRET}==&{SECRET}=&{SECRET}{SECRET}{SECRET}=a&z=%3D");
        let texts =
            RequestTexts { method: "GET", path: "/a/b", query: &query, id: "id-1", ..Default::default() };
        let mut builder = sample(&texts);
        let plain = plain(&["user-agent", "host", "authorization", "set-cookie"]);
        let secret = SECRET.as_bytes();
        for (side, name, value) in [
            (Side::Request, "Authorization", secret),
            (Side::Request, "X-Other", secret),
            (Side::Request, "User-Agent", b"curl\n: evil"),
            (Side::Request, "Host", b"\xff"),
            (Side::Response, "Set-Cookie", secret),
        ] {
            builder.header(side, name, value, &plain);
        }
        let sample = builder.build();
        assert!(!format!("{sample:?}").contains(SECRET));
        assert_eq!((sample.method(), sample.request_id()), ("GET", "id-1"));
        assert_eq!(
            sample.path(),
            "/a/b?token=<11 bytes>&<11 bytes>&<13 bytes>&<12 bytes>&<33 bytes>=<1 bytes>&z=<3 bytes>"
        );
        let expected = [
            ("Authorization", "<11 bytes>"),
            ("X-Other", "<11 bytes>"),
            ("User-Agent", "curl : evil"),
            ("Host", "<1 bytes>"),
        ];
        assert_eq!(sample.headers(Side::Request).collect::<Vec<_>>(), expected);
        assert_eq!(sample.headers(Side::Response).collect::<Vec<_>>(), [("Set-Cookie", "<11 bytes>")]);
        assert_eq!(sample.header("user-agent"), Some("curl : evil"));
    }

    #[test]
    fn a_sample_has_names_and_times() {
        let texts =
            RequestTexts { host: "a.test", trace_id: "t", names: ["r", "", "c"], ..Default::default() };
        let phases = Phases { gateway: 200_000, connect: 100_000, wait: 150_000, body: 50_000 };
        let sample = sample(&texts).phases(phases).build();
        assert_eq!((sample.host(), sample.trace_id(), sample.names()), ("a.test", "t", ["r", "", "c"]));
        assert_eq!((sample.began(), sample.headers(Side::Request).count()), (2_000, 0));
    }

    #[test]
    fn a_sample_is_small() {
        let long = "é".repeat(3_000);
        let query = "n=x&".repeat(3_000);
        let names = [long.as_str(); 3];
        let texts = RequestTexts { host: &long, path: &long, query: &query, names, ..Default::default() };
        let mut builder = sample(&texts);
        let plain = plain(&["user-agent"]);
        let kept =
            (0..100).take_while(|_| builder.header(Side::Request, "user-agent", &[b'a'; 3_000], &plain));
        let kept = kept.count();
        let sample = builder.build();
        assert!(sample.heap_bytes() <= 1_280, "{} bytes", sample.heap_bytes());
        assert!(kept > 0 && sample.headers(Side::Request).count() == kept);
        let (path, query) = sample.path().split_once('?').unwrap();
        assert!(path.ends_with("é…") && query.ends_with('…') && sample.path().len() > 200, "{path} {query}");
        assert!(sample.header("user-agent").is_some_and(|agent| agent.ends_with("a…")));
    }
}
