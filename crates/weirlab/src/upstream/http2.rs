//! A connection's HTTP/2, reduced to what an upstream needs: every request gets the same response, so that nothing reads
//! what its fields say, and what is answered was written at the start. Flow control is kept in both directions.
use super::Plan;
use super::answer::{Ending, Parts};
use super::frame::{
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, Frame, HEAD_BYTES, HEADERS, INITIAL_WINDOW_SIZE,
    MAX_FRAME_LEN, Malformed, PING, PUSH_PROMISE, RST_STREAM, SETTINGS, WINDOW_UPDATE, number, write_credit,
    write_head,
};

/// What a client sends first.
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The initial flow-control window, the default of HTTP/2.
const WINDOW: i64 = 65_535;
/// After this many received bytes the client gets a WINDOW_UPDATE.
const WINDOW_UPDATE_AFTER: u32 = 32_768;

#[derive(Debug)]
pub(super) struct Session {
    /// How much the client takes of a new stream, and of all of them.
    initial: i64,
    window: i64,
    /// Bytes received since the last WINDOW_UPDATE.
    taken: u32,
    streams: Vec<Stream>,
}

/// A request that is not answered yet, or not as a whole.
#[derive(Debug)]
struct Stream {
    id: u32,
    window: i64,
    taken: u32,
    /// Whether all of the request is there, or will be with its last field.
    is_complete: bool,
    has_fields: bool,
    /// How much of the answer's body was sent, if any of the answer was.
    sent: Option<usize>,
}

impl Session {
    /// Begins where the preface ends.
    pub(super) fn begin(out: &mut Vec<u8>) -> Session {
        write_head(out, 0, SETTINGS, 0, 0);
        Session { initial: WINDOW, window: WINDOW, taken: 0, streams: Vec::new() }
    }

    /// Takes in what came and answers it; how many bytes were used.
    pub(super) fn take(
        &mut self,
        input: &[u8],
        plan: &Plan,
        random: &mut fastrand::Rng,
        out: &mut Vec<u8>,
    ) -> Result<usize, Malformed> {
        let mut used = 0;
        while let Some(frame) = Frame::read(&input[used..])? {
            used += HEAD_BYTES + frame.payload.len();
            let choice = plan.answers.choose(Ending::Keep, false, random);
            self.take_frame(&frame, &plan.answers.parts(choice), out)?;
        }
        Ok(used)
    }

