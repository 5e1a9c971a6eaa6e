//! Lines of text to deliver. Each worker writes into a buffer of its own, so that none waits for another, and one task
//! delivers them all.

use super::Holder;
use super::dropped::Sender;
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::time::timeout;

/// The number of buffers. More workers than that share them.
const BUFFERS: usize = 16;

/// The task polls the buffers, about as often as this many bytes arrive: waking it would cost a worker as much as
/// writing some lines.
const WORTHWHILE: usize = 64 * 1024;

/// A buffer of this size wakes the task.
const FULL: usize = 512 * 1024;

/// The size of one buffer. If it is full, lines are dropped.
const MAX_BUFFERED: usize = 2 * 1024 * 1024;

/// The longest pause between polls, and so the longest delay of a line.
const MAX_PAUSE: Duration = Duration::from_millis(50);

/// The shortest pause between polls.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// The result of a delivery, and the buffer, to be used again.
pub type Delivered = (Vec<u8>, Result<(), Undelivered>);

/// Lines that could not be delivered.
#[derive(Debug)]
pub struct Undelivered {
    /// How many.
    pub lines: u64,
    /// Why not.
    pub why: String,
}

impl Undelivered {
    /// Every line of a text.
    pub fn all(text: &[u8], why: impl Display) -> Self {
        Self { lines: memchr::memchr_iter(b'\n', text).count() as u64, why: why.to_string() }
    }
}

type Delivery = Pin<Box<dyn Future<Output = Delivered> + Send>>;

/// A queue of lines. When it is dropped, queued lines are still delivered.
pub struct Lines(Arc<Inner>);

struct Inner {
    sender: Sender,
    deliver: Box<dyn Fn(Vec<u8>) -> Delivery + Send + Sync>,
    buffers: [Buffer; BUFFERS],
    /// A buffer for the next delivery.
    spare: Mutex<Vec<u8>>,
    /// Whether a task delivers.
    served: AtomicBool,
    /// Notified when a buffer is full.
    full: Notify,
    /// Whether lines were dropped since the last delivery.
    overflown: AtomicBool,
    /// Lines that were taken out of a buffer and are not delivered yet.
    in_flight: AtomicU64,
}

/// A worker's buffer. No two share a cache line, nor the pair of lines that the CPU prefetches.
#[derive(Default)]
#[repr(align(128))]
struct Buffer(Mutex<Text>);

#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    lines: u64,
}

impl Buffer {
    fn lock(&self) -> MutexGuard<'_, Text> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    pub(crate) fn new<F>(sender: Sender, deliver: impl Fn(Vec<u8>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Delivered> + Send + 'static,
    {
        let inner = Arc::new(Inner {
            sender,
            deliver: Box::new(move |text| Box::pin(deliver(text))),
            buffers: Default::default(),
            spare: Mutex::default(),
            served: AtomicBool::new(false),
            full: Notify::new(),
            overflown: AtomicBool::new(false),
            in_flight: AtomicU64::new(0),
        });
        let holder: Weak<dyn Holder> = Arc::downgrade(&(inner.clone() as Arc<dyn Holder>));
        inner.sender.background.watch(holder);
        Self(inner)
    }

    /// Adds the line that `write` appends, and a line feed. Never waits: if there is no room, the line is dropped.
    pub fn write(&self, worker: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let inner = &self.0;
        let mut text = inner.buffers[worker % BUFFERS].lock();
        let before = text.bytes.len();
        if before >= MAX_BUFFERED {
            drop(text);
            return inner.overflow();
        }
        write(&mut text.bytes);
        text.bytes.push(b'\n');
        text.lines += 1;
        let fills = before < FULL && text.bytes.len() >= FULL;
        drop(text);
        if !inner.served.load(Ordering::Relaxed) {
            self.begin();
        } else if fills {
            inner.full.notify_one();
        }
    }

    /// Starts a task that delivers, unless one runs.
    #[cold]
    fn begin(&self) {
        if !self.0.served.swap(true, Ordering::Relaxed) {
            self.0.sender.background.begin();
            self.0.sender.background.spawn(serve(self.0.clone()));
        }
    }
}

impl Inner {
    #[cold]
    fn overflow(&self) {
        self.sender.dropped.fetch_add(1, Ordering::Relaxed);
        if !self.overflown.swap(true, Ordering::Relaxed) {
            tracing::error!(
                queue = self.sender.name,
                "lines arrive faster than they can be delivered: they are dropped until some are"
            );
        }
    }

    fn largest(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.lock().bytes.len()).max().unwrap_or_default()
    }

    /// Takes the text of a buffer, and leaves it `room` as its memory.
    fn take(&self, buffer: &Buffer, room: Vec<u8>) -> Vec<u8> {
        let mut text = buffer.lock();
        self.in_flight.store(std::mem::take(&mut text.lines), Ordering::Relaxed);
        std::mem::replace(&mut text.bytes, room)
    }

    /// Delivers all buffers, one after another, and returns the last one's memory.
    async fn deliver_all(&self, mut room: Vec<u8>) -> Vec<u8> {
        for buffer in &self.buffers {
            if buffer.lock().bytes.is_empty() {
                continue;
            }
            let text = self.take(buffer, room);
            let result;
            (room, result) = (self.deliver)(text).await;
            room.clear();
            self.in_flight.store(0, Ordering::Relaxed);
            match result {
                Ok(()) => self.overflown.store(false, Ordering::Relaxed),
                Err(lost) => self.sender.lose(lost.lines, &lost.why),
            }
        }
        room
    }
}

impl Holder for Inner {
    fn name(&self) -> &str {
        &self.sender.name
    }

    fn undelivered(&self) -> u64 {
        let waiting: u64 = self.buffers.iter().map(|buffer| buffer.lock().lines).sum();
        waiting + self.in_flight.load(Ordering::Relaxed) + self.sender.untold()
    }
}

/// The pause until enough bytes for a delivery have arrived, if they arrive at the same rate.
fn pause(delivered: usize, since: Duration) -> Duration {
    since.mul_f64(WORTHWHILE as f64 / delivered.max(1) as f64).clamp(SHORTEST_PAUSE, MAX_PAUSE)
}

/// Delivers until no lines arrive any more.
async fn serve(inner: Arc<Inner>) {
    let spare = || inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
    let mut room = std::mem::take(&mut *spare());
    let mut since = MAX_PAUSE;
    loop {
        let (began, largest) = (Instant::now(), inner.largest());
        room = inner.deliver_all(room).await;
        let _ = timeout(pause(largest, since), inner.full.notified()).await;
        since = began.elapsed();
        if inner.largest() == 0 {
            inner.served.store(false, Ordering::Relaxed);
            // A line that was written before may have relied on this task. The buffers' locks order the two.
            if inner.largest() == 0 || inner.served.swap(true, Ordering::Relaxed) {
                *spare() = room;
                return inner.sender.background.end();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_looked_for_as_often_as_enough_of_them_come() {
        let millis = Duration::from_millis;
        assert_eq!(pause(2 * WORTHWHILE, millis(20)), millis(10));
        assert_eq!(pause(64 * WORTHWHILE, millis(20)), SHORTEST_PAUSE);
        assert_eq!(pause(100, millis(20)), MAX_PAUSE);
        assert_eq!(pause(0, millis(1)), MAX_PAUSE);
    }
}
