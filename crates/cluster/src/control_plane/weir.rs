//! Weir's own protocol over a connection, as a control plane speaks it.
use super::ControlPlane;
use super::analytics::Collecting;
use super::bounds::{MAX_MESSAGE_LEN, shortened};
use super::cohorts::Counted;
use super::introduction::{admit, first_message};
use super::link::{Link, Sent};
use super::upgrade::{Arrival, Upgraded};
use crate::sync::identity::Identity;
use crate::sync::message::{ANALYTICS_CAPABILITY, Applied, Goodbye, Hello, Message, Refused, Welcome};
use crate::sync::{ControlSession, Event};
use crate::websocket::{self, Frames};
use crate::wire::compat::{Incompatible, KongVersion, LoadedPlugin, check_plugins};
use crate::wire::data_plane::SyncStatus;
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

/// How long a data plane may take to take a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

/// After how long without a message a data plane counts as lost.
const LOST_AFTER: Duration = Duration::from_secs(45);

/// Transfers of more entities are encoded on another thread, so that other data planes need not wait.
const MANY_ENTITIES: usize = 100;

/// Serves a data plane until the connection ends; returns why it did.
pub(super) async fn serve(plane: &ControlPlane, upgraded: Upgraded) -> String {
    let Upgraded { mut stream, arrival, .. } = upgraded;
    match connected(plane, &mut stream, arrival).await {
        Ok(reason) | Err(reason) => reason,
    }
}

/// The same, whatever carries the frames.
pub(super) async fn connected(
    plane: &ControlPlane,
    stream: &mut impl Frames,
    arrival: Arrival,
) -> Result<String, String> {
    let hello = first_message(stream, hello).await?;
    let (link, _) = admit(plane, arrival, hello.labels.clone(), "weir")?;
    let cohort = plane.cohorts.enter(&hello.labels);
    let ended = exchange(plane, stream, &hello, &link, &cohort).await;
    ended.map_err(|error| websocket::explained(&error, plane.options.max_payload))
}