    fn take_frame(
        &mut self,
        frame: &Frame<'_>,
        parts: &Parts<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Malformed> {
        match frame.kind {
            HEADERS => self.take_fields(frame, out, parts),
            CONTINUATION => self.progress(frame.stream, frame.flags & END_HEADERS != 0, false, (out, parts)),
            DATA => self.take_data(frame, out, parts),
            SETTINGS if frame.flags & ACK == 0 => self.take_settings(frame.payload, out, parts),
            WINDOW_UPDATE => self.take_credit(frame, out, parts),
            PING if frame.flags & ACK == 0 => {
                write_head(out, frame.payload.len(), PING, ACK, 0);
                out.extend_from_slice(frame.payload);
                Ok(())
            }
            RST_STREAM => {
                self.streams.retain(|stream| stream.id != frame.stream);
                Ok(())
            }
            PUSH_PROMISE => Err(Malformed),
            // What is unknown is to be passed over, and so is what asks for nothing.
            _ => Ok(()),
        }
    }

    fn take_fields(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        parts: &Parts<'_>,
    ) -> Result<(), Malformed> {
        if frame.stream.is_multiple_of(2) {
            return Err(Malformed);
        }
        if self.place(frame.stream).is_none() {
            self.streams.push(Stream {
                id: frame.stream,
                window: self.initial,
                taken: 0,
                is_complete: false,
                has_fields: false,
                sent: None,
            });
        }
        let (whole, last) = (frame.flags & END_HEADERS != 0, frame.flags & END_STREAM != 0);
        self.progress(frame.stream, whole, last, (out, parts))
    }

    fn take_data(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        parts: &Parts<'_>,
    ) -> Result<(), Malformed> {
        let length = frame.payload.len() as u32;
        self.taken += length;
        if self.taken >= WINDOW_UPDATE_AFTER {
            write_credit(out, 0, std::mem::take(&mut self.taken));
        }
        let last = frame.flags & END_STREAM != 0;
        if let Some(place) = self.place(frame.stream) {
            let stream = &mut self.streams[place];
            stream.taken += length;
            if stream.taken >= WINDOW_UPDATE_AFTER && !last {
                write_credit(out, stream.id, std::mem::take(&mut stream.taken));
            }
        }
        self.progress(frame.stream, false, last, (out, parts))
    }

    fn take_settings(
        &mut self,
        payload: &[u8],
        out: &mut Vec<u8>,
        parts: &Parts<'_>,
    ) -> Result<(), Malformed> {
        for setting in payload.chunks_exact(6) {
            if u16::from_be_bytes([setting[0], setting[1]]) == INITIAL_WINDOW_SIZE {
                let initial = i64::from(number(&setting[2..])?);
                let more = initial - self.initial;
                self.initial = initial;
                self.streams.iter_mut().for_each(|stream| stream.window += more);
            }
        }
        write_head(out, 0, SETTINGS, ACK, 0);
        self.send(out, parts);
        Ok(())
    }

    fn take_credit(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
        parts: &Parts<'_>,
    ) -> Result<(), Malformed> {
        let credit = i64::from(number(frame.payload)? & 0x7fff_ffff);
        match (frame.stream, self.place(frame.stream)) {
            (0, _) => self.window += credit,
            (_, Some(place)) => self.streams[place].window += credit,
            (_, None) => return Ok(()),
        }
        self.send(out, parts);
        Ok(())
    }

    fn place(&self, id: u32) -> Option<usize> {
        self.streams.iter().position(|stream| stream.id == id)
    }

    /// A request has got on.
    fn progress(
        &mut self,
        id: u32,
        fields: bool,
        last: bool,
        (out, parts): (&mut Vec<u8>, &Parts<'_>),
    ) -> Result<(), Malformed> {
        let Some(place) = self.place(id) else { return Ok(()) };
        let stream = &mut self.streams[place];
        stream.has_fields |= fields;
        stream.is_complete |= last;
        if stream.is_complete && stream.has_fields {
            self.send(out, parts);
        }
        Ok(())
    }

    /// Sends what can be of the answers that are due.
    fn send(&mut self, out: &mut Vec<u8>, parts: &Parts<'_>) {
        let window = &mut self.window;
        self.streams.retain_mut(|stream| {
            !(stream.is_complete && stream.has_fields && stream.send(window, out, parts))
        });
    }
}

impl Stream {
    /// Whether the whole answer is sent.
    fn send(&mut self, all: &mut i64, out: &mut Vec<u8>, parts: &Parts<'_>) -> bool {
        let mut sent = match self.sent {
            Some(sent) => sent,
            None => {
                let end = if parts.body.is_empty() && parts.trailers.is_none() { END_STREAM } else { 0 };
                write_head(out, parts.head.len(), HEADERS, END_HEADERS | end, self.id);
                out.extend_from_slice(parts.head);
                0
            }
        };
        while sent < parts.body.len() {
            let room = usize::try_from(self.window.min(*all)).unwrap_or(0);
            let piece = (parts.body.len() - sent).min(MAX_FRAME_LEN).min(room);
            if piece == 0 {
                self.sent = Some(sent);
                return false;
            }
            self.window -= piece as i64;
            *all -= piece as i64;
            let is_last = sent + piece == parts.body.len() && parts.trailers.is_none();
            write_head(out, piece, DATA, if is_last { END_STREAM } else { 0 }, self.id);
            out.extend_from_slice(&parts.body[sent..sent + piece]);
            sent += piece;
        }
        if let Some(trailers) = parts.trailers {
            write_head(out, trailers.len(), HEADERS, END_HEADERS | END_STREAM, self.id);
            out.extend_from_slice(trailers);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        write_head(&mut out, payload.len(), kind, flags, stream);
        out.extend_from_slice(payload);
        out
    }

    /// What is answered to a request and to one with a body, with a question in between.
    fn conversation() -> Vec<u8> {
        [
            frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 7]),
            frame(HEADERS, END_HEADERS | END_STREAM, 1, &[0x82]),
            frame(PING, 0, 0, b"12345678"),
            frame(HEADERS, 0, 3, &[0x83]),
            frame(CONTINUATION, END_HEADERS, 3, &[0x84]),
            frame(DATA, END_STREAM, 3, b"body"),
            frame(0xee, 0, 0, b"unknown"),
            frame(WINDOW_UPDATE, 0, 1, &[0, 0, 0, 100]),
        ]
        .concat()
    }

    /// Takes in pieces of a length; the kinds, streams and lengths of the frames that come back.
    fn answers(input: &[u8], piece: usize, parts: &Parts<'_>) -> Vec<(u8, u8, u32, usize)> {
        let mut out = Vec::new();
        let mut session = Session::begin(&mut out);
        let mut held = Vec::new();
        for part in input.chunks(piece) {
            held.extend_from_slice(part);
            let mut used = 0;
            while let Some(frame) = Frame::read(&held[used..]).unwrap() {
                used += HEAD_BYTES + frame.payload.len();
                session.take_frame(&frame, parts, &mut out).unwrap();
            }
            held.drain(..used);
        }
        let (mut at, mut frames) = (0, Vec::new());
        while let Some(frame) = Frame::read(&out[at..]).unwrap() {
            at += HEAD_BYTES + frame.payload.len();
            frames.push((frame.kind, frame.flags, frame.stream, frame.payload.len()));
        }
        frames
    }

    #[test]
    fn windows_are_kept_and_pieces_do_not_matter() {
        let parts = Parts { head: b"head", body: b"ten bytes.", trailers: Some(b"end") };
        let whole = answers(&conversation(), usize::MAX, &parts);
        let expected = [
            (SETTINGS, 0, 0, 0),
            (SETTINGS, ACK, 0, 0),
            (HEADERS, END_HEADERS, 1, 4),
            (DATA, 0, 1, 7),
            (PING, ACK, 0, 8),
            (HEADERS, END_HEADERS, 3, 4),
            (DATA, 0, 3, 7),
            (DATA, 0, 1, 3),
            (HEADERS, END_HEADERS | END_STREAM, 1, 3),
        ];
        assert_eq!(whole, expected);
        for piece in 1..50 {
            assert_eq!(answers(&conversation(), piece, &parts), expected, "{piece}");
        }
    }

    #[test]
    fn the_last_frame_of_an_answer_ends_its_stream() {
        let request = frame(HEADERS, END_HEADERS | END_STREAM, 5, &[0x82]);
        let of = |body: &[u8]| {
            answers(&request, usize::MAX, &Parts { head: b"", body, trailers: None })[1..].to_vec()
        };
        assert_eq!(of(b""), [(HEADERS, END_HEADERS | END_STREAM, 5, 0)]);
        assert_eq!(of(b"x"), [(HEADERS, END_HEADERS, 5, 0), (DATA, END_STREAM, 5, 1)]);
        let long = vec![b'x'; MAX_FRAME_LEN + 1];
        assert_eq!(of(&long)[1..], [(DATA, 0, 5, MAX_FRAME_LEN), (DATA, END_STREAM, 5, 1)]);
    }

    #[test]
    fn what_is_no_http2_is_refused() {
        let parts = Parts { head: b"", body: b"", trailers: None };
        let refused = |input: &[u8]| {
            let mut session = Session::begin(&mut Vec::new());
            Frame::read(input).and_then(|frame| match frame {
                Some(frame) => session.take_frame(&frame, &parts, &mut Vec::new()),
                None => Ok(()),
            })
        };
        assert_eq!(refused(&[0, 0x40, 1, 0, 0, 0, 0, 0, 0]), Err(Malformed), "a frame that is too long");
        assert_eq!(refused(&frame(HEADERS, END_HEADERS, 2, b"")), Err(Malformed), "a stream of the server's");
        assert_eq!(refused(&frame(PUSH_PROMISE, 0, 1, b"")), Err(Malformed));
        assert_eq!(refused(&frame(WINDOW_UPDATE, 0, 0, b"1")), Err(Malformed));
    }
}
