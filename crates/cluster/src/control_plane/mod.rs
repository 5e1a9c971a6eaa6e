//! A control plane: admits data planes, sends them the configuration, and knows which of them serve it.
mod analytics;
mod bounds;
mod capabilities;
mod cohorts;
mod coverage;
mod fleet;
mod introduction;
mod link;
mod member;
mod payloads;
mod pending;
mod sharing;
#[cfg(test)]
mod simulation;
mod upgrade;
mod v1;
mod v2;
mod weir;

pub use analytics::{Collect, FrameOutcome, Inbox};
pub use coverage::{Coverage, Share};
pub use fleet::Fleet;
pub use member::{CertDetails, Member, State};
pub use sharing::{Row, Stamped};

use crate::Source;
use crate::admission::Admission;
use crate::sync::Selector;
use crate::tls::ServerTls;
use cohorts::Cohorts;
use payloads::Payloads;
use pending::Pending;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::{TcpListener, TcpStream};
use upgrade::{Protocol, Upgraded, named};
use v2::Increments;
use weir_model::PluginSchema;

/// How many data planes are admitted at once.
const ADMISSION_BURST: u32 = 150;

/// How many are admitted in each second after that.
const ADMISSION_RATE: u32 = 150;

/// How a control plane behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The longest message that it accepts.
    pub max_payload: usize,
    /// The pause after a configuration was sent by Kong's first protocol.
    pub push_interval: Duration,
    /// The version of Kong that it is compatible with.
    pub version: String,
    /// The schemas of its plugins.
    pub plugins: Arc<[PluginSchema]>,
    /// Whether it speaks Kong's second protocol.
    pub rpc: bool,
    /// Whether it sends the configuration by that protocol.
    pub incremental_sync: bool,
    /// Which labels of data planes select what they get.
    pub selector: Selector,
}

/// A control plane.
pub struct ControlPlane {
    tls: ServerTls,
    fleet: Arc<Fleet>,
    options: Options,
    cohorts: Arc<Cohorts>,
    payloads: Payloads,
    increments: Increments,
    pending: Pending,
    admission: Mutex<Admission>,
    analytics: Option<Arc<dyn Collect>>,
}

impl ControlPlane {
    /// One that sends what is in this source.
    pub fn new(source: Arc<dyn Source>, tls: ServerTls, fleet: Arc<Fleet>, options: Options) -> ControlPlane {
        let cohorts = Arc::new(Cohorts::new(source, options.plugins.clone(), options.selector.clone()));
        let payloads = Payloads::new(options.plugins.clone());
        let admission = Mutex::new(Admission::new(ADMISSION_RATE, ADMISSION_BURST, Instant::now()));
        let (increments, pending) = (Increments::new(options.plugins.clone()), Pending::default());
        let analytics = None;
        ControlPlane { tls, fleet, options, cohorts, payloads, increments, pending, admission, analytics }
    }

    /// The same one, which also takes what its data planes measure.
    pub fn collecting(self, analytics: Option<Arc<dyn Collect>>) -> ControlPlane {
        ControlPlane { analytics, ..self }
    }

    /// Prepares each version of the configuration for data planes, for as long as the process runs.
    pub async fn publish(&self) {
        let exported = self.payloads.follow(&self.cohorts, self.options.push_interval);
        tokio::join!(self.cohorts.follow(), exported, self.note_revisions());
    }

    /// Has the fleet know the newest revision.
    async fn note_revisions(&self) {
        let mut newest = self.cohorts.newest();
        loop {
            self.fleet.advance(*newest.borrow_and_update());
            if newest.changed().await.is_err() {
                return;
            }
        }
    }

    /// Serves the data planes that connect to a listener, until the fleet is drained.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        let mut drained = std::pin::pin!(self.fleet.drained());
        loop {
            let accepted = tokio::select! {
                _ = &mut drained => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((tcp, address)) => {
                    let Some(pending) = self.pending.enter(address.ip()) else {
                        tracing::debug!("the data plane at {address} is closed: too many connect at once");
                        continue;
                    };
                    let plane = self.clone();
                    tokio::spawn(async move {
                        let upgraded = plane.upgraded(tcp, address).await;
                        drop(pending);
                        if let Some(upgraded) = upgraded {
                            plane.session(upgraded).await;
                        }
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, "cluster_listen: a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    /// Serves a data plane until its connection ends, and logs why it did.
    async fn session(&self, upgraded: Upgraded) {
        let name = named(&upgraded.arrival);
        let ended = match upgraded.protocol {
            Protocol::Weir => weir::serve(self, upgraded).await,
            Protocol::V1 => v1::serve(self, upgraded).await,
            Protocol::V2(greeting) => v2::serve(self, upgraded.stream, upgraded.arrival, *greeting).await,
        };
        tracing::info!("data plane {name} disconnected: {ended}");
    }

    /// Takes a connection up to its WebSocket; logs why that fails.
    async fn upgraded(&self, tcp: TcpStream, address: SocketAddr) -> Option<Upgraded> {
        let _ = tcp.set_nodelay(true);
        match self.upgrade(tcp, address).await {
            Ok(upgraded) => {
                tracing::info!("data plane {} connected", named(&upgraded.arrival));
                Some(upgraded)
            }
            Err(error) => {
                tracing::warn!("the data plane at {address} is refused: {error}");
                None
            }
        }
    }
}
