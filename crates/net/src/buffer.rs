//! Read and write buffers. The worker's thread lends read buffers to connections that have bytes in flight, so that an
//! idle connection holds none and the few in use stay warm in the cache.

use std::cell::RefCell;

/// Bytes of one read buffer. A head fits, unless larger ones are allowed, and a body streams through it.
pub const SIZE: usize = 64 * 1024;
/// A waiting connection that holds at most this many bytes keeps them in a small buffer, so that many slow clients hold
/// little memory.
const PARKED: usize = 4 * 1024;
/// Buffers kept for reuse by each worker.
const KEPT: usize = 64;

thread_local! {
    static FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static FREE_OUT: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A window of received bytes in a borrowed buffer.
pub struct Buffer {
    data: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Default for Buffer {
    /// Holds no memory until the first read.
    fn default() -> Self {
        Self { data: Box::default(), start: 0, end: 0 }
    }
}

impl Buffer {
    /// The bytes that were received and not yet consumed.
    pub fn bytes(&self) -> &[u8] {
        &self.data[self.start..self.end]
    }

    /// How many bytes that is.
    pub fn len(&self) -> usize {
        self.end - self.start
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Whether the buffer is full: no more can be received before some bytes are consumed.
    pub fn is_full(&self) -> bool {
        self.len() >= SIZE.max(self.data.len())
    }

    /// Makes a full buffer larger, so that it can hold a head of so many bytes; false where it can hold one already.
    #[cold]
    pub fn grow(&mut self, most: usize) -> bool {
        if self.data.len() >= most {
            return false;
        }
        let mut data = vec![0; (2 * self.data.len()).min(most)];
        data[..self.len()].copy_from_slice(self.bytes());
        (self.start, self.end) = (0, self.len());
        self.data = data.into();
        true
    }

    /// Consumes bytes at the front.
    pub fn consume(&mut self, n: usize) {
        self.start += n;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Room to read into; moves what is left to the front when the tail runs short.
    pub fn room(&mut self) -> &mut [u8] {
        if self.data.len() < SIZE {
            let mut data = FREE.with_borrow_mut(Vec::pop).unwrap_or_else(|| vec![0; SIZE].into_boxed_slice());
            data[..self.len()].copy_from_slice(self.bytes());
            self.data = data;
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.start > 0 && self.data.len() - self.end < SIZE / 4 {
            self.data.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        &mut self.data[self.end..]
    }

    /// Records that this many bytes were read into the [`room`](Self::room).
    pub fn filled(&mut self, n: usize) {
        self.end += n;
    }

    /// Releases memory while the connection is idle: all of it if the buffer is empty, most of it if it holds little.
    pub fn release(&mut self) {
        if self.len() <= PARKED && self.data.len() >= SIZE {
            let parked = self.bytes().into();
            let data = std::mem::replace(&mut self.data, parked);
            (self.start, self.end) = (0, self.end - self.start);
            FREE.with_borrow_mut(|free| {
                if free.len() < KEPT && data.len() == SIZE {
                    free.push(data)
                }
            });
        }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        (self.start, self.end) = (0, 0);
        self.release();
    }
}

/// Bytes waiting to be written.
#[derive(Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    written: usize,
}

impl Outbox {
    /// The vector to append to.
    pub fn writable(&mut self) -> &mut Vec<u8> {
        if self.bytes.capacity() == 0 {
            self.bytes = FREE_OUT.with_borrow_mut(Vec::pop).unwrap_or_else(|| Vec::with_capacity(4096));
        }
        &mut self.bytes
    }

    /// The bytes that are still to be written.
    pub fn pending(&self) -> &[u8] {
        &self.bytes[self.written..]
    }

    /// Whether all of it was written.
    pub fn is_empty(&self) -> bool {
        self.written == self.bytes.len()
    }

    /// How many bytes it holds, with those that were written before others.
    pub fn held(&self) -> usize {
        self.bytes.len()
    }

    /// Records that this many bytes were written.
    pub fn wrote(&mut self, n: usize) {
        self.written += n;
        if self.is_empty() {
            self.bytes.clear();
            self.written = 0;
        }
    }

    /// Takes back what was appended beyond so many bytes, of which nothing was written.
    pub fn truncate(&mut self, held: usize) {
        self.bytes.truncate(held);
        debug_assert!(self.written <= self.bytes.len());
    }

    /// Releases the memory if the buffer is empty.
    pub fn release(&mut self) {
        if self.is_empty() && self.bytes.capacity() > 0 {
            let mut bytes = std::mem::take(&mut self.bytes);
            self.written = 0;
            bytes.clear();
            if bytes.capacity() <= SIZE {
                FREE_OUT.with_borrow_mut(|free| {
                    if free.len() < KEPT {
                        free.push(bytes)
                    }
                });
            }
        }
    }
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.bytes.clear();
        self.written = 0;
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_is_kept_in_little_and_grows_again() {
        let mut buffer = Buffer::default();
        buffer.room()[..5].copy_from_slice(b"abcde");
        buffer.filled(5);
        buffer.consume(2);
        buffer.release();
        assert_eq!((buffer.bytes(), buffer.data.len()), (&b"cde"[..], 3));
        buffer.room()[0] = b'f';
        buffer.filled(1);
        assert_eq!((buffer.bytes(), buffer.data.len()), (&b"cdef"[..], SIZE));
        buffer.consume(4);
        buffer.release();
        assert_eq!(buffer.data.len(), 0);
    }

    #[test]
    fn a_full_one_grows_as_far_as_a_head_may_be_long() {
        let mut buffer = Buffer::default();
        buffer.room().fill(b'a');
        buffer.filled(SIZE);
        assert!(buffer.is_full() && !buffer.grow(SIZE));
        assert!(buffer.grow(3 * SIZE) && !buffer.is_full());
        assert_eq!(buffer.room().len(), SIZE);
        buffer.filled(SIZE);
        assert!(buffer.is_full() && buffer.grow(3 * SIZE));
        assert_eq!((buffer.len(), buffer.room().len()), (2 * SIZE, SIZE));
        assert!(buffer.bytes()[..SIZE].iter().all(|byte| *byte == b'a'));
        buffer.consume(2 * SIZE);
        buffer.release();
        assert_eq!(buffer.room().len(), SIZE);
    }
}
