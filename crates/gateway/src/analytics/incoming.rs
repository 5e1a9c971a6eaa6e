//! The frames of data planes, from their connections to the control plane's store.
//!
//! The collector adds all that have come within a quarter of a second at once, and answers when they are stored. So the
//! thread of connections never waits for the store, and each data plane has at most one frame here.
use super::lock;
use bytes::Bytes;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_analytics::frame::FrameReader;
use weir_analytics::store::Store;
use weir_cluster::control_plane::{Collect, Inbox};
use weir_model::Uuid;

/// How often frames are added to the history.
const COMMIT_INTERVAL: Duration = Duration::from_millis(250);
/// How many frames are read before questions get the store.
const MAX_FRAMES: usize = 256;

type Reply = oneshot::Sender<Result<(), String>>;

struct Arrived {
    data_plane: Arc<str>,
    /// What the connection knows of the data plane's names.
    reader: Arc<Mutex<FrameReader>>,
    frame: Bytes,
    reply: Reply,
}

/// The side of the connections.
pub(crate) struct Incoming(Sender<Arrived>);

/// One connection.
struct Connection {
    data_plane: Arc<str>,
    reader: Arc<Mutex<FrameReader>>,
    collector: Sender<Arrived>,
}

/// The collector's side.
pub(super) struct Collecting {
    arrived: Receiver<Arrived>,
    /// Who waits until intervals that end then are stored.
    waiting: Vec<(u64, Reply)>,
    committed_at: Instant,
}

pub(super) fn incoming() -> (Incoming, Collecting) {
    let (sender, arrived) = channel();
    (Incoming(sender), Collecting { arrived, waiting: Vec::new(), committed_at: Instant::now() })
}

impl Collect for Incoming {
    fn connected(&self, data_plane: Uuid) -> Box<dyn Inbox> {
        let data_plane = data_plane.to_string().into();
        Box::new(Connection { data_plane, reader: Arc::default(), collector: self.0.clone() })
    }
}

impl Inbox for Connection {
    fn take(&mut self, frame: Bytes) -> oneshot::Receiver<Result<(), String>> {
        let (reply, answer) = oneshot::channel();
        let Connection { data_plane, reader, collector } = self;
        let arrived = Arrived { data_plane: data_plane.clone(), reader: reader.clone(), frame, reply };
        // The collector has ended if this fails, so no answer comes.
        collector.send(arrived).ok();
        answer
    }
}

impl Collecting {
    /// Adds what has come, and answers. `now` is in milliseconds since 1970.
    pub(super) fn turn(&mut self, store: &mut Store, now: u64) {
        if self.committed_at.elapsed() < COMMIT_INTERVAL {
            return;
        }
        self.committed_at = Instant::now();
        for Arrived { data_plane, reader, frame, reply } in self.arrived.try_iter().take(MAX_FRAMES) {
            match store.take_frame(&data_plane, &mut lock(&reader), &frame, now) {
                Ok(end) => self.waiting.push((end, reply)),
                // If the connection has ended, the data plane sends the frame again.
                Err(error) => drop(reply.send(Err(error.to_string()))),
            }
        }
        let until = store.commit();
        for (_, reply) in self.waiting.extract_if(.., |(end, _)| *end <= until) {
            reply.send(Ok(())).ok();
        }
    }
}
