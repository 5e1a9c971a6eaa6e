//! A PROXY protocol header reads alike whole and in pieces, and what it says is read back from what is written of it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_proxy::proxy_protocol::{Form, MAX_HEADER_LEN, parse, write};

fuzz_target!(|input: &[u8]| {
    let whole = parse(input);
    let pieces = (0..=input.len()).map(|end| parse(&input[..end])).find(|it| *it != Ok(None));
    assert_eq!(pieces.unwrap_or(Ok(None)), whole);

    if let Ok(Some(header)) = whole {
        assert!(header.length <= input.len() && header.length <= MAX_HEADER_LEN);
        if let Some(addresses) = header.addresses {
            for form in [Form::V1, Form::V2] {
                let mut written = Vec::new();
                write(&mut written, form, &addresses);
                let read = parse(&written).ok().flatten().expect("what is written can be read");
                assert_eq!(read.length, written.len());
                assert_eq!(read.addresses.map(|it| it.source.port()), Some(addresses.source.port()));
            }
        }
    }
});
