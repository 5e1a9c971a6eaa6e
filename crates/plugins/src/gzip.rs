//! Compresses responses with gzip while they stream. Like APISIX's plugin of this name, and nginx's `gzip`.
//!
//! ```yaml
//! plugins:
//!   - name: gzip
//!     config:
//!       types: [text/html, application/json]
//!       comp_level: 4
//!       vary: true
//! ```
//!
//! A response is compressed if the client accepts gzip, its status is 200, 403 or 404, its media type is one of `types`, it
//! is not encoded yet, and it has no `Content-Length` below `min_length`. Each piece of the body is sent on as it comes.
//! A strong `ETag` becomes a weak one, and `Accept-Ranges` is removed.

use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;
use weir_plugin::{
    BodyFilter, BuildContext, Exchange, FieldError, Headers, Hooks, Json, Known, Method, Phases, Plugin,
    Record, Version,
};

/// Which responses are compressed.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// A list of media types, or `*` for all.
    #[field(default = ["text/html"])]
    pub types: Json,
    /// The least length of a body whose length is known.
    #[field(default = 20, between = [1, 2147483646])]
    pub min_length: u32,
    /// How much time is spent on compression: 1 for the least, 9 for the most.
    #[field(default = 1, between = [1, 9])]
    pub comp_level: u32,
    /// The least version of HTTP of a request: 1.1 or 1.0.
    #[field(default = 1.1)]
    pub http_version: f64,
    /// Has no effect, because the buffers are Weir's.
    #[field(default = {})]
    pub buffers: Buffers,
    /// Adds `Vary: Accept-Encoding`.
    pub vary: Option<bool>,
}

/// The buffers of nginx.
#[derive(Debug, Clone, Record)]
pub(super) struct Buffers {
    /// How many there are.
    #[field(default = 32, between = [1, 2147483646])]
    pub number: u32,
    /// The bytes of each.
    #[field(default = 4096, between = [1, 2147483646])]
    pub size: u32,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let mut found = Vec::new();
    let is_list = |list: &Vec<Json>| !list.is_empty() && list.iter().all(Json::is_string);
    if config.types != "*" && !config.types.as_array().is_some_and(is_list) {
        found.push(FieldError::new("types", "expected a list of media types, or \"*\""));
    }
    if ![1.0, 1.1].contains(&config.http_version) {
        found.push(FieldError::new("http_version", "expected 1.1 or 1.0"));
    }
    found
}

/// One configured instance.
pub(super) struct Gzip {
    /// None for all.
    types: Option<Vec<String>>,
    config: Config,
}

impl Plugin for Gzip {
    const NAME: &'static str = "gzip";
    const PRIORITY: i32 = 895;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let types = config
            .types
            .as_array()
            .map(|types| types.iter().filter_map(Json::as_str).map(str::to_owned).collect());
        Ok(Self { types, config })
    }
}

impl Hooks for Gzip {
    fn phases(&self) -> Phases {
        Phases::RESPONSE
    }

    fn response(&self, exchange: &mut Exchange) {
        if !self.compresses(exchange) {
            return;
        }
        let headers = &mut exchange.response.headers;
        if self.config.vary == Some(true) {
            headers.append("Vary", b"Accept-Encoding");
        }
        if let Some(strong) = headers.get("ETag").filter(|tag| tag.starts_with(b"\"")).map(<[u8]>::to_vec) {
            headers.set("ETag", &[b"W/", strong.as_slice()].concat());
        }
        headers.remove("Accept-Ranges");
        headers.set("Content-Encoding", b"gzip");
        let level = Compression::new(self.config.comp_level);
        exchange.filter_response_body(Compressor(GzEncoder::new(Vec::new(), level)));
    }
}

impl Gzip {
    fn compresses(&self, exchange: &Exchange) -> bool {
        let headers = &exchange.response.headers;
        let is_recent = exchange.request.version != Version::Http10 || self.config.http_version <= 1.0;
        let length = headers.get_known(Known::ContentLength);
        let length = length.and_then(|text| std::str::from_utf8(text).ok()?.parse::<u64>().ok());
        is_recent
            && matches!(exchange.response.status, 200 | 403 | 404)
            && exchange.request.method != Method::Head
            && !headers.contains_known(Known::ContentEncoding)
            && length.is_none_or(|length| length >= self.config.min_length.into())
            && self.has_type(headers)
            && accepts_gzip(&exchange.request.headers)
    }

    fn has_type(&self, headers: &Headers) -> bool {
        let Some(content_type) = headers.get_known(Known::ContentType) else { return false };
        let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let is = |named: &String| media_type.eq_ignore_ascii_case(named.as_bytes());
        self.types.as_ref().is_none_or(|types| types.iter().any(is))
    }
}

/// Whether one of the codings in `Accept-Encoding` is gzip, and not of quality 0.
fn accepts_gzip(headers: &Headers) -> bool {
    let listed = headers.get_all("Accept-Encoding").flat_map(|value| value.split(|byte| *byte == b','));
    listed.into_iter().any(|coding| {
        let mut parts = coding.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let is_gzip = parts.next().is_some_and(|name| name.eq_ignore_ascii_case(b"gzip"));
        let quality =
            parts.find_map(|part| std::str::from_utf8(part.strip_prefix(b"q=")?).ok()?.parse().ok());
        is_gzip && quality.is_none_or(|quality: f64| quality > 0.0)
    })
}

/// Compresses a body. Writing into memory does not fail.
struct Compressor(GzEncoder<Vec<u8>>);

impl BodyFilter for Compressor {
    fn chunk(&mut self, _: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        let _ = self.0.write_all(&chunk).and_then(|()| self.0.flush());
        std::mem::take(self.0.get_mut())
    }

    fn end(self: Box<Self>, _: &mut Exchange) -> Vec<u8> {
        self.0.finish().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use weir_plugin::testing::Gateway;

    #[test]
    fn a_body_is_compressed_piece_by_piece() {
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        let mut filter = Box::new(Compressor(GzEncoder::new(Vec::new(), Compression::new(1))));
        let mut sent = filter.chunk(&mut exchange, b"hello, ".repeat(100));
        let mut first = vec![0; 700];
        flate2::read::GzDecoder::new(&*sent).read_exact(&mut first).unwrap();
        assert_eq!(first, b"hello, ".repeat(100), "what has come is sent at once");
        sent.extend(filter.chunk(&mut exchange, b"world".to_vec()));
        sent.extend(filter.end(&mut exchange));
        let mut text = String::new();
        flate2::read::GzDecoder::new(&*sent).read_to_string(&mut text).unwrap();
        assert!(text.ends_with("hello, world") && sent.len() < 200, "{}", sent.len());
    }

    #[test]
    fn a_client_accepts_gzip_if_it_says_so() {
        for (accepted, expected) in [
            ("gzip", true),
            ("br, GZIP;q=0.5", true),
            ("gzip;q=0", false),
            ("gzip; q=0.0", false),
            ("br", false),
            ("xgzip", false),
        ] {
            let exchange = Gateway::new(&[]).exchange(&format!("GET /\nAccept-Encoding: {accepted}"));
            assert_eq!(accepts_gzip(&exchange.request.headers), expected, "{accepted}");
        }
    }
}
