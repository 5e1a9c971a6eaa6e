//! The routes of stream listeners, compiled.

use super::chain::Chain;
use super::{CompiledService, StreamRouter};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;
use weir_model::entity::Protocol;
use weir_plugin::Route;

/// The stream routes of a snapshot.
#[derive(Default)]
pub(crate) struct Streams {
    pub(crate) router: Arc<StreamRouter>,
    pub(crate) routes: Vec<Arc<StreamRoute>>,
    /// Whether a hello must be looked at before a handshake.
    pub(crate) any_passthrough: bool,
}

/// A stream route, its service and its plugins.
pub(crate) struct StreamRoute {
    /// What plugins see of it.
    pub(crate) view: Arc<Route>,
    pub(crate) service: Option<Arc<CompiledService>>,
    pub(crate) chain: Arc<Chain>,
    /// What analytics call it; 0 if nothing is recorded.
    pub(crate) number: u32,
}

impl Deref for StreamRoute {
    type Target = Route;

    fn deref(&self) -> &Route {
        &self.view
    }
}

impl StreamRoute {
    /// Whether TLS passes through, not decrypted.
    pub(crate) fn is_passthrough(&self) -> bool {
        self.entity.protocols.contains(&Protocol::TlsPassthrough)
    }

    /// How long neither side may say anything. nginx has one time for both directions, and Kong gives it the longer.
    pub(crate) fn idle_timeout(&self) -> Duration {
        let service = self.service.as_ref().map(|service| &service.entity);
        let longer = service.map_or(60_000, |service| service.read_timeout.max(service.write_timeout));
        Duration::from_millis(longer.into())
    }
}
