//! The fields of a head or of trailers: one arena of bytes and a table of offsets into it.

use std::collections::HashSet;
use std::fmt;

use crate::known::{HOP_BY_HOP, Known, KnownSet};
use crate::marks::Marks;
use crate::message::Limits;
use crate::parse_error::ParseError;
use crate::syntax::{is_token, list, replace_control_bytes, write_line};

/// Capacity kept between messages; what one large head took beyond it is given back.
pub(crate) const MAX_RETAINED_BYTES: usize = 16 * 1024;
const MAX_RETAINED_FIELDS: usize = 256;

/// The fields of a message in their order. Cleared and filled again, it allocates nothing.
///
/// Removed fields stay in the arena, marked; [`Headers::clear`] reclaims them.
#[derive(Default)]
pub struct Headers {
    bytes: Vec<u8>,
    fields: Vec<Field>,
    live: usize,
    /// The known names that may be present: quick to say that one is absent.
    present: u64,
    /// Those that may be present more than once.
    repeated: u64,
}

/// Offsets into the arena. Heads are bounded far below 4 GiB.
#[derive(Clone, Copy)]
struct Field {
    name: Span,
    value: Span,
    known: Known,
    live: bool,
    /// The arena holds `name: value CRLF` in one piece from `name` on, ready to be sent.
    line: bool,
}

#[derive(Clone, Copy)]
struct Span {
    start: u32,
    len: u32,
}

impl Span {
    fn new(start: usize, len: usize) -> Self {
        Self { start: start as u32, len: len as u32 }
    }

    fn end(self) -> usize {
        self.start as usize + self.len as usize
    }

    /// Spans lie within their arena. That it cannot panic lets the compiler drop unused values.
    fn of(self, bytes: &[u8]) -> &[u8] {
        bytes.get(self.start as usize..self.end()).unwrap_or_default()
    }
}

/// One field, as iteration shows it.
#[derive(Clone, Copy)]
pub struct FieldRef<'a> {
    /// The name as it was sent.
    pub name: &'a [u8],
    /// The value without the whitespace around it.
    pub value: &'a [u8],
    /// The name, recognised.
    pub known: Known,
    /// The arena from the value on.
    rest: &'a [u8],
}

/// How long a value is that is copied in one move.
const SHORT: usize = 32;

impl FieldRef<'_> {
    /// Appends the value: a short one in a move of fixed length, what lies behind it is taken along and cut off.
    #[inline(always)]
    pub fn write_value(&self, out: &mut Vec<u8>) {
        match self.rest.first_chunk::<SHORT>() {
            Some(chunk) if self.value.len() <= SHORT => {
                out.extend_from_slice(chunk);
                out.truncate(out.len() - (SHORT - self.value.len()));
            }
            _ => out.extend_from_slice(self.value),
        }
    }
}

