//! Refuses requests whose bodies are too large.
//!
//! ```yaml
//! plugins:
//!   - name: request-size-limiting
//!     config:
//!       allowed_payload_size: 8
//!       size_unit: megabytes
//! ```
//!
//! If the request declares its length, a body that is too large is refused before any of it is read. Otherwise the body
//! is counted while it is forwarded: when it becomes too large, the client gets the response, and the request to the
//! upstream is aborted. A megabyte is 1,048,576 bytes, a kilobyte 1024.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 413 | `Request size limit exceeded` | the body is too large |
//! | 417 | `Request size limit exceeded` | the body is too large, and the client sent `Expect: 100-continue` |
//! | 411 | `A valid Content-Length header is required` | with `require_content_length`, if the request has neither `Content-Length` nor `Transfer-Encoding: chunked` |

use weir_plugin::{
    BuildContext, Exchange, Flow, Framing, Hooks, Known, LocalResponse, Phases, Plugin, Record, Version,
};

/// How large bodies may be.
#[derive(Debug, Clone, Record)]
pub(super) struct Config {
    /// The largest body, in units of `size_unit`.
    #[field(nullable, default = 128, hint = size_and_unit)]
    pub allowed_payload_size: i64,
    /// The unit.
    #[field(default = "megabytes", one_of = ["megabytes", "kilobytes", "bytes"])]
    pub size_unit: String,
    /// Refuses requests that do not declare their length.
    #[field(default = false)]
    pub require_content_length: bool,
}

/// A size with its unit, such as `10MB`, as this plugin's fields.
fn size_and_unit(text: &str) -> Option<String> {
    let (size, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (times, unit) = match unit.trim().to_ascii_lowercase().as_str() {
        "g" | "gb" | "gib" | "gigabytes" => (1024, "megabytes"),
        "m" | "mb" | "mib" | "megabytes" => (1, "megabytes"),
        "k" | "kb" | "kib" | "kilobytes" => (1, "kilobytes"),
        "b" | "bytes" => (1, "bytes"),
        _ => return None,
    };
    let size = size.parse::<i64>().ok()?.checked_mul(times)?;
    Some(format!("write `allowed_payload_size: {size}` and `size_unit: {unit}`"))
}

/// One configured instance.
pub(super) struct RequestSizeLimiting {
    /// In bytes.
    most: u64,
    require_content_length: bool,
}

impl Plugin for RequestSizeLimiting {
    const NAME: &'static str = "request-size-limiting";
    const PRIORITY: i32 = 951;
    type Config = Config;

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let unit: u64 = match config.size_unit.as_str() {
            "megabytes" => 1024 * 1024,
            "kilobytes" => 1024,
            _ => 1,
        };
        let most = u64::try_from(config.allowed_payload_size).unwrap_or(0).saturating_mul(unit);
        Ok(Self { most, require_content_length: config.require_content_length })
    }
}

impl Hooks for RequestSizeLimiting {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let refuse = |asks_first: bool| {
            LocalResponse::error(if asks_first { 417 } else { 413 }, "Request size limit exceeded")
        };
        let expected = exchange.header(Known::Expect);
        let asks_first = expected.is_some_and(|it| it.trim_ascii().eq_ignore_ascii_case(b"100-continue"));
        let length = match (exchange.request.framing, exchange.body()) {
            (Framing::Length(length), _) => Some(length),
            (_, Some(body)) => Some(body.len() as u64),
            (_, None) => None,
        };
        if length.is_some_and(|length| length > self.most) {
            return Flow::Respond(refuse(asks_first));
        }
        if self.require_content_length && !declares_length(exchange) {
            return Flow::Respond(LocalResponse::error(411, "A valid Content-Length header is required"));
        }
        if length.is_none() && exchange.request.framing != Framing::None {
            let (most, mut passed) = (self.most, 0);
            exchange.observe_request(move |data| {
                passed += data.len() as u64;
                if passed > most { Err(refuse(asks_first)) } else { Ok(()) }
            });
        }
        Flow::Continue
    }
}

/// Whether the request declares its length, or that it is chunked, which only HTTP/1.1 can do.
fn declares_length(exchange: &Exchange) -> bool {
    let chunked = exchange.request.framing == Framing::Chunked && exchange.request.version != Version::Http2;
    chunked || exchange.header(Known::ContentLength).is_some()
}
