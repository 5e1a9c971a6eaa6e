//! Samples of requests for analytics: whether one that has ended is kept in full, and what is kept of it.

use crate::exchange::Exchange;
use crate::recording::Recording;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};
use weir_analytics::record::Record;
use weir_analytics::samples::{
    Failure, Gate, Hook, Phases, Reason, RequestTexts, Sample, SampleBuilder, Side,
};

/// How many failed attempts, and how many plugins, a sample has at most.
const MAX_STEPS: usize = 32;

/// What one worker samples.
pub(crate) struct RequestSampler {
    gate: Gate,
    /// The names of headers whose values are kept.
    plain_headers: Arc<[String]>,
}

impl RequestSampler {
    /// The sampler of a worker; none if no request is sampled.
    pub(crate) fn new(recording: &Recording) -> Option<Self> {
        let (sender, plain_headers) = recording.sampling()?.clone();
        Some(Self { gate: Gate::new(sender), plain_headers })
    }

    /// Whether somebody watches requests, so that their plugins are measured.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.gate.is_watched()
    }

    /// Hands on a request that has ended, if it is to be sampled.
    #[inline]
    pub(crate) fn offer(&self, exchange: &Exchange, record: &Record) {
        if let Some(reason) = self.gate.admit(record) {
            self.gate.send(self.sample(exchange, record, reason));
        }
    }

    #[cold]
    fn sample(&self, exchange: &Exchange, record: &Record, reason: Reason) -> Sample {
        let at = exchange.ended_at().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let headers = &exchange.request.headers;
        let trace = headers.get("traceparent").or_else(|| headers.get("x-b3-traceid"));
        let route = exchange.route().and_then(|route| route.entity.name.as_deref());
        let service = exchange.service().and_then(|service| service.name.as_deref());
        let consumer = exchange.consumer().and_then(|consumer| consumer.entity.username.as_deref());
        let texts = RequestTexts {
            method: exchange.request.method_str(),
            host: exchange.request.host().unwrap_or_default(),
            path: exchange.request.path(),
            query: exchange.request.query().unwrap_or_default(),
            id: exchange.id(),
            trace_id: trace.and_then(trace_id).unwrap_or_default(),
            names: [route, service, consumer].map(Option::unwrap_or_default),
        };
        let mut builder = SampleBuilder::new(at, reason, *record, exchange.client_ip, &texts)
            .tls(exchange.tls)
            .phases(phases(exchange))
            .steps(failures(exchange), hooks(exchange));
        for (side, headers) in [(Side::Request, headers), (Side::Response, &exchange.response.headers)] {
            for field in headers.iter() {
                let name = String::from_utf8_lossy(field.name);
                if !builder.header(side, &name, field.value, &self.plain_headers) {
                    break;
                }
            }
        }
        builder.build()
    }
}

/// The id in W3C's `traceparent` or in B3's header.
fn trace_id(header: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(header).ok()?;
    let id = text.split('-').find(|part| part.len() >= 16)?;
    id.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(id)
}

fn phases(exchange: &Exchange) -> Phases {
    let latencies = exchange.latencies();
    let asked = latencies.request.saturating_sub(latencies.kong);
    let connect = exchange.decision.connecting().min(asked);
    let body = latencies.receive.unwrap_or_default().min(asked - connect);
    let wait = asked - connect - body;
    let [gateway, connect, wait, body] = [latencies.kong, connect, wait, body].map(micros);
    Phases { gateway, connect, wait, body }
}

fn failures(exchange: &Exchange) -> Box<[Failure]> {
    let failed = exchange.failed_tries().iter().take(MAX_STEPS);
    let failure = failed.map(|failed| Failure {
        address: failed.address,
        code: failed.code,
        micros: micros(failed.end.saturating_duration_since(failed.start)),
    });
    failure.collect()
}

fn hooks(exchange: &Exchange) -> Box<[Hook]> {
    let measured = exchange.took_by_plugin().iter().take(MAX_STEPS);
    let hook = measured.map(|took| Hook {
        plugin: took.plugin,
        ran: micros(took.spent),
        waited: micros(took.waited.unwrap_or_default()),
    });
    hook.collect()
}

fn micros(duration: Duration) -> u64 {
    duration.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trace_ids_are_read_from_both_kinds_of_headers() {
        let id = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (header, expected) in [
            (format!("00-{id}-00f067aa0ba902b7-01"), Some(id)),
            (id.to_owned(), Some(id)),
            ("00-short-x-01".to_owned(), None),
            (format!("00-{}-b-01", "<script>alert(1)"), None),
        ] {
            assert_eq!(trace_id(header.as_bytes()), expected, "{header}");
        }
        assert_eq!(trace_id(b"\xff"), None);
    }
}
