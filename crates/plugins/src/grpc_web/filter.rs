//! The response's body on its way to the client, and the trailers behind it.

use super::media_type::{MediaType, Messages};
use crate::shared::grpc::frames::{self, framed};
use crate::shared::grpc::schema;
use prost_reflect::MessageDescriptor;
use weir_plugin::{BodyFilter, Exchange, Headers};

/// The flag of the frame with the trailers.
const TRAILERS: u8 = 0x80;

/// What is said of a response that ended without a status, or that cannot be translated.
const INTERNAL: &[u8] = b"grpc-status:13\r\ngrpc-message:";

/// Translates a body.
pub(super) struct Filter {
    media_type: &'static MediaType,
    /// The type of messages, and what has come of the next, where they become JSON.
    json: Option<(MessageDescriptor, frames::Messages)>,
    /// Why the body cannot be translated.
    failed: Option<String>,
}

impl Filter {
    pub(super) fn new(media_type: &'static MediaType, output: Option<MessageDescriptor>) -> Self {
        let output = output.filter(|_| media_type.messages == Messages::Json);
        Self { media_type, json: output.map(|output| (output, frames::Messages::default())), failed: None }
    }

    /// The messages of a chunk as JSON.
    fn translated(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut translated = Vec::new();
        let Some((output, messages)) = self.json.as_mut().filter(|_| self.failed.is_none()) else {
            return translated;
        };
        messages.push(chunk);
        loop {
            let message = messages.next().map_err(|error| error.to_string());
            match message.and_then(|message| message.map(|m| schema::to_json(output.clone(), &m)).transpose())
            {
                Ok(Some(json)) => translated.extend(self.media_type.framed(json)),
                Ok(None) => return translated,
                Err(why) => {
                    tracing::error!("grpc-web: the upstream's messages cannot be translated: {why}");
                    self.failed = Some(why);
                    return translated;
                }
            }
        }
    }
}

impl BodyFilter for Filter {
    fn chunk(&mut self, _: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        let chunk = if self.json.is_some() { self.translated(&chunk) } else { chunk };
        if chunk.is_empty() { chunk } else { self.media_type.encoded(chunk) }
    }

    /// What cannot be translated is not read on.
    fn is_done(&self) -> bool {
        self.failed.is_some()
    }

    fn end(mut self: Box<Self>, exchange: &mut Exchange) -> Vec<u8> {
        if self.json.as_ref().is_some_and(|(_, messages)| !messages.is_empty()) && self.failed.is_none() {
            self.failed = Some("the last message is not whole".to_owned());
        }
        let trailers = exchange.take_response_trailers();
        if !self.media_type.has_frames {
            return Vec::new();
        }
        let frame = match self.failed {
            Some(why) => {
                framed(TRAILERS, &[INTERNAL, why.replace(['\r', '\n'], " ").as_bytes(), b"\r\n"].concat())
            }
            None => trailer_frame(trailers.as_ref()),
        };
        self.media_type.encoded(frame)
    }
}

/// The frame with the trailers: the status first, the message, and what else there is.
pub(super) fn trailer_frame(trailers: Option<&Headers>) -> Vec<u8> {
    let get = |name: &str| trailers.and_then(|trailers| trailers.get(name));
    let Some(status) = get("grpc-status") else {
        return framed(TRAILERS, &[INTERNAL, b"the upstream sent no status\r\n"].concat());
    };
    let message = get("grpc-message").unwrap_or_default();
    let mut text = [b"grpc-status:", status, b"\r\ngrpc-message:", message, b"\r\n"].concat();
    let is_metadata =
        |name: &[u8]| !matches!(name, b"grpc-status" | b"grpc-message" | b"grpc-encoding" | b"content-type");
    for field in trailers.into_iter().flat_map(Headers::iter) {
        let name = field.name.to_ascii_lowercase();
        if is_metadata(&name) && !field.known.is_hop_by_hop() {
            text.extend([&name, &b":"[..], field.value, b"\r\n"].concat());
        }
    }
    framed(TRAILERS, &text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailers_are_a_frame() {
        let mut trailers = Headers::default();
        trailers.append("X-Extra-Bin", b"AQI=");
        trailers.append("grpc-message", b"not%20found");
        trailers.append("grpc-status", b"5");
        let text = b"grpc-status:5\r\ngrpc-message:not%20found\r\nx-extra-bin:AQI=\r\n";
        assert_eq!(trailer_frame(Some(&trailers)), framed(0x80, text));
        let text = b"grpc-status:13\r\ngrpc-message:the upstream sent no status\r\n";
        assert_eq!(trailer_frame(None), framed(0x80, text));
    }
}
