//! Kong's second protocol, as a data plane speaks it: it asks for what changed since the version that it has, at intervals and
//! when the control plane says that there is a newer one.
use super::DataPlane;
use super::store::Writer;
use crate::connect::Connection;
use crate::rpc::{self, Event, RpcEnd, RpcSocket};
use crate::wire::v2::{
    self, ENCODING, GET_DELTA, GetDelta, Hello, NOTIFY_NEW_VERSION, NOTIFY_VALIDATION_ERROR,
    NotifyNewVersion, RpcError, SYNC_CAPABILITY, SyncResult, SyncVersion, ValidationError, Welcome,
};
use crate::{Apply, Refusal, Update};
use bytes::Bytes;
use futures_util::StreamExt;
use serde_json::Value;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::task::{JoinError, JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use weir_model::{Document, PluginSchema};

/// The protocol's name in logs and statuses.
pub(super) const PROTOCOL: &str = "v2";

/// How long the control plane may take to answer the hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(5);

/// After how long on a connection the control plane is asked first.
const FIRST_SYNC_DELAY: Duration = Duration::from_millis(200);

/// How often it is asked after that, if it says nothing.
const SYNC_INTERVAL: Duration = Duration::from_secs(30);

/// How often in a row it is asked: the second time reports the version that the first has brought.
const ROUNDS: u8 = 2;

/// How much longer a configuration may be than the message that brings it.
const MAX_INFLATION: usize = 32;

/// A connection. The only call that is sent asks for deltas.
pub(super) type Socket = RpcSocket<Connection, ()>;

/// What outlives connections.
pub(super) struct Session {
    /// Identifies the active configuration.
    version: SyncVersion,
    hello: Bytes,
}

/// What happens on a connection.
struct Sync {
    /// How often the control plane is still to be asked.
    rounds: u8,
    /// Whether it has been asked and has not answered.
    is_asking: bool,
    /// When it is asked next.
    at: Instant,
    applying: JoinSet<Outcome>,
    /// What could not be applied. It is not tried again.
    refused: Option<SyncVersion>,
}

/// The outcome of deltas.
enum Outcome {
    /// Everything is active, or changes are.
    Applied(SyncVersion, Option<Box<Document>>),
    Refused(SyncVersion, Vec<Refusal>),
}

impl Session {
    pub(super) fn new<A>(plane: &DataPlane<A>) -> Session {
        let about = &plane.about;
        let hello = Hello {
            rpc_capabilities: vec![SYNC_CAPABILITY.to_owned()],
            rpc_frame_encodings: vec![ENCODING.to_owned()],
            kong_version: about.version.clone(),
            kong_hostname: about.hostname.clone(),
            kong_node_id: about.id.to_string(),
            kong_conf: about.settings.clone(),
        };
        Session { version: SyncVersion::NONE, hello: hello.encode(1).into() }
    }

    /// What is active came by another protocol.
    pub(super) fn forget(&mut self) {
        self.version = SyncVersion::NONE;
    }

    /// Whether what is active came by this protocol.
    pub(super) fn is_active(&self) -> bool {
        self.version != SyncVersion::NONE
    }

    /// Introduces the data plane; the error is why the control plane sends no configuration by this protocol.
    pub(super) async fn greet<A>(
        &self,
        plane: &DataPlane<A>,
        mut stream: WebSocketStream<Connection>,
    ) -> Result<Socket, String> {
        let sent = rpc::send(&mut stream, self.hello.clone()).await;
        sent.map_err(|error| error.to_string())?;
        let welcome = match timeout(HELLO_TIMEOUT, stream.next()).await {
            Ok(Some(Ok(Frame::Binary(bytes)))) => {
                Welcome::decode(&bytes).map_err(|error| error.to_string())?
            }
            Ok(Some(Err(error))) => return Err(error.to_string()),
            Ok(Some(Ok(_)) | None) => return Err("the hello is not answered".to_owned()),
            Err(_) => return Err(format!("the hello is not answered within {} s", HELLO_TIMEOUT.as_secs())),
        };
        match welcome.rpc_capabilities.iter().any(|name| name == SYNC_CAPABILITY) {
            true => Ok(Socket::new(stream, plane.options.max_payload.saturating_mul(MAX_INFLATION))),
            false => Err(format!("it does not offer {SYNC_CAPABILITY}")),
        }
    }

    /// Follows the control plane until the connection ends; returns why it did.
    pub(super) async fn follow<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        mut socket: Socket,
    ) -> String {
        let mut sync = Sync {
            rounds: 0,
            is_asking: false,
            at: Instant::now() + FIRST_SYNC_DELAY,
            applying: JoinSet::new(),
            refused: None,
        };
        let Err(end) = self.exchange(plane, writer, &mut socket, &mut sync).await;
        drop(socket);
        // What is being applied becomes active without the connection, too.
        while let Some(outcome) = sync.applying.join_next().await {
            self.conclude(plane, writer, outcome);
        }
        end.explained("the control plane", plane.options.max_payload)
    }

    async fn exchange<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        socket: &mut Socket,
        sync: &mut Sync,
    ) -> Result<Infallible, RpcEnd> {
        loop {
            if sync.rounds > 0 && !sync.is_asking && sync.applying.is_empty() {
                (sync.rounds, sync.is_asking) = (sync.rounds - 1, true);
                let asked = GetDelta { version: self.version.clone() };
                socket.call(GET_DELTA, asked.params(), ()).await?;
            }
            tokio::select! {
                event = socket.next() => match event? {
                    Event::Called { method, params, id } => {
                        let answer = self.called(&method, params, sync);
                        socket.answer(id, answer).await?;
                    }
                    Event::Answered((), answer) => {
                        sync.is_asking = false;
                        plane.status.received(socket.frame_len());
                        self.answered(plane, answer, sync);
                    }
                },
                Some(outcome) = sync.applying.join_next() => {
                    let before = self.version.clone();
                    match self.conclude(plane, writer, outcome) {
                        Some(refused) => self.report(socket, sync, refused).await?,
                        // Asking again reports the version.
                        None if self.version != before => sync.rounds = sync.rounds.max(1),
                        None => {}
                    }
                }
                () = sleep_until(sync.at) => {
                    (sync.rounds, sync.at) = (ROUNDS, Instant::now() + SYNC_INTERVAL);
                }
            }
        }
    }

    /// Lets the control plane know of a refusal. It is not tried again.
    async fn report(
        &self,
        socket: &mut Socket,
        sync: &mut Sync,
        refused: ValidationError,
    ) -> Result<(), RpcEnd> {
        (sync.rounds, sync.refused) = (0, Some(refused.version.clone()));
        match refused.version {
            // Since 3.10, which has texts.
            SyncVersion::Text(_) => socket.notify(NOTIFY_VALIDATION_ERROR, refused.params()).await,
            SyncVersion::Number(_) => Ok(()),
        }
    }

    /// The control plane calls.
    fn called(&self, method: &str, params: Vec<Value>, sync: &mut Sync) -> Result<Value, RpcError> {
        if method != NOTIFY_NEW_VERSION {
            return Err(RpcError::unknown_method());
        }
        let Some(NotifyNewVersion { new_version }) = NotifyNewVersion::read(params) else {
            return Err(RpcError::failed("default namespace does not exist inside params"));
        };
        let is_newer = match (new_version.number(), self.version.number()) {
            (Some(new), Some(own)) => new > own,
            _ => new_version != self.version,
        };
        if is_newer {
            sync.rounds = ROUNDS;
        }
        Ok(true.into())
    }

    /// The control plane says what is new.
    fn answered<A: Apply>(&self, plane: &DataPlane<A>, answer: Result<Value, RpcError>, sync: &mut Sync) {
        let result = match answer {
            Ok(result) => SyncResult::read(result).ok_or_else(|| "its answer has no deltas".to_owned()),
            Err(error) => Err(format!("{} ({})", error.message, error.code)),
        };
        let result = match result {
            Ok(result) => result,
            Err(reason) => {
                tracing::error!("the control plane sends no configuration: {reason}");
                sync.rounds = 0;
                return;
            }
        };
        let Some(version) = result.version().cloned() else {
            if self.is_active() {
                plane.status.applied();
            }
            return;
        };
        if sync.refused.as_ref() != Some(&version) {
            sync.applying.spawn(apply(result, version, plane.apply.clone(), plane.plugins.clone()));
        }
    }

    /// Records the outcome of deltas; returns what tells the control plane of a refusal.
    fn conclude<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        outcome: Result<Outcome, JoinError>,
    ) -> Option<ValidationError> {
        let outcome =
            outcome.unwrap_or_else(|error| Outcome::Refused(SyncVersion::NONE, vec![malformed(&error)]));
        match outcome {
            Outcome::Applied(version, document) => {
                let document = document.map(|document| *document).or_else(|| plane.apply.active());
                document.and_then(|document| writer.store(&document));
                plane.status.applied();
                tracing::info!(
                    configuration_hash = version.hash(),
                    "the control plane's configuration is active"
                );
                self.version = version;
                None
            }
            Outcome::Refused(version, refusals) => {
                plane.refuse(&refusals);
                let error = refusals.iter().map(Refusal::to_string).collect::<Vec<_>>().join("; ");
                Some(ValidationError { version, error: error.into() })
            }
        }
    }
}

