//! How much memory the bodies that plugins read may take, all those of a node together. Workers take it in pieces, so that
//! none waits for another, and a request whose body no plugin reads takes nothing.

use crate::count::Count;
use std::cell::Cell;
use std::ops::Deref;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use tokio::time::Instant;

/// How many pieces of the whole there are for each worker. It keeps at most two that it does not use.
const PIECES: usize = 32;
/// The largest piece.
const MAX_PIECE_LEN: usize = 1024 * 1024;

/// Bytes per second that a client must send or take of a buffered body, beyond the timeout; Apache's `MinRate`.
const MIN_RATE: u64 = 500;

/// The same while memory is scarce, because others are rejected meanwhile.
const MIN_RATE_IF_SCARCE: u64 = 16 * 1024;

/// The memory for bodies of a node.
pub struct BodyMemory {
    limit: usize,
    piece: usize,
    /// What workers have reserved: what bodies take, and what is kept at hand.
    reserved: AtomicUsize,
    /// A request was rejected, which is logged once until there is memory again.
    is_exhausted: AtomicBool,
    /// One body alone was larger than the limit, which is logged once.
    is_too_small: AtomicBool,
    counters: Box<[Counters]>,
}

/// What one worker counts.
#[repr(align(128))]
#[derive(Default)]
struct Counters {
    used: Count,
    rejected: Count,
    skipped: Count,
}

/// How much memory a node's buffered bodies take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BodyMemoryUsage {
    /// Bytes now.
    pub bytes: u64,
    /// How many there may be; none is any number.
    pub limit: Option<u64>,
    /// Exchanges that were answered 503, because the memory was exhausted.
    pub rejected: u64,
    /// Bodies that were not buffered for the same reason, because their plugin can do without.
    pub skipped: u64,
}

impl BodyMemory {
    /// So many bytes for so many workers; 0 is any number.
    pub fn new(limit: u64, workers: usize) -> Self {
        let limit = if limit == 0 { usize::MAX } else { usize::try_from(limit).unwrap_or(usize::MAX) };
        Self {
            limit,
            piece: (limit / PIECES / workers.max(1)).clamp(1, MAX_PIECE_LEN),
            reserved: AtomicUsize::new(0),
            is_exhausted: AtomicBool::new(false),
            is_too_small: AtomicBool::new(false),
            counters: (0..workers.max(1)).map(|_| Counters::default()).collect(),
        }
    }

    /// What is used now.
    pub fn usage(&self) -> BodyMemoryUsage {
        let sum = |of: fn(&Counters) -> &Count| self.counters.iter().map(|counters| of(counters).get()).sum();
        BodyMemoryUsage {
            bytes: sum(|counters| &counters.used),
            limit: (self.limit < usize::MAX).then_some(self.limit as u64),
            rejected: sum(|counters| &counters.rejected),
            skipped: sum(|counters| &counters.skipped),
        }
    }

    /// Whether more than three quarters are reserved.
    fn is_scarce(&self) -> bool {
        self.reserved.load(Relaxed) > self.limit / 4 * 3
    }

    fn warn_exhausted(&self) {
        if self.is_exhausted.load(Relaxed) || self.is_exhausted.swap(true, Relaxed) {
            return;
        }
        tracing::warn!(
            mem_bodies_size = self.limit,
            "the bodies that plugins read take all of mem_bodies_size: requests that need more are answered 503 until \
             there is room; raise mem_bodies_size, or lower client_body_timeout and send_timeout if clients that are \
             slow hold it"
        );
    }

    /// A body that never fits is no shortage.
    fn warn_too_small(&self, bytes: usize) {
        if !self.is_too_small.swap(true, Relaxed) {
            tracing::warn!(
                mem_bodies_size = self.limit,
                bytes,
                "a body that a plugin reads is larger than mem_bodies_size, and answered 503, as all such are; raise it \
                 to 16m or more"
            );
        }
    }
}

/// A worker's part of the memory.
pub struct WorkerBodyMemory {
    memory: Arc<BodyMemory>,
    worker: usize,
    reserved: Cell<usize>,
}

impl WorkerBodyMemory {
    /// That of this worker.
    pub fn new(memory: Arc<BodyMemory>, worker: usize) -> Self {
        Self { memory, worker, reserved: Cell::new(0) }
    }

    fn counters(&self) -> &Counters {
        &self.memory.counters[self.worker]
    }

    /// What is reserved and not used.
    fn idle(&self) -> usize {
        self.reserved.get().saturating_sub(self.counters().used.get() as usize)
    }

    /// Reserves so many bytes, while no more than `limit` are reserved of the node's.
    fn reserve(&self, bytes: usize, limit: usize) -> bool {
        let idle = self.idle();
        let has = bytes <= idle || self.reserve_more(bytes - idle, limit);
        if has {
            self.counters().used.add(bytes as u64);
        }
        has
    }

