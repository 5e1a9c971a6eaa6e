//! A unary call of gRPC: one message there, one back, and the status in the trailers.
use super::Expect;
use super::answer::{Answer, Difference};
use bytes::{BufMut, Bytes, BytesMut};
use http::HeaderMap;
use http::header::CONTENT_TYPE;

/// What precedes a message: whether it is compressed, and its length.
const PREFIX: usize = 5;
/// The field of the trailers that says how a call went.
pub(super) const STATUS: &str = "grpc-status";

/// The answer to a call.
#[derive(Debug, Default)]
pub(super) struct Call {
    is_grpc: bool,
    /// The status, where there is no message and no trailers.
    alone: Option<bool>,
    prefix: Vec<u8>,
    /// How much of the message is yet to come; nothing before its prefix has.
    left: Option<u64>,
    /// More came than one message.
    surplus: bool,
}

impl Call {
    /// The body that carries this message.
    pub(super) fn begin(&mut self, message: &[u8]) -> Bytes {
        self.prefix.clear();
        (self.is_grpc, self.alone, self.left, self.surplus) = (false, None, None, false);
        framed(message)
    }

    pub(super) fn head(&mut self, fields: &HeaderMap) {
        let content_type = fields.get(CONTENT_TYPE).map(|value| value.as_bytes());
        self.is_grpc = content_type.is_some_and(|value| value.starts_with(b"application/grpc"));
        self.alone = is_ok(fields);
    }

    /// Takes in data; what is not the prefix is the answer's body.
    pub(super) fn see(&mut self, mut data: &[u8], answer: &mut Answer, expect: &Expect) {
        if self.left.is_none() {
            let (prefix, rest) = data.split_at((PREFIX - self.prefix.len()).min(data.len()));
            self.prefix.extend_from_slice(prefix);
            data = rest;
            let Some(prefix) = self.prefix.first_chunk::<PREFIX>() else { return };
            let [_, length @ ..] = *prefix;
            self.left = Some(u32::from_be_bytes(length).into());
        }
        let left = self.left.unwrap_or_default();
        let message = &data[..data.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
        self.left = Some(left - message.len() as u64);
        self.surplus |= message.len() < data.len();
        answer.see(message, expect);
    }

    /// What is wrong with a call that is over.
    pub(super) fn verdict(&self, trailers: Option<&HeaderMap>) -> Option<Difference> {
        let ok = trailers.and_then(is_ok).or(self.alone);
        match ok {
            Some(true) if !self.is_grpc => Some(Difference::Status),
            Some(true) if self.left != Some(0) || self.surplus => Some(Difference::Body),
            Some(true) => None,
            _ => Some(Difference::Status),
        }
    }
}

/// Whether the fields say that a call went well, if they say how it went.
fn is_ok(fields: &HeaderMap) -> Option<bool> {
    fields.get(STATUS).map(|status| status == "0")
}

/// A message with its prefix.
pub(super) fn framed(message: &[u8]) -> Bytes {
    let mut body = BytesMut::with_capacity(PREFIX + message.len());
    body.put_u8(0);
    body.put_u32(message.len() as u32);
    body.put_slice(message);
    body.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    /// The result for an answer that comes in pieces of every length.
    fn verdict(head: &HeaderMap, body: &[u8], trailers: Option<&HeaderMap>) -> Option<Difference> {
        let of = |piece: usize| {
            let (mut call, mut answer) = (Call::default(), Answer::default());
            call.begin(b"");
            call.head(head);
            body.chunks(piece).for_each(|data| call.see(data, &mut answer, &Expect::default()));
            call.verdict(trailers)
        };
        let verdicts: Vec<_> = (1..=body.len().max(1)).map(of).collect();
        assert!(verdicts.iter().all(|verdict| *verdict == verdicts[0]));
        verdicts[0]
    }

    #[test]
    fn a_call_goes_well_if_all_of_it_does() {
        let head = fields(&[("content-type", "application/grpc+proto")]);
        let (ok, not_ok) = (fields(&[("grpc-status", "0")]), fields(&[("grpc-status", "14")]));
        let body = framed(b"hello");
        assert_eq!(verdict(&head, &body, Some(&ok)), None);
        assert_eq!(verdict(&head, &framed(b""), Some(&ok)), None);
        assert_eq!(verdict(&head, &body, Some(&not_ok)), Some(Difference::Status));
        assert_eq!(verdict(&head, &body, None), Some(Difference::Status));
        assert_eq!(verdict(&head, &body[..9], Some(&ok)), Some(Difference::Body));
        assert_eq!(verdict(&head, b"", Some(&ok)), Some(Difference::Body));
        assert_eq!(verdict(&head, &[&body[..], b"!"].concat(), Some(&ok)), Some(Difference::Body));
        assert_eq!(
            verdict(&fields(&[("content-type", "text/html")]), &body, Some(&ok)),
            Some(Difference::Status)
        );
        let alone = fields(&[("content-type", "application/grpc"), ("grpc-status", "12")]);
        assert_eq!(verdict(&alone, b"", None), Some(Difference::Status));
    }
}
