//! Kong's first protocol over a connection, as a control plane speaks it: each change is the whole configuration, and a ping
//! with its hash acknowledges it.
use super::ControlPlane;
use super::bounds;
use super::introduction::{admit, first_message};
use super::link::{Link, Sent};
use super::payloads::{Form, Payload};
use super::upgrade::{Stream, Upgraded};
use crate::Refusal;
use crate::sync::Labels;
use crate::websocket;
use crate::wire::compat::{Incompatible, KongVersion, LoadedPlugin, check_plugins, check_routes};
use crate::wire::data_plane::SyncStatus;
use crate::wire::hash::ConfigHash;
use crate::wire::v1::{BasicInfo, ErrorMessage, check_size};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::tungstenite::{Error, Message as Frame};

/// After how long without a ping a data plane counts as lost; no message may take longer to be sent.
const LOST_AFTER: Duration = Duration::from_secs(45);

/// A data plane that is connected.
struct Session<'p> {
    plane: &'p ControlPlane,
    link: Link,
    labels: Labels,
    plugins: Vec<LoadedPlugin>,
    form: Form,
    /// The longest message that it takes.
    max_payload: usize,
    hashes: Hashes,
    /// The revision of what it was sent last.
    revision: Option<u64>,
}

/// What a data plane serves. A ping may be older than what was sent last, so what it served then does not count.
#[derive(Debug, Default)]
struct Hashes {
    /// What it said last.
    said: Option<ConfigHash>,
    /// What it was sent last.
    sent: Option<ConfigHash>,
    /// What it had said before.
    before: Option<ConfigHash>,
    /// What it serves now, if that is known.
    now: Option<ConfigHash>,
}

impl Hashes {
    fn sent(&mut self, hash: ConfigHash) {
        (self.sent, self.before, self.now) = (Some(hash), self.said, None);
    }

    /// Takes a ping; returns whether the data plane serves what it was never to serve, so that it must be sent the
    /// configuration again.
    fn said(&mut self, hash: ConfigHash) -> bool {
        let is_first = self.said.replace(hash).is_none();
        let is_sent = self.sent.is_none() || self.sent == Some(hash);
        let is_old = is_first || self.before == Some(hash);
        if is_first {
            self.before = Some(hash);
        }
        if is_sent || !is_old {
            self.now = Some(hash);
        }
        !is_sent && !is_old
    }
}

/// Serves a data plane until the connection ends; returns why it did.
pub(super) async fn serve(plane: &ControlPlane, upgraded: Upgraded) -> String {
    match connected(plane, upgraded).await {
        Ok(reason) | Err(reason) => reason,
    }
}

async fn connected(plane: &ControlPlane, upgraded: Upgraded) -> Result<String, String> {
    let Upgraded { mut stream, arrival, .. } = upgraded;
    let info = first_message(&mut stream, |bytes| BasicInfo::decode(&bytes)).await?;
    let (max_payload, takes_expressions) = (info.max_payload(), info.takes_expressions());
    let BasicInfo { plugins, labels, .. } = info;
    let labels = bounds::labels(labels.unwrap_or_default());
    let (link, version) = admit(plane, arrival, labels.clone(), "v1")?;
    let form = Form { version, takes_expressions };
    let (hashes, revision) = (Hashes::default(), None);
    let mut session = Session { plane, link, labels, plugins, form, max_payload, hashes, revision };
    let ended = session.exchange(&mut stream).await;
    ended.map_err(|error| websocket::explained(&error, plane.options.max_payload))
}

