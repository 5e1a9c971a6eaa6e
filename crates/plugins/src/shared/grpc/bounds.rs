//! How much messages may take: a few bytes of gRPC may become many in memory, and many as JSON.

use prost_reflect::prost::bytes::Buf;
use prost_reflect::prost::encoding::{DecodeContext, WireType, decode_key, decode_varint, skip_field};
use prost_reflect::{DynamicMessage, Kind, MessageDescriptor, Value};
use std::io;

/// About the most bytes of a message as JSON.
pub(crate) const MAX_JSON: usize = 64 << 20;

/// About the most bytes of a message in memory.
const MAX_DECODED: usize = 128 << 20;

/// About how many bytes a message with fields takes beside these.
const MESSAGE: usize = 800;

/// About how many bytes a field takes beside what it points at.
const FIELD: usize = size_of::<Value>();

/// How deep messages may be within each other.
const MAX_DEPTH: usize = 100;

/// Decodes a message that does not take too much memory.
pub(crate) fn decode(
    descriptor: MessageDescriptor,
    bytes: impl Buf + AsRef<[u8]>,
) -> Result<DynamicMessage, String> {
    Budget(MAX_DECODED).message(&descriptor, bytes.as_ref(), MAX_DEPTH)?;
    DynamicMessage::decode(descriptor, bytes).map_err(|error| error.to_string())
}

/// How many bytes a message may still take.
struct Budget(usize);

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), String> {
        let left = self.0.checked_sub(bytes);
        self.0 = left.ok_or_else(|| format!("the message takes more than {MAX_DECODED} bytes"))?;
        Ok(())
    }

    /// Counts the fields of a message. What is wrong with them shows when they are decoded.
    fn message(
        &mut self,
        descriptor: &MessageDescriptor,
        mut bytes: &[u8],
        depth: usize,
    ) -> Result<(), String> {
        let Some(depth) = depth.checked_sub(1) else { return Ok(()) };
        let has_fields = !bytes.is_empty() && !descriptor.is_map_entry();
        self.take(if has_fields { MESSAGE } else { 0 })?;
        // Groups are messages between two keys.
        let mut within = vec![Some(descriptor.clone())];
        while let Some(message) = within.last() {
            let Ok((number, wire_type)) = decode_key(&mut bytes) else { return Ok(()) };
            let kind = message.as_ref().and_then(|message| kind(message, number));
            match wire_type {
                WireType::EndGroup => drop(within.pop()),
                WireType::StartGroup => {
                    self.take(FIELD + MESSAGE)?;
                    within.push(kind.and_then(|kind| kind.as_message().cloned()));
                }
                WireType::LengthDelimited => {
                    let Some(value) = delimited(&mut bytes) else { return Ok(()) };
                    self.value(kind, value, depth)?;
                }
                _ => {
                    self.take(FIELD)?;
                    if skip_field(wire_type, number, &mut bytes, DecodeContext::default()).is_err() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Counts a message, a text, or several numbers.
    fn value(&mut self, kind: Option<Kind>, bytes: &[u8], depth: usize) -> Result<(), String> {
        self.take(FIELD)?;
        match kind {
            None | Some(Kind::String | Kind::Bytes) => self.take(bytes.len()),
            Some(Kind::Message(inner)) => self.message(&inner, bytes, depth),
            Some(Kind::Double | Kind::Fixed64 | Kind::Sfixed64) => self.take(bytes.len() / 8 * FIELD),
            Some(Kind::Float | Kind::Fixed32 | Kind::Sfixed32) => self.take(bytes.len() / 4 * FIELD),
            // The last byte of each is below 128.
            Some(_) => self.take(bytes.iter().filter(|byte| **byte < 128).count() * FIELD),
        }
    }
}

/// What a field or an extension of a message is.
fn kind(message: &MessageDescriptor, number: u32) -> Option<Kind> {
    let field = message.get_field(number).map(|field| field.kind());
    field.or_else(|| message.get_extension(number).map(|extension| extension.kind()))
}

/// What is behind a length.
fn delimited<'b>(bytes: &mut &'b [u8]) -> Option<&'b [u8]> {
    let length = usize::try_from(decode_varint(bytes).ok()?).ok()?;
    let (value, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(value)
}

/// Takes JSON as long as it does not become too long.
#[derive(Default)]
pub(crate) struct BoundedJson(pub(crate) Vec<u8>);

impl io::Write for BoundedJson {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_JSON {
            return Err(io::Error::other(too_long()));
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is said of a message that is too long as JSON.
pub(crate) fn too_long() -> String {
    format!("the message is longer than {MAX_JSON} bytes as JSON")
}

#[cfg(test)]
mod tests {
    use super::{Budget, FIELD, MAX_DECODED, MAX_DEPTH, MESSAGE, decode};
    use crate::shared::grpc::frames::MAX_MESSAGE_LEN;
    use crate::shared::grpc::proto;
    use prost_reflect::MessageDescriptor;

    const PROTO: &str = "syntax = \"proto3\"; message Inner { bool a = 1; }\n\
        message M { repeated Inner all = 1; repeated bool flags = 2; repeated fixed32 numbers = 3; bytes data = 4; M m = 5; }";

    fn descriptor() -> MessageDescriptor {
        proto::compile(PROTO).unwrap().get_message_by_name("M").unwrap()
    }

    /// How many bytes a message is taken to need.
    fn taken(bytes: &[u8]) -> usize {
        let mut budget = Budget(usize::MAX);
        budget.message(&descriptor(), bytes, MAX_DEPTH).unwrap();
        usize::MAX - budget.0
    }

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2];
        prost_reflect::prost::encoding::encode_varint(value.len() as u64, &mut out);
        [out, value.to_vec()].concat()
    }

    #[test]
    fn a_short_message_that_takes_much_memory_is_refused() {
        let longest = MAX_MESSAGE_LEN - 8;
        for many in [
            field(1, b"").repeat(longest / 2),
            field(1, &[8, 1]).repeat(longest / 4),
            field(2, &vec![1; longest]),
            // Of a field that is not known.
            vec![0x78; longest],
        ] {
            let refused = decode(descriptor(), &*many).unwrap_err();
            assert_eq!(refused, format!("the message takes more than {MAX_DECODED} bytes"));
        }
        for few in
            [field(1, &[8, 1]).repeat(10_000), field(4, &vec![1; longest]), field(3, &vec![1; 1 << 20])]
        {
            assert!(decode(descriptor(), &*few).is_ok());
        }
    }

    #[test]
    fn what_messages_hold_counts_too() {
        let deep = (0..50).fold(Vec::new(), |inner, _| field(5, &inner));
        assert!(taken(&field(1, &[8, 1]).repeat(10)) > 10 * MESSAGE && taken(&deep) > 49 * MESSAGE);
        assert!(taken(&field(2, &[1; 100])) > 100 * FIELD && taken(&field(3, &[1; 400])) > 100 * FIELD);
        // A group, in which numbers are no fields of the message around it.
        let group = [&[0x7b][..], &[8, 1].repeat(100), &[0x7c]].concat();
        assert!(taken(&group) > MESSAGE + 100 * FIELD && decode(descriptor(), &*group).is_ok());
        // What is no message is refused where it is decoded.
        for wrong in [&[0xff][..], &[10, 9, 1], &[10, 0xff], &[7]] {
            taken(wrong);
            assert!(decode(descriptor(), wrong).is_err(), "{wrong:?}");
        }
    }
}
