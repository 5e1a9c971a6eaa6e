//! No block of fields makes QPACK's reading panic, and a request that is accepted is one request over HTTP/1.1 too.
#![no_main]

// The modules stand alone, because the crate does not show them.
#[allow(dead_code)]
#[path = "../../src/downstream/http3/code.rs"]
mod code;
#[allow(dead_code)]
#[path = "../../src/downstream/http3/qpack.rs"]
mod qpack;
#[path = "../../../net/fuzz/fuzz_targets/sent/mod.rs"]
mod sent;
#[allow(dead_code)]
#[path = "../../src/downstream/http3/static_table.rs"]
mod static_table;

use libfuzzer_sys::fuzz_target;
use weir_http1::Version;

fuzz_target!(|block: &[u8]| {
    let _ = (qpack::read(block, true), qpack::encoder(block), qpack::Decoder::default().read(block));
    let Some(received) = qpack::read(block, false) else { return };
    let is_refused = received.verdict > weir_net::multiplex::Verdict::Fragment;
    let Some(request) = received.into_request().filter(|_| !is_refused) else { return };
    for is_over in [false, true] {
        sent::check(&request.clone().into_parts().0, Version::Http3, is_over);
    }
});
