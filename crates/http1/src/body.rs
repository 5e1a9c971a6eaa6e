//! Bodies: where a message's payload lies in the bytes that follow its head (RFC 9112, 6 and 7).

use std::ops::Range;

use crate::fields::Headers;
use crate::framing::Framing;
use crate::parse_error::ParseError;
use crate::syntax::{field_error, is_token_byte};
use crate::trailers::{MAX_RESPONSE_TRAILER_BYTES, MAX_TRAILER_BYTES, MAX_TRAILER_FIELDS};

/// The most bytes of one chunk's extensions.
const MAX_EXTENSION_BYTES: u64 = 256;
/// How many bytes of extensions a body may carry beyond the bytes of its data.
const MAX_OVERHEAD_BYTES: u64 = 16 * 1024;

/// Takes a body apart as its bytes arrive. It holds no payload: [`Decoded::data`] points into the caller's bytes.
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    /// The body is a response's, in which some faults are overlooked.
    is_response: bool,
    /// Extension bytes not yet outweighed by data.
    overhead: u64,
    /// The lines of the trailer section so far.
    trailer_lines: Vec<u8>,
    trailers: Headers,
}

/// What one call of [`BodyDecoder::decode`] took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decoded {
    /// How many bytes of the input were used up.
    pub consumed: usize,
    /// Where in them the payload lies; it may be empty.
    pub data: Range<usize>,
    /// Whether the body ends here. The bytes after `consumed` then belong to the next message.
    pub done: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Payload, and what comes after it.
    Data {
        remaining: u64,
        then: After,
    },
    UntilClose,
    Size {
        size: u64,
        digits: u8,
    },
    Extension {
        size: u64,
        length: u64,
        part: Part,
    },
    /// The LF after a chunk's size.
    SizeLf {
        size: u64,
    },
    /// The CR, then the LF after a chunk's data.
    DataCr,
    DataLf,
    Trailers,
    Done,
    Failed(ParseError),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    End,
    ChunkEnd,
}

/// Where in `;name=token` or `;name="quoted"` the next byte belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// Spaces and tabs behind a size, as some servers send them to fill its line.
    Padding,
    NameStart,
    Name,
    ValueStart,
    Token,
    Quoted,
    QuotedPair,
    QuoteEnd,
}

const NEXT_SIZE: State = State::Size { size: 0, digits: 0 };

