//! A chunked body decodes alike whole and byte by byte, and never takes more than it is given.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_http1::{BodyDecoder, Framing, Known, ParseError};

fuzz_target!(|input: &[u8]| {
    for decoder in [BodyDecoder::new, BodyDecoder::of_response] {
        let whole = decode(decoder(Framing::Chunked), input, usize::MAX);
        assert_eq!(decode(decoder(Framing::Chunked), input, 1), whole);
    }
});

fn decode(mut decoder: BodyDecoder, input: &[u8], step: usize) -> Result<(Vec<u8>, usize, bool), ParseError> {
    let (mut data, mut at) = (Vec::new(), 0);
    while at < input.len() && !decoder.is_done() {
        let arrived = &input[at..at.saturating_add(step).min(input.len())];
        let decoded = decoder.decode(arrived)?;
        assert!(decoded.consumed > 0 && decoded.consumed <= arrived.len());
        assert!(decoded.data.end <= decoded.consumed);
        data.extend_from_slice(&arrived[decoded.data]);
        at += decoded.consumed;
    }
    assert_eq!(decoder.finish().is_ok(), decoder.is_done());
    assert!(decoder.trailers().iter().all(|field| field.known == Known::Other));
    Ok((data, at, decoder.is_done()))
}
