//! Kong's first protocol, as a data plane speaks it: the control plane sends the whole configuration, and the data plane
//! acknowledges it by pinging with its hash.
use super::DataPlane;
use super::store::Writer;
use crate::connect::{Connection, Endpoint};
use crate::websocket::{self, UpgradeError};
use crate::wire::compat::LoadedPlugin;
use crate::wire::hash::ConfigHash;
use crate::wire::payload;
use crate::wire::v1::{BasicInfo, ErrorMessage, ErrorReport, Query, Received, inflate};
use crate::{Apply, Refusal, Update};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value as Json};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message};
use weir_model::{Document, PluginSchema};

/// The protocol's name in logs and statuses.
pub(super) const PROTOCOL: &str = "v1";

/// The shortest wait before the next connection, as in Kong: each one costs the control plane the whole configuration.
pub(super) const SHORTEST_WAIT: Duration = Duration::from_secs(5);

/// How often the control plane is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// After how long without a message the control plane counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(45);

/// How long a message may take to be sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// How much longer a configuration may be than the message that brings it.
const MAX_INFLATION: usize = 64;

/// What outlives connections.
pub(super) struct Session {
    /// Identifies the active configuration.
    hash: ConfigHash,
    basic_info: Bytes,
    path: String,
}

/// The outcome of a message with a configuration.
enum Outcome {
    /// It is the active one.
    Unchanged,
    /// It is of a later version.
    Unknown,
    Applied(ConfigHash, Box<Document>),
    Refused(ConfigHash, Vec<Refusal>),
    /// It is no configuration.
    Malformed(String),
}

impl Session {
    pub(super) fn new<A>(plane: &DataPlane<A>) -> Session {
        let about = &plane.about;
        let plugins = about.plugins.iter().cloned();
        let info = BasicInfo {
            plugins: plugins.map(|(name, version)| LoadedPlugin { name, version }).collect(),
            process_conf: about.settings.clone(),
            filters: Map::new(),
            labels: (!about.labels.is_empty()).then(|| about.labels.clone()),
        };
        let query = Query {
            node_id: about.id.to_string(),
            node_hostname: Some(about.hostname.clone()),
            node_version: about.version.clone(),
        };
        Session { hash: ConfigHash::EMPTY, basic_info: info.encode().into(), path: query.target() }
    }

    /// What is active came by another protocol.
    pub(super) fn forget(&mut self) {
        self.hash = ConfigHash::EMPTY;
    }

    /// Whether what is active came by this protocol.
    pub(super) fn is_active(&self) -> bool {
        self.hash != ConfigHash::EMPTY
    }

    pub(super) async fn open<A>(
        &self,
        plane: &DataPlane<A>,
        connection: Connection,
        to: &Endpoint,
    ) -> Result<WebSocketStream<Connection>, UpgradeError> {
        let opened = websocket::open(connection, to, &self.path, None, plane.options.max_payload).await;
        opened.map(|(stream, _)| stream)
    }

