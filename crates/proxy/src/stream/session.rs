//! One layer 4 session: what plugins see of it, and the engine's own state.

use super::{StreamRoute, Transport};
use crate::observe::access_log::SessionRecord;
use std::cell::Cell;
use std::net::SocketAddr;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::SystemTime;
use weir_analytics::cause::Cause;
use weir_plugin as plugin;
use weir_plugin::Source;

/// One session: what plugins see of it, and the rest.
pub(crate) struct Session {
    public: plugin::Session,
    pub(super) transport: Transport,
    pub(super) route: Option<Arc<StreamRoute>>,
    /// What decided its outcome.
    pub(super) cause: Cause,
    /// Whether a failed target was logged as a warning; then the end of the session is logged as well.
    pub(super) has_warned: Cell<bool>,
}

impl Session {
    pub(super) fn new(client: SocketAddr, local: SocketAddr, transport: Transport) -> Self {
        let public = plugin::Session::new(client, local);
        Self { public, transport, route: None, cause: Cause::Response, has_warned: Cell::new(false) }
    }

    /// The client that a trusted peer speaks for.
    pub(super) fn on_behalf_of(&mut self, client: SocketAddr) {
        self.client = SocketAddr::new(client.ip().to_canonical(), client.port());
    }

    /// It takes this route.
    pub(super) fn take(&mut self, route: &Arc<StreamRoute>) {
        self.public.engine.route = Some(route.view.clone());
        self.route = Some(route.clone());
    }

    /// It has come to its end, after an upstream was reached.
    pub(super) fn served(&mut self) {
        (self.status, self.source) = (200, Source::Service);
    }

    /// Its line in the log.
    pub(super) fn record(&self) -> SessionRecord {
        SessionRecord {
            client_ip: self.client.ip(),
            ended: SystemTime::now(),
            protocol: if self.transport == Transport::Udp { "UDP" } else { "TCP" },
            status: self.status,
            sent: self.sent,
            received: self.received,
            duration: self.duration(),
        }
    }
}

impl Deref for Session {
    type Target = plugin::Session;

    fn deref(&self) -> &plugin::Session {
        &self.public
    }
}

impl DerefMut for Session {
    fn deref_mut(&mut self) -> &mut plugin::Session {
        &mut self.public
    }
}
