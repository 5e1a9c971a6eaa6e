//! The values of a dictionary.

use std::sync::Arc;

/// A value of a dictionary. A clone shares its bytes.
#[derive(Debug, Clone, PartialEq)]
pub enum DictValue {
    /// Bytes, such as text.
    Bytes(Arc<[u8]>),
    /// A number.
    Number(f64),
    /// True or false.
    Boolean(bool),
}

impl DictValue {
    /// The bytes, if it has any.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            DictValue::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The number, if it is one.
    pub fn as_number(&self) -> Option<f64> {
        match self {
            DictValue::Number(number) => Some(*number),
            _ => None,
        }
    }

    /// How many bytes it has beside its own size.
    pub(super) fn len(&self) -> usize {
        self.as_bytes().map_or(0, <[u8]>::len)
    }
}

impl From<&[u8]> for DictValue {
    fn from(bytes: &[u8]) -> Self {
        DictValue::Bytes(bytes.into())
    }
}

impl From<&str> for DictValue {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl From<Vec<u8>> for DictValue {
    fn from(bytes: Vec<u8>) -> Self {
        DictValue::Bytes(bytes.into())
    }
}

impl From<f64> for DictValue {
    fn from(number: f64) -> Self {
        DictValue::Number(number)
    }
}

impl From<bool> for DictValue {
    fn from(value: bool) -> Self {
        DictValue::Boolean(value)
    }
}
