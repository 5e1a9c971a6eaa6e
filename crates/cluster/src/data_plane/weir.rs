//! Weir's own protocol over a connection, as a data plane speaks it: it gets what differs, and says what it serves.
use super::analytics::HandingIn;
use super::store::Writer;
use super::{DataPlane, LinkError};
use crate::Apply;
use crate::connect::{Connection, Endpoint};
use crate::sync::identity::{Digest, Identity};
use crate::sync::inventory::Inventory;
use crate::sync::message::{ANALYTICS_CAPABILITY, Goodbye, Hello, Message};
use crate::sync::transfer::{Received, Staged};
use crate::sync::{Follower, Step, Update};
use crate::websocket::{self, Frames, SUBPROTOCOL, UpgradeError};
use crate::wire::v2;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

/// The protocol's name in logs and statuses.
pub(super) const PROTOCOL: &str = "weir";

/// How often the control plane is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(15);

/// After how long without a message the control plane counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(45);

/// How long a message may take to be sent.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

type Stream = WebSocketStream<Connection>;

/// What outlives connections.
pub(crate) struct Session {
    follower: Follower,
    /// Whether a control plane has said what to serve, be it nothing.
    is_configured: bool,
    /// What the control plane said when it ended the connection.
    goodbye: Option<Goodbye>,
    path: String,
}

impl Session {
    /// One that serves what the cache had, or nothing.
    pub(crate) fn new<A>(plane: &DataPlane<A>, active: Option<(Identity, Inventory)>) -> Session {
        let (about, is_configured) = (&plane.about, active.is_some());
        let plugins = plane.plugins.clone();
        let follower = match active {
            Some((identity, inventory)) => Follower::continuing(plugins, identity, inventory),
            None => Follower::new(plugins),
        };
        let path = format!(
            "/v2/outlet?node_id={}&node_hostname={}&node_version={}",
            about.id, about.hostname, about.version
        );
        Session { follower, is_configured, goodbye: None, path }
    }

    /// What is active came by another protocol.
    pub(super) fn forget<A>(&mut self, plane: &DataPlane<A>) {
        (self.follower, self.is_configured) = (Follower::new(plane.plugins.clone()), false);
    }

    /// Whether what is active came by this protocol.
    pub(super) fn is_active(&self) -> bool {
        self.follower.identity() != Identity::default()
    }

    /// Opens a connection; returns also the protocol that the control plane chooses, which may be Kong's second.
    pub(super) async fn open<A>(
        &self,
        plane: &DataPlane<A>,
        connection: Connection,
        to: &Endpoint,
    ) -> Result<(Stream, Option<String>), UpgradeError> {
        let offered = match plane.options.incremental_sync {
            true => &format!("{SUBPROTOCOL}, {}", v2::PROTOCOL),
            false => SUBPROTOCOL,
        };
        websocket::open(connection, to, &self.path, Some(offered), plane.options.max_payload).await
    }