fn hello(bytes: Bytes) -> Result<Hello, String> {
    match Message::decode(bytes) {
        Ok(Message::Hello(hello)) => Ok(hello),
        Ok(_) => Err("its first message does not introduce it".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

async fn exchange(
    plane: &ControlPlane,
    stream: &mut impl Frames,
    hello: &Hello,
    link: &Link,
    cohort: &Counted<'_>,
) -> Result<String, Error> {
    let mut newest = plane.cohorts.newest();
    let about = Welcome {
        version: plane.options.version.clone(),
        max_payload: plane.options.max_payload as u64,
        capabilities: plane.analytics.iter().map(|_| ANALYTICS_CAPABILITY.to_owned()).collect(),
        ..Welcome::default()
    };
    let mut analytics = Collecting::new(plane.analytics.as_deref(), link);
    let (mut session, welcome) = cohort.with(|cohort| ControlSession::new(hello, cohort, about));
    send(stream, welcome.encode()).await?;
    link.seen(&session.held().digest.to_string());
    let loaded = hello.plugins.iter().cloned().map(|name| LoadedPlugin { name, version: None });
    let loaded: Vec<_> = loaded.collect();
    let (mut held_back, mut reported) = (None, None);
    let mut lost_at = Instant::now() + LOST_AFTER;
    let mut drained = std::pin::pin!(plane.fleet.drained());
    let mut catch_up = std::pin::pin!(plane.cohorts.caught_up());
    let known = cohort.with(|cohort| cohort.identity());
    let mut is_ahead = hello.identity.is_after(&known);
    if is_ahead {
        wait_for_control_plane(link, hello.identity, known);
    }
    loop {
        let judged =
            check_plugins(cohort.plugins().iter().map(String::as_str), KongVersion::CURRENT, &loaded);
        match judged {
            _ if is_ahead => {}
            Ok(()) => {
                link.judged(SyncStatus::Normal.as_str(), None);
                held_back = None;
                deliver(cohort, stream, &mut session, link, &mut reported).await?;
            }
            Err(refused) => hold_back(cohort, link, refused, &mut held_back),
        }
        tokio::select! {
            // In this order, so that simulations repeat themselves. What a data plane sends comes last.
            biased;
            answer = analytics.answer() => send(stream, answer).await?,
            // What the data plane has and the store lacks then, the store has lost.
            _ = &mut catch_up, if is_ahead => is_ahead = false,
            changed = newest.changed() => if changed.is_err() {
                return Ok("the control plane ends".to_owned());
            },
            spread = &mut drained => {
                send_away(stream, spread).await?;
                return Ok("the control plane stops".to_owned());
            }
            frame = stream.next() => {
                let Some(frame) = frame.transpose()? else { return Ok("it closed the connection".to_owned()) };
                lost_at = Instant::now() + LOST_AFTER;
                link.heard();
                match frame {
                    Frame::Binary(bytes) => {
                        if let Err(reason) = receive(cohort, &mut session, link, &mut analytics, bytes) {
                            return Ok(reason);
                        }
                    }
                    Frame::Close(_) => return Ok("it closed the connection".to_owned()),
                    _ => link.seen(&session.held().digest.to_string()),
                }
            }
            () = sleep_until(lost_at) => {
                return Ok(format!("it was silent for {} s", LOST_AFTER.as_secs()));
            }
        }
    }
}

/// Sends the data plane to another control plane.
async fn send_away(stream: &mut impl Frames, spread: Duration) -> Result<(), Error> {
    let spread = spread.as_millis().try_into().unwrap_or(u64::MAX);
    let reason = "the control plane stops".to_owned();
    send(stream, Message::Goodbye(Goodbye { reason, retry_after: None, drain: true, spread }).encode())
        .await?;
    websocket::close(stream).await;
    Ok(())
}

/// Records that the data plane comes from a control plane that knows later commits: it is sent nothing older.
fn wait_for_control_plane(link: &Link, held: Identity, known: Identity) {
    tracing::info!(
        "data plane {link} serves revision {}, and this control plane knows {}: it is sent nothing until the database \
         has been read",
        held.sequence,
        known.sequence
    );
    let hash = held.digest.to_string();
    link.judged(SyncStatus::Normal.as_str(), None);
    link.sent(Sent { revision: held.sequence, hash: hash.clone(), bytes: 0, altered: Vec::new() });
    link.serves(held.sequence, &hash);
}

/// Records why the data plane is not sent the configuration, and logs it if that is new.
fn hold_back(cohort: &Counted<'_>, link: &Link, refused: Incompatible, logged: &mut Option<String>) {
    let Incompatible { status, message } = refused;
    let identity = cohort.with(|cohort| cohort.identity());
    let (revision, hash) = (identity.sequence, identity.digest.to_string());
    link.sent(Sent { revision, hash, bytes: 0, altered: Vec::new() });
    if logged.as_ref() != Some(&message) {
        tracing::error!("data plane {link} is not sent the configuration: {message}");
        *logged = Some(message.clone());
    }
    link.judged(status.as_str(), Some(message));
}

/// Sends what the data plane lacks and has room for. `reported`: what is recorded as sent.
async fn deliver(
    cohort: &Counted<'_>,
    stream: &mut impl Frames,
    session: &mut ControlSession,
    link: &Link,
    reported: &mut Option<Identity>,
) -> Result<(), Error> {
    let draft = cohort.with(|cohort| session.draft(cohort));
    if let Some(draft) = draft.filter(|draft| draft.entities() > MANY_ENTITIES) {
        session.begin(cohort.encode(draft).await.map_err(Error::Io)?);
    }
    let (messages, identity, is_current, is_refused) = cohort.with(|cohort| {
        let messages = session.poll(cohort);
        (messages, cohort.identity(), session.is_current(cohort), session.has_refused(cohort))
    });
    if reported.replace(identity) == Some(identity) && messages.is_empty() {
        return Ok(());
    }
    let bytes = messages.iter().map(Bytes::len).sum();
    let (revision, hash) = (identity.sequence, identity.digest.to_string());
    link.sent(Sent { revision, hash: hash.clone(), bytes, altered: Vec::new() });
    if is_current {
        link.serves(revision, &hash);
    } else if is_refused {
        link.refuses_still(revision);
    }
    for message in messages {
        send(stream, message).await?;
    }
    Ok(())
}

/// Takes a message; the error is why the connection must end.
fn receive(
    cohort: &Counted<'_>,
    session: &mut ControlSession,
    link: &Link,
    analytics: &mut Collecting<'_>,
    bytes: Bytes,
) -> Result<(), String> {
    let message = match Message::decode(bytes).map_err(|error| error.to_string())? {
        Message::Analytics(frame) => return analytics.take(frame),
        message => message,
    };
    let event = cohort.with(|cohort| session.receive(message, cohort)).map_err(|error| error.to_string())?;
    match event {
        None => {}
        Some(Event::Applied(Applied { identity, cache_error })) => {
            if let Some(error) = cache_error.map(|error| shortened(error, MAX_MESSAGE_LEN)) {
                tracing::warn!("data plane {link} cannot store the configuration: {error}");
            }
            link.serves(identity.sequence, &identity.digest.to_string());
        }
        Some(Event::Refused(Refused { identity, errors })) => link.refused(Some(identity.sequence), errors),
    }
    Ok(())
}

async fn send(stream: &mut impl Frames, message: Bytes) -> Result<(), Error> {
    match timeout(SEND_TIMEOUT, stream.send(Frame::Binary(message))).await {
        Ok(sent) => sent,
        Err(_) => Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "it takes no messages"))),
    }
}
