//! What a watch of etcd brings, until the store takes it.
use super::client::EtcdClient;
use super::message::{Event, ResponseHeader, WatchCreateRequest, WatchRequest, WatchResponse};
use super::range_end;
use crate::store::StoreError;
use prost::Message;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::sleep;

const WATCH: &str = "/etcdserverpb.Watch/Watch";

const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);

/// What has arrived, and not been taken.
#[derive(Default)]
struct Waiting {
    events: Vec<Event>,
    /// Events are missing: everything has to be read anew.
    lost: bool,
    /// Why nothing arrives, if so.
    failure: Option<StoreError>,
}

/// The events of one prefix.
pub(super) struct Feed {
    waiting: Mutex<Waiting>,
    /// The etcd that the events are of.
    cluster_id: u64,
    /// All events up to this revision have arrived. Changed under the lock of what waits.
    revision: watch::Sender<i64>,
    /// Notified whenever there is something to take.
    arrived: Arc<Notify>,
}

/// What is taken of a feed.
pub(super) enum Taken {
    /// All events up to this revision.
    Events(i64, Vec<Event>),
    Lost,
}

impl Feed {
    /// For events after what this header is of.
    pub(super) fn after(header: &ResponseHeader, arrived: Arc<Notify>) -> Feed {
        let ResponseHeader { cluster_id, revision } = *header;
        Feed { waiting: Mutex::default(), cluster_id, revision: watch::Sender::new(revision), arrived }
    }

    /// Whether a reply is of an etcd with another history: it was created again, or restored from a backup.
    fn is_of_another(&self, reply: &WatchResponse) -> bool {
        let differs = |header: &ResponseHeader| {
            header.cluster_id != self.cluster_id || header.revision < self.revision()
        };
        reply.header.as_ref().is_some_and(differs)
    }

    /// All events up to this revision have arrived.
    pub(super) fn revision(&self) -> i64 {
        *self.revision.borrow()
    }

    /// Waits until all events up to a revision have arrived.
    pub(super) async fn reached(&self, revision: i64) {
        // Does not fail, because the sender is a field of this.
        let _ = self.revision.subscribe().wait_for(|arrived| *arrived >= revision).await;
    }

    /// What has arrived; an error while nothing can.
    pub(super) fn take(&self) -> Result<Taken, StoreError> {
        let mut waiting = self.waiting();
        if waiting.lost {
            return Ok(Taken::Lost);
        }
        if let Some(failure) = &waiting.failure {
            return Err(failure.clone());
        }
        Ok(Taken::Events(self.revision(), std::mem::take(&mut waiting.events)))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, failure: StoreError) {
        let before = self.waiting().failure.replace(failure);
        if before.is_none() {
            self.arrived.notify_one();
        }
    }

    fn recovered(&self) {
        if self.waiting().failure.take().is_some() {
            self.arrived.notify_one();
        }
    }
}

/// Why a watch ends.
enum Ended {
    /// The events that are next cannot be had: a compaction removed them, or this is another etcd.
    Lost,
    Failed(StoreError),
}

/// Fills a feed until the task is aborted, or events are lost.
pub(super) async fn fill(client: Arc<EtcdClient>, prefix: String, feed: Arc<Feed>) {
    let mut backoff = MIN_BACKOFF;
    loop {
        let before = feed.revision();
        match follow(&client, &prefix, &feed).await {
            Ended::Lost => {
                tracing::info!(
                    "{}: the events after revision {before} cannot be had; all is read anew",
                    client.place()
                );
                feed.waiting().lost = true;
                return feed.arrived.notify_one();
            }
            Ended::Failed(failure) => feed.fail(failure),
        }
        backoff = if feed.revision() > before { MIN_BACKOFF } else { MAX_BACKOFF.min(backoff * 2) };
        sleep(backoff.mul_f64(0.5 + fastrand::f64() / 2.0)).await;
    }
}

async fn follow(client: &EtcdClient, prefix: &str, feed: &Feed) -> Ended {
    let request = WatchRequest {
        create_request: Some(WatchCreateRequest {
            key: prefix.into(),
            range_end: range_end(prefix),
            start_revision: feed.revision() + 1,
        }),
    };
    let mut stream = match client.stream(WATCH, &request).await {
        Ok(stream) => stream,
        Err(error) => return Ended::Failed(error),
    };
    loop {
        let reply = match stream.next().await {
            Ok(Some(reply)) => WatchResponse::decode(reply),
            Ok(None) => return ended(client, "the watch ended"),
            Err(error) => return Ended::Failed(client.failure(error)),
        };
        match reply {
            Ok(reply) if reply.compact_revision != 0 || feed.is_of_another(&reply) => return Ended::Lost,
            Ok(reply) if reply.canceled => {
                // That may be why.
                client.forget_token();
                return ended(client, &reply.cancel_reason);
            }
            Ok(reply) => keep(reply, feed),
            Err(error) => return ended(client, &error.to_string()),
        }
    }
}

fn ended(client: &EtcdClient, why: &str) -> Ended {
    Ended::Failed(StoreError::Unavailable(format!("{}: {why}", client.place())))
}

fn keep(reply: WatchResponse, feed: &Feed) {
    feed.recovered();
    let last = reply.events.iter().filter_map(|event| Some(event.kv.as_ref()?.mod_revision)).max();
    let Some(last) = last else { return };
    let mut waiting = feed.waiting();
    waiting.events.extend(reply.events);
    feed.revision.send_replace(last);
    feed.arrived.notify_one();
}