impl Headers {
    /// No fields.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all fields and keeps the memory for the next message.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(MAX_RETAINED_BYTES);
        self.fields.clear();
        self.fields.shrink_to(MAX_RETAINED_FIELDS);
        self.live = 0;
        (self.present, self.repeated) = (0, 0);
    }

    /// How many fields there are.
    pub fn len(&self) -> usize {
        self.live
    }

    /// Whether there is no field.
    pub fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// The first value of a name in any case.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        let found = self.position(&Query::new(name.as_bytes()))?;
        Some(self.value(&self.fields[found]))
    }

    /// The first value of a known name.
    #[inline]
    pub fn get_known(&self, known: Known) -> Option<&[u8]> {
        self.get_all_known(known).next()
    }

    /// Whether a known name is there.
    #[inline]
    pub fn contains_known(&self, known: Known) -> bool {
        self.get_known(known).is_some()
    }

    /// Every value of a name in any case, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        let query = Query::new(name.as_bytes());
        self.candidates(query.known)
            .filter(move |field| query.matches(field, &self.bytes))
            .map(|field| self.value(field))
    }

    /// Every value of a known name, in order.
    #[inline]
    pub fn get_all_known(&self, known: Known) -> impl Iterator<Item = &[u8]> {
        self.candidates(known).map(|field| self.value(field))
    }

    /// Every field in order.
    pub fn iter(&self) -> impl Iterator<Item = FieldRef<'_>> {
        self.fields.iter().filter(|field| field.live).map(|field| FieldRef {
            name: field.name.of(&self.bytes),
            value: self.value(field),
            known: field.known,
            rest: self.bytes.get(field.value.start as usize..).unwrap_or_default(),
        })
    }

    /// The lines that names and values are parts of, with those of removed fields: for a look at all of them at once.
    #[inline]
    pub fn lines(&self) -> &[u8] {
        &self.bytes
    }

    /// Adds a field at the end. CR, LF and NUL in the value become spaces, so that it cannot end its line; a name
    /// that is not a token adds nothing.
    pub fn append(&mut self, name: impl AsRef<[u8]>, value: &[u8]) {
        self.append_query(&Query::new(name.as_ref()), value);
    }

    fn append_query(&mut self, query: &Query<'_>, value: &[u8]) {
        if query.known != Known::Other || is_token(query.name) {
            self.append_line(query.known, query.name, value);
        }
    }

    /// Adds a field whose name is a constant, already recognised. CR, LF and NUL in the value become spaces.
    #[inline]
    pub fn append_known(&mut self, known: Known, name: &'static str, value: &[u8]) {
        debug_assert!(Known::of(name.as_bytes()) == known && is_token(name.as_bytes()));
        self.append_line(known, name.as_bytes(), value);
    }

    fn append_line(&mut self, known: Known, name: &[u8], value: &[u8]) {
        let start = self.bytes.len();
        self.bytes.reserve(name.len() + value.len() + 4);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        let value = self.push_value(value);
        self.bytes.extend_from_slice(b"\r\n");
        self.push(Field { name: Span::new(start, name.len()), value, known, live: true, line: true });
    }

    /// Adds a field that needs no check: a constant name, already recognised, and a value made by the gateway, without
    /// CR, LF and NUL.
    #[inline(always)]
    pub fn append_unchecked(&mut self, known: Known, name: &'static str, value: &[u8]) {
        debug_assert!(Known::of(name.as_bytes()) == known && is_token(name.as_bytes()));
        debug_assert!(memchr::memchr3(b'\r', b'\n', 0, value).is_none());
        let start = self.bytes.len();
        write_line(&mut self.bytes, name.as_bytes(), value);
        let name = Span::new(start, name.len());
        let value = Span::new(name.end() + 2, value.len());
        self.push(Field { name, value, known, live: true, line: true });
    }

    /// Gives a name one value: in the place of its first field, its other fields removed; at the end if it had none.
    pub fn set(&mut self, name: impl AsRef<[u8]>, value: &[u8]) {
        let query = Query::new(name.as_ref());
        let Some(first) = self.position(&query) else { return self.append_query(&query, value) };
        self.remove_matching(&query);
        let value = self.push_value(value);
        let field = &mut self.fields[first];
        (field.value, field.live, field.line) = (value, true, false);
        self.live += 1;
    }

    /// Removes every field of a name in any case; whether there was one.
    pub fn remove(&mut self, name: &str) -> bool {
        self.remove_matching(&Query::new(name.as_bytes()))
    }

    /// Removes every field of a known name; whether there was one.
    #[inline]
    pub fn remove_known(&mut self, known: Known) -> bool {
        self.may_hold(known) && self.remove_matching(&Query { known, name: &[] })
    }

    /// Removes every field of these known names.
    #[inline]
    pub fn remove_all_known(&mut self, names: KnownSet) {
        if self.present & names.bits() != 0 {
            for field in self.fields.iter_mut().filter(|field| field.live && names.holds(field.known)) {
                field.live = false;
                self.live -= 1;
            }
        }
    }

    /// Leaves one field of a known name, if all its values are the same.
    #[cold]
    pub(crate) fn merge_equal(&mut self, known: Known) {
        let Some(value) = self.get_known(known).map(<[u8]>::to_vec) else { return };
        if self.get_all_known(known).all(|other| other == value) {
            self.set(known.name(), &value);
        }
    }

    /// Removes every field whose name would be one of these if its underscores were hyphens. Applications that get
    /// headers as variables (CGI, WSGI, Rack) cannot tell the two apart.
    pub fn remove_underscore_aliases(&mut self, names: KnownSet) {
        for field in self.fields.iter_mut().filter(|field| field.live && field.known == Known::Other) {
            let name = field.name.of(&self.bytes);
            if name.contains(&b'_') && names.holds(Known::of_alias(name)) {
                field.live = false;
                self.live -= 1;
            }
        }
    }

    /// Removes what concerns this connection alone (RFC 9110, 7.6.1): Connection and the fields it names,
    /// Keep-Alive, Proxy-Connection, TE, Trailer, Transfer-Encoding and Upgrade.
    ///
    /// Connection cannot name away an end-to-end field of [`Known`], such as Host, Content-Length, Content-Type,
    /// Authorization, Cookie, X-Forwarded-\*, X-Real-IP, X-Consumer-\* or X-Kong-Request-Id: those decide framing,
    /// routing or identity, and a client must not choose what the upstream gets of them.
    pub fn remove_hop_by_hop(&mut self) {
        self.remove_named_by_connection();
        self.remove_all_known(HOP_BY_HOP);
    }

    fn remove_named_by_connection(&mut self) {
        // Nearly always it says that alone.
        let plain = matches!(self.get_known(Known::Connection), None | Some(b"keep-alive" | b"close"));
        if plain && !self.may_repeat(Known::Connection) {
            return;
        }
        if self.fields.len() > Limits::FEW_FIELDS {
            return self.remove_many_named_by_connection();
        }
        let Self { bytes, fields, live, .. } = self;
        for index in 0..fields.len() {
            let connection = fields[index];
            if connection.live && connection.known == Known::Connection {
                for name in list(connection.value.of(bytes)).filter(|name| Known::of(name) == Known::Other) {
                    *live -= kill(fields, bytes, &Query { known: Known::Other, name });
                }
            }
        }
    }

    /// The same for many fields, in a time that does not grow with their number times that of the names.
    #[cold]
    fn remove_many_named_by_connection(&mut self) {
        let named = self.get_all_known(Known::Connection).flat_map(list).map(<[u8]>::to_ascii_lowercase);
        let named: HashSet<Vec<u8>> = named.filter(|name| Known::of(name) == Known::Other).collect();
        let Self { bytes, fields, live, .. } = self;
        for field in fields.iter_mut().filter(|field| field.live && field.known == Known::Other) {
            if named.contains(&field.name.of(bytes).to_ascii_lowercase()) {
                field.live = false;
                *live -= 1;
            }
        }
    }

    /// Fills an empty table with the fields of a plain head, which begin at `start`; false if the other parser has to read
    /// them, because they are malformed or unusual.
    #[inline]
    pub(crate) fn load_plain(&mut self, head: &[u8], start: usize, marks: &Marks, limits: &Limits) -> bool {
        if head.len() > limits.max_field_bytes {
            return false;
        }
        let most = limits.max_fields.min(Limits::FEW_FIELDS);
        let (mut at, mut colons) = (start, marks.colons());
        let (mut present, mut repeated) = (0, 0);
        for end in marks.ends() {
            if end < start {
                continue;
            }
            if end == at {
                (self.present, self.repeated, self.live) = (present, repeated, self.fields.len());
                if self.live > 0 {
                    self.bytes.extend_from_slice(&head[start..]);
                }
                return true;
            }
            let Some(field) = colons.next_from(at).and_then(|colon| plain_field(head, start, at, colon, end))
            else {
                break;
            };
            let bit = field.known.bit();
            repeated |= present & bit;
            present |= bit;
            self.fields.push(field);
            at = end + 2;
            if self.fields.len() > most {
                break;
            }
        }
        self.fields.clear();
        false
    }

    /// Fills an empty table with what was parsed from `head`, whose bytes are copied once.
    pub(crate) fn load(
        &mut self,
        head: &[u8],
        parsed: &[httparse::Header<'_>],
        limits: &Limits,
    ) -> Result<(), ParseError> {
        // Only a long head can hold a field that is too long.
        if head.len() > limits.max_field_bytes
            && !parsed.iter().all(|field| limits.allows_field(field.name.as_bytes(), field.value))
        {
            return Err(ParseError::FieldTooLarge);
        }
        let Some(first) = parsed.first() else { return Ok(()) };
        let base = first.name.as_ptr() as usize;
        self.bytes.extend_from_slice(&head[base - head.as_ptr() as usize..]);
        self.fields.reserve(parsed.len());
        for header in parsed {
            let name = Span::new(header.name.as_ptr() as usize - base, header.name.len());
            let value = if header.value.is_empty() {
                Span::new(name.end(), 0)
            } else {
                Span::new(header.value.as_ptr() as usize - base, header.value.len())
            };
            let line = self.bytes[name.end()..].starts_with(b": ")
                && value.start as usize == name.end() + 2
                && self.bytes[value.end()..].starts_with(b"\r\n");
            self.push(Field { name, value, known: Known::of(header.name.as_bytes()), live: true, line });
        }
        Ok(())
    }

    /// Whether every parsed field of a name has at most one space before its value, and nothing after it.
    pub(crate) fn has_plain_whitespace(&self, known: Known) -> bool {
        self.candidates(known).all(|field| {
            let before = &self.bytes[field.name.end() + 1..field.value.start as usize];
            matches!(before, b"" | b" ") && self.bytes[field.value.end()..].starts_with(b"\r\n")
        })
    }

    /// Appends all fields but these, each as its line. Neighbours that are still as they came are copied in one piece.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>, but: KnownSet) {
        out.reserve(self.bytes.len() + 4 * self.fields.len());
        let (mut start, mut end) = (0, 0);
        for field in self.fields.iter().filter(|field| field.live && !but.holds(field.known)) {
            if field.line && field.name.start as usize == end {
                end = field.value.end() + 2;
                continue;
            }
            out.extend_from_slice(&self.bytes[start..end]);
            if field.line {
                (start, end) = (field.name.start as usize, field.value.end() + 2);
            } else {
                (start, end) = (0, 0);
                write_line(out, field.name.of(&self.bytes), self.value(field));
            }
        }
        out.extend_from_slice(&self.bytes[start..end]);
    }

    fn push(&mut self, field: Field) {
        let bit = field.known.bit();
        self.repeated |= self.present & bit;
        self.present |= bit;
        self.live += 1;
        self.fields.push(field);
    }

    fn push_value(&mut self, value: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(value);
        replace_control_bytes(&mut self.bytes[start..]);
        Span::new(start, value.len())
    }

    fn value(&self, field: &Field) -> &[u8] {
        field.value.of(&self.bytes)
    }

    #[inline]
    fn may_hold(&self, known: Known) -> bool {
        self.present & known.bit() != 0
    }

    /// Whether there may be more than one field of a known name.
    #[inline]
    pub fn may_repeat(&self, known: Known) -> bool {
        self.repeated & known.bit() != 0
    }

    #[inline]
    fn candidates(&self, known: Known) -> impl Iterator<Item = &Field> {
        let fields: &[Field] = if self.may_hold(known) { &self.fields } else { &[] };
        fields.iter().filter(move |field| field.live && field.known == known)
    }

    fn position(&self, query: &Query<'_>) -> Option<usize> {
        if !self.may_hold(query.known) {
            return None;
        }
        self.fields.iter().position(|field| query.matches(field, &self.bytes))
    }

    fn remove_matching(&mut self, query: &Query<'_>) -> bool {
        let removed = kill(&mut self.fields, &self.bytes, query);
        self.live -= removed;
        removed > 0
    }
}

