//! What a data plane knows of its connection, for its status and its metrics.
use crate::Refusal;
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// The connection of a data plane to its control plane.
#[derive(Debug, Default)]
pub struct LinkStatus(Mutex<Link>);

/// The same at one moment, as `/status` shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Whether there is a connection.
    pub connected: bool,
    /// The control plane, `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control_plane: Option<String>,
    /// The protocol of the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<&'static str>,
    /// Since when it has been connected, or not, in seconds since 1970.
    pub since: u64,
    /// Why the last connection ended, or was not made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What is wrong with the last configuration that was refused, until one is applied.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// When a configuration was applied last, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied_at: Option<u64>,
    /// Whether this connection has brought or confirmed a configuration.
    #[serde(skip)]
    pub(super) is_of_use: bool,
    /// How many messages were received from control planes.
    pub received: u64,
    /// How many bytes they had.
    pub received_bytes: u64,
}

/// How many errors of a refused configuration are kept.
const MAX_REFUSALS: usize = 20;

impl LinkStatus {
    /// The connection now.
    pub fn now(&self) -> Link {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Link> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn connected(&self, to: String, protocol: &'static str) {
        let mut link = self.lock();
        link.connected = true;
        link.control_plane = Some(to);
        link.protocol = Some(protocol);
        link.since = seconds();
        link.last_error = None;
    }

    /// Records that there is no connection; returns what was known of the last one.
    pub(super) fn disconnected(&self, error: String) -> Link {
        let mut link = self.lock();
        let before = link.clone();
        if link.connected || link.since == 0 {
            link.since = seconds();
        }
        link.connected = false;
        link.is_of_use = false;
        link.protocol = None;
        link.last_error = Some(error);
        before
    }

    pub(super) fn received(&self, bytes: usize) {
        let mut link = self.lock();
        link.received += 1;
        link.received_bytes += bytes as u64;
    }

    pub(super) fn applied(&self) {
        let mut link = self.lock();
        link.is_of_use = true;
        link.refused.clear();
        link.applied_at = Some(seconds());
    }

    pub(super) fn refused(&self, refusals: &[Refusal]) {
        self.lock().refused = refusals.iter().take(MAX_REFUSALS).map(ToString::to_string).collect();
    }
}

fn seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
