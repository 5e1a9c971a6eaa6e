//! gRPC calls: which requests are some, how long they may take, and how the gateway's own answers look to them.

use crate::error::{RelayError, code_of_reset};
use crate::exchange::Exchange;
use crate::snapshot::CompiledRoute;
use std::time::Duration;
use tokio::time::Instant;
use weir_http1::{Headers, Known};
use weir_plugin::LocalResponse;
use weir_plugin::engine::grpc_status::{CONTENT_TYPE, DEADLINE_EXCEEDED, UNAVAILABLE, encoded, has_trailers};

/// Kong's answer to a request that a route of gRPC cannot serve, if it cannot.
pub(crate) fn refuse(route: &CompiledRoute, exchange: &Exchange) -> Option<LocalResponse> {
    if !exchange.header(Known::ContentType).is_some_and(|value| value.starts_with(CONTENT_TYPE)) {
        return Some(LocalResponse::error(415, "Non-gRPC request matched gRPC route"));
    }
    if !has_trailers(exchange) {
        let answer = LocalResponse::error(426, "Please use HTTP2 protocol");
        return Some(answer.header("Connection", "Upgrade").header("Upgrade", "HTTP/2"));
    }
    if !route.http && !exchange.tls {
        let answer = LocalResponse::raw(200, Some("application/grpc"), "").header("grpc-status", "1");
        return Some(answer.header("grpc-message", "gRPC request matched gRPCs route"));
    }
    None
}

/// When the call has to be over, as its client says.
pub(crate) fn ends(exchange: &Exchange) -> Option<Instant> {
    let timeout = parse_timeout(exchange.header(Known::GrpcTimeout)?)?;
    exchange.timing.start.checked_add(timeout)
}

/// At most eight digits and a unit.
fn parse_timeout(value: &[u8]) -> Option<Duration> {
    let (unit, digits) = value.split_last()?;
    if digits.len() > 8 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number: u64 = std::str::from_utf8(digits).ok()?.parse().ok()?;
    match unit {
        b'H' => Some(Duration::from_secs(number * 3600)),
        b'M' => Some(Duration::from_secs(number * 60)),
        b'S' => Some(Duration::from_secs(number)),
        b'm' => Some(Duration::from_millis(number)),
        b'u' => Some(Duration::from_micros(number)),
        b'n' => Some(Duration::from_nanos(number)),
        _ => None,
    }
}

/// The trailers of a call whose response broke off.
pub(crate) fn broken_off(broken: &RelayError) -> Headers {
    let (code, message) = match broken {
        RelayError::Timeout(_) => (DEADLINE_EXCEEDED, "The upstream server is timing out"),
        RelayError::Deadline => (DEADLINE_EXCEEDED, "The time for the call is over"),
        RelayError::Reset(reason) => (code_of_reset(*reason), "The upstream server broke off its response"),
        _ => (UNAVAILABLE, "The upstream server broke off its response"),
    };
    let mut trailers = Headers::new();
    trailers.append("grpc-status", itoa::Buffer::new().format(code).as_bytes());
    trailers.append("grpc-message", encoded(message).as_bytes());
    trailers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts_have_a_unit_and_few_digits() {
        let cases = [
            ("1H", Some(3_600_000_000_000)),
            ("2M", Some(120_000_000_000)),
            ("3S", Some(3_000_000_000)),
            ("04m", Some(4_000_000)),
            ("5u", Some(5_000)),
            ("99999999n", Some(99_999_999)),
            ("100000000n", None),
            ("1s", None),
            ("+1S", None),
            ("S", None),
            ("", None),
        ];
        for (text, nanos) in cases {
            assert_eq!(parse_timeout(text.as_bytes()), nanos.map(Duration::from_nanos), "{text}");
        }
    }
}
