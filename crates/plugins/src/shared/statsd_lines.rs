//! What lines of StatsD's protocol and of Datadog's have in common.

use std::time::Duration;
use weir_plugin::Exchange;

/// The name and the value of a metric that is a number; the error says that this request has none.
pub(crate) fn number(metric: &str, exchange: &Exchange) -> Option<Result<(&'static str, u64), ()>> {
    let latencies = || exchange.latencies();
    Some(Ok(match metric {
        "request_count" => ("request.count", 1),
        "request_size" => ("request.size", exchange.bytes_in),
        "response_size" => ("response.size", exchange.bytes_out),
        "latency" => ("latency", milliseconds(latencies().request)),
        "kong_latency" => ("kong_latency", milliseconds(latencies().kong)),
        "upstream_latency" => match latencies().proxy {
            Some(proxy) => ("upstream_latency", milliseconds(proxy)),
            None => return Some(Err(())),
        },
        _ => return None,
    }))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What follows a value: the type, and the sample rate unless it is 1, such as `|ms|@0.5`.
pub(crate) fn suffix(stat_type: &str, sample_rate: Option<f64>) -> String {
    let kind = match stat_type {
        "counter" => "c",
        "distribution" => "d",
        "gauge" => "g",
        "timer" => "ms",
        "histogram" => "h",
        "meter" => "m",
        _ => "s",
    };
    let rate = sample_rate.filter(|rate| *rate != 1.0).map(|rate| format!("|@{rate}"));
    format!("|{kind}{}", rate.unwrap_or_default())
}

/// Appends texts.
pub(crate) fn put<const N: usize>(out: &mut Vec<u8>, texts: [&str; N]) {
    texts.into_iter().for_each(|text| out.extend_from_slice(text.as_bytes()));
}
