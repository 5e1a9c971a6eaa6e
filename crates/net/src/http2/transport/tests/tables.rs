//! Tests that a client's HPACK table is the same here and in the `h2` crate, whichever of its requests are replaced.

use super::*;
use crate::http2::hpack::Hpack;
use proptest::prelude::*;

type Field = (Vec<u8>, Vec<u8>);

#[derive(Clone, Debug)]
enum Instruction {
    Indexed(usize),
    Literal { is_added: bool, name: Name, value: Vec<u8> },
    Resize(usize),
}

#[derive(Clone, Debug)]
enum Name {
    Of(usize),
    Text(Vec<u8>),
}

fn instruction() -> impl Strategy<Value = Instruction> {
    const NAMES: [&[u8]; 9] =
        [b"a", b"secret", b"Bad", b"te", b"connection", b":method", b":nonsense", b"", b"x-y"];
    let name = prop_oneof![
        3 => (62_usize..68).prop_map(Name::Of),
        1 => prop_oneof![Just(2), Just(4), Just(8), 15_usize..=61].prop_map(Name::Of),
        4 => (0..NAMES.len()).prop_map(|at| Name::Text(NAMES[at].to_vec())),
    ];
    let value = prop_oneof![
        4 => "[a-z]{0,4}".prop_map(String::into_bytes),
        2 => "[a-z]{1,2}[\n\0\u{7f}\u{e9}][a-z]{0,2}".prop_map(String::into_bytes),
        1 => (0_usize..5000).prop_map(|length| vec![b'v'; length]),
        1 => (0_usize..5000).prop_map(|length| vec![b'\n'; length]),
    ];
    prop_oneof![
        4 => (62_usize..67).prop_map(Instruction::Indexed),
        1 => (1_usize..62).prop_map(Instruction::Indexed),
        8 => (any::<bool>(), name, value)
            .prop_map(|(is_added, name, value)| Instruction::Literal { is_added, name, value }),
        1 => (0_usize..4097).prop_map(Instruction::Resize),
    ]
}

fn integer(block: &mut Vec<u8>, first: u8, bits: u8, value: usize) {
    let mask = usize::from(u8::MAX >> (8 - bits));
    if value < mask {
        return block.push(first | value as u8);
    }
    block.push(first | mask as u8);
    let mut left = value - mask;
    while left >= 0x80 {
        block.push(left as u8 | 0x80);
        left >>= 7;
    }
    block.push(left as u8);
}

fn text(block: &mut Vec<u8>, text: &[u8]) {
    integer(block, 0, 7, text.len());
    block.extend_from_slice(text);
}

/// A table with its texts.
struct Table {
    entries: Vec<Field>,
    most: usize,
}

impl Table {
    /// The texts of the static table are of no interest, but for the lengths of its names.
    fn get(&self, index: usize) -> Option<Field> {
        match index {
            ..=61 => Some((vec![b'?'; Hpack::default().name_length(index)?], Vec::new())),
            index => self.entries.get(index - 62).cloned(),
        }
    }

    fn shrink(&mut self) {
        let size = |field: &Field| field.0.len() + field.1.len() + 32;
        while self.entries.iter().map(size).sum::<usize>() > self.most {
            self.entries.pop();
        }
    }
}

impl Table {
    /// The block of a request, and its fields behind those that begin each.
    fn write(&mut self, instructions: &[Instruction]) -> (Vec<u8>, Vec<Field>) {
        let (mut block, mut fields) = (Vec::new(), Vec::new());
        let is_resize = |instruction: &&Instruction| matches!(instruction, Instruction::Resize(_));
        for instruction in instructions.iter().filter(is_resize) {
            self.follow(instruction, &mut block);
        }
        block.extend_from_slice(b"\x82\x84\x86\x01\x01a");
        for instruction in instructions.iter().filter(|instruction| !is_resize(instruction)) {
            fields.extend(self.follow(instruction, &mut block));
        }
        (block, fields)
    }

