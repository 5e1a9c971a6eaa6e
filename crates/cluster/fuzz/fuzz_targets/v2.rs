//! Reading what either side sends at `/v2/outlet` never panics, and what is read can be written and read again.
#![no_main]
#[path = "../../src/wire/sample.rs"]
#[allow(dead_code)]
mod sample;

use libfuzzer_sys::fuzz_target;
use sample::PLUGINS;
use weir_cluster::wire::v2::{
    Delta, GetDelta, Hello, Message, NotifyNewVersion, SyncResult, ValidationError, Welcome, decode, document, encode,
};

/// The limit of a decompressed frame.
const LIMIT: usize = 1 << 20;

fuzz_target!(|frame: &[u8]| {
    let _ = (Hello::decode(frame), Welcome::decode(frame));
    // As it is, and as if its text had been compressed.
    let compressed = snap::raw::Encoder::new().compress_vec(frame).expect("short");
    for frame in [frame, &compressed] {
        for message in decode(frame, LIMIT).into_iter().flatten() {
            let again = encode(&message).and_then(|frame| decode(&frame, usize::MAX));
            assert_eq!(again.expect("it was read before").len(), 1);
            use_message(message);
        }
    }
});

fn use_message(message: Message) {
    match message {
        Message::Call { params, .. } => {
            let _ = GetDelta::read(params.clone());
            let _ = NotifyNewVersion::read(params.clone());
            let _ = ValidationError::read(params);
        }
        Message::Result { result, .. } => {
            let Some(result) = SyncResult::read(result) else { return };
            let _ = result.version();
            let changes = result.deltas.iter().filter_map(|delta| delta.change(PLUGINS, 1_700_000_000).ok().flatten());
            let changes: Vec<_> = changes.collect();
            for change in &changes {
                let _ = Delta::of(change, weir_cluster::wire::v2::SyncVersion::NONE, PLUGINS);
            }
            let _ = document(changes, PLUGINS);
        }
        Message::Error { .. } => {}
    }
}
