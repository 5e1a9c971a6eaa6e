//! Validates a client's HPACK blocks before the `h2` crate decodes them, because the crate closes the whole connection
//! for a field that it cannot parse. This module tracks the client's dynamic table (RFC 7541) by the sizes of its
//! entries and stores no text.

use crate::multiplex::{Message, Name, Verdict, integer, text};
use std::collections::VecDeque;
use std::ops::Range;

/// The maximum size of a client's table: the default, because no other size is announced.
const TABLE: usize = 4096;
/// What an entry counts beside its texts.
const ENTRY: usize = 32;

/// The names of the static table with their lengths.
static STATIC: [(Name, usize); 61] = {
    const NAMES: [&str; 61] = [
        ":authority",
        ":method",
        ":method",
        ":path",
        ":path",
        ":scheme",
        ":scheme",
        ":status",
        ":status",
        ":status",
        ":status",
        ":status",
        ":status",
        ":status",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "accept-ranges",
        "accept",
        "access-control-allow-origin",
        "age",
        "allow",
        "authorization",
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-length",
        "content-location",
        "content-range",
        "content-type",
        "cookie",
        "date",
        "etag",
        "expect",
        "expires",
        "from",
        "host",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-range",
        "if-unmodified-since",
        "last-modified",
        "link",
        "location",
        "max-forwards",
        "proxy-authenticate",
        "proxy-authorization",
        "range",
        "referer",
        "refresh",
        "retry-after",
        "server",
        "set-cookie",
        "strict-transport-security",
        "transfer-encoding",
        "user-agent",
        "vary",
        "via",
        "www-authenticate",
    ];
    let mut entries = [(Name::Other, 0); 61];
    let mut at = 0;
    while at < 61 {
        let name = match at {
            0 => Name::Authority,
            1 | 2 => Name::Method,
            3 | 4 => Name::Path,
            5 | 6 => Name::Scheme,
            7..=13 => Name::Status,
            56 => Name::OfConnection,
            _ => Name::Other,
        };
        entries[at] = (name, NAMES[at].len());
        at += 1;
    }
    entries
};

/// How long the value is that the static table has beside a name.
fn static_value_length(index: usize) -> usize {
    match index {
        2 | 8..=14 => "GET".len(),
        3 => "POST".len(),
        4 => "/".len(),
        5 => "/index.html".len(),
        6 => "http".len(),
        7 => "https".len(),
        16 => "gzip, deflate".len(),
        _ => 0,
    }
}

/// A field as the table keeps it.
#[derive(Clone, Copy)]
struct Entry {
    name: Name,
    verdict: Verdict,
    name_length: usize,
    value_length: usize,
}

impl Entry {
    fn size(&self) -> usize {
        self.name_length + self.value_length + ENTRY
    }

    /// The `h2` crate can read no field of this name and size, or none that fits into the table.
    fn is_nameless(&self) -> bool {
        self.verdict == Verdict::Malformed
            && (matches!(self.name, Name::Malformed | Name::Status)
                || self.value_length == 0
                || self.size() > TABLE)
    }
}

/// Something of a block that changes the table.
enum Change {
    Resized,
    /// A field whose name ends there.
    Added(Entry, usize),
}

/// A client's table.
#[derive(Default)]
pub(super) struct Hpack {
    entries: VecDeque<Entry>,
    size: usize,
    /// How much smaller than it may be the client has made it.
    given_up: usize,
    /// What changed the table in the last block, and where that stands.
    changes: Vec<(Range<usize>, Change)>,
    /// How large the fields of the last block are.
    list_size: usize,
    /// Room for texts.
    name: Vec<u8>,
    value: Vec<u8>,
}

impl Hpack {
    /// What a block means; none where it cannot be decoded, so that nothing that follows could be.
    pub(super) fn read(&mut self, block: &[u8], is_trailers: bool) -> Option<Verdict> {
        self.changes.clear();
        self.list_size = 0;
        let mut message = Message::new(is_trailers);
        let (mut rest, mut may_resize) = (block, true);
        while let Some(&first) = rest.first() {
            let start = block.len() - rest.len();
            if first >> 5 == 0b001 {
                if !may_resize {
                    return None;
                }
                self.resize(integer(&mut rest, 5)?)?;
                self.changes.push((start..block.len() - rest.len(), Change::Resized));
                continue;
            }
            may_resize = false;
            let (entry, left) = match first {
                0x80.. => (self.indexed(integer(&mut rest, 7)?)?, 0),
                _ => self.literal(&mut rest, first)?,
            };
            if first >> 6 == 0b01 {
                self.add(entry);
                self.changes
                    .push((start..block.len() - rest.len(), Change::Added(entry, block.len() - left)));
            }
            self.list_size += entry.size();
            message.field(entry.name, entry.verdict);
        }
        Some(message.verdict())
    }