fn malformed(error: &JoinError) -> Refusal {
    Refusal { entity: "configuration".to_owned(), field: None, message: error.to_string() }
}

/// Reads deltas and applies them, all or none.
async fn apply<A: Apply>(
    result: SyncResult,
    version: SyncVersion,
    apply: Arc<A>,
    plugins: Arc<[PluginSchema]>,
) -> Outcome {
    let reading = spawn_blocking(move || read(&result, &plugins)).await;
    let update = match reading.unwrap_or_else(|error| Err(vec![malformed(&error)])) {
        Ok(update) => update,
        Err(refusals) => return Outcome::Refused(version, refusals),
    };
    let document = match &update {
        Update::Whole(document) => Some(document.clone()),
        Update::Changes(_) => None,
    };
    match apply.apply(update, version.hash()).await {
        Ok(()) => Outcome::Applied(version, document),
        Err(refusals) => Outcome::Refused(version, refusals),
    }
}

/// What deltas change, or everything that is wrong with them. Takes long where there are many.
fn read(result: &SyncResult, plugins: &[PluginSchema]) -> Result<Update, Vec<Refusal>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs().cast_signed();
    let (mut changes, mut refusals) = (Vec::new(), Vec::new());
    for delta in result.effective() {
        match delta.change(plugins, now) {
            Ok(change) => changes.extend(change),
            Err(error) => refusals.extend(error.0),
        }
    }
    match refusals.is_empty() {
        false => Err(refusals),
        true if result.wipe => {
            v2::document(changes, plugins).map(|document| Update::Whole(Box::new(document)))
        }
        true => Ok(Update::Changes(changes)),
    }
}
