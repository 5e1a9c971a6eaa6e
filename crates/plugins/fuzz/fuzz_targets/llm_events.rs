//! No bytes of an AI provider's stream make the readers of events panic, and it does not matter how the stream is cut.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The module stands alone, so that nothing else is built.
#[allow(dead_code)]
#[path = "../../src/llm/frames/mod.rs"]
mod frames;

fn read(format: frames::StreamFormat, parts: [&[u8]; 2]) -> (Vec<frames::Event>, bool) {
    let (mut reader, mut events) = (frames::EventReader::new(format), Vec::new());
    let is_read = parts.iter().all(|part| reader.push(part, &mut events).is_ok());
    events.extend(reader.finish().filter(|_| is_read));
    (events, is_read)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((at, stream)) = bytes.split_first() else { return };
    let (before, after) = stream.split_at(usize::from(*at).min(stream.len()));
    let _ = frames::StreamFormat::of(stream);
    for format in [frames::StreamFormat::Sse, frames::StreamFormat::Aws, frames::StreamFormat::Objects] {
        assert_eq!(read(format, [stream, b""]), read(format, [before, after]));
    }
});