impl BodyDecoder {
    /// A decoder for the body of a request with this framing.
    pub fn new(framing: Framing) -> Self {
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(remaining) => State::Data { remaining, then: After::End },
            Framing::Chunked => NEXT_SIZE,
            Framing::UntilClose => State::UntilClose,
        };
        Self { state, is_response: false, overhead: 0, trailer_lines: Vec::new(), trailers: Headers::new() }
    }

    /// A decoder for the body of a response with this framing. It comes from a server that was chosen, so that two faults
    /// are overlooked that would be refused in a request: spaces behind a chunk's size and in its extensions, and trailers
    /// that may not pass.
    pub fn of_response(framing: Framing) -> Self {
        Self { is_response: true, ..Self::new(framing) }
    }

    /// Takes bytes from the start of `input` up to the end of the first piece of payload, and the framing after it.
    /// While `input` has more bytes than were consumed and the body is not done, call again with the rest.
    ///
    /// All of `input` is consumed unless more payload or the next message follows. What is wrong behind a piece of payload
    /// is the answer to the next call. After a [`ParseError`] every call answers the same.
    pub fn decode(&mut self, input: &[u8]) -> Result<Decoded, ParseError> {
        let mut at = 0;
        let mut data = 0..0;
        while at < input.len() {
            match self.state {
                State::Done => break,
                State::Data { .. } | State::UntilClose if !data.is_empty() => break,
                State::Data { .. } | State::UntilClose => {
                    data = at..at + self.take(input.len() - at);
                    at = data.end;
                }
                State::Failed(_) => break,
                State::Trailers => match self.trailer_bytes(&input[at..]) {
                    Ok(taken) => at += taken,
                    Err(error) => self.state = State::Failed(error),
                },
                _ => match self.framing_byte(input[at]) {
                    Ok(state) => (self.state, at) = (state, at + 1),
                    Err(error) => self.state = State::Failed(error),
                },
            }
        }
        match self.state {
            State::Failed(error) if data.is_empty() => Err(error),
            _ => Ok(Decoded { consumed: at, data, done: self.is_done() }),
        }
    }

    /// Whether the whole body was seen. A body that lasts until the connection closes never is.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// How many bytes are to come of a body whose length is known.
    pub fn left(&self) -> Option<u64> {
        match self.state {
            State::Data { remaining, then: After::End } => Some(remaining),
            _ => None,
        }
    }

    /// To be asked when the connection has ended: whether the body is complete.
    pub fn finish(&self) -> Result<(), ParseError> {
        match self.state {
            State::Done | State::UntilClose => Ok(()),
            State::Failed(error) => Err(error),
            _ => Err(ParseError::BodyTruncated),
        }
    }

    /// The fields after a chunked body, once it is done, as far as [`Headers::of_trailers`] lets them pass.
    pub fn trailers(&self) -> &Headers {
        &self.trailers
    }

    /// How much of `available` is payload.
    fn take(&mut self, available: usize) -> usize {
        let State::Data { remaining, then } = self.state else { return available };
        let taken = usize::try_from(remaining).map_or(available, |remaining| remaining.min(available));
        let remaining = remaining - taken as u64;
        self.state = match then {
            _ if remaining > 0 => State::Data { remaining, then },
            After::End => State::Done,
            After::ChunkEnd => State::DataCr,
        };
        taken
    }

    /// The state after one byte of a chunk's frame.
    fn framing_byte(&mut self, byte: u8) -> Result<State, ParseError> {
        match (self.state, byte) {
            (State::Size { digits: 1.., size }, b'\r') => Ok(State::SizeLf { size }),
            (State::Size { digits: 1.., size }, b';') => {
                Ok(State::Extension { size, length: 1, part: Part::NameStart })
            }
            (State::Size { size, digits }, _) => {
                size_digit(size, digits, byte).ok_or(()).or_else(|()| self.padding(size, digits, byte))
            }
            (State::Extension { size, part, length }, b'\r') if part.may_end() => {
                self.weigh(length, size)?;
                Ok(State::SizeLf { size })
            }
            (State::Extension { size, length, part }, _) => {
                let wrong =
                    if part == Part::Padding { ParseError::ChunkSize } else { ParseError::ChunkExtension };
                // RFC 9112 7.1.1 has recipients remove spaces, as some servers send them.
                let is_space = self.is_response && part.may_be_padded() && matches!(byte, b' ' | b'\t');
                let part = if is_space { part } else { part.next(byte).ok_or(wrong)? };
                if length == MAX_EXTENSION_BYTES {
                    return Err(ParseError::ChunkExtensionTooLong);
                }
                Ok(State::Extension { size, length: length + 1, part })
            }
            (State::SizeLf { size: 0 }, b'\n') => Ok(State::Trailers),
            (State::SizeLf { size }, b'\n') => Ok(State::Data { remaining: size, then: After::ChunkEnd }),
            (State::SizeLf { .. }, _) => Err(ParseError::BareCr),
            (State::DataCr, b'\r') => Ok(State::DataLf),
            (State::DataLf, b'\n') => Ok(NEXT_SIZE),
            (State::Failed(error), _) => Err(error),
            _ => Err(ParseError::ChunkEnd),
        }
    }

    /// What does not belong to a size may be a space behind one, in a response.
    #[cold]
    fn padding(&self, size: u64, digits: u8, byte: u8) -> Result<State, ParseError> {
        if self.is_response && digits > 0 && matches!(byte, b' ' | b'\t') {
            return Ok(State::Extension { size, length: 1, part: Part::Padding });
        }
        Err(ParseError::ChunkSize)
    }

    /// Bounds what extensions cost, so that a body cannot be made of little else.
    fn weigh(&mut self, extension: u64, size: u64) -> Result<(), ParseError> {
        self.overhead = (self.overhead + extension).saturating_sub(size);
        if self.overhead > MAX_OVERHEAD_BYTES { Err(ParseError::ChunkOverhead) } else { Ok(()) }
    }

    /// Takes the bytes of one line of the trailer section, or what has arrived of it.
    fn trailer_bytes(&mut self, input: &[u8]) -> Result<usize, ParseError> {
        let end = memchr::memchr(b'\n', input);
        let taken = end.map_or(input.len(), |end| end + 1);
        let most = if self.is_response { MAX_RESPONSE_TRAILER_BYTES } else { MAX_TRAILER_BYTES };
        if self.trailer_lines.len() + taken > most {
            return Err(ParseError::TrailersTooLarge);
        }
        if self.trailer_lines.is_empty() && input.starts_with(b"\r\n") {
            self.state = State::Done;
            return Ok(2);
        }
        self.trailer_lines.extend_from_slice(&input[..taken]);
        if end.is_some() {
            self.trailer_line_end()?;
        }
        Ok(taken)
    }

    fn trailer_line_end(&mut self) -> Result<(), ParseError> {
        match self.trailer_lines[..] {
            [b'\r', b'\n'] => self.state = State::Done,
            [.., b'\n', b'\r', b'\n'] => {
                self.read_trailers()?;
                self.state = State::Done;
            }
            [.., b'\r', b'\n'] => {}
            _ => return Err(ParseError::BareLf),
        }
        Ok(())
    }

    fn read_trailers(&mut self) -> Result<(), ParseError> {
        if self.is_response {
            self.leave_out_trailers_beyond_limit();
        }
        let lines = &self.trailer_lines;
        let mut slots = [httparse::EMPTY_HEADER; MAX_TRAILER_FIELDS];
        let parsed = match httparse::parse_headers(lines, &mut slots) {
            Ok(httparse::Status::Complete((length, parsed))) if length == lines.len() => parsed,
            Ok(_) => return Err(ParseError::FieldName),
            Err(httparse::Error::TooManyHeaders) => return Err(ParseError::TrailersTooLarge),
            Err(error) => return Err(field_error(lines, error).unwrap_or(ParseError::FieldName)),
        };
        let fields = parsed.iter().map(|field| (field.name.as_bytes(), field.value));
        self.trailers = if self.is_response {
            Headers::of_response_trailers(fields)
        } else {
            Headers::of_trailers(fields)?
        };
        Ok(())
    }

    /// Ends the trailer section behind its last line that may pass.
    fn leave_out_trailers_beyond_limit(&mut self) {
        let mut ends = memchr::memchr_iter(b'\n', &self.trailer_lines);
        if let Some(last) = ends.nth(MAX_TRAILER_FIELDS - 1)
            && ends.nth(1).is_some()
        {
            self.trailer_lines.truncate(last + 1);
            self.trailer_lines.extend_from_slice(b"\r\n");
        }
    }
}

