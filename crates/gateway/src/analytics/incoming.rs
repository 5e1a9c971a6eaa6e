//! The frames of data planes, from their connections to the control plane's store.
//!
//! The collector adds all that have come within a quarter of a second at once, and answers when they are stored. So the
//! thread of connections never waits for the store, and each data plane has at most one frame here.
use super::lock;
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use weir_analytics::frame::{FrameError, FrameReader};
use weir_analytics::store::Store;
use weir_cluster::control_plane::{Collect, FrameOutcome, Inbox};
use weir_model::Uuid;

/// How often frames are added to the history.
const COMMIT_INTERVAL: Duration = Duration::from_millis(250);
/// How long frames are read before questions get the store.
const READ_TIME: Duration = Duration::from_millis(20);
/// The bytes of all frames that wait.
const MAX_WAITING_BYTES: usize = 16 << 20;

type Reply = oneshot::Sender<FrameOutcome>;

struct Arrived {
    data_plane: Uuid,
    /// What the connection knows of the data plane's names.
    reader: Arc<Mutex<FrameReader>>,
    frame: Bytes,
    reply: Reply,
}

/// The frames that wait for the collector.
#[derive(Default)]
struct Queue {
    frames: VecDeque<Arrived>,
}

/// The side of the connections.
pub(crate) struct Incoming(Arc<Mutex<Queue>>);

/// One connection.
struct Connection {
    data_plane: Uuid,
    reader: Arc<Mutex<FrameReader>>,
    queue: Arc<Mutex<Queue>>,
}

/// The collector's side.
pub(super) struct Collecting {
    queue: Arc<Mutex<Queue>>,
    /// Who waits until intervals that end then are stored.
    waiting: Vec<(u64, Reply)>,
    committed_at: Instant,
}

pub(super) fn incoming() -> (Incoming, Collecting) {
    let queue = Arc::<Mutex<Queue>>::default();
    (Incoming(queue.clone()), Collecting { queue, waiting: Vec::new(), committed_at: Instant::now() })
}

impl Collect for Incoming {
    fn connected(&self, data_plane: Uuid) -> Box<dyn Inbox> {
        Box::new(Connection { data_plane, reader: Arc::default(), queue: self.0.clone() })
    }
}

impl Inbox for Connection {
    fn take(&mut self, frame: Bytes) -> oneshot::Receiver<FrameOutcome> {
        let (reply, answer) = oneshot::channel();
        let arrived = Arrived { data_plane: self.data_plane, reader: self.reader.clone(), frame, reply };
        lock(&self.queue).push(arrived);
        answer
    }
}

impl Queue {
    /// Adds a frame instead of the data plane's older one, and without those of closed connections. If there is no
    /// memory for it, it is taken later.
    fn push(&mut self, arrived: Arrived) {
        self.frames.retain(|it| it.data_plane != arrived.data_plane && !it.reply.is_closed());
        let bytes: usize = self.frames.iter().map(|it| it.frame.len()).sum();
        if bytes + arrived.frame.len() > MAX_WAITING_BYTES {
            let reason = "the control plane has too many frames to read";
            arrived.reply.send(FrameOutcome::Later(reason.to_owned())).ok();
        } else {
            self.frames.push_back(arrived);
        }
    }

    /// The next frame whose connection is open.
    fn pop(&mut self) -> Option<Arrived> {
        std::iter::from_fn(|| self.frames.pop_front()).find(|it| !it.reply.is_closed())
    }
}

impl Collecting {
    /// Adds what has come, and answers. `now` is in milliseconds since 1970.
    pub(super) fn turn(&mut self, store: &mut Store, now: u64) {
        if self.committed_at.elapsed() < COMMIT_INTERVAL {
            return;
        }
        self.committed_at = Instant::now();
        while self.committed_at.elapsed() < READ_TIME {
            let Some(Arrived { data_plane, reader, frame, reply }) = lock(&self.queue).pop() else { break };
            match store.take_frame(&data_plane.to_string(), &mut lock(&reader), &frame, now) {
                Ok(end) => self.waiting.push((end, reply)),
                // If the connection has ended, the data plane sends the frame again.
                Err(error) => drop(reply.send(outcome(&error))),
            }
        }
        let until = store.commit();
        for (_, reply) in self.waiting.extract_if(.., |(end, _)| *end <= until) {
            reply.send(FrameOutcome::Taken).ok();
        }
    }
}

fn outcome(error: &FrameError) -> FrameOutcome {
    let reason = error.to_string();
    if error.passes() { FrameOutcome::Later(reason) } else { FrameOutcome::Refused(reason) }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Answer = oneshot::Receiver<FrameOutcome>;

    fn send(incoming: &Incoming, data_plane: u128, length: usize) -> Answer {
        incoming.connected(Uuid::from_u128(data_plane)).take(vec![0; length].into())
    }

    #[test]
    fn one_frame_of_a_data_plane_waits() {
        let (incoming, collecting) = incoming();
        let _older = send(&incoming, 1, 10);
        let _newer = send(&incoming, 1, 20);
        let mut queue = lock(&collecting.queue);
        assert_eq!(queue.pop().map(|it| it.frame.len()), Some(20));
        assert!(queue.pop().is_none());
    }

    #[test]
    fn frames_of_closed_connections_are_not_read() {
        let (incoming, collecting) = incoming();
        drop(send(&incoming, 1, 10));
        assert!(lock(&collecting.queue).pop().is_none());
    }

    #[test]
    fn waiting_frames_are_bounded_in_bytes() {
        let (incoming, collecting) = incoming();
        let quarter = MAX_WAITING_BYTES / 4;
        let mut answers: Vec<Answer> = (0..5).map(|n| send(&incoming, n, quarter)).collect();
        assert!(answers[..4].iter_mut().all(|answer| answer.try_recv().is_err()), "they wait");
        assert!(matches!(answers[4].try_recv(), Ok(FrameOutcome::Later(_))));
        assert_eq!(lock(&collecting.queue).frames.len(), 4);
    }
}
