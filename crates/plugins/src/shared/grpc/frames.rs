//! Messages as they are framed in bodies of gRPC: a flag, a length, and the message.

/// The flag and the length.
const PREFIX: usize = 5;

/// The flag of a message as it is.
pub(crate) const MESSAGE: u8 = 0;

/// The longest message that is translated.
pub(super) const MAX_MESSAGE_LEN: usize = 8 * 1024 * 1024;

/// A message in its frame.
pub(crate) fn framed(flag: u8, message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
    let mut frame = Vec::with_capacity(PREFIX + message.len());
    frame.push(flag);
    frame.extend(length.to_be_bytes());
    frame.extend(message);
    frame
}

/// Why a body cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FrameError {
    /// The message is compressed, although the request did not ask for that.
    Compressed,
    TooLong,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Compressed => f.write_str("a message is compressed"),
            Self::TooLong => write!(f, "a message is longer than {MAX_MESSAGE_LEN} bytes"),
        }
    }
}

/// Collects messages of a body that comes in chunks.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    bytes: Vec<u8>,
    /// How many of them were taken. They are removed with the next chunk, not with each message.
    taken: usize,
}

impl Messages {
    /// Takes the next chunk.
    pub(crate) fn push(&mut self, chunk: &[u8]) {
        self.bytes.drain(..self.taken);
        self.taken = 0;
        self.bytes.extend_from_slice(chunk);
    }

    /// The next message that is whole.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let Some((&[flag, a, b, c, d], rest)) = self.bytes[self.taken..].split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if flag != MESSAGE {
            return Err(FrameError::Compressed);
        }
        if length > MAX_MESSAGE_LEN {
            return Err(FrameError::TooLong);
        }
        let Some(message) = rest.get(..length) else { return Ok(None) };
        let message = message.to_vec();
        self.taken += PREFIX + length;
        Ok(Some(message))
    }

    /// Whether all messages were taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.taken == self.bytes.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_found_however_they_are_cut() {
        let body = [framed(0, b"one"), framed(0, b""), framed(0, &[7; 300])].concat();
        for size in [1, 2, 7, 1000] {
            let (mut messages, mut found) = (Messages::default(), Vec::new());
            for chunk in body.chunks(size) {
                messages.push(chunk);
                while let Some(message) = messages.next().unwrap() {
                    found.push(message);
                }
            }
            assert_eq!(found, [b"one".to_vec(), Vec::new(), vec![7; 300]]);
            assert!(messages.is_empty());
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        let next = |bytes: &[u8]| {
            let mut messages = Messages::default();
            messages.push(bytes);
            messages.next()
        };
        assert_eq!(next(&[1, 0, 0, 0, 0]), Err(FrameError::Compressed));
        assert_eq!(next(&[0, 255, 0, 0, 0]), Err(FrameError::TooLong));
        assert_eq!((next(&[]), next(&[0, 0, 0, 0, 1])), (Ok(None), Ok(None)));
    }
}