fn size_digit(size: u64, digits: u8, byte: u8) -> Option<State> {
    let digit = (byte as char).to_digit(16)?;
    let too_large = size > (i64::MAX as u64) >> 4;
    if digits == 16 || too_large {
        return None;
    }
    Some(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 })
}

impl Part {
    fn may_end(self) -> bool {
        matches!(self, Self::Padding | Self::Name | Self::Token | Self::QuoteEnd)
    }

    fn may_be_padded(self) -> bool {
        !matches!(self, Self::Quoted | Self::QuotedPair)
    }

    fn next(self, byte: u8) -> Option<Self> {
        Some(match (self, byte) {
            (Self::Padding | Self::Name | Self::Token | Self::QuoteEnd, b';') => Self::NameStart,
            (Self::Name, b'=') => Self::ValueStart,
            (Self::NameStart | Self::Name, _) if is_token_byte(byte) => Self::Name,
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::ValueStart | Self::Token, _) if is_token_byte(byte) => Self::Token,
            (Self::Quoted, b'"') => Self::QuoteEnd,
            (Self::Quoted, b'\\') => Self::QuotedPair,
            (Self::Quoted | Self::QuotedPair, b'\t' | b' '..=0x7e | 0x80..) => Self::Quoted,
            _ => return None,
        })
    }
}