    /// How large the fields of the last block are, each with its 32 bytes more.
    pub(super) fn list_size(&self) -> usize {
        self.list_size
    }

    /// A block that leaves the `h2` crate with the same table as the last one would, and that it takes for malformed;
    /// none where there is no such block.
    pub(super) fn replacement(&self, block: &[u8]) -> Option<Vec<u8>> {
        let mut replacement = Vec::with_capacity(block.len());
        for (range, change) in &self.changes {
            match change {
                Change::Added(entry, _) if entry.is_nameless() => stand_in(&mut replacement, entry)?,
                Change::Added(entry, end) if entry.verdict == Verdict::Malformed => {
                    // Requests that follow may refer to its name.
                    replacement.extend_from_slice(&block[range.start..*end]);
                    value(&mut replacement, entry.value_length);
                }
                _ => replacement.extend_from_slice(&block[range.clone()]),
            }
        }
        replacement.extend_from_slice(b"\x00\x0aconnection\x01x");
        Some(replacement)
    }

    fn indexed(&self, index: usize) -> Option<Entry> {
        if let Some(&(name, name_length)) = STATIC.get(index.checked_sub(1)?) {
            let verdict = match name {
                Name::Status => Verdict::Malformed,
                Name::OfConnection => Verdict::OfConnection,
                _ => Verdict::Fine,
            };
            return Some(Entry { name, verdict, name_length, value_length: static_value_length(index) });
        }
        self.entries.get(index - STATIC.len() - 1).copied()
    }

    /// A field, and how much of the block is left behind its name.
    fn literal(&mut self, rest: &mut &[u8], first: u8) -> Option<(Entry, usize)> {
        let index = integer(rest, if first >> 6 == 0b01 { 6 } else { 4 })?;
        let (name, name_length) = match index {
            0 => {
                let name = text(rest, 7, &mut self.name)?;
                (Name::of(name), name.len())
            }
            index => {
                let entry = self.indexed(index)?;
                (entry.name, entry.name_length)
            }
        };
        let left = rest.len();
        let value = text(rest, 7, &mut self.value)?;
        let mut entry = Entry { name, verdict: name.verdict(value), name_length, value_length: value.len() };
        if entry.is_nameless() {
            entry.name = Name::Malformed;
        }
        Some((entry, left))
    }

    #[cfg(test)]
    pub(super) fn name_length(&self, index: usize) -> Option<usize> {
        self.indexed(index).map(|entry| entry.name_length)
    }

    fn resize(&mut self, size: usize) -> Option<()> {
        self.given_up = TABLE.checked_sub(size)?;
        self.evict(0);
        Some(())
    }

    fn add(&mut self, entry: Entry) {
        self.evict(entry.size());
        if self.size + entry.size() <= TABLE - self.given_up {
            self.size += entry.size();
            self.entries.push_front(entry);
        }
    }

    /// Makes room for so much.
    fn evict(&mut self, size: usize) {
        while self.size + size > TABLE - self.given_up {
            let Some(oldest) = self.entries.pop_back() else { return };
            self.size -= oldest.size();
        }
    }
}

/// A field of the same size that the `h2` crate can read, to be added to its table; none where no field is so small.
fn stand_in(block: &mut Vec<u8>, entry: &Entry) -> Option<()> {
    // One that is larger than the table only empties it.
    let length = (entry.name_length + entry.value_length).min(TABLE).checked_sub(1)?;
    block.extend_from_slice(b"\x40\x01x");
    value(block, length);
    Some(())
}