    /// Writes an instruction, unless it refers to no entry.
    fn follow(&mut self, instruction: &Instruction, block: &mut Vec<u8>) -> Option<Field> {
        match instruction {
            Instruction::Resize(size) => {
                integer(block, 0x20, 5, *size);
                self.most = *size;
                self.shrink();
                None
            }
            Instruction::Indexed(index) => {
                let field = self.get(*index)?;
                integer(block, 0x80, 7, *index);
                Some(field)
            }
            Instruction::Literal { is_added, name, value } => {
                let (first, bits) = if *is_added { (0x40, 6) } else { (0, 4) };
                let name = match name {
                    Name::Text(name) => {
                        block.push(first);
                        text(block, name);
                        name.clone()
                    }
                    Name::Of(index) => {
                        let (name, _) = self.get(*index)?;
                        integer(block, first, bits, *index);
                        name
                    }
                };
                text(block, value);
                if *is_added {
                    self.entries.insert(0, (name.clone(), value.clone()));
                    self.shrink();
                }
                Some((name, value.clone()))
            }
        }
    }
}

/// What a client sends first.
const FIRST: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// The requests that the `h2` crate takes of these bytes, by stream, and why the connection ended.
fn taken(sends: Vec<u8>) -> (Vec<(u32, http::HeaderMap)>, Option<Failure>) {
    let (transport, peer) = transport(usize::MAX);
    let transport = transport.guarded(100, 100_000);
    let (sender, mut requests) = (transport.sender(), Vec::new());
    peer.borrow_mut().sends = sends;
    let mut builder = h2::server::Builder::new();
    let handshake = pin!(builder.max_local_error_reset_streams(None).handshake::<_, bytes::Bytes>(transport));
    let Poll::Ready(Ok(mut connection)) = handshake.poll(&mut context()) else { panic!("no handshake") };
    loop {
        sender.0.borrow_mut().begin_turn();
        match connection.poll_accept(&mut context()) {
            Poll::Ready(Some(Ok((request, respond)))) => {
                requests.push((respond.stream_id().into(), request.headers().clone()));
            }
            Poll::Pending => return (requests, sender.failure()),
            Poll::Ready(ended) => {
                panic!("the crate ended the connection: {:?}", ended.map(|it| it.map(drop)))
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn every_request_has_the_fields_that_its_client_sent(
        requests in proptest::collection::vec(proptest::collection::vec(instruction(), 0..6), 1..12),
    ) {
        let (mut table, mut sends, mut sent) =
            (Table { entries: Vec::new(), most: 4096 }, FIRST.to_vec(), Vec::new());
        for (stream, instructions) in (1_u32..).step_by(2).zip(&requests) {
            let (block, fields) = table.write(instructions);
            prop_assume!(block.len() <= 16 * 1024);
            sends.extend_from_slice(&(block.len() as u32).to_be_bytes()[1..]);
            sends.extend_from_slice(&[&[1, 5][..], &stream.to_be_bytes(), &block].concat());
            sent.push((stream, fields));
        }
        let (taken, failure) = taken(sends);
        for (stream, got) in taken {
            let (_, fields) = sent.iter().find(|(other, _)| *other == stream).unwrap();
            for name in ["a", "secret", "x", "x-y"] {
                let sent: Vec<_> = fields.iter().filter(|field| field.0 == name.as_bytes()).collect();
                let sent: Vec<_> = sent.iter().map(|field| &field.1[..]).collect();
                let got: Vec<_> = got.get_all(name).iter().map(|value| value.as_bytes()).collect();
                prop_assert_eq!(got, sent, "{} of {}", name, stream);
            }
        }
        // There is nothing to replace a field without a name and a value by.
        let is_expected = |failure| failure == Failure::Broken(Reason::PROTOCOL_ERROR);
        prop_assert!(failure.is_none_or(is_expected), "{failure:?}");
    }
}
