//! Lines of text that are to be delivered somewhere else. Each worker writes into a buffer of its own, so that none waits
//! for another, and one task delivers them all.

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

/// Workers beyond share a buffer with others.
const BUFFERS: usize = 16;

/// Who delivers looks for lines on its own, as often as so many bytes come: a worker that had to wake it would spend on
/// that what some lines cost.
const WORTHWHILE: usize = 64 * 1024;

/// A buffer of this size is delivered at once all the same.
const FULL: usize = 512 * 1024;

/// What waits at most in one buffer; beyond, lines are dropped.
const MOST: usize = 2 * 1024 * 1024;

/// How old a line gets before it is delivered.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How soon is looked for lines again.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);

/// What became of lines, and their buffer, to be used again.
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

/// Lines on their way. When it is dropped, those that wait are still delivered.
pub struct Lines(Arc<Inner>);

struct Inner {
    sender: Sender,
    deliver: Box<dyn Fn(Vec<u8>) -> Delivery + Send + Sync>,
    buffers: [Buffer; BUFFERS],
    /// Memory for the next task that delivers.
    spare: Mutex<Vec<u8>>,
    /// A task delivers.
    served: AtomicBool,
    /// There is a full buffer.
    full: Notify,
    /// Lines were dropped since some were last delivered.
    overflown: AtomicBool,
    /// Lines that were taken out of a buffer and are not yet delivered.
    under_way: AtomicU64,
}

/// A worker's own: no two in one line of the processor's cache, nor in the pair of lines that it fetches.
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
            under_way: AtomicU64::new(0),
        });
        let holder: Weak<dyn Holder> = Arc::downgrade(&(inner.clone() as Arc<dyn Holder>));
        inner.sender.background.watch(holder);
        Self(inner)
    }

    /// Adds the line that `write` appends; its end is added. Never waits: where there is no room, it is dropped.
    pub fn write(&self, worker: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let inner = &self.0;
        let mut text = inner.buffers[worker % BUFFERS].lock();
        let before = text.bytes.len();
        if before >= MOST {
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

    /// Has a task deliver, unless one does.
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
                "lines come faster than they can be delivered: they are dropped until some are"
            );
        }
    }

    fn largest(&self) -> usize {
        self.buffers.iter().map(|buffer| buffer.lock().bytes.len()).max().unwrap_or_default()
    }

    /// Takes out what a buffer holds, and leaves it this memory.
    fn take(&self, buffer: &Buffer, room: Vec<u8>) -> Vec<u8> {
        let mut text = buffer.lock();
        self.under_way.store(std::mem::take(&mut text.lines), Ordering::Relaxed);
        std::mem::replace(&mut text.bytes, room)
    }

    /// Delivers what waits, buffer by buffer, and returns the last of them for use.
    async fn deliver_all(&self, mut room: Vec<u8>) -> Vec<u8> {
        for buffer in &self.buffers {
            if buffer.lock().bytes.is_empty() {
                continue;
            }
            let text = self.take(buffer, room);
            let result;
            (room, result) = (self.deliver)(text).await;
            room.clear();
            self.under_way.store(0, Ordering::Relaxed);
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
        waiting + self.under_way.load(Ordering::Relaxed) + self.sender.untold()
    }
}

/// How long until there is again what is worth a delivery, if as much comes as did.
fn pause(delivered: usize, since: Duration) -> Duration {
    since.mul_f64(WORTHWHILE as f64 / delivered.max(1) as f64).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

/// Delivers until nothing comes any more.
async fn serve(inner: Arc<Inner>) {
    let spare = || inner.spare.lock().unwrap_or_else(PoisonError::into_inner);
    let mut room = std::mem::take(&mut *spare());
    let mut since = LONGEST_PAUSE;
    loop {
        let (began, largest) = (Instant::now(), inner.largest());
        room = inner.deliver_all(room).await;
        let _ = timeout(pause(largest, since), inner.full.notified()).await;
        since = began.elapsed();
        if inner.largest() == 0 {
            inner.served.store(false, Ordering::Relaxed);
            // A line that was written before that may have relied on this task. The buffers' locks order the two.
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
        assert_eq!(pause(100, millis(20)), LONGEST_PAUSE);
        assert_eq!(pause(0, millis(1)), LONGEST_PAUSE);
    }
}
