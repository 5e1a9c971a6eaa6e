//! Filters a client's bytes before the `h2` crate reads them. A request with a field that the crate cannot parse is
//! replaced by a malformed one that it can, because the crate then resets that stream alone instead of closing the
//! connection (RFC 9113, 8.1.1).

use crate::buffer::Buffer;
use crate::http2::PREFACE_LENGTH;
use crate::http2::hpack::Hpack;
use crate::multiplex::Verdict;
use h2::Reason;
use tokio::time::Instant;

/// The start of a frame.
pub(super) const HEAD: usize = 9;
/// The maximum frame size that is announced to clients.
const MAX_FRAME_LEN: usize = 16 * 1024;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// Streams with a `#` in their path that may wait to be accepted.
const FRAGMENTS: usize = 128;

/// Streams that are followed until their end.
const OPEN: usize = 1024;

/// The compressed frames of a head may have this many times the bytes that its fields may have.
const MAX_HEAD_FACTOR: usize = 4;

/// The bytes of one client.
pub(super) struct Inbound {
    hpack: Hpack,
    /// So many of the bytes that came pass.
    passing: usize,
    /// After them so many are left out.
    left_out: usize,
    /// Then this passes, of which so much has.
    replacement: Vec<u8>,
    replaced: usize,
    /// A head that has arrived in part.
    partial: Option<Partial>,
    /// When the first of a head came that has no end so far.
    begun: Option<Instant>,
    longest_head: usize,
    /// How large the fields of a head may be, and how many were larger.
    max_list_size: usize,
    large_heads: u32,
    last_stream: u32,
    /// Streams that may have trailers yet, as long as they are not too many.
    open: Vec<u32>,
    /// Streams that may still be opened in this turn, of so many.
    may_open: u32,
    max_streams: u32,
    /// Streams whose path has a `#`, which were not accepted yet.
    fragments: Vec<u32>,
    failure: Option<Failure>,
}

/// Why the bytes of a client are not read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// A head goes on and on.
    EndlessHead,
    /// A head has not come to its end in time.
    LateHead,
    /// The client broke a rule of the connection.
    Broken(Reason),
}

impl Failure {
    /// The code that the client gets.
    pub fn reason(self) -> Reason {
        match self {
            Self::EndlessHead => Reason::ENHANCE_YOUR_CALM,
            // The request may be sent again: nothing has seen it.
            Self::LateHead => Reason::NO_ERROR,
            Self::Broken(reason) => reason,
        }
    }
}

/// A head without its end.
struct Partial {
    head: Head,
    /// It depends on itself.
    is_circular: bool,
    /// The frames, as they came.
    frames: Vec<u8>,
    /// The fields in them.
    block: Vec<u8>,
}

/// What to do next.
pub(super) enum Next {
    /// So many bytes pass.
    Pass(usize),
    /// What [`Inbound::replacement`] says passes.
    Replace,
    /// More has to come.
    Read,
    /// Nothing more passes in this turn.
    Wait,
}

#[derive(Clone, Copy)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    stream: u32,
}

impl Head {
    fn read(bytes: &[u8]) -> Option<Self> {
        let &[a, b, c, kind, flags, d, e, f, g] = bytes.first_chunk::<HEAD>()?;
        let stream = u32::from_be_bytes([d & 0x7f, e, f, g]);
        Some(Self { length: u32::from_be_bytes([0, a, b, c]) as usize, kind, flags, stream })
    }

    /// The fields in a frame of HEADERS; none where it has no room for what its flags say.
    fn block<'f>(&self, payload: &'f [u8]) -> Option<&'f [u8]> {
        let (mut block, mut padding) = (payload, 0);
        if self.flags & PADDED != 0 {
            let (first, rest) = block.split_first()?;
            (block, padding) = (rest, usize::from(*first));
        }
        if self.flags & PRIORITY != 0 {
            block = block.get(5..)?;
        }
        block.get(..block.len().checked_sub(padding)?)
    }

    /// Whether it depends on itself, for which the crate would not decode its fields.
    fn is_circular(&self, payload: &[u8]) -> bool {
        let priority = payload.get(usize::from(self.flags & PADDED != 0)..).and_then(<[u8]>::first_chunk);
        self.flags & PRIORITY != 0
            && priority.is_some_and(|depends| u32::from_be_bytes(*depends) & 0x7fff_ffff == self.stream)
    }
}

