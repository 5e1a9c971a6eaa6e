//! Reading what a control plane or a data plane sends at `/v1/outlet` never panics and never takes more memory than it may.
//! What is read can be hashed and written.
#![no_main]
#[path = "../../src/wire/sample.rs"]
#[allow(dead_code)]
mod sample;

use libfuzzer_sys::fuzz_target;
use sample::PLUGINS;
use weir_cluster::wire::compat::{KongVersion, Rules};
use weir_cluster::wire::payload::{ConfigTable, read};
use weir_cluster::wire::v1::{BasicInfo, ErrorMessage, Received, Reconfigure, inflate};

/// The limit of a decompressed frame.
const LIMIT: usize = 1 << 20;

fuzz_target!(|frame: &[u8]| {
    let _ = (BasicInfo::decode(frame), ErrorMessage::decode(frame));
    let inflated = inflate(frame, LIMIT);
    let text = match &inflated {
        Ok(text) => text,
        Err(_) => str::from_utf8(frame).unwrap_or_default(),
    };
    assert!(text.len() <= LIMIT.max(frame.len()));
    let Ok(Received::Reconfigure { table, .. }) = Received::parse(text) else { return };
    match read(table, PLUGINS, 1_700_000_000) {
        Err(refusals) => assert!(!refusals.is_empty() && refusals.iter().all(|refusal| !refusal.message.is_empty())),
        Ok(parsed) => {
            let table = ConfigTable::new(&parsed.document, PLUGINS);
            let hashes = table.hashes(None);
            let oldest = Rules::of(KongVersion::parse("3.0.0").expect("a version"));
            let message = Reconfigure { timestamp: 0.5, table: &table, hashes: &hashes };
            assert!(message.encode(&oldest).is_ok());
            table.withheld(&oldest);
        }
    }
});
