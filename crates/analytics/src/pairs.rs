//! Keys with counts as bytes: their number, then the distance to each key and its count.
use crate::varint::{self, DecodeError, Reader};

/// Appends pairs, which are sorted by key.
pub(crate) fn put(bytes: &mut Vec<u8>, pairs: impl Iterator<Item = (u32, u64)> + Clone) {
    varint::put(bytes, pairs.clone().count() as u64);
    let mut previous = 0;
    for (key, count) in pairs {
        varint::put(bytes, u64::from(key - previous));
        varint::put(bytes, count);
        previous = key;
    }
}

/// Reads pairs.
pub(crate) struct Pairs<'r, 'a> {
    reader: &'r mut Reader<'a>,
    left: u64,
    previous: Option<u32>,
}

impl<'r, 'a> Pairs<'r, 'a> {
    pub(crate) fn new(reader: &'r mut Reader<'a>) -> Result<Pairs<'r, 'a>, DecodeError> {
        let left = reader.number()?;
        Ok(Pairs { reader, left, previous: None })
    }

    /// The next pair. Keys ascend.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, u64)>, DecodeError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        let distance: u32 = self.reader.small()?;
        if distance == 0 && self.previous.is_some() {
            return Err(DecodeError::Unordered);
        }
        let key = self.previous.unwrap_or(0).checked_add(distance).ok_or(DecodeError::OutOfRange)?;
        self.previous = Some(key);
        Ok(Some((key, self.reader.number()?)))
    }
}

/// Appends the sum of two lists. `scratch` is memory that is reused.
pub(crate) fn merge(
    a: &mut Reader<'_>,
    b: &mut Reader<'_>,
    bytes: &mut Vec<u8>,
    scratch: &mut Vec<(u32, u64)>,
) -> Result<(), DecodeError> {
    scratch.clear();
    let (mut a, mut b) = (Pairs::new(a)?, Pairs::new(b)?);
    let (mut left, mut right) = (a.next()?, b.next()?);
    while let Some((key, _)) = left.into_iter().chain(right).min() {
        let mut sum = (key, 0u64);
        if let Some((_, count)) = left.filter(|(other, _)| *other == key) {
            sum.1 = count;
            left = a.next()?;
        }
        if let Some((_, count)) = right.filter(|(other, _)| *other == key) {
            sum.1 = sum.1.saturating_add(count);
            right = b.next()?;
        }
        scratch.push(sum);
    }
    put(bytes, scratch.iter().copied());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn read(bytes: &[u8]) -> BTreeMap<u32, u64> {
        let mut reader = Reader::new(bytes);
        let mut pairs = Pairs::new(&mut reader).unwrap();
        std::iter::from_fn(|| pairs.next().unwrap()).collect()
    }

    fn written(pairs: &BTreeMap<u32, u64>) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, pairs.iter().map(|(key, count)| (*key, *count)));
        bytes
    }

    proptest! {
        #[test]
        fn a_merge_is_the_sum(
            a in prop::collection::btree_map(prop_oneof![0..20u32, Just(u32::MAX)], 0..1u64 << 40, 0..10),
            b in prop::collection::btree_map(prop_oneof![0..20u32, Just(u32::MAX)], 0..1u64 << 40, 0..10),
        ) {
            let (left, right) = (written(&a), written(&b));
            let mut bytes = Vec::new();
            merge(&mut Reader::new(&left), &mut Reader::new(&right), &mut bytes, &mut Vec::new()).unwrap();
            let mut sum = a;
            b.into_iter().for_each(|(key, count)| *sum.entry(key).or_default() += count);
            prop_assert_eq!(read(&bytes), sum);
        }
    }
}
