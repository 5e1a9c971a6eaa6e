//! What a state of the configuration is called, and how two states are compared: by their content.
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};
use std::fmt;
use weir_model::Uuid;

/// The digest of a set of entities: the sum of the digests of its entities. The order of the entities does not matter, and
/// one that changes costs one subtraction and one addition. It finds differences between nodes that trust each other; it
/// does not withstand forgery.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Digest(u128);

impl Digest {
    /// The digest of one entity: of its kind, its id, and its body as the control plane writes it.
    pub fn of_entity(kind: &str, id: Uuid, body: &[u8]) -> Digest {
        let mut sha = Sha256::new();
        sha.update([kind.len() as u8]);
        sha.update(kind);
        sha.update(id.as_bytes());
        sha.update(body);
        let mut first = [0; 16];
        first.copy_from_slice(&sha.finalize()[..16]);
        Digest(u128::from_be_bytes(first))
    }

    /// Adds what is in a set now.
    pub fn add(&mut self, other: Digest) {
        self.0 = self.0.wrapping_add(other.0);
    }

    /// Subtracts what is in a set no more.
    pub fn subtract(&mut self, other: Digest) {
        self.0 = self.0.wrapping_sub(other.0);
    }

    /// Half of it, for lists in which a mistake is found out later.
    pub fn short(self) -> u64 {
        self.0 as u64
    }
}

/// 32 hexadecimal digits.
impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Digest, D::Error> {
        let text = String::deserialize(deserializer)?;
        let is_digest = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = u128::from_str_radix(&text, 16).ok().filter(|_| is_digest);
        number.map(Digest).ok_or_else(|| serde::de::Error::custom("expected a digest: 32 hexadecimal digits"))
    }
}

/// What a state of the configuration is called. Two states with the same digest have the same content, whatever their
/// epochs and sequences are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Identity {
    /// The history that the sequence counts in. A control plane that cannot continue one begins another.
    pub epoch: u64,
    /// Counts changes; larger is newer within an epoch.
    pub sequence: u64,
    /// Of the content.
    pub digest: Digest,
}

impl Identity {
    /// Whether this state is newer than another of the same history.
    pub fn is_after(&self, other: &Identity) -> bool {
        self.epoch == other.epoch && self.sequence > other.sequence
    }
}
