//! No request to oauth2 or grpc-web, no headers of a webhook and no schema make their reader panic. The first byte chooses the
//! reader.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| weir_plugins::fuzzing::client_text(text));