impl Inbound {
    /// The bytes of a client that may have so many streams open, with heads of so many bytes.
    pub(super) fn new(max_streams: u32, max_header_list_size: u32) -> Self {
        Self {
            hpack: Hpack::default(),
            passing: PREFACE_LENGTH,
            left_out: 0,
            replacement: Vec::new(),
            replaced: 0,
            partial: None,
            begun: None,
            longest_head: MAX_HEAD_FACTOR * max_header_list_size as usize + MAX_FRAME_LEN,
            max_list_size: max_header_list_size as usize,
            large_heads: 0,
            last_stream: 0,
            open: Vec::new(),
            may_open: max_streams.max(1),
            max_streams: max_streams.max(1),
            fragments: Vec::new(),
            failure: None,
        }
    }

    /// A turn begins: as many streams as may be open at a time may be opened in it, so that those that the client resets
    /// at once are taken up before more come.
    pub(super) fn begin_turn(&mut self) {
        self.may_open = self.max_streams;
    }

    /// Why the connection has to end, if it has.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.failure
    }

    /// When the first of a head came that has no end so far, if its bytes are still read.
    pub(super) fn begun(&self) -> Option<Instant> {
        self.begun.filter(|_| self.failure.is_none())
    }

    /// The head that has begun is not waited for any longer.
    pub(super) fn give_up(&mut self) {
        self.failure.get_or_insert(Failure::LateHead);
    }

    /// How many heads were larger than they may be since it was asked last.
    pub(super) fn large_heads(&mut self) -> u32 {
        std::mem::take(&mut self.large_heads)
    }

    /// Whether there are streams with a `#` in their path that were not accepted yet.
    pub(super) fn has_fragments(&self) -> bool {
        !self.fragments.is_empty()
    }

    /// Whether the path of an accepted stream has a `#`.
    pub(super) fn has_fragment(&mut self, stream: u32) -> bool {
        // Streams are accepted in their order.
        let found = self.fragments.contains(&stream);
        self.fragments.retain(|other| *other > stream);
        found
    }

    pub(super) fn replacement(&self) -> &[u8] {
        &self.replacement[self.replaced..]
    }

    /// So much of the replacement has passed.
    pub(super) fn replaced(&mut self, n: usize) {
        self.replaced += n;
        if self.replaced == self.replacement.len() {
            (self.replacement, self.replaced) = (Vec::new(), 0);
        }
    }

    /// So much of what came has passed.
    pub(super) fn passed(&mut self, n: usize) {
        self.passing -= n;
    }

    /// What to do with what came.
    pub(super) fn next(&mut self, inbox: &mut Buffer) -> Next {
        loop {
            if self.passing > 0 {
                return match inbox.len() {
                    0 => Next::Read,
                    here => Next::Pass(self.passing.min(here)),
                };
            }
            inbox.consume(std::mem::take(&mut self.left_out));
            if !self.replacement.is_empty() {
                return Next::Replace;
            }
            if self.failure.is_some() || self.may_open == 0 {
                return Next::Wait;
            }
            if !self.look(inbox.bytes()) {
                return Next::Read;
            }
        }
    }

    /// Looks at the frames that are here, as far as the first that does not pass as it is. Whether there is something to
    /// do with them.
    fn look(&mut self, bytes: &[u8]) -> bool {
        let mut rest = bytes;
        while let Some(head) = Head::read(rest) {
            let end = HEAD + head.length;
            let is_watched = self.partial.is_some() || head.kind == HEADERS;
            if head.length > MAX_FRAME_LEN {
                self.fail(Failure::Broken(Reason::FRAME_SIZE_ERROR));
                return true;
            }
            if is_watched && rest.len() < end {
                self.begun.get_or_insert_with(Instant::now);
                break;
            }
            if head.kind == RST_STREAM || head.kind == DATA && head.flags & END_STREAM != 0 {
                self.follow(head.stream, false);
            }
            let passes = !is_watched || self.head(&head, &rest[..end]);
            // In an `if` of its own, since most frames are no heads.
            if is_watched {
                self.begun = self.partial.as_ref().map(|_| self.begun.unwrap_or_else(Instant::now));
            }
            if !passes {
                self.left_out = if self.failure.is_some() { 0 } else { end };
                return true;
            }
            self.passing += end;
            rest = rest.get(end..).unwrap_or_default();
            if self.may_open == 0 {
                break;
            }
        }
        self.passing > 0
    }

    /// Takes a frame of a head up. Whether it passes as it is.
    fn head(&mut self, head: &Head, frame: &[u8]) -> bool {
        if let Some(partial) = self.partial.take() {
            self.go_on(partial, head, frame);
            return false;
        }
        let payload = &frame[HEAD..];
        let Some(block) = head.block(payload) else {
            return self.fail(Failure::Broken(Reason::PROTOCOL_ERROR));
        };
        let is_circular = head.is_circular(payload);
        if head.flags & END_HEADERS == 0 {
            let (frames, block) = (frame.to_vec(), block.to_vec());
            self.partial = Some(Partial { head: *head, is_circular, frames, block });
            return false;
        }
        match self.read(head, block) {
            Some(is_malformed) if is_malformed || is_circular => self.replace(head.stream, head.flags, block),
            Some(_) => true,
            None => false,
        }
    }

    fn go_on(&mut self, mut partial: Partial, head: &Head, frame: &[u8]) {
        if head.kind != CONTINUATION || head.stream != partial.head.stream {
            self.fail(Failure::Broken(Reason::PROTOCOL_ERROR));
            return;
        }
        partial.frames.extend_from_slice(frame);
        partial.block.extend_from_slice(&frame[HEAD..]);
        if partial.frames.len() > self.longest_head {
            self.fail(Failure::EndlessHead);
        } else if head.flags & END_HEADERS == 0 {
            self.partial = Some(partial);
        } else {
            match self.read(&partial.head, &partial.block) {
                Some(is_malformed) if is_malformed || partial.is_circular => {
                    self.replace(partial.head.stream, partial.head.flags, &partial.block);
                }
                Some(_) => self.replacement = partial.frames,
                None => {}
            }
        }
    }

    /// Whether a head is malformed; none where it cannot be decoded.
    fn read(&mut self, head: &Head, block: &[u8]) -> Option<bool> {
        let stream = head.stream;
        let is_new = stream > self.last_stream;
        // Of a stream that is over, the crate says what is wrong.
        let is_trailers = !is_new && self.open.contains(&stream);
        if is_new {
            self.last_stream = stream;
            self.may_open = self.may_open.saturating_sub(1);
        }
        self.follow(stream, is_new && head.flags & END_STREAM == 0);
        let verdict = self.hpack.read(block, is_trailers);
        // The crate compares so.
        let is_large = self.hpack.list_size() >= self.max_list_size;
        // It answers 431.
        if is_large && is_new && matches!(verdict, Some(Verdict::Fine | Verdict::Fragment)) {
            self.large_heads += 1;
        }
        match verdict {
            // It would pass trailers on without those that are too much.
            Some(Verdict::Fine) if is_large && is_trailers => Some(true),
            None => {
                self.fail(Failure::Broken(Reason::COMPRESSION_ERROR));
                None
            }
            Some(Verdict::Fine) => Some(false),
            Some(Verdict::Fragment) if self.fragments.len() < FRAGMENTS => {
                self.fragments.push(stream);
                Some(false)
            }
            Some(_) => Some(true),
        }
    }

    /// A stream may have trailers yet, or not any longer.
    fn follow(&mut self, stream: u32, is_open: bool) {
        if !is_open {
            if let Some(at) = self.open.iter().position(|open| *open == stream) {
                self.open.swap_remove(at);
            }
            return;
        }
        if self.open.len() == OPEN {
            // The oldest was most likely answered before its end, and is followed no longer.
            let oldest = self.open.iter().enumerate().min_by_key(|(_, open)| **open).map(|(at, _)| at);
            oldest.map(|at| self.open.swap_remove(at));
        }
        self.open.push(stream);
    }

    /// Puts another head in the place of a malformed one.
    fn replace(&mut self, stream: u32, flags: u8, block: &[u8]) -> bool {
        let replacement = self.hpack.replacement(block).filter(|block| block.len() <= MAX_FRAME_LEN);
        let Some(block) = replacement else { return self.fail(Failure::Broken(Reason::PROTOCOL_ERROR)) };
        self.replacement.extend_from_slice(&(block.len() as u32).to_be_bytes()[1..]);
        self.replacement.extend_from_slice(&[HEADERS, flags & END_STREAM | END_HEADERS]);
        self.replacement.extend_from_slice(&stream.to_be_bytes());
        self.replacement.extend_from_slice(&block);
        false
    }

    fn fail(&mut self, failure: Failure) -> bool {
        self.failure = Some(failure);
        false
    }
}
