//! What tracing plugins report of a request: Kong's `tracing_instrumentations`.

use std::borrow::Cow;
use tokio::time::Instant;

/// The node's settings of tracing, which tracing plugins find among what the node retains.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tracing {
    /// What is reported.
    pub instrumentations: Instrumentations,
    /// The fraction of traces that is sampled, unless a plugin says otherwise.
    pub sampling_rate: f64,
}

impl Default for Tracing {
    fn default() -> Self {
        Self { instrumentations: Instrumentations::default(), sampling_rate: 0.01 }
    }
}

/// One switch for each kind of span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct Instrumentations {
    pub request: bool,
    pub balancer: bool,
    pub router: bool,
    pub dns_query: bool,
    pub plugin_rewrite: bool,
    pub plugin_access: bool,
    pub plugin_header_filter: bool,
}

impl Default for Instrumentations {
    fn default() -> Self {
        Self { request: true, balancer: true, ..Self::NONE }
    }
}

impl Instrumentations {
    /// Nothing.
    pub const NONE: Self = Self {
        request: false,
        balancer: false,
        router: false,
        dns_query: false,
        plugin_rewrite: false,
        plugin_access: false,
        plugin_header_filter: false,
    };

    /// Whether hooks of plugins are reported.
    pub fn has_plugins(&self) -> bool {
        self.plugin_rewrite || self.plugin_access || self.plugin_header_filter
    }

    /// Whether anything is reported that must be recorded while the request is served.
    pub fn has_steps(&self) -> bool {
        self.router || self.dns_query || self.has_plugins()
    }
}

/// A step of serving a request that was recorded because its instrumentation is on.
#[derive(Debug, Clone)]
pub struct TracedStep {
    /// The name of its span.
    pub name: Cow<'static, str>,
    /// When it began.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
}
