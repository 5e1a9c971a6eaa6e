//! A data plane: keeps a connection to one of its control planes, applies what that sends, and acknowledges it.
mod backoff;
mod status;
mod store;
mod v1;
mod weir;

pub use status::{Link, LinkStatus};
pub use store::Stored;

use crate::Apply;
use crate::connect::{Connector, Endpoint};
use crate::sync::message::Goodbye;
use crate::websocket::UpgradeError;
use backoff::Backoff;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::Writer;
use uuid::Uuid;
use weir_model::PluginSchema;

/// How long a connection may take to be made, TLS and all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time within which the data planes of a control plane that stops go to others.
const MAX_SPREAD: Duration = Duration::from_secs(60);

/// What a data plane says of itself.
#[derive(Debug, Clone)]
pub struct About {
    /// Its id, the same over restarts.
    pub id: Uuid,
    /// The name of its host.
    pub hostname: String,
    /// The version of Kong that it is compatible with.
    pub version: String,
    /// Its plugins, with their versions.
    pub plugins: Vec<(String, Option<String>)>,
    /// Its settings, without secrets.
    pub settings: Map<String, Json>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
}

/// How a data plane behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The longest message that it accepts.
    pub max_payload: usize,
    /// Whether it reports errors to a control plane of Konnect.
    pub reports_errors: bool,
}

/// A data plane.
pub struct DataPlane<A> {
    /// Where configurations are applied.
    pub apply: Arc<A>,
    /// What it connects with.
    pub connector: Connector,
    /// Its control planes.
    pub control_planes: Vec<Endpoint>,
    /// What it says of itself.
    pub about: About,
    /// How it behaves.
    pub options: Options,
    /// The schemas of its plugins, to read configurations with.
    pub plugins: Arc<[PluginSchema]>,
    /// What it knows of its connection.
    pub status: Arc<LinkStatus>,
}

/// Why a connection ended, or was not made.
#[derive(Debug)]
enum LinkError {
    Connect(io::Error),
    Upgrade(UpgradeError),
    Timeout,
    Ended(String),
    Goodbye(Goodbye),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Connect(error) => write!(f, "no connection: {error}"),
            LinkError::Upgrade(error) => error.fmt(f),
            LinkError::Timeout => {
                write!(f, "no connection within {} s", CONNECT_TIMEOUT.as_secs())
            }
            LinkError::Ended(reason) | LinkError::Goodbye(Goodbye { reason, .. }) => f.write_str(reason),
        }
    }
}

impl LinkError {
    /// How long the control plane has asked to stay away.
    fn retry_after(&self) -> Option<Duration> {
        match self {
            LinkError::Upgrade(error) => error.retry_after.map(Duration::from_secs),
            LinkError::Goodbye(goodbye) => goodbye.retry_after.map(Duration::from_secs),
            _ => None,
        }
    }

    /// When to go to another control plane, because this one stops.
    fn moves_after(&self) -> Option<Duration> {
        match self {
            LinkError::Goodbye(Goodbye { drain: true, spread, .. }) => {
                Some(Duration::from_millis(*spread).min(MAX_SPREAD).mul_f64(fastrand::f64()))
            }
            _ => None,
        }
    }
}

impl<A: Apply> DataPlane<A> {
    /// Keeps connected for as long as the process runs, to the next control plane whenever one fails.
    pub async fn run(self, stored: Stored) {
        let mut backoff = Backoff::default();
        let mut sessions = Sessions {
            weir: weir::Session::new(&self, stored.active),
            v1: v1::Session::new(&self),
            writer: Writer::new(stored.cache),
        };
        // Data planes begin with different control planes, and so share these.
        let mut turn = fastrand::usize(..self.control_planes.len().max(1));
        let mut reported = String::new();
        loop {
            let Some(to) = self.control_planes.get(turn % self.control_planes.len().max(1)) else { return };
            let error = self.link(to, &mut sessions).await;
            let message = error.to_string();
            let ended = self.status.disconnected(message.clone());
            // One that upgrades and then sends nothing of use is not asked more often for it.
            if ended.is_of_use {
                backoff.reset();
            }
            let least = if ended.protocol == Some(v1::PROTOCOL) { v1::SHORTEST_WAIT } else { Duration::ZERO };
            let moves = error.moves_after();
            let wait = moves.unwrap_or_else(|| backoff.next(error.retry_after()).max(least));
            report(to, &message, wait, moves.is_some() || message == reported);
            reported = message;
            turn += 1;
            tokio::time::sleep(wait).await;
        }
    }

    /// Connects to a control plane and follows it until the connection ends. One that does not speak Weir's protocol is
    /// followed by Kong's first.
    async fn link(&self, to: &Endpoint, sessions: &mut Sessions) -> LinkError {
        let Sessions { weir, v1, writer } = sessions;
        let opened = async {
            let connection = self.connector.connect(to).await.map_err(LinkError::Connect)?;
            weir.open(self, connection, to).await.map_err(LinkError::Upgrade)
        };
        let refused = match in_time(Box::pin(opened)).await {
            Ok(stream) => {
                self.begin(to, weir::PROTOCOL);
                if v1.is_active() {
                    weir.forget(self);
                }
                let ended = weir.follow(self, writer, stream).await;
                if weir.is_active() {
                    v1.forget();
                }
                return ended;
            }
            Err(LinkError::Upgrade(error)) if error.is_about_protocol() => error,
            Err(error) => return error,
        };
        let opened = async {
            let connection = self.connector.connect(to).await.map_err(LinkError::Connect)?;
            v1.open(self, connection, to).await.map_err(LinkError::Upgrade)
        };
        match in_time(Box::pin(opened)).await {
            Ok(stream) => {
                tracing::info!(control_plane = %to, "it does not speak Weir's protocol ({refused})");
                self.begin(to, v1::PROTOCOL);
                LinkError::Ended(v1.follow(self, writer, stream).await)
            }
            Err(error) => error,
        }
    }

    fn begin(&self, to: &Endpoint, protocol: &'static str) {
        self.status.connected(to.to_string(), protocol);
        tracing::info!(control_plane = %to, protocol, "connected");
    }
}

/// Logs why there is no connection, unless that is known or as it should be.
fn report(to: &Endpoint, message: &str, wait: Duration, is_expected: bool) {
    let wait = wait.as_secs_f64();
    if is_expected {
        tracing::debug!(control_plane = %to, "{message}; connecting again in {wait:.1} s");
    } else {
        tracing::error!(
            control_plane = %to,
            "{message}; connecting again in {wait:.1} s; the active configuration is still served"
        );
    }
}

/// The outcome of an attempt to connect, if it ends in time.
async fn in_time<S>(opened: impl Future<Output = Result<S, LinkError>>) -> Result<S, LinkError> {
    tokio::time::timeout(CONNECT_TIMEOUT, opened).await.unwrap_or(Err(LinkError::Timeout))
}

/// What outlives connections, by protocol; and the cache.
struct Sessions {
    weir: weir::Session,
    v1: v1::Session,
    writer: Writer,
}
