//! Bodies, as either side makes and reads them.

/// What the body of a request, or of its response, is.
pub(super) fn body_of(request: usize, length: usize) -> Vec<u8> {
    let text = format!("{request};");
    let mut body = text.repeat(length / text.len() + 1).into_bytes();
    body.truncate(length);
    body
}

/// The data of chunks, if they are complete.
pub(super) fn decoded(mut chunks: &[u8]) -> Option<Vec<u8>> {
    let mut data = Vec::new();
    loop {
        let at = chunks.windows(2).position(|window| window == b"\r\n")?;
        let length = usize::from_str_radix(std::str::from_utf8(&chunks[..at]).ok()?, 16).ok()?;
        if length == 0 {
            return Some(data);
        }
        data.extend_from_slice(chunks.get(at + 2..at + 2 + length)?);
        chunks = chunks.get(at + 4 + length..)?;
    }
}
