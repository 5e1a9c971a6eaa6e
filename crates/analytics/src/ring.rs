//! The records of one worker on their way to the aggregator: one writer, one reader, no lock.
//!
//! A record is four atomic words with relaxed order; one release store of the head publishes it. On x86 and ARM these are
//! plain stores. If the ring is full, the record is dropped and counted.
use crate::record::{Packed, Record};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU64, Ordering};
use std::cell::Cell;

/// Records in the ring of a worker: 2 MiB.
pub const CAPACITY: usize = 1 << 16;

/// Keeps what the two sides write on different cache lines.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Padded(AtomicU64);

#[derive(Debug)]
struct Shared {
    words: Box<[[AtomicU64; 4]]>,
    /// Records written, ever.
    head: Padded,
    /// Records read, ever.
    tail: Padded,
    dropped: Padded,
}

/// The worker's side. It is not [`Sync`], so one thread writes.
#[derive(Debug)]
pub struct Producer {
    shared: Arc<Shared>,
    head: Cell<u64>,
    /// The reader was at least here.
    tail: Cell<u64>,
}

/// The aggregator's side.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    tail: u64,
}

/// A ring of this many records, rounded up to a power of two.
pub fn ring(capacity: usize) -> (Producer, Consumer) {
    let words = std::iter::repeat_with(Default::default).take(capacity.next_power_of_two()).collect();
    let shared =
        Shared { words, head: Padded::default(), tail: Padded::default(), dropped: Padded::default() };
    let shared = Arc::new(shared);
    let producer = Producer { shared: Arc::clone(&shared), head: Cell::new(0), tail: Cell::new(0) };
    (producer, Consumer { shared, tail: 0 })
}

impl Shared {
    fn slot(&self, position: u64) -> &[AtomicU64; 4] {
        &self.words[position as usize & (self.words.len() - 1)]
    }

    fn is_full(&self, head: u64, tail: u64) -> bool {
        head - tail >= self.words.len() as u64
    }
}

impl Producer {
    /// Writes a record, or counts it as dropped.
    // Inlined by force, so that a record is packed where its parts are in registers.
    #[inline(always)]
    pub fn push(&self, record: &Record) {
        let head = self.head.get();
        if self.shared.is_full(head, self.tail.get()) && self.is_still_full(head) {
            return;
        }
        for (slot, word) in self.shared.slot(head).iter().zip(record.pack().0) {
            slot.store(word, Ordering::Relaxed);
        }
        self.head.set(head + 1);
        self.shared.head.0.store(head + 1, Ordering::Release);
    }

    /// Looks again where the reader is, and counts a drop if it has read nothing.
    #[cold]
    fn is_still_full(&self, head: u64) -> bool {
        self.tail.set(self.shared.tail.0.load(Ordering::Acquire));
        let is_full = self.shared.is_full(head, self.tail.get());
        if is_full {
            let dropped = self.shared.dropped.0.load(Ordering::Relaxed);
            self.shared.dropped.0.store(dropped + 1, Ordering::Relaxed);
        }
        is_full
    }
}

impl Consumer {
    /// Reads records in order, until the closure returns false for one, which then stays.
    pub fn drain(&mut self, mut take: impl FnMut(&Packed) -> bool) {
        let head = self.shared.head.0.load(Ordering::Acquire);
        while self.tail < head {
            let words = self.shared.slot(self.tail).each_ref().map(|word| word.load(Ordering::Relaxed));
            if !take(&Packed(words)) {
                break;
            }
            self.tail += 1;
        }
        self.shared.tail.0.store(self.tail, Ordering::Release);
    }

    /// Whether every record has been read.
    pub fn is_empty(&self) -> bool {
        self.tail == self.shared.head.0.load(Ordering::Acquire)
    }

    /// Whether the worker is gone and every record has been read.
    pub fn is_finished(&self) -> bool {
        Arc::strong_count(&self.shared) == 1 && self.is_empty()
    }

    /// The number of records dropped so far.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;
    use std::thread;

    #[test]
    fn a_full_ring_drops_and_counts() {
        let (producer, mut consumer) = ring(4);
        for route in 0..6 {
            producer.push(&record(route));
        }
        assert_eq!(consumer.dropped(), 2);
        let mut routes = Vec::new();
        consumer.drain(|record| {
            routes.push(record.route());
            record.route() < 2
        });
        assert_eq!(routes, [0, 1, 2], "the one refused is seen and stays");
        producer.push(&record(9));
        consumer.drain(|record| {
            routes.push(record.route());
            true
        });
        assert_eq!(routes, [0, 1, 2, 2, 3, 9]);
        assert!(consumer.is_empty() && !consumer.is_finished());
        drop(producer);
        assert!(consumer.is_finished());
    }

    #[test]
    fn what_is_read_and_what_is_dropped_is_everything() {
        const RECORDS: u32 = 200_000;
        let (producer, mut consumer) = ring(256);
        let writer = thread::spawn(move || (0..RECORDS).for_each(|route| producer.push(&record(route))));
        let (mut read, mut last) = (0, None);
        while !consumer.is_finished() {
            consumer.drain(|record| {
                assert!(last < Some(record.route()), "in order and whole");
                assert_eq!(record.route(), record.upstream());
                last = Some(record.route());
                read += 1;
                true
            });
        }
        writer.join().unwrap();
        assert_eq!(read + consumer.dropped(), u64::from(RECORDS));
    }
}
