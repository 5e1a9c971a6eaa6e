//! Kong's second protocol over a connection, as a control plane speaks it: the data plane asks for what changed since the
//! version that it has, and is called when there is a newer one. Versions are revisions.
mod altered;
mod greeting;
mod increments;
mod peers;

pub(super) use greeting::Greeting;
pub(super) use increments::Increments;

use super::ControlPlane;
use super::bounds::{MAX_MESSAGE_LEN, shortened};
use super::cohorts::Counted;
use super::introduction::record;
use super::link::Sent;
use super::member::EMPTY_HASH;
use super::payloads::Form;
use super::upgrade::{Arrival, Stream};
use crate::Refusal;
use crate::rpc::{Event, RpcEnd, RpcSocket, send};
use crate::sync::identity::Identity;
use crate::wire::data_plane::SyncStatus;
use crate::wire::v1::check_size;
use crate::wire::v2::{
    ENCODING, GET_DELTA, GetDelta, NOTIFY_NEW_VERSION, NOTIFY_VALIDATION_ERROR, NotifyNewVersion, RpcError,
    SYNC_CAPABILITY, SyncVersion, ValidationError, Welcome, encode_result,
};
use greeting::Terms;
use increments::Held;
use peers::{Offer, Peer};
use serde_json::Value;
use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

/// The longest call of a data plane, decompressed. It says little.
const MAX_CALL_LEN: usize = 4 << 20;

/// How long a call waits until the store was read; the caller waits for 5 s.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The protocol's name in `/clustering/data-planes`.
const PROTOCOL: &str = "v2";

/// A connection. The only call that is sent says that there is a newer version.
type Socket = RpcSocket<TlsStream<tokio::net::TcpStream>, ()>;

/// Serves a connection of a data plane, which may have several, until it ends; returns why it did.
pub(super) async fn serve(
    plane: &ControlPlane,
    mut stream: Stream,
    arrival: Arrival,
    greeting: Greeting,
) -> String {
    let is_offered = plane.options.incremental_sync;
    let rpc_capabilities = is_offered.then(|| SYNC_CAPABILITY.to_owned()).into_iter().collect();
    let welcome = Welcome { rpc_capabilities, rpc_frame_encoding: ENCODING.to_owned() };
    let is_synced = is_offered && greeting.is_synced();
    let Greeting { id: call, capabilities, terms, .. } = greeting;
    if let Err(error) = send(&mut stream, welcome.encode(&call).into()).await {
        return error.to_string();
    }
    drop(call);
    let id = arrival.visitor.id;
    let _listed = plane.fleet.capabilities.list(id, capabilities);
    let mut socket = Socket::new(stream, MAX_CALL_LEN);
    let ended = if is_synced {
        let connect = || record(plane, arrival, terms.labels.clone(), PROTOCOL);
        let peer = plane.increments.peers.join(id, connect);
        let mut session = Session::new(plane, peer, &terms);
        let ended = session.exchange(&mut socket).await;
        if session.is_calling {
            session.peer.retract();
        }
        ended
    } else {
        refuse_calls(&mut socket).await
    };
    let Err(end) = ended;
    end.explained("it", plane.options.max_payload)
}

/// Keeps a connection of a data plane that is sent the configuration by the first protocol.
async fn refuse_calls(socket: &mut Socket) -> Result<Infallible, RpcEnd> {
    loop {
        if let Event::Called { id, .. } = socket.next().await? {
            socket.answer(id, Err(RpcError::unknown_method())).await?;
        }
    }
}

/// A connection of a data plane that asks for increments.
struct Session<'p> {
    plane: &'p ControlPlane,
    cohort: Counted<'p>,
    peer: Arc<Peer>,
    form: Form,
    /// The longest message that the data plane takes.
    max_payload: usize,
    /// The version that the data plane named last; others that are sent to it have the same form.
    version: SyncVersion,
    /// Whether a call has not been answered yet.
    is_calling: bool,
    /// Whether this control plane is known to have read all that the store had when the data plane came.
    is_caught_up: bool,
}