    /// Follows the control plane until the connection ends; returns why it did.
    pub(super) async fn follow<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        mut stream: WebSocketStream<Connection>,
    ) -> String {
        let mut applying = JoinSet::new();
        let ended = self.exchange(plane, writer, &mut stream, &mut applying).await;
        drop(stream);
        // What is being applied becomes active without the connection, too.
        while let Some(outcome) = applying.join_next().await {
            self.conclude(plane, writer, outcome);
        }
        ended.unwrap_or_else(|error| websocket::explained(&error, plane.options.max_payload))
    }

    async fn exchange<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        stream: &mut WebSocketStream<Connection>,
        applying: &mut JoinSet<Outcome>,
    ) -> Result<String, Error> {
        send(stream, Message::Binary(self.basic_info.clone())).await?;
        let mut ping = interval(PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut lost_at, mut newest) = (Instant::now() + LOST_AFTER, None);
        loop {
            tokio::select! {
                message = stream.next() => {
                    let Some(message) = message.transpose()? else { return Ok(ended()) };
                    lost_at = Instant::now() + LOST_AFTER;
                    match message {
                        Message::Binary(bytes) => newest = Some(bytes),
                        Message::Close(_) => return Ok(ended()),
                        _ => {}
                    }
                }
                Some(outcome) = applying.join_next() => {
                    if let Some(answer) = self.conclude(plane, writer, outcome) {
                        send(stream, answer).await?;
                    }
                }
                _ = ping.tick() => send(stream, self.ping()).await?,
                () = sleep_until(lost_at) => {
                    return Ok(format!("the control plane was silent for {} s", LOST_AFTER.as_secs()));
                }
            }
            // Of messages that arrive meanwhile, the newest counts.
            if applying.is_empty()
                && let Some(bytes) = newest.take()
            {
                plane.status.received(bytes.len());
                let (apply, plugins) = (plane.apply.clone(), plane.plugins.clone());
                applying.spawn(receive(bytes, plane.options.max_payload, self.hash, apply, plugins));
            }
        }
    }

    fn ping(&self) -> Message {
        Message::Ping(Bytes::copy_from_slice(self.hash.as_bytes()))
    }

    /// Records the outcome of a message; returns what tells the control plane of it.
    fn conclude<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        outcome: Result<Outcome, JoinError>,
    ) -> Option<Message> {
        let outcome = outcome.unwrap_or_else(|error| Outcome::Malformed(error.to_string()));
        let (hash, refusals) = match outcome {
            Outcome::Unknown => return None,
            Outcome::Unchanged => {
                plane.status.applied();
                return None;
            }
            Outcome::Applied(hash, document) => {
                writer.store(&document);
                plane.status.applied();
                tracing::info!(configuration_hash = %hash, "the control plane's configuration is active");
                self.hash = hash;
                return Some(self.ping());
            }
            Outcome::Refused(hash, refusals) => (hash, refusals),
            Outcome::Malformed(message) => {
                let entity = "configuration".to_owned();
                (ConfigHash::EMPTY, vec![Refusal { entity, field: None, message }])
            }
        };
        plane.refuse(&refusals);
        let reports = plane.options.reports_errors;
        reports.then(|| Message::Binary(report(hash, &refusals).encode().into()))
    }
}

fn ended() -> String {
    "the control plane closed the connection".to_owned()
}

async fn send(stream: &mut WebSocketStream<Connection>, message: Message) -> Result<(), Error> {
    match timeout(SEND_TIMEOUT, stream.send(message)).await {
        Ok(sent) => sent,
        Err(_) => Err(Error::Io(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "the control plane takes no messages",
        ))),
    }
}

/// What a control plane of Konnect gets to know of a refusal.
fn report(hash: ConfigHash, refusals: &[Refusal]) -> ErrorMessage {
    let message: Vec<_> = refusals.iter().map(Refusal::to_string).collect();
    let flattened: Json = refusals.iter().map(|refusal| serde_json::json!(refusal)).collect();
    ErrorMessage {
        error: ErrorReport {
            name: ErrorMessage::INVALID.to_owned(),
            source: "weir".to_owned(),
            message: message.join("; "),
            config_hash: hash.to_string(),
            others: Map::from_iter([("flattened_errors".to_owned(), flattened)]),
        },
    }
}

/// Reads a configuration, and applies it if it is not the active one.
async fn receive<A: Apply>(
    bytes: Bytes,
    max_payload: usize,
    active: ConfigHash,
    apply: Arc<A>,
    plugins: Arc<[PluginSchema]>,
) -> Outcome {
    let reading = tokio::task::spawn_blocking(move || read(&bytes, max_payload, active, &plugins)).await;
    match reading {
        Ok(Ok((document, hash))) => {
            let update = Update::Whole(document.clone());
            match apply.apply(update, hash.to_string()).await {
                Ok(()) => Outcome::Applied(hash, document),
                Err(refusals) => Outcome::Refused(hash, refusals),
            }
        }
        Ok(Err(outcome)) => outcome,
        Err(error) => Outcome::Malformed(error.to_string()),
    }
}

/// The configuration in a message, or why there is nothing to apply. Takes long where it is large.
fn read(
    bytes: &[u8],
    max_payload: usize,
    active: ConfigHash,
    plugins: &[PluginSchema],
) -> Result<(Box<Document>, ConfigHash), Outcome> {
    let malformed = |error: crate::wire::v1::MessageError| Outcome::Malformed(error.to_string());
    let text = inflate(bytes, max_payload.saturating_mul(MAX_INFLATION)).map_err(malformed)?;
    let (hash, table) = match Received::parse(&text).map_err(malformed)? {
        Received::Reconfigure { hash, table } => (hash, table),
        Received::Other(_) => return Err(Outcome::Unknown),
    };
    if hash == active {
        return Err(Outcome::Unchanged);
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let parsed = payload::read(table, plugins, now);
    let mut document = parsed.map_err(|refusals| Outcome::Refused(hash, refusals))?.document;
    document.sort();
    Ok((Box::new(document), hash))
}
