//! Observes the frames that the `h2` crate sends, because the crate does not report how many streams it reset for
//! protocol errors of the client, nor the position of a GOAWAY.

use super::inbound::HEAD;
use h2::Reason;

const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
/// The start of a frame with the code of a RST_STREAM.
const WITH_CODE: usize = HEAD + 4;
/// Where the code of a GOAWAY stands.
const GOAWAY_CODE: usize = HEAD + 4;

/// The frames that leave.
#[derive(Default)]
pub(super) struct Outbound {
    /// The start of a frame, as far as it has left.
    start: [u8; WITH_CODE],
    started: usize,
    /// Bytes of a frame that nothing is to be known of.
    left: usize,
    /// Streams that were reset because the client broke a rule.
    faults: u32,
}

impl Outbound {
    /// How many streams were reset because the client broke a rule since it was asked last.
    pub(super) fn faults(&mut self) -> u32 {
        std::mem::take(&mut self.faults)
    }

    /// These bytes leave. Where among them the code of a GOAWAY stands that leaves in one piece.
    pub(super) fn leave(&mut self, bytes: &[u8]) -> Option<usize> {
        let (mut rest, mut goaway) = (bytes, None);
        while !rest.is_empty() {
            let skipped = self.left.min(rest.len());
            self.left -= skipped;
            rest = &rest[skipped..];
            if self.started == 0 && rest.get(3) == Some(&GOAWAY) && rest.len() >= GOAWAY_CODE + 4 {
                goaway = Some(bytes.len() - rest.len() + GOAWAY_CODE);
            }
            let wanted = self.wanted().min(rest.len());
            self.start[self.started..self.started + wanted].copy_from_slice(&rest[..wanted]);
            self.started += wanted;
            rest = &rest[wanted..];
            if self.started >= HEAD && self.wanted() == 0 {
                self.frame();
            }
        }
        goaway
    }

    /// How much is missing to know the frame.
    fn wanted(&self) -> usize {
        match self.started {
            started @ ..HEAD => HEAD - started,
            started if self.start[3] == RST_STREAM => WITH_CODE - started,
            _ => 0,
        }
    }

    fn frame(&mut self) {
        let &[a, b, c, kind, _, _, _, _, _, code @ ..] = &self.start;
        let of_client = [
            Reason::PROTOCOL_ERROR,
            Reason::FLOW_CONTROL_ERROR,
            Reason::STREAM_CLOSED,
            Reason::FRAME_SIZE_ERROR,
        ];
        if kind == RST_STREAM && of_client.contains(&Reason::from(u32::from_be_bytes(code))) {
            self.faults += 1;
        }
        self.left = (HEAD + u32::from_be_bytes([0, a, b, c]) as usize).saturating_sub(self.started);
        self.started = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 1], payload].concat()
    }

    #[test]
    fn faults_are_counted_however_the_bytes_are_cut() {
        let of_client = frame(RST_STREAM, &[0, 0, 0, 1]);
        let stream = [
            of_client.clone(),
            frame(0, b"\0\0\x04\x03\0\0\0\0\0\x01 is a body"),
            frame(RST_STREAM, &[0, 0, 0, 8]),
            frame(4, b""),
            of_client,
        ]
        .concat();
        for size in 1..=stream.len() {
            let mut outbound = Outbound::default();
            for piece in stream.chunks(size) {
                assert_eq!(outbound.leave(piece), None);
            }
            assert_eq!((outbound.faults(), outbound.faults()), (2, 0), "by {size}");
        }
    }

    #[test]
    fn the_code_of_a_goaway_is_found() {
        let mut outbound = Outbound::default();
        let goaway = frame(GOAWAY, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(outbound.leave(&[frame(4, b""), goaway.clone()].concat()), Some(22));
        assert_eq!(outbound.leave(&frame(0, &goaway)), None);
    }
}
