//! No bytes of a directory make ldap-auth's parser panic, and a message is read only if it is as long as it states.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The module stands alone, so that nothing else is built.
#[allow(dead_code)]
#[path = "../../src/ldap_auth/ber.rs"]
mod ber;

fuzz_target!(|bytes: &[u8]| {
    let stated = ber::message_len(bytes);
    if ber::Response::read(bytes).is_ok() && bytes.len() <= ber::MAX_RESPONSE_LEN {
        assert_eq!(stated, Ok(Some(bytes.len())));
    }
});
