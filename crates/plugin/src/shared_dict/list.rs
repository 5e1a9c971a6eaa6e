//! Lists in a dictionary, which serve as queues between workers.

use super::stripe::Stored;
use super::{DictError, DictValue, SharedDict};

impl SharedDict {
    /// Adds a value at the front of a key's list, which begins empty, and returns the list's length. No entry that has
    /// not expired is evicted for it.
    pub fn lpush(&self, key: impl AsRef<[u8]>, value: impl Into<DictValue>) -> Result<usize, DictError> {
        self.push(key.as_ref(), &value.into(), true)
    }

    /// The same at the back.
    pub fn rpush(&self, key: impl AsRef<[u8]>, value: impl Into<DictValue>) -> Result<usize, DictError> {
        self.push(key.as_ref(), &value.into(), false)
    }

    /// Takes the value at the front of a key's list; none where the key does not exist. With its last value the list is
    /// gone.
    pub fn lpop(&self, key: impl AsRef<[u8]>) -> Result<Option<DictValue>, DictError> {
        self.with(key.as_ref(), |entries, budget| entries.pop(key.as_ref(), true, budget))
    }

    /// The same at the back.
    pub fn rpop(&self, key: impl AsRef<[u8]>) -> Result<Option<DictValue>, DictError> {
        self.with(key.as_ref(), |entries, budget| entries.pop(key.as_ref(), false, budget))
    }

    /// The length of a key's list; zero where the key does not exist.
    pub fn llen(&self, key: impl AsRef<[u8]>) -> Result<usize, DictError> {
        self.with(key.as_ref(), |entries, budget| {
            match entries.find_live(key.as_ref(), budget).map(|entry| &entry.value) {
                None => Ok(0),
                Some(Stored::List { elements, .. }) => Ok(elements.len()),
                Some(Stored::Value(_)) => Err(DictError::NotAList),
            }
        })
    }

    fn push(&self, key: &[u8], value: &DictValue, at_front: bool) -> Result<usize, DictError> {
        let pushed =
            self.change(key, false, |entries, budget| entries.push(key, value.clone(), at_front, budget));
        pushed.map(|(length, _)| length)
    }
}
