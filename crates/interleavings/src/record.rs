//! A record for the ring: four words, all with the same number.

/// A record before it is packed.
pub struct Record(pub u64);

/// A record in the ring.
pub struct Packed(pub [u64; 4]);

impl Record {
    pub(crate) fn pack(&self) -> Packed {
        Packed([self.0; 4])
    }
}
