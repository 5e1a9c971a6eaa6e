//! What simulated data planes hand in: every ten seconds the same counts of all, as if a number of routes were busy.
use super::FleetError;
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;
use weir_analytics::bucket::Bucket;
use weir_analytics::cause::Cause;
use weir_analytics::entities::Kind;
use weir_analytics::record::{ByteCount, Protocol, Record, Tick, Traits};
use weir_analytics::ring::Producer;
use weir_analytics::store::{Budget, Store};
use weir_cluster::data_plane::{Analytics, LastFrame};
use weir_cluster::sync::message::Message;

/// The width of a frame's interval.
const INTERVAL: Duration = Duration::from_secs(10);
/// How many requests each route has in an interval.
const REQUESTS: u32 = 10;

/// A data plane that waits for its next frame.
struct Waiting {
    needs_names: bool,
    reply: oneshot::Sender<Bytes>,
}

/// The frames of all data planes.
#[derive(Default)]
pub(super) struct Frames {
    waiting: Mutex<Vec<Waiting>>,
    frames: AtomicU64,
    bytes: AtomicU64,
}

/// What was handed in until now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HandedIn {
    pub(super) frames: u64,
    pub(super) bytes: u64,
}

impl Analytics for Frames {
    fn next(&self, last: LastFrame) -> oneshot::Receiver<Bytes> {
        let (reply, next) = oneshot::channel();
        self.waiting().push(Waiting { needs_names: last != LastFrame::Taken, reply });
        next
    }
}

impl Frames {
    /// Frames with so many routes, which end with the process.
    pub(super) fn of(routes: u32) -> Result<Arc<Frames>, FleetError> {
        let frames = Arc::<Frames>::default();
        let (handed, mut traffic) = (frames.clone(), Traffic::new(routes));
        let work = move || loop {
            thread::sleep(INTERVAL);
            if let Some([named, plain]) = traffic.interval() {
                handed.hand_in(&named, &plain);
            }
        };
        let started = thread::Builder::new().name("frames".to_owned()).spawn(work);
        started.map_err(|error| FleetError::System("no thread for frames", error))?;
        Ok(frames)
    }

    fn waiting(&self) -> MutexGuard<'_, Vec<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hand_in(&self, named: &Bytes, plain: &Bytes) {
        let lengths = [named, plain].map(|frame| Message::Analytics(frame.clone()).encode().len() as u64);
        for Waiting { needs_names, reply } in std::mem::take(&mut *self.waiting()) {
            let (frame, length) = if needs_names { (named, lengths[0]) } else { (plain, lengths[1]) };
            if reply.send(frame.clone()).is_ok() {
                self.frames.fetch_add(1, Ordering::Relaxed);
                self.bytes.fetch_add(length, Ordering::Relaxed);
            }
        }
    }

    /// What was handed in until now.
    pub(super) fn handed_in(&self) -> HandedIn {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        HandedIn { frames: now(&self.frames), bytes: now(&self.bytes) }
    }
}

/// The requests of a data plane.
struct Traffic {
    store: Store,
    worker: Producer,
    records: Vec<Record>,
}

impl Traffic {
    fn new(routes: u32) -> Traffic {
        let mut store = Store::new(Arc::default(), Budget::default(), millis());
        store.hand_in();
        let worker = store.add_worker();
        let entities = store.entities().clone();
        let record = |route: u32| Record {
            route: entities.intern_route(&uuid::Uuid::from_u128(u128::from(route)).to_string(), 0),
            upstream: entities.intern(Kind::Upstream, "127.0.0.1:80"),
            consumer: 0,
            time: Tick::at(0),
            status: 200,
            traits: Traits::new(Protocol::Http1),
            cause: Cause::Response,
            total: Bucket::of_nanos(0),
            gateway: Bucket::of_nanos(50_000),
            waited: Bucket::of_nanos(0),
            bytes_in: ByteCount::new(200),
            bytes_out: ByteCount::new(2_000),
        };
        let records = (1..=routes).map(record).collect();
        Traffic { store, worker, records }
    }

    /// Serves for another interval. Returns the frame of the one before, with names and without.
    fn interval(&mut self) -> Option<[Bytes; 2]> {
        let now = millis();
        self.store.drain(now);
        let frames = self.frames();
        for _ in 0..REQUESTS {
            for record in &self.records {
                // From 1 to 32 ms.
                let waited = 1_000_000u64 << fastrand::u32(..6);
                let (total, waited) = (Bucket::of_nanos(waited + 50_000), Bucket::of_nanos(waited));
                self.worker.push(&Record { time: Tick::at(now), total, waited, ..*record });
            }
            self.store.drain(now);
        }
        frames
    }

    fn frames(&mut self) -> Option<[Bytes; 2]> {
        self.store.outbox_mut()?.begin();
        let frames = [self.store.next_frame()?, self.store.next_frame()?];
        self.store.frame_taken();
        Some(frames.map(Bytes::from))
    }
}

/// Since 1970.
fn millis() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_millis() as u64
}
