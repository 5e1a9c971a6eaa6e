//! The attempts to reach an upstream, as records tell them.

use super::{address, whole, whole_nanoseconds};
use std::net::{IpAddr, SocketAddr};
use tokio::time::Instant;
use weir_plugin::FailedTry;
use weir_plugin::json_text::{Object, integer, raw};

/// Writes the attempts that failed, then the one that did not, with when it began. `at` converts a moment to nanoseconds since
/// 1970.
pub(super) fn write(
    out: &mut Vec<u8>,
    failed: &[FailedTry],
    at: impl Fn(Instant) -> u64,
    reached: Option<(SocketAddr, u64)>,
) {
    out.push(b'[');
    for (place, failed) in failed.iter().enumerate() {
        if place > 0 {
            out.push(b',');
        }
        failed_try(out, failed, at(failed.start));
    }
    if let Some((address, start)) = reached {
        if !failed.is_empty() {
            out.push(b',');
        }
        begin_try(out, Some(address.ip()), address.port(), start);
        raw(out, r#","balancer_latency":0,"balancer_latency_ns":0}"#);
    }
    out.push(b']');
}

fn failed_try(out: &mut Vec<u8>, failed: &FailedTry, began: u64) {
    let latency = failed.end.saturating_duration_since(failed.start);
    begin_try(out, failed.address.map(|address| address.ip()), failed.port, began);
    let mut object = Object::resume(out);
    object.number("balancer_latency", whole(latency));
    object.number("balancer_latency_ns", whole_nanoseconds(latency));
    object.text("state", b"failed");
    object.number("code", failed.code.into());
    object.close();
}

fn begin_try(out: &mut Vec<u8>, ip: Option<IpAddr>, port: u16, began: u64) {
    let mut text = itoa::Buffer::new();
    let nanoseconds = text.format(began).as_bytes();
    // Without its last six digits it is in milliseconds.
    let milliseconds = nanoseconds.len().checked_sub(6).filter(|length| *length > 0);
    raw(out, r#"{"balancer_start":"#);
    out.extend_from_slice(milliseconds.map_or(b"0", |length| &nanoseconds[..length]));
    raw(out, r#","balancer_start_ns":"#);
    out.extend_from_slice(nanoseconds);
    if let Some(ip) = ip {
        raw(out, r#","ip":""#);
        address(out, ip);
        raw(out, r#"","port":"#);
    } else {
        raw(out, r#","port":"#);
    }
    integer(out, port.into());
}
