//! Error codes of HTTP/3 and QPACK (RFC 9114, 8.1; RFC 9204, 6).

use quinn::VarInt;

/// Why a stream or a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Code(u32);

impl Code {
    pub(super) const H3_NO_ERROR: Self = Self(0x100);
    pub(super) const H3_INTERNAL_ERROR: Self = Self(0x102);
    pub(super) const H3_STREAM_CREATION_ERROR: Self = Self(0x103);
    pub(super) const H3_CLOSED_CRITICAL_STREAM: Self = Self(0x104);
    pub(super) const H3_FRAME_UNEXPECTED: Self = Self(0x105);
    pub(super) const H3_FRAME_ERROR: Self = Self(0x106);
    pub(super) const H3_EXCESSIVE_LOAD: Self = Self(0x107);
    pub(super) const H3_ID_ERROR: Self = Self(0x108);
    pub(super) const H3_SETTINGS_ERROR: Self = Self(0x109);
    pub(super) const H3_MISSING_SETTINGS: Self = Self(0x10a);
    pub(super) const H3_REQUEST_REJECTED: Self = Self(0x10b);
    pub(super) const H3_REQUEST_CANCELLED: Self = Self(0x10c);
    pub(super) const H3_REQUEST_INCOMPLETE: Self = Self(0x10d);
    pub(super) const H3_MESSAGE_ERROR: Self = Self(0x10e);
    pub(super) const QPACK_DECOMPRESSION_FAILED: Self = Self(0x200);
    pub(super) const QPACK_ENCODER_STREAM_ERROR: Self = Self(0x201);
    pub(super) const QPACK_DECODER_STREAM_ERROR: Self = Self(0x202);

    pub(super) fn number(self) -> VarInt {
        VarInt::from_u32(self.0)
    }
}

/// Ends a connection at once.
pub(super) fn close(quic: &quinn::Connection, code: Code, reason: &[u8]) {
    quic.close(code.number(), reason);
}