/// A value of this length.
fn value(block: &mut Vec<u8>, length: usize) {
    match u8::try_from(length) {
        Ok(length @ ..0x7f) => block.push(length),
        _ => {
            block.push(0x7f);
            let mut left = length - 0x7f;
            while left >= 0x80 {
                block.push(left as u8 | 0x80);
                left >>= 7;
            }
            block.push(left as u8);
        }
    }
    block.resize(block.len() + length, b'x');
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A field by literals, added to the table.
    fn added(name: &str, value: &str) -> Vec<u8> {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()][..], text.as_bytes()].concat();
        [b"\x40".to_vec(), text(name), text(value)].concat()
    }

    /// A GET, from the static table.
    const GET: &[u8] = b"\x82\x84\x86\x41\x01a";

    #[test]
    fn blocks_are_read_with_their_table() {
        let mut hpack = Hpack::default();
        assert_eq!(hpack.read(GET, false), Some(Verdict::Fine));
        // `:authority` was added, and comes again by its number.
        assert_eq!(hpack.read(b"\x82\x84\x86\xbe", false), Some(Verdict::Fine));
        assert_eq!(hpack.list_size(), ":methodGET:path/:schemehttp:authoritya".len() + 4 * 32);
        assert_eq!(hpack.read(b"\x82\x84\x86\xbe\xbe", false), Some(Verdict::Malformed));
        assert_eq!(hpack.read(b"\x82\x84\x86\xbf", false), None);
        assert_eq!(hpack.read(&added("Bad", "1"), false), Some(Verdict::Malformed));
        // What is malformed stays so in the table, and under its name.
        assert_eq!(hpack.read(b"\xbe", true), Some(Verdict::Malformed));
        assert_eq!(hpack.read(b"\x0f\x2f\x011", true), Some(Verdict::Malformed));
    }

    #[test]
    fn what_cannot_be_decoded_is_told_from_what_is_malformed() {
        let cases: [&[u8]; 8] = [
            b"\x80",
            b"\x82\x20",
            b"\x3f\xe2\x1f",
            b"\x40\x01",
            b"\x40\x85a",
            b"\xff\xff\xff\xff\xff\xff",
            b"\x00\x01x\x82\xff\xff",
            b"\xff",
        ];
        for block in cases {
            assert_eq!(Hpack::default().read(block, false), None, "{block:?}");
        }
    }

    #[test]
    fn a_replacement_changes_the_table_as_the_block_does() {
        let mut hpack = Hpack::default();
        let long = "v".repeat(100);
        let block =
            [&b"\x3f\xe1\x1f"[..], GET, &added("a", "b"), &added("Bad", &long), &added("c", "d")].concat();
        assert_eq!(hpack.read(&block, false), Some(Verdict::Malformed));
        let replacement = hpack.replacement(&block).unwrap();
        let mut other = Hpack::default();
        assert_eq!(other.read(&replacement, false), Some(Verdict::OfConnection));
        let sizes = |hpack: &Hpack| hpack.entries.iter().map(Entry::size).collect::<Vec<_>>();
        assert_eq!(sizes(&hpack), sizes(&other));
        assert_eq!(sizes(&hpack), [34, 135, 34, 43]);
        // A field without a name and a value is smaller than any that the crate could read.
        assert_eq!(hpack.read(&added("", ""), false), Some(Verdict::Malformed));
        assert_eq!(hpack.replacement(&added("", "")), None);
    }

    #[test]
    fn a_replacement_keeps_the_names_of_fields_whose_values_are_malformed() {
        let mut hpack = Hpack::default();
        // A name that is given, one of the static table, and one of the table that was added before.
        let block = [&added("secret", "a\nb")[..], b"\x42\x03G T", b"\x7f\x00\x01\0"].concat();
        assert_eq!(hpack.read(&block, false), Some(Verdict::Malformed));
        let replacement = hpack.replacement(&block).unwrap();
        let expected = [&added("secret", "xxx")[..], b"\x42\x03xxx", b"\x7f\x00\x01x"].concat();
        assert_eq!(replacement[..expected.len()], expected);
        // A method without a value is none that the crate can read: its name is lost.
        assert_eq!(hpack.read(b"\x42\x00", false), Some(Verdict::Malformed));
        assert_eq!(hpack.replacement(b"\x42\x00").unwrap()[..3], *b"\x40\x01x");
        assert_eq!(hpack.read(b"\x7e\x03GET", false), Some(Verdict::Malformed));
    }

    #[test]
    fn the_table_is_as_large_as_the_client_says_and_no_larger() {
        let mut hpack = Hpack::default();
        let large = "v".repeat(120);
        for _ in 0..100 {
            assert_eq!(hpack.read(&added("x", &large), true), Some(Verdict::Fine));
        }
        assert_eq!((hpack.entries.len(), hpack.size), (26, 26 * 153));
        // 200 bytes.
        assert_eq!(hpack.read(b"\x3f\xa9\x01", true), Some(Verdict::Fine));
        assert_eq!((hpack.entries.len(), hpack.size), (1, 153));
        assert_eq!(hpack.read(b"\x20\x82", false), Some(Verdict::Fine));
        assert_eq!((hpack.entries.len(), hpack.size), (0, 0));
        assert_eq!(hpack.read(&added("x", ""), true), Some(Verdict::Fine));
        assert_eq!(hpack.entries.len(), 0);
    }
}
