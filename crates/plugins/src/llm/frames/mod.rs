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

/// Reads events from a stream, however that is cut.
#[derive(Debug)]
pub(crate) enum EventReader {
    Sse(ServerSentEvents),
    Objects(JsonObjects),
    Aws(AwsEventStream),
}

impl EventReader {
    /// The reader for a stream of this content type.
    pub(crate) fn of(content_type: &[u8]) -> Self {
        let media_type = content_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if media_type.eq_ignore_ascii_case(b"text/event-stream") {
            Self::Sse(ServerSentEvents::default())
        } else if media_type.eq_ignore_ascii_case(b"application/vnd.amazon.eventstream") {
            Self::Aws(AwsEventStream::default())
        } else {
            Self::Objects(JsonObjects::default())
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
