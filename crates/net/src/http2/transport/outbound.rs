//! Observes the frames that the `h2` crate sends, because the crate does not report how many streams it reset for
//! protocol errors of the client or refused because there were too many, nor the position of a GOAWAY.

use super::inbound::HEAD;
use h2::Reason;
use std::collections::VecDeque;

const RST_STREAM: u8 = 3;
const GOAWAY: u8 = 7;
/// The start of a frame with the code of a RST_STREAM.
const WITH_CODE: usize = HEAD + 4;
/// Where the code of a GOAWAY stands.
const GOAWAY_CODE: usize = HEAD + 4;
/// Streams whose refusal for another reason may wait to leave. A client that resets them itself gets none.
const REFUSED_OTHERWISE: usize = 128;

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
    /// Streams that were refused because there were too many.
    refused: u32,
    /// Streams that are refused for another reason, oldest first.
    refused_otherwise: VecDeque<u32>,
}

impl Outbound {
    /// How many streams were reset because the client broke a rule since it was asked last.
    pub(super) fn faults(&mut self) -> u32 {
        std::mem::take(&mut self.faults)
    }

    /// How many streams were refused because there were too many since it was asked last.
    pub(super) fn refused(&mut self) -> u32 {
        std::mem::take(&mut self.refused)
    }

    /// If a stream is refused from now on, it is for another reason than the number of streams.
    pub(super) fn refuses_otherwise(&mut self, stream: u32) {
        if self.refused_otherwise.len() == REFUSED_OTHERWISE {
            self.refused_otherwise.pop_front();
        }
        self.refused_otherwise.push_back(stream);
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
        let &[a, b, c, kind, _, d, e, f, g, code @ ..] = &self.start;
        if kind == RST_STREAM {
            self.reset(u32::from_be_bytes([d, e, f, g]), u32::from_be_bytes(code).into());
        }
        self.left = (HEAD + u32::from_be_bytes([0, a, b, c]) as usize).saturating_sub(self.started);
        self.started = 0;
    }

    fn reset(&mut self, stream: u32, reason: Reason) {
        match reason {
            Reason::PROTOCOL_ERROR
            | Reason::FLOW_CONTROL_ERROR
            | Reason::STREAM_CLOSED
            | Reason::FRAME_SIZE_ERROR => self.faults += 1,
            Reason::REFUSED_STREAM => {
                match self.refused_otherwise.iter().position(|otherwise| *otherwise == stream) {
                    Some(at) => drop(self.refused_otherwise.remove(at)),
                    None => self.refused += 1,
                }
            }
            _ => {}
        }
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
    fn streams_that_are_too_many_are_told_from_those_refused_otherwise() {
        let refused = |stream| [&[0, 0, 4, RST_STREAM, 0, 0, 0, 0, stream][..], &[0, 0, 0, 7]].concat();
        let mut outbound = Outbound::default();
        outbound.refuses_otherwise(3);
        outbound.leave(&[refused(1), refused(3), refused(5)].concat());
        assert_eq!((outbound.refused(), outbound.refused(), outbound.faults()), (2, 0, 0));
        // Each is refused once; and those that were reset by the client before fill no memory.
        (0..1000).for_each(|stream| outbound.refuses_otherwise(stream));
        assert_eq!(outbound.refused_otherwise.len(), REFUSED_OTHERWISE);
    }

    #[test]
    fn the_code_of_a_goaway_is_found() {
        let mut outbound = Outbound::default();
        let goaway = frame(GOAWAY, &[0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0]);
        assert_eq!(outbound.leave(&[frame(4, b""), goaway.clone()].concat()), Some(22));
        assert_eq!(outbound.leave(&frame(0, &goaway)), None);
    }
}