impl Session<'_> {
    async fn exchange(&mut self, stream: &mut Stream) -> Result<String, Error> {
        let plane = self.plane;
        let (mut newest, _taker) = (plane.payloads.newest(), plane.payloads.taker());
        newest.mark_changed();
        let mut lost_at = Instant::now() + LOST_AFTER;
        let mut drained = std::pin::pin!(plane.fleet.drained());
        // Its hash does not say how old its configuration is, which another control plane may have sent.
        let (mut catch_up, mut known) = (std::pin::pin!(plane.cohorts.caught_up()), None);
        loop {
            let is_empty = self.hashes.now == Some(ConfigHash::EMPTY);
            tokio::select! {
                frame = stream.next() => {
                    let Some(frame) = frame.transpose()? else { return Ok("it closed the connection".to_owned()) };
                    lost_at = Instant::now() + LOST_AFTER;
                    self.link.heard();
                    match self.receive(frame) {
                        Ok(is_astray) if is_astray => newest.mark_changed(),
                        Ok(_) => {}
                        Err(reason) => return Ok(reason),
                    }
                    // Sends the answer to a ping.
                    stream.flush().await?;
                }
                revision = &mut catch_up, if known.is_none() => known = Some(revision),
                changed = newest.changed(), if is_empty || known.is_some() => {
                    if changed.is_err() {
                        return Ok("the control plane ends".to_owned());
                    }
                    let payload = newest.borrow_and_update().clone();
                    let is_known = |payload: &Arc<Payload>| is_empty || known <= Some(payload.revision);
                    if let Some(payload) = payload.filter(is_known) {
                        self.push_selected(stream, &payload).await?;
                    }
                }
                _ = &mut drained => {
                    websocket::close(stream).await;
                    return Ok("the control plane stops".to_owned());
                }
                () = sleep_until(lost_at) => {
                    return Ok(format!("it was silent for {} s", LOST_AFTER.as_secs()));
                }
            }
        }
    }

    /// Takes a message; returns whether the data plane must be sent the configuration again. The error is why the connection
    /// must end.
    fn receive(&mut self, frame: Frame) -> Result<bool, String> {
        match frame {
            Frame::Ping(payload) => {
                let hash = ConfigHash::read(&payload);
                let hash = hash.ok_or_else(|| format!("a ping of {} bytes is no hash", payload.len()))?;
                self.link.seen(&hash.to_string());
                Ok(self.hashes.said(hash))
            }
            Frame::Binary(bytes) => {
                let refused = ErrorMessage::decode(&bytes).map_err(|error| error.to_string())?.error;
                let refusal = Refusal { entity: refused.name, field: None, message: refused.message };
                let is_newest = self.hashes.sent.is_some_and(|sent| sent.to_string() == refused.config_hash);
                self.link.refused(self.revision.filter(|_| is_newest), vec![refusal]);
                Ok(false)
            }
            Frame::Close(_) => Err("it closed the connection".to_owned()),
            Frame::Pong(_) => Ok(false),
            Frame::Text(_) | Frame::Frame(_) => Err("it sent a text message".to_owned()),
        }
    }

    /// Sends what the data plane's labels select of a version of the configuration.
    async fn push_selected(&mut self, stream: &mut Stream, payload: &Arc<Payload>) -> Result<(), Error> {
        match payload.selected(self.plane.cohorts.selector(), &self.labels).await {
            Ok(payload) => self.push(stream, &payload).await,
            Err(error) => {
                tracing::error!("a data plane is not sent the configuration: {error}");
                self.link.judged(SyncStatus::Unknown.as_str(), Some(error.to_string()));
                Ok(())
            }
        }
    }

    /// Sends a version of the configuration, if the data plane can serve it and does not already.
    async fn push(&mut self, stream: &mut Stream, payload: &Arc<Payload>) -> Result<(), Error> {
        let hash = payload.hashes.config;
        let sent = |bytes: usize, altered: &[String]| Sent {
            revision: payload.revision,
            hash: hash.to_string(),
            bytes,
            altered: altered.to_vec(),
        };
        let frame = match self.prepare(payload).await {
            Ok(frame) => frame,
            Err(Incompatible { status, message }) => {
                tracing::error!("data plane {} is not sent the configuration: {message}", self.link);
                self.link.sent(sent(0, &[]));
                self.link.judged(status.as_str(), Some(message));
                return Ok(());
            }
        };
        self.link.judged(SyncStatus::Normal.as_str(), None);
        if self.hashes.now == Some(hash) {
            self.link.sent(sent(0, &frame.altered));
            self.link.serves(payload.revision, &hash.to_string());
            return Ok(());
        }
        self.link.sent(sent(frame.bytes.len(), &frame.altered));
        self.hashes.sent(hash);
        self.revision = Some(payload.revision);
        send(stream, frame.bytes).await
    }

    /// The message for this data plane, or why it cannot have one.
    async fn prepare(&self, payload: &Arc<Payload>) -> Result<super::payloads::Frame, Incompatible> {
        let table = payload.table();
        check_routes(&table, self.form.version)?;
        check_plugins(table.configured_plugins(), KongVersion::CURRENT, &self.plugins)?;
        let unknown = |error: crate::wire::v1::MessageError| Incompatible {
            status: SyncStatus::Unknown,
            message: error.to_string(),
        };
        let frame = payload.frame(self.form).await.map_err(unknown)?;
        check_size(&frame.bytes, self.max_payload).map_err(unknown)?;
        Ok(frame)
    }
}

async fn send(stream: &mut Stream, message: Bytes) -> Result<(), Error> {
    match timeout(LOST_AFTER, stream.send(Frame::Binary(message))).await {
        Ok(sent) => sent,
        Err(_) => Err(Error::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, "it takes no messages"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(digit: char) -> ConfigHash {
        ConfigHash::read(digit.to_string().repeat(32).as_bytes()).unwrap()
    }

    #[test]
    fn a_ping_older_than_what_was_sent_does_not_count() {
        let (a, b, c) = (hash('a'), hash('b'), hash('c'));
        let mut hashes = Hashes::default();
        assert_eq!((hashes.said(a), hashes.now), (false, Some(a)));
        hashes.sent(b);
        assert_eq!((hashes.said(a), hashes.now), (false, None), "it has not applied it yet");
        assert_eq!((hashes.said(b), hashes.now), (false, Some(b)));
        hashes.sent(c);
        hashes.sent(b);
        assert_eq!((hashes.said(b), hashes.now), (false, Some(b)), "before it applies the one between");
        assert_eq!((hashes.said(c), hashes.now), (true, Some(c)), "it must be sent the last again");
    }

    #[test]
    fn what_a_data_plane_comes_with_is_no_reason_to_send_twice() {
        let mut hashes = Hashes::default();
        hashes.sent(hash('b'));
        assert_eq!((hashes.said(hash('a')), hashes.now), (false, None));
        assert!(!hashes.said(hash('a')));
    }
}
