//! Records each request and session for analytics: one record in the worker's own ring, at its end.

use crate::error::RequestError;
use crate::exchange::{Exchange, Source};
use crate::observe::sampler::RequestSampler;
use crate::recording::Recording;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_analytics::bucket::Bucket;
use weir_analytics::cause::Cause;
use weir_analytics::entities::{Entities, Kind, NONE};
use weir_analytics::record::{ByteCount, Protocol, Record, Tick, Traits};
use weir_analytics::ring::Producer;
use weir_http1::{Headers, Version};
use weir_plugin::engine::grpc_status;
use weir_plugin::{LocalResponse, Session};

/// How many addresses of upstreams a worker remembers.
const MAX_ADDRESSES: usize = 1 << 14;

/// What decided the outcome of an exchange, as far as nothing else says it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decision {
    cause: Option<Cause>,
    /// Whether the response came from a cache.
    pub(crate) cached: bool,
    /// Whether the upstream connection had served a request before.
    pub(crate) reused: bool,
}

impl Decision {
    /// Remembers why the exchange ends.
    pub(crate) fn is_by(&mut self, cause: Cause) {
        self.cause = Some(cause);
    }

    /// Remembers the `grpc-status` that the upstream's trailers have.
    pub(crate) fn is_in(&mut self, trailers: &Headers) {
        self.cause = grpc_cause(trailers).or(self.cause);
    }
}

/// The response to a request that failed, which is remembered.
pub(crate) fn error_response(exchange: &mut Exchange, error: &RequestError) -> LocalResponse {
    exchange.decision.is_by(error.cause());
    error.answer()
}

/// What one worker records.
pub(crate) struct Recorder {
    producer: Producer,
    entities: Arc<Entities>,
    /// The numbers of the upstreams' addresses that this worker has met.
    addresses: RefCell<HashMap<SocketAddr, u32, foldhash::fast::RandomState>>,
    sampler: Option<RequestSampler>,
}

impl Recorder {
    /// The recorder of a worker; none if nothing is recorded.
    pub(crate) fn new(recording: &Recording) -> Option<Self> {
        let entities = recording.entities()?.clone();
        let sampler = RequestSampler::new(recording);
        Some(Self { producer: recording.take_producer()?, entities, addresses: RefCell::default(), sampler })
    }

    /// Whether somebody watches requests, so that their plugins are measured.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        self.sampler.as_ref().is_some_and(RequestSampler::is_watched)
    }

    /// Records a request that has ended.
    pub(crate) fn record(&self, exchange: &Exchange) {
        let (latencies, protocol) = (exchange.latencies(), protocol(exchange));
        let numbers = &exchange.snapshot.numbers;
        let decision = exchange.decision;
        let traits = Traits::new(protocol)
            .retried(!exchange.failed_tries().is_empty())
            .cached(decision.cached)
            .reused(decision.reused);
        let record = Record {
            route: numbers.route(exchange.engine.route),
            upstream: self.address(exchange.engine.upstream_addr),
            consumer: numbers.consumer(exchange.engine.consumer),
            time: tick(exchange.ended_at()),
            status: exchange.response.status,
            traits,
            cause: cause(exchange, protocol),
            total: Bucket::of_duration(latencies.request),
            gateway: Bucket::of_duration(latencies.kong),
            waited: bucket(latencies.proxy),
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
            time: tick(SystemTime::now()),
            status: 0,
            traits: Traits::new(Protocol::Stream).retried(!session.failed_tries().is_empty()),
            cause,
            total: Bucket::of_duration(session.duration()),
            gateway: Bucket::NONE,
            waited: bucket(reached.map(|(_, start, end)| end.saturating_duration_since(start))),
            bytes_in: ByteCount::new(session.received),
            bytes_out: ByteCount::new(session.sent),
        });
    }

    #[inline]
    fn address(&self, address: Option<SocketAddr>) -> u32 {
        let Some(address) = address else { return NONE };
        let known = self.addresses.borrow().get(&address).copied();
        known.unwrap_or_else(|| self.intern(address))
    }

    /// Asks for the number of an address, which this worker meets for the first time.
    #[cold]
    fn intern(&self, address: SocketAddr) -> u32 {
        let number = self.entities.intern(Kind::Upstream, &address.to_string());
        let mut addresses = self.addresses.borrow_mut();
        if addresses.len() == MAX_ADDRESSES {
            addresses.clear();
        }
        addresses.insert(address, number);
        number
    }
}

fn bucket(duration: Option<Duration>) -> Bucket {
    duration.map_or(Bucket::NONE, Bucket::of_duration)
}

fn tick(time: SystemTime) -> Tick {
    Tick::at(time.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}

fn protocol(exchange: &Exchange) -> Protocol {
    match exchange.request.version {
        _ if exchange.response.status == 101 => Protocol::WebSocket,
        Version::Http10 | Version::Http11 => Protocol::Http1,
        _ if grpc_status::is_call(exchange) => Protocol::Grpc,
        Version::Http2 => Protocol::Http2,
        Version::Http3 => Protocol::Http3,
    }
}

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

/// The cause that a `grpc-status` other than 0 is.
fn grpc_cause(headers: &Headers) -> Option<Cause> {
    let status = std::str::from_utf8(headers.get("grpc-status")?).ok()?.parse().ok()?;
    (status != 0).then_some(Cause::GrpcStatus(status))
}