impl Session<'_> {
    fn new<'p>(plane: &'p ControlPlane, peer: Arc<Peer>, terms: &Terms) -> Session<'p> {
        let cohort = plane.cohorts.enter(&terms.labels);
        Session {
            plane,
            cohort,
            peer,
            form: terms.form,
            max_payload: terms.max_payload,
            version: terms.first_version(),
            is_calling: false,
            is_caught_up: false,
        }
    }

    async fn exchange(&mut self, socket: &mut Socket) -> Result<Infallible, RpcEnd> {
        let (mut newest, peer) = (self.plane.cohorts.newest(), self.peer.clone());
        let revision = *newest.borrow_and_update();
        self.expect(revision, 0).await;
        let mut drained = pin!(self.plane.fleet.drained());
        loop {
            tokio::select! {
                _ = &mut drained => return Err(socket.close().await),
                event = socket.next() => self.take(socket, event?).await?,
                changed = newest.changed(), if !self.is_calling => {
                    if changed.is_err() {
                        return Err(RpcEnd::Closed);
                    }
                    self.announce(socket, &mut newest).await?;
                }
                () = peer.unannounced.notified(), if !self.is_calling => {
                    self.announce(socket, &mut newest).await?;
                }
            }
        }
    }

    /// Calls the data plane because of a new revision, unless another of its connections does.
    async fn announce(
        &mut self,
        socket: &mut Socket,
        newest: &mut watch::Receiver<u64>,
    ) -> Result<(), RpcEnd> {
        let Some(revision) = self.peer.announces(newest) else { return Ok(()) };
        self.expect(revision, 0).await;
        let new_version = self.version.with(revision);
        self.is_calling = true;
        socket.call(NOTIFY_NEW_VERSION, NotifyNewVersion { new_version }.params(), ()).await
    }

    /// Records what the data plane is to serve, and how many bytes it was sent for that.
    async fn expect(&self, revision: u64, bytes: usize) {
        let altered = self.plane.increments.altered(&self.cohort, self.form).await.to_vec();
        let hash = self.version.with(revision).hash();
        self.peer.link.sent(Sent { revision, hash, bytes, altered });
    }

    async fn take(&mut self, socket: &mut Socket, event: Event<()>) -> Result<(), RpcEnd> {
        self.peer.link.heard();
        let (method, params, id) = match event {
            Event::Called { method, params, id } => (method, params, id),
            Event::Answered((), answer) => {
                self.is_calling = false;
                if let Err(error) = answer {
                    let message = shortened(error.message, MAX_MESSAGE_LEN);
                    tracing::warn!("a data plane was not notified of a new version: {message}");
                }
                return Ok(());
            }
        };
        let outcome = match method.as_str() {
            GET_DELTA => match GetDelta::read(params) {
                Some(GetDelta { version }) => return self.get_delta(socket, version, id).await,
                None => Err(RpcError::failed("default namespace does not exist inside params")),
            },
            NOTIFY_VALIDATION_ERROR => self.validation_error(params),
            _ => Err(RpcError::unknown_method()),
        };
        socket.answer(id, outcome).await
    }

    /// The data plane says what it has, and wants what it lacks unless there is no id.
    async fn get_delta(
        &mut self,
        socket: &mut Socket,
        version: SyncVersion,
        id: Option<Value>,
    ) -> Result<(), RpcEnd> {
        let newest = self.cohort.with(|cohort| cohort.identity().sequence);
        let held = self.peer.held(&version, self.form, self.cohort.labels());
        // One that is no more was of a history that the store has lost.
        let held = held.filter(|held| held.sequence <= newest);
        match held {
            Some(held) => self.peer.link.serves(held.sequence, &version.with(held.sequence).hash()),
            None => self.peer.link.seen(EMPTY_HASH),
        }
        self.version = version;
        let Some(id) = id else { return Ok(()) };
        match self.prepare(held, &id).await {
            Ok((identity, frame)) => {
                self.peer.link.judged(SyncStatus::Normal.as_str(), None);
                self.expect(identity.sequence, frame.len()).await;
                let labels = self.cohort.labels().clone();
                self.peer.offer(Offer { identity, form: self.form, labels });
                socket.send(frame.into()).await
            }
            Err(error) => {
                tracing::error!("a data plane is not sent the configuration: {}", error.message);
                self.peer.link.judged(SyncStatus::Unknown.as_str(), Some(error.message.clone()));
                socket.answer(Some(id), Err(error)).await
            }
        }
    }

    /// The answer to a data plane that has this, and what it brings.
    async fn prepare(&mut self, held: Option<Identity>, id: &Value) -> Result<(Identity, Vec<u8>), RpcError> {
        // What it has came from another control plane, which may know later commits.
        if !self.is_caught_up && held.is_none() && self.version != self.version.with(0) {
            let caught_up = timeout(CATCH_UP_TIMEOUT, self.plane.cohorts.caught_up()).await;
            caught_up.map_err(|_| RpcError::failed("the control plane has not read the database yet"))?;
        }
        self.is_caught_up = true;
        let held = Held { identity: held, version: self.version.clone(), form: self.form };
        let answer = self.plane.increments.answer(&self.cohort, held).await;
        let answer = answer.map_err(|error| RpcError::internal(&error.to_string()))?;
        let frame =
            encode_result(id, &answer.result).map_err(|error| RpcError::failed(&error.to_string()))?;
        check_size(&frame, self.max_payload).map_err(|error| RpcError::failed(&error.to_string()))?;
        Ok((answer.identity, frame))
    }

    /// The data plane cannot serve a version.
    fn validation_error(&self, params: Vec<Value>) -> Result<Value, RpcError> {
        let error = ValidationError::read(params)
            .ok_or_else(|| RpcError::failed("no version and error in params"))?;
        let message = error.error.as_str().map_or_else(|| error.error.to_string(), str::to_owned);
        let refusal = Refusal { entity: "configuration".to_owned(), field: None, message };
        self.peer.link.refused(error.version.number(), vec![refusal]);
        Ok(true.into())
    }
}
