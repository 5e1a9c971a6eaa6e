//! A data plane: keeps a connection to one of its control planes, applies what that sends, and acknowledges it.
mod analytics;
mod backoff;
mod status;
pub(crate) mod store;
mod v1;
mod v2;
pub(crate) mod weir;

pub use analytics::{Analytics, LastFrame};
pub use status::{Link, LinkStatus};
pub use store::Stored;

use crate::connect::{Connection, Connector, Endpoint, FIX_PORT};
use crate::sync::message::Goodbye;
use crate::websocket::UpgradeError;
use crate::wire;
use crate::{Apply, Refusal};
use backoff::Backoff;
use serde_json::{Map, Value as Json};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Writer;
use tokio_tungstenite::WebSocketStream;
use uuid::Uuid;
use weir_model::PluginSchema;

/// How long a connection may take to be made, TLS and all.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How often an error that stays is logged.
const REPORT_INTERVAL: Duration = Duration::from_secs(30);

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
    /// Whether it asks a control plane of Kong for increments, by Kong's second protocol.
    pub incremental_sync: bool,
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
    /// What it measures, if it does.
    pub analytics: Option<Arc<dyn Analytics>>,
}

/// Why a connection ended, or was not made.
#[derive(Debug)]
pub(crate) enum LinkError {
    Connect(io::Error),
    Upgrade(UpgradeError),
    /// Kong's second protocol is spoken, but not for configurations.
    NoSync(String),
    Timeout,
    Ended(String),
    Goodbye(Goodbye),
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkError::Connect(error) => write!(f, "no connection: {error}"),
            LinkError::Upgrade(error) if error.is_about_port() => write!(f, "{error}; {FIX_PORT}"),
            LinkError::Upgrade(error) => error.fmt(f),
            LinkError::Timeout => {
                write!(f, "no connection within {} s", CONNECT_TIMEOUT.as_secs())
            }
            LinkError::NoSync(reason)
            | LinkError::Ended(reason)
            | LinkError::Goodbye(Goodbye { reason, .. }) => f.write_str(reason),
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
            v2: v2::Session::new(&self),
            writer: Writer::new(stored.cache),
        };
        // Data planes begin with different control planes, and so share these.
        let mut turn = fastrand::usize(..self.control_planes.len().max(1));
        let mut reported = Reported::default();
        loop {
            let Some(to) = self.control_planes.get(turn % self.control_planes.len().max(1)) else { return };
            let error = self.link(to, &mut sessions).await;
            let message = error.to_string();
            let ended = self.status.disconnected(message.clone());
            // One that upgrades and then sends nothing of use is not asked more often for it.
            if ended.is_of_use {
                backoff.reset();
            }
            let is_kong = ended.protocol.is_some_and(|protocol| protocol != weir::PROTOCOL);
            let least = if is_kong { v1::SHORTEST_WAIT } else { Duration::ZERO };
            let moves = error.moves_after();
            let wait = moves.unwrap_or_else(|| backoff.next(error.retry_after()).max(least));
            turn += 1;
            let next = self.control_planes.get(turn % self.control_planes.len()).unwrap_or(to);
            let (seconds, served) = (wait.as_secs_f64(), sessions.served());
            if moves.is_none() && reported.is_due(&message) {
                tracing::error!(control_plane = %to, "{message}; connecting to {next} in {seconds:.1} s; {served}");
            } else {
                tracing::debug!(control_plane = %to, "{message}; connecting to {next} in {seconds:.1} s");
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Connects to a control plane and follows it until the connection ends: by Weir's protocol, else by Kong's second if that
    /// is switched on, else by Kong's first.
    async fn link(&self, to: &Endpoint, sessions: &mut Sessions) -> LinkError {
        match in_time(Box::pin(self.open(to, sessions))).await {
            Ok(Opened::Weir(stream)) => {
                self.begin(to, weir::PROTOCOL);
                sessions.follow_weir(self, stream).await
            }
            Ok(Opened::V2(socket)) => {
                self.begin(to, v2::PROTOCOL);
                LinkError::Ended(sessions.follow_v2(self, socket).await)
            }
            Err(LinkError::Upgrade(error)) if error.is_about_protocol() => {
                self.link_v1(to, sessions, &error.to_string()).await
            }
            Err(LinkError::NoSync(reason)) => self.link_v1(to, sessions, &reason).await,
            Err(error) => error,
        }
    }

    /// Opens a connection by Weir's protocol, or by Kong's second if the control plane chooses that.
    async fn open(&self, to: &Endpoint, sessions: &Sessions) -> Result<Opened, LinkError> {
        let connection = self.connector.connect(to).await.map_err(LinkError::Connect)?;
        let (stream, chosen) = sessions.weir.open(self, connection, to).await.map_err(LinkError::Upgrade)?;
        match chosen.as_deref() {
            Some(wire::v2::PROTOCOL) => {
                sessions.v2.greet(self, stream).await.map(Opened::V2).map_err(LinkError::NoSync)
            }
            _ => Ok(Opened::Weir(stream)),
        }
    }

    /// The same by Kong's first protocol, for the reason that is given.
    async fn link_v1(&self, to: &Endpoint, sessions: &mut Sessions, reason: &str) -> LinkError {
        let opened = async {
            let connection = self.connector.connect(to).await.map_err(LinkError::Connect)?;
            sessions.v1.open(self, connection, to).await.map_err(LinkError::Upgrade)
        };
        match in_time(Box::pin(opened)).await {
            Ok(stream) => {
                match self.options.incremental_sync {
                    true => tracing::warn!(
                        control_plane = %to,
                        "cluster_incremental_sync has no effect: it does not speak Kong's second protocol for \
                         configurations ({reason}); the first is used"
                    ),
                    false => {
                        tracing::info!(control_plane = %to, "it does not speak Weir's protocol ({reason})")
                    }
                }
                self.begin(to, v1::PROTOCOL);
                LinkError::Ended(sessions.follow_v1(self, stream).await)
            }
            Err(error) => error,
        }
    }

    /// Logs what is wrong with a configuration, and keeps it for the status.
    fn refuse(&self, refusals: &[Refusal]) {
        refusals.iter().for_each(|refusal| tracing::error!("{refusal}"));
        tracing::error!(
            errors = refusals.len(),
            "the control plane's configuration is refused: the previous one stays active"
        );
        self.status.refused(refusals);
    }

    fn begin(&self, to: &Endpoint, protocol: &'static str) {
        self.status.connected(to.to_string(), protocol);
        tracing::info!(control_plane = %to, protocol, "connected");
    }
}

/// The outcome of an attempt to connect, if it ends in time.
async fn in_time<S>(opened: impl Future<Output = Result<S, LinkError>>) -> Result<S, LinkError> {
    tokio::time::timeout(CONNECT_TIMEOUT, opened).await.unwrap_or(Err(LinkError::Timeout))
}

/// A connection, by protocol.
enum Opened {
    Weir(WebSocketStream<Connection>),
    V2(v2::Socket),
}

/// The error that was logged last, and when.
#[derive(Default)]
struct Reported(Option<(String, Instant)>);

impl Reported {
    /// Whether an error is to be logged: it is another one, or the same has not been logged for some time.
    fn is_due(&mut self, message: &str) -> bool {
        let is_same = |(last, at): &(String, Instant)| last == message && at.elapsed() < REPORT_INTERVAL;
        let is_due = !self.0.as_ref().is_some_and(is_same);
        if is_due {
            self.0 = Some((message.to_owned(), Instant::now()));
        }
        is_due
    }
}

impl Sessions {
    /// What requests get without a connection.
    fn served(&self) -> &'static str {
        match self.weir.is_active() || self.v2.is_active() || self.v1.is_active() {
            true => "the active configuration is still served",
            false => "nothing is served before a control plane has sent a configuration",
        }
    }
}

