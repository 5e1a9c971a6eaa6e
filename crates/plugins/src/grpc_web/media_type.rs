//! The media types of gRPC-Web, and how bodies of each are written.

use crate::shared::grpc::frames::{MESSAGE, Messages as Frames};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// A type, and what its bodies hold.
#[derive(Debug)]
pub(super) struct MediaType {
    pub(super) name: &'static str,
    is_base64: bool,
    /// Whether each message has a flag and a length before it.
    pub(super) has_frames: bool,
    pub(super) messages: Messages,
}

/// How messages are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Messages {
    Proto,
    Json,
}

const fn row(name: &'static str, is_base64: bool, has_frames: bool, messages: Messages) -> MediaType {
    MediaType { name, is_base64, has_frames, messages }
}

static TYPES: [MediaType; 7] = [
    row("application/grpc-web", false, true, Messages::Proto),
    row("application/grpc-web-text", true, true, Messages::Proto),
    row("application/grpc-web+proto", false, true, Messages::Proto),
    row("application/grpc-web-text+proto", true, true, Messages::Proto),
    row("application/grpc-web+json", false, true, Messages::Json),
    row("application/grpc-web-text+json", true, true, Messages::Json),
    row("application/json", false, false, Messages::Json),
];

/// The type that a header names; parameters do not count.
pub(super) fn find(content_type: &[u8]) -> Option<&'static MediaType> {
    let name = content_type.split(|byte| *byte == b';').next()?.trim_ascii();
    TYPES.iter().find(|known| known.name.as_bytes().eq_ignore_ascii_case(name))
}

impl MediaType {
    /// Whether bodies are what gRPC sends.
    pub(super) fn is_binary(&self) -> bool {
        !self.is_base64 && self.messages == Messages::Proto
    }

    /// A body without base64. Clients may encode it piece by piece, each with its own padding.
    pub(super) fn decoded(&self, body: &[u8]) -> Option<Vec<u8>> {
        if !self.is_base64 {
            return Some(body.to_vec());
        }
        let mut decoded = Vec::with_capacity(body.len() / 4 * 3);
        for piece in body.trim_ascii_end().split_inclusive(|byte| *byte == b'=') {
            // The second of two paddings.
            if piece == b"=" {
                continue;
            }
            let unpadded = piece.strip_suffix(b"=").unwrap_or(piece);
            let padding = (4 - unpadded.len() % 4) % 4;
            STANDARD.decode_vec([unpadded, &b"=="[..padding.min(2)]].concat(), &mut decoded).ok()?;
        }
        Some(decoded)
    }

    /// A piece of a body as it is sent.
    pub(super) fn encoded(&self, piece: Vec<u8>) -> Vec<u8> {
        if self.is_base64 { STANDARD.encode(piece).into_bytes() } else { piece }
    }

    /// The one message of a request's body.
    pub(super) fn message(&self, body: Vec<u8>) -> Option<Vec<u8>> {
        if !self.has_frames {
            return Some(body);
        }
        let mut frames = Frames::default();
        frames.push(&body);
        frames.next().ok()?
    }

    /// A message of a response as JSON.
    pub(super) fn framed(&self, message: Vec<u8>) -> Vec<u8> {
        if self.has_frames { crate::shared::grpc::frames::framed(MESSAGE, &message) } else { message }
    }
}

#[cfg(test)]
mod tests {
    use super::find;

    #[test]
    fn types_are_found_without_their_parameters() {
        let name = |text: &str| find(text.as_bytes()).map(|found| found.name);
        assert_eq!(name("Application/gRPC-Web-Text ; charset=utf-8"), Some("application/grpc-web-text"));
        assert_eq!((name("application/grpc"), name("")), (None, None));
    }

    #[test]
    fn base64_may_be_padded_in_the_middle() {
        let text = find(b"application/grpc-web-text").unwrap();
        let decoded = |body: &str| text.decoded(body.as_bytes());
        assert_eq!(decoded("YQ==YmM=ZGVm"), Some(b"abcdef".to_vec()));
        assert_eq!(decoded("YWJj\n"), Some(b"abc".to_vec()));
        assert_eq!((decoded(""), decoded("YQ")), (Some(Vec::new()), Some(b"a".to_vec())));
        assert_eq!((decoded("Y"), decoded("Y!=="), decoded("====")), (None, None, Some(Vec::new())));
        let binary = find(b"application/grpc-web").unwrap();
        assert_eq!(binary.decoded(b"YQ=="), Some(b"YQ==".to_vec()));
    }
}
