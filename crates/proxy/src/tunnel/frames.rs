//! Where the frames of a WebSocket end (RFC 6455, 5.2), so that the gateway can send one of its own between them.

/// The longest head of a frame: two bytes, the length, and the masking key.
const MAX_HEAD: usize = 14;
/// The opcode of a close frame.
const CLOSE: u8 = 0x8;
/// The status of an endpoint that is going away.
const GOING_AWAY: [u8; 2] = 1001_u16.to_be_bytes();

/// The close frame of a server that is going away.
pub(super) const TO_CLIENT: [u8; 4] = [0x80 | CLOSE, 2, GOING_AWAY[0], GOING_AWAY[1]];

/// The same of a client, which has to mask it.
pub(super) fn to_upstream(key: [u8; 4]) -> [u8; 8] {
    let [a, b, c, d] = key;
    [0x80 | CLOSE, 0x80 | 2, a, b, c, d, GOING_AWAY[0] ^ a, GOING_AWAY[1] ^ b]
}

/// Where one direction of a WebSocket stands.
#[derive(Debug, Default)]
pub(super) struct FrameCursor {
    head: [u8; MAX_HEAD],
    /// How many bytes of the head of a frame are here; 0 between frames.
    have: usize,
    /// What is missing of a frame's payload.
    payload: u64,
    /// Whether a close frame has passed.
    pub(super) closed: bool,
}

impl FrameCursor {
    /// Whether the next byte begins a frame.
    pub(super) fn is_between_frames(&self) -> bool {
        self.have == 0 && self.payload == 0
    }

    /// Passes these bytes.
    pub(super) fn advance(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            data = &data[self.advance_frame(data)..];
        }
    }

    /// How many of these bytes belong to the frame that has begun.
    pub(super) fn rest_of_frame(&self, data: &[u8]) -> usize {
        let mut cursor = FrameCursor { head: self.head, ..*self };
        let mut passed = 0;
        while passed < data.len() && !cursor.is_between_frames() {
            passed += cursor.advance_frame(&data[passed..]);
        }
        passed
    }

    /// Passes bytes of one frame at most; returns how many.
    fn advance_frame(&mut self, data: &[u8]) -> usize {
        if self.payload > 0 {
            let passed = data.len().min(usize::try_from(self.payload).unwrap_or(usize::MAX));
            self.payload -= passed as u64;
            return passed;
        }
        for (passed, &byte) in data.iter().enumerate() {
            self.head[self.have] = byte;
            self.have += 1;
            if self.have == self.head_len() {
                self.payload = self.payload_len();
                self.closed |= self.head[0] & 0xF == CLOSE;
                self.have = 0;
                return passed + 1;
            }
        }
        data.len()
    }

    /// How long the head is, as far as that is known.
    fn head_len(&self) -> usize {
        if self.have < 2 {
            return 2;
        }
        let length = match self.head[1] & 0x7F {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + usize::from(self.head[1] >> 7) * 4
    }

    fn payload_len(&self) -> u64 {
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte));
        match self.head[1] & 0x7F {
            126 => number(&self.head[2..4]),
            127 => number(&self.head[2..10]),
            short => short.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(opcode: u8, masked: bool, payload: &[u8]) -> Vec<u8> {
        let mask = u8::from(masked) << 7;
        let mut frame = vec![0x80 | opcode];
        match payload.len() {
            short @ 0..126 => frame.push(mask | short as u8),
            medium @ 126..65_536 => {
                frame.push(mask | 126);
                frame.extend((medium as u16).to_be_bytes());
            }
            long => {
                frame.push(mask | 127);
                frame.extend((long as u64).to_be_bytes());
            }
        }
        frame.extend([0; 4].iter().take(if masked { 4 } else { 0 }));
        frame.extend(payload);
        frame
    }

    proptest! {
        #[test]
        fn frames_end_where_they_end_however_they_are_cut(
            lengths in prop::collection::vec((prop_oneof![0..200_usize, 65_000..66_000_usize], any::<bool>()), 1..5),
            cut in 1..5000_usize,
        ) {
            let frames: Vec<_> =
                lengths.iter().map(|&(length, masked)| frame(2, masked, &vec![0x88; length])).collect();
            let mut ends = vec![0];
            frames.iter().for_each(|frame| ends.push(ends.last().unwrap() + frame.len()));
            let bytes = frames.concat();
            let (mut cursor, mut passed) = (FrameCursor::default(), 0);
            for piece in bytes.chunks(cut) {
                let rest = cursor.rest_of_frame(piece);
                if !cursor.is_between_frames() {
                    let end = ends.iter().find(|end| **end > passed).unwrap();
                    prop_assert_eq!(passed + rest, (passed + piece.len()).min(*end));
                }
                cursor.advance(piece);
                passed += piece.len();
                prop_assert_eq!(cursor.is_between_frames(), ends.contains(&passed));
            }
            prop_assert!(!cursor.closed);
        }
    }

    #[test]
    fn what_is_sent_is_a_close_frame() {
        for bytes in [&TO_CLIENT[..], &to_upstream([7, 8, 9, 10])] {
            let mut cursor = FrameCursor::default();
            cursor.advance(bytes);
            assert!(cursor.closed && cursor.is_between_frames());
        }
    }
}
