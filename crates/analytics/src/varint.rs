//! Integers as bytes: seven bits each, the lowest first.
use std::fmt;

/// Why bytes are not what this crate has encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecodeError {
    /// They end too early.
    Truncated,
    /// A number is longer or larger than it may be.
    OutOfRange,
    /// Entries are not in ascending order.
    Unordered,
    /// A text is not UTF-8.
    NotText,
    /// A later release wrote them in this format.
    Format(u64),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => f.write_str("the data ends too early"),
            Self::OutOfRange => f.write_str("the data has a number that is out of range"),
            Self::Unordered => f.write_str("the data is not in order"),
            Self::NotText => f.write_str("the data has a name that is not UTF-8"),
            Self::Format(format) => write!(f, "a later release wrote the data, in format {format}"),
        }
    }
}

impl std::error::Error for DecodeError {}

/// Appends a number.
pub(crate) fn put(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// Appends a text with its length.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put(bytes, text.len() as u64);
    bytes.extend_from_slice(text.as_bytes());
}

/// Reads numbers from bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64, DecodeError> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let (&byte, rest) = self.rest.split_first().ok_or(DecodeError::Truncated)?;
            self.rest = rest;
            if shift == 63 && byte > 1 {
                return Err(DecodeError::OutOfRange);
            }
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// A number that fits into a smaller type.
    pub(crate) fn small<T: TryFrom<u64>>(&mut self) -> Result<T, DecodeError> {
        T::try_from(self.number()?).map_err(|_| DecodeError::OutOfRange)
    }

    /// So many bytes.
    pub(crate) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    /// A text with its length before it.
    pub(crate) fn text(&mut self) -> Result<&'a str, DecodeError> {
        let length = self.small()?;
        std::str::from_utf8(self.take(length)?).map_err(|_| DecodeError::NotText)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_come_back(value: u64) {
            let mut bytes = Vec::new();
            put(&mut bytes, value);
            prop_assert_eq!(Reader::new(&bytes).number(), Ok(value));
            bytes.pop();
            prop_assert_eq!(Reader::new(&bytes).number(), Err(DecodeError::Truncated));
        }
    }

    #[test]
    fn a_number_that_is_too_long_is_an_error() {
        assert_eq!(Reader::new(&[0xff; 10]).number(), Err(DecodeError::OutOfRange));
    }
}
