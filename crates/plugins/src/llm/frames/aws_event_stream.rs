//! The event stream of AWS: messages with a prelude, headers, a payload, and checksums of both.

use super::{Event, FrameError, MAX_EVENT_LEN};
use crc::{CRC_32_ISO_HDLC, Crc};

const CRC: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// The length of the message, that of its headers, and their checksum.
const PRELUDE_LEN: usize = 12;

/// The checksum of a message.
const CHECKSUM_LEN: usize = 4;

/// Reads `application/vnd.amazon.eventstream`.
#[derive(Debug, Default)]
pub(crate) struct AwsEventStream {
    buffer: Vec<u8>,
}

impl AwsEventStream {
    /// Appends the messages that are complete with these bytes: the type of each, and its payload.
    pub(crate) fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), FrameError> {
        self.buffer.extend_from_slice(bytes);
        let mut rest = &self.buffer[..];
        while let Some(length) = message_len(rest)? {
            let Some((message, after)) = rest.split_at_checked(length) else { break };
            events.push(read_message(message)?);
            rest = after;
        }
        let done = self.buffer.len() - rest.len();
        self.buffer.drain(..done);
        Ok(())
    }
}

fn number(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_be_bytes(bytes) as usize)
}

/// How long the message is that begins here, once its prelude is complete.
fn message_len(bytes: &[u8]) -> Result<Option<usize>, FrameError> {
    let Some(prelude) = bytes.get(..PRELUDE_LEN) else { return Ok(None) };
    let sum = number(prelude, 8).ok_or(FrameError::Corrupt)?;
    let length = number(prelude, 0).ok_or(FrameError::Corrupt)?;
    let headers = number(prelude, 4).ok_or(FrameError::Corrupt)?;
    if CRC.checksum(&prelude[..8]) as usize != sum || length < PRELUDE_LEN + CHECKSUM_LEN + headers {
        return Err(FrameError::Corrupt);
    }
    if length > MAX_EVENT_LEN { Err(FrameError::TooLong) } else { Ok(Some(length)) }
}

fn read_message(message: &[u8]) -> Result<Event, FrameError> {
    let (covered, sum) = message.split_at_checked(message.len() - CHECKSUM_LEN).ok_or(FrameError::Corrupt)?;
    if number(sum, 0) != Some(CRC.checksum(covered) as usize) {
        return Err(FrameError::Corrupt);
    }
    let headers_len = number(covered, 4).ok_or(FrameError::Corrupt)?;
    let (headers, payload) =
        covered[PRELUDE_LEN..].split_at_checked(headers_len).ok_or(FrameError::Corrupt)?;
    let name = event_type(headers).ok_or(FrameError::Corrupt)?;
    Ok(Event { name, data: String::from_utf8_lossy(payload).into_owned() })
}

/// The type of the event or exception; none if the headers cannot be read.
fn event_type(mut headers: &[u8]) -> Option<String> {
    let mut found = String::new();
    while let Some((length, rest)) = headers.split_first() {
        let (name, rest) = rest.split_at_checked(usize::from(*length))?;
        let (kind, rest) = rest.split_first()?;
        let (value, rest) = match kind {
            0 | 1 => (&rest[..0], rest),
            2 => rest.split_at_checked(1)?,
            3 => rest.split_at_checked(2)?,
            4 => rest.split_at_checked(4)?,
            5 | 8 => rest.split_at_checked(8)?,
            6 | 7 => {
                let (length, rest) = rest.split_at_checked(2)?;
                rest.split_at_checked(usize::from(u16::from_be_bytes(length.try_into().ok()?)))?
            }
            9 => rest.split_at_checked(16)?,
            _ => return None,
        };
        if [&b":event-type"[..], b":exception-type"].contains(&name) {
            found = String::from_utf8_lossy(value).into_owned();
        }
        headers = rest;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(headers: &[u8], payload: &[u8]) -> Vec<u8> {
        let length = (PRELUDE_LEN + headers.len() + payload.len() + CHECKSUM_LEN) as u32;
        let mut out = [length.to_be_bytes(), (headers.len() as u32).to_be_bytes()].concat();
        out.extend(CRC.checksum(&out).to_be_bytes());
        out.extend_from_slice(headers);
        out.extend_from_slice(payload);
        out.extend(CRC.checksum(&out).to_be_bytes());
        out
    }

    fn header(name: &str, value: &str) -> Vec<u8> {
        let mut out = vec![name.len() as u8];
        out.extend_from_slice(name.as_bytes());
        out.push(7);
        out.extend((value.len() as u16).to_be_bytes());
        out.extend_from_slice(value.as_bytes());
        out
    }

    /// The first of AWS's published samples: no headers, no payload.
    #[test]
    fn the_shortest_message_is_read() {
        let bytes = [0, 0, 0, 0x10, 0, 0, 0, 0, 0x05, 0xc2, 0x48, 0xeb, 0x7d, 0x98, 0xc8, 0xff];
        let (mut reader, mut events) = (AwsEventStream::default(), Vec::new());
        reader.push(&bytes, &mut events).unwrap();
        assert_eq!(events, [Event::default()]);
        assert_eq!(message(b"", b""), bytes);
    }

    #[test]
    fn messages_are_read_however_they_are_cut() {
        let flag = [&b"\x04flag\x00"[..], &header(":event-type", "contentBlockDelta")].concat();
        let stream = [message(&flag, b"{}"), message(&header(":exception-type", "x"), b"1")].concat();
        let event = |name: &str, data: &str| Event { name: name.to_owned(), data: data.to_owned() };
        for size in [1, 7, 1000] {
            let (mut reader, mut events) = (AwsEventStream::default(), Vec::new());
            stream.chunks(size).for_each(|part| reader.push(part, &mut events).unwrap());
            assert_eq!(events, [event("contentBlockDelta", "{}"), event("x", "1")]);
        }
    }

    #[test]
    fn what_is_corrupt_or_too_long_is_an_error() {
        let right = message(&header("a", "b"), b"{}");
        for at in 0..right.len() {
            let mut wrong = right.clone();
            wrong[at] ^= 1;
            let pushed = AwsEventStream::default().push(&wrong, &mut Vec::new());
            assert_eq!(pushed, Err(FrameError::Corrupt), "{at}");
        }
        let mut long = [(MAX_EVENT_LEN as u32 + 1).to_be_bytes(), [0; 4]].concat();
        long.extend(CRC.checksum(&long).to_be_bytes());
        assert_eq!(AwsEventStream::default().push(&long, &mut Vec::new()), Err(FrameError::TooLong));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), headers in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = AwsEventStream::default().push(&bytes, &mut Vec::new());
            let _ = AwsEventStream::default().push(&message(&headers, &bytes), &mut Vec::new());
        }
    }
}