    #[cold]
    fn reserve_more(&self, least: usize, limit: usize) -> bool {
        let reserved = &self.memory.reserved;
        let fits = |bytes| {
            let more = |reserved: usize| reserved.checked_add(bytes).filter(|all| *all <= limit);
            reserved.fetch_update(Relaxed, Relaxed, more).is_ok()
        };
        let got = [least.max(self.memory.piece), least].into_iter().find(|bytes| fits(*bytes));
        self.reserved.set(self.reserved.get() + got.unwrap_or(0));
        got.is_some()
    }

    fn release(&self, bytes: usize) {
        let memory = &*self.memory;
        self.counters().used.sub(bytes as u64);
        let idle = self.idle();
        if idle <= 2 * memory.piece {
            return;
        }
        let returned = idle - memory.piece;
        self.reserved.set(self.reserved.get() - returned);
        memory.reserved.fetch_sub(returned, Relaxed);
        if !memory.is_scarce() && memory.is_exhausted.load(Relaxed) {
            memory.is_exhausted.store(false, Relaxed);
        }
    }
}

/// The memory of one body, until this is dropped.
pub struct BodyReservation {
    worker: Rc<WorkerBodyMemory>,
    bytes: usize,
    /// The plugin can do without the body: half of the memory is for others.
    is_optional: bool,
}

/// There is no memory for a body.
#[derive(Debug)]
pub struct BodyMemoryExhausted;

impl BodyReservation {
    /// An empty one.
    pub fn new(worker: Rc<WorkerBodyMemory>, is_optional: bool) -> Self {
        Self { worker, bytes: 0, is_optional }
    }

    /// Makes it so large, if the node has the memory; never smaller.
    pub fn grow_to(&mut self, bytes: usize) -> Result<(), BodyMemoryExhausted> {
        let memory = &*self.worker.memory;
        let limit = if self.is_optional { memory.limit / 2 } else { memory.limit };
        let more = bytes.saturating_sub(self.bytes);
        if self.worker.reserve(more, limit) {
            self.bytes += more;
            return Ok(());
        }
        let counters = self.worker.counters();
        if self.is_optional {
            counters.skipped.add(1);
        } else {
            counters.rejected.add(1);
            if bytes > memory.limit { memory.warn_too_small(bytes) } else { memory.warn_exhausted() }
        }
        Err(BodyMemoryExhausted)
    }

    /// Makes it as large as what is there already, whatever the limit.
    pub fn fit(&mut self, bytes: usize) {
        if bytes > self.bytes {
            self.worker.reserve(bytes - self.bytes, usize::MAX);
        } else {
            self.worker.release(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.worker.release(self.bytes);
    }
}

/// A body in memory, whole or in part.
#[derive(Default)]
pub struct BufferedBody {
    bytes: Vec<u8>,
    /// None, where it is so short that it counts as one of the connection's buffers.
    reservation: Option<BodyReservation>,
}

impl BufferedBody {
    /// An empty one, that may take this memory.
    pub fn within(reservation: BodyReservation) -> Self {
        Self { bytes: Vec::new(), reservation: Some(reservation) }
    }

    /// Adds to the end of a body that will have `length` bytes, or more. Nothing is added where there is no memory.
    pub fn push(&mut self, data: &[u8], length: usize) -> Result<(), BodyMemoryExhausted> {
        let needed = self.bytes.len() + data.len();
        if needed > self.bytes.capacity() {
            let capacity = needed.max(length.min(2 * self.bytes.capacity()));
            if let Some(reservation) = &mut self.reservation {
                reservation.grow_to(capacity)?;
            }
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// Whether plugins that read it can do without it.
    pub fn is_optional(&self) -> bool {
        self.reservation.as_ref().is_none_or(|reservation| reservation.is_optional)
    }

    /// Puts another in its place.
    pub fn replace(&mut self, replace: impl FnOnce(Vec<u8>) -> Vec<u8>) {
        self.bytes = replace(std::mem::take(&mut self.bytes));
        if let Some(reservation) = &mut self.reservation {
            reservation.fit(self.bytes.capacity());
        }
    }

    /// Takes the bytes. Their memory stays reserved until others are put in their place.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// When so much of it has to be here, or gone, if that began at `since`; never, where it counts as a buffer.
    pub fn due(&self, since: Instant, timeout: Duration, moved: usize) -> Option<Instant> {
        let is_scarce = self.reservation.as_ref()?.worker.memory.is_scarce();
        let min_rate = if is_scarce { MIN_RATE_IF_SCARCE } else { MIN_RATE };
        Some(since + timeout + Duration::from_millis(moved as u64 * 1_000 / min_rate))
    }

    /// The bytes, which are the caller's to account for.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

impl Deref for BufferedBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests;
