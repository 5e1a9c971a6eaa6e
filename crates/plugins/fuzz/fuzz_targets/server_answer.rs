//! No answer of an AI provider, of AWS, of a certificate authority and its storage, or of an OpenID provider makes its reader panic.
//! The first byte chooses the reader.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|answer: &[u8]| weir_plugins::fuzzing::server_answer(answer));
