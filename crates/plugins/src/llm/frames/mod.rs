//! How providers cut streams into events: server-sent events, JSON objects one behind the other, or the event stream of AWS.

mod aws_event_stream;
mod json_objects;
mod sse;

use aws_event_stream::AwsEventStream;
use json_objects::JsonObjects;
use sse::ServerSentEvents;
use std::fmt;

/// The longest event that is buffered.
pub(crate) const MAX_EVENT_LEN: usize = 1024 * 1024;

/// An event of a stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// Its type, where it has one.
    pub(crate) name: String,
    /// What it says, mostly JSON.
    pub(crate) data: String,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// An event is longer than [`MAX_EVENT_LEN`].
    TooLong,
    /// The stream is not what its content type says.
    Corrupt,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong => write!(f, "an event is longer than {MAX_EVENT_LEN} bytes"),
            Self::Corrupt => f.write_str("the stream is corrupt"),
        }
    }
}

impl std::error::Error for FrameError {}

/// How a stream is cut into events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamFormat {
    /// Server-sent events.
    Sse,
    /// JSON objects, on lines or in an array.
    Objects,
    /// The event stream of AWS.
    Aws,
}

impl StreamFormat {
    /// That of a content type; none if it is that of no stream.
    pub(crate) fn of(content_type: &[u8]) -> Option<Self> {
        let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        match media_type.to_ascii_lowercase().as_slice() {
            b"text/event-stream" => Some(Self::Sse),
            b"application/vnd.amazon.eventstream" => Some(Self::Aws),
            media_type if media_type.ends_with(b"json") || media_type.ends_with(b"jsonl") => {
                Some(Self::Objects)
            }
            _ => None,
        }
    }
}

/// Reads events from a stream, however that is cut.
#[derive(Debug)]
pub(crate) enum EventReader {
    Sse(ServerSentEvents),
    Objects(JsonObjects),
    Aws(AwsEventStream),
}

impl EventReader {
    pub(crate) fn new(format: StreamFormat) -> Self {
        match format {
            StreamFormat::Sse => Self::Sse(ServerSentEvents::default()),
            StreamFormat::Objects => Self::Objects(JsonObjects::default()),
            StreamFormat::Aws => Self::Aws(AwsEventStream::default()),
        }
    }

    /// Appends the events that are complete with these bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], events: &mut Vec<Event>) -> Result<(), FrameError> {
        match self {
            Self::Sse(reader) => reader.push(bytes, events),
            Self::Objects(reader) => reader.push(bytes, events),
            Self::Aws(reader) => reader.push(bytes, events),
        }
    }

    /// The event that the end of the stream completes.
    pub(crate) fn finish(&mut self) -> Option<Event> {
        match self {
            Self::Sse(reader) => reader.finish(),
            Self::Objects(_) | Self::Aws(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::StreamFormat::{self, Aws, Objects, Sse};

    #[test]
    fn a_content_type_says_whether_it_is_a_stream() {
        for (content_type, format) in [
            ("text/event-stream", Some(Sse)),
            ("Text/Event-Stream ; charset=utf-8", Some(Sse)),
            ("application/vnd.amazon.eventstream", Some(Aws)),
            ("application/json; charset=UTF-8", Some(Objects)),
            ("application/x-ndjson", Some(Objects)),
            ("application/stream+json", Some(Objects)),
            ("application/jsonl", Some(Objects)),
            ("text/html", None),
            ("text/plain; x=json", None),
            ("", None),
        ] {
            assert_eq!(StreamFormat::of(content_type.as_bytes()), format, "{content_type}");
        }
    }
}