    /// Follows the control plane until the connection ends; returns why it did.
    pub(crate) async fn follow<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        mut stream: impl Frames,
    ) -> LinkError {
        let ended = self.exchange(plane, writer, &mut stream).await;
        writer.abort();
        let explained = |error| websocket::explained(&error, plane.options.max_payload);
        let ended = ended.unwrap_or_else(explained);
        self.goodbye.take().map_or(LinkError::Ended(ended), LinkError::Goodbye)
    }

    async fn exchange<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        stream: &mut impl Frames,
    ) -> Result<String, Error> {
        let hello = self.hello(plane);
        send(stream, vec![hello]).await?;
        let mut ping = interval(PING_INTERVAL);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut lost_at = Instant::now() + LOST_AFTER;
        let mut analytics = HandingIn::new(plane.analytics.as_deref(), &plane.status);
        loop {
            tokio::select! {
                // In this order, so that simulations repeat themselves. Each frame of analytics waits for the answer to the last.
                biased;
                message = analytics.next() => flush(stream, Frame::Binary(message)).await?,
                frame = stream.next() => {
                    let Some(frame) = frame.transpose()? else { return Ok(ended()) };
                    lost_at = Instant::now() + LOST_AFTER;
                    match frame {
                        Frame::Binary(bytes) => match self.receive(plane, writer, &mut analytics, bytes).await {
                            Ok(replies) => send(stream, replies).await?,
                            Err(reason) => return Ok(reason),
                        },
                        Frame::Close(_) => return Ok(ended()),
                        _ => {}
                    }
                }
                _ = ping.tick() => flush(stream, Frame::Ping(Bytes::new())).await?,
                () = sleep_until(lost_at) => {
                    return Ok(format!("the control plane was silent for {} s", LOST_AFTER.as_secs()));
                }
            }
        }
    }

    fn hello<A>(&mut self, plane: &DataPlane<A>) -> Message {
        self.follower.hello(Hello {
            version: plane.about.version.clone(),
            plugins: plane.about.plugins.iter().map(|(name, _)| name.clone()).collect(),
            labels: plane.about.labels.clone(),
            max_payload: plane.options.max_payload as u64,
            capabilities: plane.analytics.iter().map(|_| ANALYTICS_CAPABILITY.to_owned()).collect(),
            ..Hello::default()
        })
    }

    /// Takes a message, and returns the answers to it; the error is why the connection must end.
    async fn receive<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        analytics: &mut HandingIn<'_>,
        bytes: Bytes,
    ) -> Result<Vec<Message>, String> {
        plane.status.received(bytes.len());
        let message = Message::decode(bytes).map_err(|error| error.to_string())?;
        match &message {
            Message::Welcome(welcome) => analytics.begin(welcome),
            Message::AnalyticsTaken(taken) => {
                analytics.answered(taken);
                return Ok(Vec::new());
            }
            _ => {}
        }
        writer.write(&message);
        let step = self.follower.receive(message).map_err(|error| error.to_string())?;
        match step {
            Step::Current => {
                self.confirm(plane).await;
                Ok(Vec::new())
            }
            Step::Reply(messages) => {
                messages.iter().for_each(|message| report(plane, message));
                Ok(messages)
            }
            Step::Apply(received, mut replies) => {
                replies.push(self.apply(plane, writer, *received).await);
                Ok(replies)
            }
            Step::Goodbye(goodbye) => {
                self.goodbye = Some(goodbye);
                Err(ended())
            }
        }
    }

    /// The control plane has what is served here. If that is nothing, it is so on purpose.
    async fn confirm<A: Apply>(&mut self, plane: &DataPlane<A>) {
        let Identity { digest, .. } = self.follower.identity();
        if digest == Digest::default() && !self.is_configured {
            let applied = plane.apply.apply(Update::Whole(Box::default()), digest.to_string()).await;
            self.is_configured = applied.is_ok();
        }
        plane.status.applied();
    }

    async fn apply<A: Apply>(
        &mut self,
        plane: &DataPlane<A>,
        writer: &mut Writer,
        received: Received,
    ) -> Message {
        let Received { update, staged } = received;
        let hash = staged.to.digest.to_string();
        match plane.apply.apply(update, hash).await {
            Ok(()) => {
                self.is_configured = true;
                let cache_error = writer.commit(staged.to, || plane.apply.active());
                self.applied(plane, staged, cache_error)
            }
            Err(refusals) => {
                writer.abort();
                plane.refuse(&refusals);
                self.follower.refused(&staged, refusals)
            }
        }
    }

    fn applied<A>(&mut self, plane: &DataPlane<A>, staged: Staged, cache_error: Option<String>) -> Message {
        tracing::debug!(revision = staged.to.sequence, "the control plane's configuration is active");
        plane.status.applied();
        self.follower.applied(staged, cache_error)
    }
}

/// Logs a refusal that is on its way to the control plane.
fn report<A: Apply>(plane: &DataPlane<A>, message: &Message) {
    if let Message::Refused(refused) = message {
        plane.refuse(&refused.errors);
    }
}

fn ended() -> String {
    "the control plane closed the connection".to_owned()
}

async fn send(stream: &mut impl Frames, messages: Vec<Message>) -> Result<(), Error> {
    for message in messages {
        flush(stream, Frame::Binary(message.encode())).await?;
    }
    Ok(())
}

async fn flush(stream: &mut impl Frames, frame: Frame) -> Result<(), Error> {
    match timeout(SEND_TIMEOUT, stream.send(frame)).await {
        Ok(sent) => sent,
        Err(_) => Err(Error::Io(std::io::Error::new(
            std::io::ErrorKind::TimedOut,
            "the control plane takes no messages",
        ))),
    }
}
