//! What decided the outcome of an exchange.

use crate::limits::NodeLimit;
use std::time::Duration;
use weir_analytics::bucket::Bucket;
use weir_analytics::cause::Cause;
use weir_http1::Headers;

/// What decided the outcome of an exchange, as far as nothing else says it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Decision {
    pub(crate) cause: Option<Cause>,
    /// What the gateway and the upstream took, if the response's head had to say so.
    pub(crate) latencies: Option<[Bucket; 2]>,
    /// How long new connections to upstreams took, all together, in microseconds.
    connecting: u32,
    /// Whether the response came from a cache.
    pub(crate) cached: bool,
    /// Whether the upstream connection had served a request before.
    pub(crate) reused: bool,
    /// The limit of the node that the client has met.
    pub(crate) limit: Option<NodeLimit>,
}

impl Decision {
    /// A connection to an upstream was opened, or could not be, within this time.
    pub(crate) fn connected(&mut self, took: Duration) {
        let micros = took.as_micros().try_into().unwrap_or(u32::MAX);
        self.connecting = self.connecting.saturating_add(micros);
    }

    /// How long new connections to upstreams took, all together.
    pub(crate) fn connecting(&self) -> Duration {
        Duration::from_micros(self.connecting.into())
    }

    /// Remembers why the exchange ends.
    pub(crate) fn is_by(&mut self, cause: Cause) {
        self.cause = Some(cause);
    }

    /// Remembers what the gateway and the upstream took until the response's head.
    #[inline]
    pub(crate) fn measured(&mut self, latencies: [Duration; 2]) {
        self.latencies = Some(latencies.map(Bucket::of_duration));
    }

    /// Remembers the `grpc-status` that the upstream's trailers have.
    pub(crate) fn is_in(&mut self, trailers: &Headers) {
        self.cause = grpc_cause(trailers).or(self.cause);
    }
}

/// The cause that a `grpc-status` other than 0 is.
#[cold]
pub(crate) fn grpc_cause(headers: &Headers) -> Option<Cause> {
    let status = std::str::from_utf8(headers.get("grpc-status")?).ok()?.parse().ok()?;
    (status != 0).then_some(Cause::GrpcStatus(status))
}
