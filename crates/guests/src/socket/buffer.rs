//! What sockets have read and code has not, or has written and the peer has not read.

use memchr::memmem;
use std::cell::Cell;
use std::rc::Rc;

/// How many bytes the buffers of a VM take together.
const MAX_BUFFERED: usize = 32 << 20;

/// How many bytes the buffers of a VM take.
#[derive(Clone, Default)]
pub(super) struct Room(Rc<Cell<usize>>);

impl Room {
    /// Takes so many bytes; they come back when what is returned is dropped.
    pub(super) fn take(&self, bytes: usize) -> Option<Taken> {
        let total = self.0.get().checked_add(bytes).filter(|total| *total <= MAX_BUFFERED)?;
        self.0.set(total);
        Some(Taken { room: self.clone(), bytes })
    }
}

/// Bytes that are taken.
pub(super) struct Taken {
    room: Room,
    bytes: usize,
}

impl Taken {
    /// Takes more, if there is room.
    fn grow(&mut self, bytes: usize) -> bool {
        let Some(mut more) = self.room.take(bytes) else { return false };
        self.bytes += std::mem::take(&mut more.bytes);
        true
    }

    /// Gives back all but these.
    fn shrink_to(&mut self, bytes: usize) {
        self.room.0.set(self.room.0.get() - (self.bytes - bytes));
        self.bytes = bytes;
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.room.0.set(self.room.0.get() - self.bytes);
    }
}

/// What code wants of what was read.
#[derive(Clone)]
pub(super) enum Want {
    /// So many bytes.
    Exactly(usize),
    /// A line.
    Line,
    /// All until the connection is closed.
    All,
    /// What there is, so many bytes at most.
    Any(usize),
    /// What stands before a text; in pieces of so many bytes at most.
    Until(Rc<Until>, Option<usize>),
}

/// A text at which code stops to read.
pub(super) struct Until {
    text: Vec<u8>,
    /// The text is part of what is read.
    is_inclusive: bool,
    /// What stands before the text was read to its end.
    pub(super) is_found: Cell<bool>,
}

impl Until {
    pub(super) fn new(text: Vec<u8>, is_inclusive: bool) -> Rc<Self> {
        Rc::new(Self { text, is_inclusive, is_found: Cell::new(false) })
    }
}

/// What was read.
pub(super) struct Buffer {
    bytes: Vec<u8>,
    start: usize,
    /// How many of the unread bytes do not have what code looks for.
    searched: usize,
    taken: Taken,
}

impl Buffer {
    pub(super) fn new(room: Room) -> Self {
        Self { bytes: Vec::new(), start: 0, searched: 0, taken: Taken { room, bytes: 0 } }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    fn unread(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    /// Adds what was read. False if there is no room for it.
    pub(super) fn add(&mut self, bytes: &[u8]) -> bool {
        let has_room = self.taken.grow(bytes.len());
        if has_room {
            self.bytes.extend_from_slice(bytes);
        }
        has_room
    }

    /// Takes what code wants, if that was read.
    pub(super) fn take(&mut self, want: &Want) -> Option<Vec<u8>> {
        let len = self.unread().len();
        match want {
            Want::Exactly(count) => (len >= *count).then(|| self.consume(*count, *count)),
            Want::Any(max) => (len > 0).then(|| self.consume(len.min(*max), len.min(*max))),
            Want::All => None,
            Want::Line => {
                let end = memchr::memchr(b'\n', &self.unread()[self.searched..]);
                let Some(end) = end.map(|end| end + self.searched) else {
                    self.searched = len;
                    return None;
                };
                let mut line = self.consume(end, end + 1);
                line.retain(|byte| *byte != b'\r');
                Some(line)
            }
            Want::Until(until, max) => self.take_until(until, *max),
        }
    }

    fn take_until(&mut self, until: &Until, max: Option<usize>) -> Option<Vec<u8>> {
        let (len, text) = (self.unread().len(), &until.text);
        let from = self.searched.saturating_sub(text.len() - 1);
        let found = memmem::find(&self.unread()[from..], text).map(|at| at + from);
        // Without the text, its beginning may be at the end.
        let before = found.map_or_else(
            || (len + 1).saturating_sub(text.len()),
            |at| if until.is_inclusive { at + text.len() } else { at },
        );
        if let Some(max) = max.filter(|max| before > *max || (found.is_none() && before == *max)) {
            return Some(self.consume(max, max));
        }
        self.searched = len;
        let end = found? + text.len();
        until.is_found.set(true);
        Some(self.consume(before, end))
    }

    /// Takes the rest.
    pub(super) fn take_rest(&mut self) -> Vec<u8> {
        let len = self.unread().len();
        self.consume(len, len)
    }

    fn consume(&mut self, wanted: usize, end: usize) -> Vec<u8> {
        let taken = self.unread()[..wanted].to_vec();
        self.start += end;
        self.searched = 0;
        if self.is_empty() {
            self.bytes.clear();
            self.bytes.shrink_to(MAX_IDLE);
            self.start = 0;
        } else if self.start > self.bytes.len() / 2 {
            self.bytes.drain(..self.start);
            self.start = 0;
        }
        self.taken.shrink_to(self.bytes.len());
        taken
    }
}

/// How many bytes an empty buffer keeps.
const MAX_IDLE: usize = 4 << 10;

#[cfg(test)]
mod tests {
    use super::{Buffer, MAX_BUFFERED, Room, Until, Want};

    fn take(buffer: &mut Buffer, want: &Want) -> Option<String> {
        buffer.take(want).map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn what_is_wanted_is_taken() {
        let mut buffer = Buffer::new(Room::default());
        assert!(buffer.add(b"one\r\ntw"));
        assert_eq!(take(&mut buffer, &Want::Line).as_deref(), Some("one"));
        assert_eq!(take(&mut buffer, &Want::Line), None);
        assert!(buffer.add(b"o\nrest"));
        assert_eq!(take(&mut buffer, &Want::Line).as_deref(), Some("two"));
        assert_eq!(take(&mut buffer, &Want::Exactly(5)), None);
        assert_eq!(take(&mut buffer, &Want::Exactly(3)).as_deref(), Some("res"));
        assert_eq!(take(&mut buffer, &Want::Any(9)).as_deref(), Some("t"));
        assert_eq!(take(&mut buffer, &Want::Any(9)), None);
        assert!(buffer.is_empty());
    }

    #[test]
    fn a_text_is_found_however_it_arrives() {
        for max in [None, Some(2)] {
            let mut buffer = Buffer::new(Room::default());
            let until = Until::new(b"--end".to_vec(), false);
            let want = Want::Until(until.clone(), max);
            let mut found = String::new();
            for byte in b"a--b--endc" {
                assert!(buffer.add(&[*byte]));
                if let Some(piece) = take(&mut buffer, &want) {
                    assert!(max.is_none_or(|max| piece.len() <= max), "{piece}");
                    found += &piece;
                }
                assert!(!until.is_found.get() || found == "a--b");
            }
            assert_eq!((found.as_str(), until.is_found.get()), ("a--b", true));
            assert_eq!(buffer.take_rest(), b"c");
        }
    }

    #[test]
    fn buffers_share_their_room() {
        let room = Room::default();
        let (mut one, mut other) = (Buffer::new(room.clone()), Buffer::new(room));
        assert!(one.add(&vec![0; MAX_BUFFERED - 1]));
        assert!(!other.add(b"ab") && other.add(b"a"));
        one.take_rest();
        assert!(other.add(b"ab"));
    }
}
