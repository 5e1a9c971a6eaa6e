//! However a body of gRPC is cut, the same messages are found, and framed again they are what came.
#![no_main]

use libfuzzer_sys::fuzz_target;

// The module stands alone, so that nothing else is built.
#[allow(dead_code)]
#[path = "../../src/shared/grpc/frames.rs"]
mod frames;

/// The messages, framed again, and whether what follows them is an error.
fn read<'b>(chunks: impl Iterator<Item = &'b [u8]>) -> (Vec<u8>, bool) {
    let (mut messages, mut framed) = (frames::Messages::default(), Vec::new());
    for chunk in chunks {
        messages.push(chunk);
        loop {
            match messages.next() {
                Ok(Some(message)) => framed.extend(frames::framed(frames::MESSAGE, &message)),
                Ok(None) => break,
                Err(_) => return (framed, true),
            }
        }
    }
    (framed, false)
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (size, body) = input;
    let whole = read(std::iter::once(&body[..]));
    assert!(body.starts_with(&whole.0));
    assert_eq!(read(body.chunks(usize::from(size) + 1)), whole);
});
