//! Records each request and session for analytics: one record in the worker's own ring, at its end.

mod addresses;
mod tick_clock;

use crate::error::RequestError;
use crate::exchange::{Exchange, Source, grpc_cause};
use crate::observe::sampler::RequestSampler;
use crate::recording::Recording;
use addresses::AddressNumbers;
use std::net::SocketAddr;
use std::sync::Arc;
use tick_clock::TickClock;
use tokio::time::Instant;
use weir_analytics::bucket::Bucket;
use weir_analytics::cause::Cause;
use weir_analytics::entities::{Entities, NONE};
use weir_analytics::record::{ByteCount, Protocol, Record, Traits};
use weir_analytics::ring::Producer;
use weir_http1::Version;
use weir_plugin::engine::grpc_status;
use weir_plugin::{LocalResponse, Session, Timing};

/// The response to a request that failed, which is remembered.
pub(crate) fn error_response(exchange: &mut Exchange, error: &RequestError) -> LocalResponse {
    exchange.decision.is_by(error.cause());
    exchange.decision.limit = error.limit();
    error.answer()
}

/// What one worker records.
pub(crate) struct Recorder {
    producer: Producer,
    entities: Arc<Entities>,
    addresses: AddressNumbers,
    clock: TickClock,
    sampler: Option<RequestSampler>,
}

impl Recorder {
    /// The recorder of a worker; none if nothing is recorded.
    pub(crate) fn new(recording: &Recording) -> Option<Self> {
        let entities = recording.entities()?.clone();
        let sampler = RequestSampler::new(recording);
        let (addresses, clock) = (AddressNumbers::default(), TickClock::new());
        Some(Self { producer: recording.take_producer()?, entities, addresses, clock, sampler })
    }

    /// Whether somebody watches requests, so that their plugins are measured.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.sampler.as_ref().is_some_and(RequestSampler::is_watched)
    }

    /// Records a request that has ended just now.
    #[inline]
    pub(crate) fn record(&self, exchange: &Exchange, end: Instant) {
        let (protocol, timing) = (protocol(exchange), &exchange.timing);
        let numbers = &exchange.snapshot.numbers;
        let decision = exchange.decision;
        let traits = Traits::new(protocol)
            .retried(!exchange.failed_tries().is_empty())
            .cached(decision.cached)
            .reused(decision.reused);
        let total = between(timing.start, end);
        let [gateway, waited] = decision.latencies.unwrap_or_else(|| latencies(timing, total));
        let record = Record {
            route: numbers.route(exchange.engine.route),
            upstream: self.address(exchange.engine.upstream_addr),
            consumer: numbers.consumer(exchange.engine.consumer),
            time: self.clock.tick(end),
            status: exchange.response.status,
            traits,
            cause: cause(exchange, protocol),
            total,
            gateway,
            waited,
            bytes_in: ByteCount::new(exchange.bytes_in),
            bytes_out: ByteCount::new(exchange.bytes_out),
        };
        self.producer.push(&record);
        if let Some(sampler) = &self.sampler {
            sampler.offer(exchange, &record);
        }
    }

    /// Records a session that has ended, of the route with this number.
    pub(crate) fn record_session(&self, session: &Session, route: u32, cause: Cause) {
        let reached = session.upstream();
        self.producer.push(&Record {
            route,
            upstream: self.address(reached.map(|(address, ..)| address)),
            consumer: NONE,
            time: self.clock.tick(Instant::now()),
            status: 0,
            traits: Traits::new(Protocol::Stream).retried(!session.failed_tries().is_empty()),
            cause,
            total: Bucket::of_duration(session.duration()),
            gateway: Bucket::NONE,
            waited: reached.map_or(Bucket::NONE, |(_, start, end)| between(start, end)),
            bytes_in: ByteCount::new(session.received),
            bytes_out: ByteCount::new(session.sent),
        });
    }

    #[inline]
    fn address(&self, address: Option<SocketAddr>) -> u32 {
        address.map_or(NONE, |address| self.addresses.get(address, &self.entities))
    }
}

/// What the gateway and the upstream took of a request that got no response of the upstream.
fn latencies(timing: &Timing, total: Bucket) -> [Bucket; 2] {
    match (timing.upstream_start, timing.upstream_head) {
        (Some(asked), Some(head)) => [between(timing.start, asked), between(asked, head)],
        (Some(asked), None) => [between(timing.start, asked), Bucket::NONE],
        (None, _) => [total, Bucket::NONE],
    }
}

#[inline]
fn between(start: Instant, end: Instant) -> Bucket {
    Bucket::of_duration(end.saturating_duration_since(start))
}

#[inline]
fn protocol(exchange: &Exchange) -> Protocol {
    match exchange.request.version {
        _ if exchange.response.status == 101 => Protocol::WebSocket,
        Version::Http10 | Version::Http11 => Protocol::Http1,
        _ if grpc_status::is_call(exchange) => Protocol::Grpc,
        Version::Http2 => Protocol::Http2,
        Version::Http3 => Protocol::Http3,
    }
}

#[inline]
fn cause(exchange: &Exchange, protocol: Protocol) -> Cause {
    match (exchange.decision.cause, exchange.source) {
        (Some(cause), _) => cause,
        (None, Source::Kong) => Cause::Local,
        (None, Source::Service) if protocol == Protocol::Grpc => {
            grpc_cause(&exchange.response.headers).unwrap_or(Cause::Response)
        }
        (None, Source::Service) => Cause::Response,
    }
}
