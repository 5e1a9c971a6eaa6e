//! Whether a kept connection leads where the name of its endpoint leads now.

use super::endpoint::Endpoint;
use std::cell::Cell;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::Instant;
use weir_net::resolve::Resolver;

/// How long a result holds: no answer of the DNS is cached for less.
const INTERVAL: Duration = Duration::from_secs(1);

/// The last result of one connection.
pub(crate) struct AddressCheck {
    at: Cell<Instant>,
    passed: Cell<bool>,
}

impl AddressCheck {
    /// Of a connection that was just opened.
    pub(crate) fn new() -> Self {
        Self { at: Cell::new(Instant::now()), passed: Cell::new(true) }
    }

    /// Whether the endpoint's name leads to the address, as it was found within the last second.
    pub(crate) fn passes(
        &self,
        (endpoint, address): (&Endpoint, Option<SocketAddr>),
        resolver: &Resolver,
    ) -> bool {
        if endpoint.ip.is_some() {
            return true;
        }
        let now = Instant::now();
        if now.saturating_duration_since(self.at.get()) >= INTERVAL {
            self.at.set(now);
            self.passed.set(endpoint.leads_to(resolver, address));
        }
        self.passed.get()
    }
}
