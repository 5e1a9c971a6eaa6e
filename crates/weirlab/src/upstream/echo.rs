//! A connection that was upgraded to WebSocket: what comes goes back, piece by piece.
use crate::websocket::{CLOSE, Frame, Malformed, PING, PONG, apply_mask};
use weir_http1::{RequestHead, encode};

/// The frame that is being returned.
#[derive(Debug, Default)]
pub(super) struct Echo {
    mask: [u8; 4],
    /// How much of its payload has come, and how much is yet to.
    at: u64,
    left: u64,
    /// The client's own pongs are not for returning.
    is_dropped: bool,
    is_closing: bool,
}

/// What the client asks for, if it is to speak WebSocket.
pub(super) fn key(head: &RequestHead) -> Option<&[u8]> {
    let upgrade = head.headers.get("upgrade")?;
    upgrade.eq_ignore_ascii_case(b"websocket").then(|| head.headers.get("sec-websocket-key")).flatten()
}

/// Grants it.
pub(super) fn write_grant(out: &mut Vec<u8>, key: &[u8]) {
    encode::status_line(out, 101);
    encode::header(out, "Connection", "Upgrade");
    encode::header(out, "Upgrade", "websocket");
    encode::header(out, "Sec-WebSocket-Accept", crate::websocket::accept(key));
    encode::end(out);
}

impl Echo {
    /// Whether both sides sent a close frame.
    pub(super) fn is_over(&self) -> bool {
        self.is_closing && self.left == 0
    }

    /// Returns what came; how many bytes were used.
    pub(super) fn take(&mut self, input: &[u8], out: &mut Vec<u8>) -> Result<usize, Malformed> {
        let mut used = 0;
        while !self.is_over() {
            if self.left == 0 {
                let Some((frame, taken)) = Frame::read(&input[used..])? else { break };
                used += taken;
                self.begin(frame, out)?;
            }
            let piece = &input[used..]
                [..input.len().saturating_sub(used).min(self.left.try_into().unwrap_or(usize::MAX))];
            if piece.is_empty() && self.left > 0 {
                break;
            }
            if !self.is_dropped {
                let from = out.len();
                out.extend_from_slice(piece);
                apply_mask(&mut out[from..], self.mask, self.at);
            }
            used += piece.len();
            self.at += piece.len() as u64;
            self.left -= piece.len() as u64;
        }
        Ok(used)
    }

    fn begin(&mut self, frame: Frame, out: &mut Vec<u8>) -> Result<(), Malformed> {
        // A client must mask its frames.
        self.mask = frame.mask.ok_or(Malformed)?;
        (self.at, self.left) = (0, frame.length);
        self.is_dropped = frame.opcode == PONG;
        self.is_closing = frame.opcode == CLOSE;
        if !self.is_dropped {
            let opcode = if frame.opcode == PING { PONG } else { frame.opcode };
            Frame { opcode, mask: None, ..frame }.write(out);
        }
        Ok(())
    }
}
