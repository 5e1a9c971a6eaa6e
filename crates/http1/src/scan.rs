//! Finds the end of a head whose bytes arrive in pieces.

use crate::message::Limits;
use crate::parse_error::ParseError;
use crate::syntax::is_token_byte;

/// Empty lines tolerated before a request line (RFC 9112, 2.2).
const MAX_EMPTY_LINES: usize = 4;

/// How far an incomplete head has been scanned, so that no byte is scanned twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Scan {
    seen: usize,
}

impl Scan {
    /// Discards the partial head.
    pub(crate) fn reset(&mut self) {
        self.seen = 0;
    }

    /// Whether no head was begun.
    pub(crate) fn is_fresh(&self) -> bool {
        self.seen == 0
    }

    /// The range of a complete request head in `input`. Forgets where it was unless the head is incomplete.
    pub(crate) fn request(
        &mut self,
        input: &[u8],
        limits: &Limits,
    ) -> Result<Option<(usize, usize)>, ParseError> {
        let start = skip_empty_lines(input)?;
        match input[start..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', ..] => return Err(ParseError::BareCr),
            [b'\n', ..] => return Err(ParseError::BareLf),
            [first, ..] if !is_token_byte(first) => return Err(ParseError::RequestLine),
            _ => {}
        }
        self.end(input, start, limits, find_end).map(|end| end.map(|end| (start, end)))
    }

    /// The end of a complete response head in `input`. Its lines may end in LF alone, as those of old servers do: every
    /// line is written anew, so that no client has to guess where one ends.
    pub(crate) fn response(&mut self, input: &[u8], limits: &Limits) -> Result<Option<usize>, ParseError> {
        let shown = input.len().min(5);
        if input[..shown] != b"HTTP/"[..shown] {
            return Err(ParseError::StatusLine);
        }
        self.end(input, 0, limits, |input, from| Ok(find_lenient_end(input, from)))
    }

    fn end(
        &mut self,
        input: &[u8],
        start: usize,
        limits: &Limits,
        find_end: impl FnOnce(&[u8], usize) -> Result<Option<usize>, ParseError>,
    ) -> Result<Option<usize>, ParseError> {
        let seen = std::mem::take(&mut self.seen);
        // Shorter than before: not the same bytes and more, but another head.
        let seen = if seen > input.len() { start } else { seen.max(start) };
        let end = find_end(input, seen)?;
        if end.unwrap_or(input.len()) - start > limits.max_head_bytes {
            let allowed = &input[start..start + limits.max_head_bytes];
            return Err(match memchr::memchr2(b' ', b'\n', allowed) {
                None => ParseError::MethodTooLong,
                Some(_) if memchr::memchr(b'\n', allowed).is_none() => ParseError::TargetTooLong,
                Some(_) => ParseError::HeadTooLarge,
            });
        }
        if end.is_none() {
            self.seen = input.len();
        }
        Ok(end)
    }
}

/// Bytes looked at together: the compiler compares them all at once.
const BLOCK: usize = 32;

/// The offset after the first empty line; every LF up to it must follow a CR.
fn find_end(input: &[u8], from: usize) -> Result<Option<usize>, ParseError> {
    match find_odd(input, from) {
        None => Ok(None),
        Some(at) if at > 0 && input[at - 1] == b'\r' => Ok(Some(at + 1)),
        Some(_) => Err(ParseError::BareLf),
    }
}

/// The offset after the first empty line, where lines end in CRLF or in LF alone.
fn find_lenient_end(input: &[u8], from: usize) -> Option<usize> {
    let is_empty_line = |at: &usize| matches!(input[..*at], [] | [.., b'\n'] | [.., b'\n', b'\r']);
    let mut feeds = memchr::memchr_iter(b'\n', &input[from..]).map(|at| from + at);
    feeds.find(is_empty_line).map(|at| at + 1)
}

/// The first LF that is not simply the end of a line with something on it.
fn find_odd(input: &[u8], from: usize) -> Option<usize> {
    let mut start = from.max(2).min(input.len());
    if let Some(odd) = find_odd_within(input, from, start) {
        return Some(odd);
    }
    while let Some(block) = start.checked_sub(2).and_then(|start| input[start..].first_chunk()) {
        if has_odd(block) {
            break;
        }
        start += BLOCK;
    }
    find_odd_within(input, start, input.len())
}

fn find_odd_within(input: &[u8], from: usize, to: usize) -> Option<usize> {
    let is_odd = |at: &usize| matches!(input[..*at], [] | [.., b'\n', b'\r'] | [.., 0..=12 | 14..]);
    let feeds = input[from..to].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    feeds.map(|(at, _)| from + at).find(is_odd)
}

/// Whether a block, which two bytes stand before, has such an LF.
fn has_odd(block: &[u8; BLOCK + 2]) -> bool {
    let mut odd = 0;
    for at in 0..BLOCK {
        let [two_before, before, byte] = [block[at], block[at + 1], block[at + 2]];
        odd |= u8::from(byte == b'\n') & (u8::from(before != b'\r') | u8::from(two_before == b'\n'));
    }
    odd != 0
}

fn skip_empty_lines(input: &[u8]) -> Result<usize, ParseError> {
    let mut start = 0;
    while input[start..].starts_with(b"\r\n") {
        start += 2;
        if start > 2 * MAX_EMPTY_LINES {
            return Err(ParseError::EmptyLines);
        }
    }
    Ok(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, byte by byte.
    fn plainly(input: &[u8], from: usize) -> Result<Option<usize>, ParseError> {
        for at in (from..input.len()).filter(|at| input[*at] == b'\n') {
            match input[..at] {
                [.., b'\n', b'\r'] => return Ok(Some(at + 1)),
                [.., b'\r'] => {}
                _ => return Err(ParseError::BareLf),
            }
        }
        Ok(None)
    }

    #[test]
    fn ends_are_found_wherever_they_are_in_a_block() {
        for odd in [&b"\r\n\r\n"[..], b"\n", b"\n\r\n", b"\r\n\n", b"\r", b""] {
            for before in 0..3 * BLOCK {
                for after in [0, 1, BLOCK, 2 * BLOCK] {
                    let line = b"x: y\r\n".iter().cycle().take(before);
                    let input: Vec<u8> = line.chain(odd).copied().chain(vec![b'b'; after]).collect();
                    for from in [0, 1, 2, before] {
                        let from = from.min(input.len());
                        assert_eq!(find_end(&input, from), plainly(&input, from), "{input:?} from {from}");
                    }
                }
            }
        }
    }
}
