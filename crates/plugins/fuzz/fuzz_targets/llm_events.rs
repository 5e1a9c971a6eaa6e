//! No bytes of an AI provider's stream make the readers of events panic, and it does not matter how the stream is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The module stands alone, so that nothing else is built.
#[allow(dead_code)]
#[path = "../../src/llm/frames/mod.rs"]
mod frames;

fn read(content_type: &[u8], parts: [&[u8]; 2]) -> (Vec<frames::Event>, bool) {
    let (mut reader, mut events) = (frames::EventReader::of(content_type), Vec::new());
    let is_read = parts.iter().all(|part| reader.push(part, &mut events).is_ok());
    events.extend(reader.finish().filter(|_| is_read));
    (events, is_read)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((at, stream)) = bytes.split_first() else { return };
    let (before, after) = stream.split_at(usize::from(*at).min(stream.len()));
    for kind in [&b"text/event-stream"[..], b"application/vnd.amazon.eventstream", b"application/json"] {
        assert_eq!(read(kind, [stream, b""]), read(kind, [before, after]));
    }
});