/// Cloned into others, it allocates nothing that they have already.
impl Clone for Headers {
    fn clone(&self) -> Self {
        let mut clone = Self::default();
        clone.clone_from(self);
        clone
    }

    fn clone_from(&mut self, source: &Self) {
        self.bytes.clone_from(&source.bytes);
        self.fields.clone_from(&source.fields);
        (self.live, self.present, self.repeated) = (source.live, source.present, source.repeated);
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list()
            .entries(self.iter().map(|field| String::from_utf8_lossy(field.name).into_owned()))
            .finish()
    }
}

impl fmt::Debug for FieldRef<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: ({} bytes)", String::from_utf8_lossy(self.name), self.value.len())
    }
}

/// A name being looked for.
struct Query<'a> {
    known: Known,
    /// Compared only when the name is not a known one.
    name: &'a [u8],
}

impl<'a> Query<'a> {
    fn new(name: &'a [u8]) -> Self {
        Self { known: Known::of(name), name }
    }

    #[inline]
    fn matches(&self, field: &Field, bytes: &[u8]) -> bool {
        field.live
            && field.known == self.known
            && (self.known != Known::Other || field.name.of(bytes).eq_ignore_ascii_case(self.name))
    }
}

/// The field of the line from `at` to `end`, which offsets count from `start`; none if it is unusual.
#[inline]
fn plain_field(head: &[u8], start: usize, at: usize, colon: usize, end: usize) -> Option<Field> {
    let (name, mut value) = (head.get(at..colon)?, head.get(colon + 1..end)?);
    let known = Known::of(name);
    if known == Known::Other && !is_token(name) {
        return None;
    }
    if let [b' ', rest @ ..] = value {
        value = rest;
    }
    if value.first() == Some(&b' ') || value.last() == Some(&b' ') {
        return None;
    }
    let name = Span::new(at - start, name.len());
    let from = end - start - value.len();
    let line = from == name.end() + 2 && !value.is_empty();
    let value = Span::new(if value.is_empty() { name.end() } else { from }, value.len());
    Some(Field { name, value, known, live: true, line })
}

fn kill(fields: &mut [Field], bytes: &[u8], query: &Query<'_>) -> usize {
    let mut removed = 0;
    for field in fields {
        if query.matches(field, bytes) {
            field.live = false;
            removed += 1;
        }
    }
    removed
}