/// What outlives connections, by protocol; and the cache. What is active came by one of the protocols, and means nothing to
/// the others.
struct Sessions {
    weir: weir::Session,
    v1: v1::Session,
    v2: v2::Session,
    writer: Writer,
}

impl Sessions {
    async fn follow_weir<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        stream: WebSocketStream<Connection>,
    ) -> LinkError {
        if self.v1.is_active() || self.v2.is_active() {
            self.weir.forget(plane);
        }
        let ended = self.weir.follow(plane, &mut self.writer, stream).await;
        if self.weir.is_active() {
            self.v1.forget();
            self.v2.forget();
        }
        ended
    }

    async fn follow_v1<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        stream: WebSocketStream<Connection>,
    ) -> String {
        if self.v2.is_active() {
            self.v1.forget();
        }
        let ended = self.v1.follow(plane, &mut self.writer, stream).await;
        if self.v1.is_active() {
            self.v2.forget();
        }
        ended
    }

    async fn follow_v2<A: Apply>(&mut self, plane: &DataPlane<A>, socket: v2::Socket) -> String {
        if self.v1.is_active() {
            self.v2.forget();
        }
        let ended = self.v2.follow(plane, &mut self.writer, socket).await;
        if self.v2.is_active() {
            self.v1.forget();
        }
        ended
    }
}
