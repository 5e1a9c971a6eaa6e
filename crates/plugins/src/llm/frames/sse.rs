//! Server-sent events, as HTML's standard defines them.

use super::{Event, FrameError, MAX_EVENT_LEN};
use memchr::memchr2;
use std::borrow::Cow;

/// Reads `text/event-stream`.
#[derive(Debug, Default)]
pub(crate) struct ServerSentEvents {
    /// The line that has begun.
    line: Vec<u8>,
    /// The last line ended with CR, so that a LF belongs to that end.
    after_cr: bool,
    event: Event,
    has_data: bool,
}

impl ServerSentEvents {
    /// Appends the events that are complete with these bytes.
    pub(crate) fn push(&mut self, mut bytes: &[u8], events: &mut Vec<Event>) -> Result<(), FrameError> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.after_cr) && *first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = memchr2(b'\n', b'\r', bytes);
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.event.data.len() + part.len() > MAX_EVENT_LEN {
                return Err(FrameError::TooLong);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { return Ok(()) };
            self.after_cr = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.end_line());
        }
        Ok(())
    }

    /// The event that has begun, although no empty line has ended it.
    pub(crate) fn finish(&mut self) -> Option<Event> {
        if !self.line.is_empty() {
            self.end_line();
        }
        self.end_line()
    }

    /// Takes the line; an empty one ends the event.
    fn end_line(&mut self) -> Option<Event> {
        if self.line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let text = match str::from_utf8(&self.line) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(&self.line),
        };
        let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
        let (field, value) = text.split_once(':').unwrap_or((text, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event.name = value.to_owned(),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            _ => {}
        }
        self.line.clear();
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(parts: &[&[u8]]) -> Vec<(String, String)> {
        let (mut reader, mut events) = (ServerSentEvents::default(), Vec::new());
        parts.iter().for_each(|part| reader.push(part, &mut events).unwrap());
        events.extend(reader.finish());
        events.into_iter().map(|event| (event.name, event.data)).collect()
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn fields_make_events() {
        let stream = b"\xef\xbb\xbfdata: a\n\n: comment\nevent: b\r\ndata:c\rdata\r\ndata:  d\nid: 1\n\r\n\nevent: none\n\ndata: [DONE]";
        let expected = [pair("", "a"), pair("b", "c\n\n d"), pair("", "[DONE]")];
        assert_eq!(read(&[stream]), expected);
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(read(&bytes), expected);
    }

    #[test]
    fn an_endless_event_is_an_error() {
        let (mut reader, mut events) = (ServerSentEvents::default(), Vec::new());
        let line = b"data: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n".repeat(1024);
        let pushed: Result<(), _> = (0..20).try_for_each(|_| reader.push(&line, &mut events));
        assert_eq!((pushed, events.len()), (Err(FrameError::TooLong), 0));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_a_stream_is_cut(stream in "([a-z: \r\n]|data: x\n\n){0,80}", at in 0usize..80) {
            let bytes = stream.as_bytes();
            let (before, after) = bytes.split_at(at.min(bytes.len()));
            prop_assert_eq!(read(&[bytes]), read(&[before, after]));
        }
    }
}
