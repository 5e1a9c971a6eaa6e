//! Kong's hash of a configuration: MD5 over a text form of its values, which is folded whenever it grows long, so that a
//! configuration of any size needs one megabyte.
//!
//! Data planes store the hash that they are given and report it. They rebuild the router, the plugins or the balancer if the
//! hash of that part is another.
mod number;
#[cfg(test)]
mod tests;

use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// The text is folded before a value that follows so many bytes.
const MAX_TEXT_LEN: usize = 1_000_000;
/// The elements of shorter lists are joined, those of longer ones ended, by `;`.
const MIN_ENDED_LEN: usize = 6;

/// What data planes call the state of their configuration: 32 characters, hexadecimal ones in Kong's own hashes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ConfigHash([u8; 32]);

impl Default for ConfigHash {
    fn default() -> Self {
        ConfigHash::EMPTY
    }
}

impl ConfigHash {
    /// Of no configuration.
    pub const EMPTY: ConfigHash = ConfigHash([b'0'; 32]);

    /// Reads the payload of a ping.
    pub fn read(text: &[u8]) -> Option<ConfigHash> {
        let hash = text.try_into().ok()?;
        text.iter().all(u8::is_ascii_graphic).then_some(ConfigHash(hash))
    }

    /// The hash that stands for the version of an incremental sync.
    pub fn of_version(version: u64) -> ConfigHash {
        let mut hash = [b'0'; 32];
        let text = version.to_string();
        hash[32 - text.len()..].copy_from_slice(text.as_bytes());
        ConfigHash(hash)
    }

    /// Its characters.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    fn of_text(text: &[u8]) -> ConfigHash {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let mut hash = [0; 32];
        for (pair, byte) in hash.chunks_exact_mut(2).zip(Md5::digest(text)) {
            pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        }
        ConfigHash(hash)
    }
}

impl fmt::Display for ConfigHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| fmt::Write::write_char(f, char::from(*byte)))
    }
}

impl fmt::Debug for ConfigHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ConfigHash> for String {
    fn from(hash: ConfigHash) -> String {
        hash.to_string()
    }
}

impl TryFrom<String> for ConfigHash {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        ConfigHash::read(text.as_bytes()).ok_or("expected 32 characters of ASCII")
    }
}

/// The hash of a configuration, and those of the parts that data planes rebuild on their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hashes {
    /// Of everything.
    pub config: ConfigHash,
    /// Of the routes.
    pub routes: ConfigHash,
    /// Of the services.
    pub services: ConfigHash,
    /// Of the plugins.
    pub plugins: ConfigHash,
    /// Of the upstreams.
    pub upstreams: ConfigHash,
    /// Of the targets.
    pub targets: ConfigHash,
    /// Of what belongs to no part. It is not sent.
    #[serde(skip)]
    rest: ConfigHash,
}

impl Hashes {
    /// The names of the parts, in the order in which the hash of everything is made of theirs.
    pub const PARTS: [&str; 5] = ["routes", "services", "plugins", "upstreams", "targets"];

    /// Those of a configuration, from the hashes of its parts and of what else it holds.
    pub fn of_parts(parts: [ConfigHash; 5], rest: ConfigHash) -> Hashes {
        let [routes, services, plugins, upstreams, targets] = parts;
        let text: Vec<u8> = parts.iter().chain([&rest]).flat_map(|hash| hash.0).collect();
        Hashes { config: ConfigHash::of_text(&text), routes, services, plugins, upstreams, targets, rest }
    }

    /// Of what belongs to no part.
    pub fn rest(&self) -> ConfigHash {
        self.rest
    }

    /// Those of the parts, in the order of [`PARTS`](Self::PARTS).
    pub fn parts(&self) -> [ConfigHash; 5] {
        [self.routes, self.services, self.plugins, self.upstreams, self.targets]
    }
}

/// Hashes one value, which may be given in pieces.
#[derive(Default)]
pub struct Hasher {
    text: Vec<u8>,
}

impl Hasher {
    /// The hash of a list whose elements are made one after the other.
    pub fn list_hash(elements: impl ExactSizeIterator<Item = Value>) -> ConfigHash {
        let mut hasher = Hasher::default();
        hasher.list(elements);
        hasher.finish()
    }

    /// Adds a value.
    pub fn value(&mut self, value: &Value) {
        match value {
            Value::Array(elements) => self.elements(elements.iter(), |hasher, element| hasher.value(element)),
            Value::Object(members) if members.is_empty() => self.scalar("{}"),
            Value::Object(members) => {
                self.fold();
                let mut members: Vec<_> = members.iter().collect();
                members.sort_unstable_by_key(|(name, _)| name.as_bytes());
                for (name, value) in members {
                    self.member(name, |hasher| hasher.value(value));
                }
            }
            Value::Null => self.scalar("/null/"),
            Value::Bool(value) => self.scalar(if *value { "true" } else { "false" }),
            Value::String(text) => self.scalar(text),
            Value::Number(number) => {
                self.fold();
                number::write(number.as_f64().unwrap_or_default(), &mut self.text);
            }
        }
    }

    /// Adds a list whose elements are made one after the other.
    pub fn list(&mut self, elements: impl ExactSizeIterator<Item = Value>) {
        self.elements(elements, |hasher, element| hasher.value(&element));
    }

    /// Adds a member of an object. Members come in the order of their names' bytes.
    pub fn member(&mut self, name: &str, value: impl FnOnce(&mut Self)) {
        self.text.extend_from_slice(name.as_bytes());
        self.text.push(b':');
        value(self);
        self.text.push(b';');
    }

    /// The hash of what was added.
    pub fn finish(self) -> ConfigHash {
        ConfigHash::of_text(&self.text)
    }

    fn elements<E>(&mut self, elements: impl ExactSizeIterator<Item = E>, mut add: impl FnMut(&mut Self, E)) {
        let count = elements.len();
        if count == 0 {
            return self.scalar("{}");
        }
        self.fold();
        for (index, element) in elements.enumerate() {
            if index > 0 && count < MIN_ENDED_LEN {
                self.text.push(b';');
            }
            add(self, element);
            if count >= MIN_ENDED_LEN {
                self.text.push(b';');
            }
        }
    }

    fn scalar(&mut self, text: &str) {
        self.fold();
        self.text.extend_from_slice(text.as_bytes());
    }

    fn fold(&mut self) {
        if self.text.len() > MAX_TEXT_LEN {
            let digest = Md5::digest(&self.text);
            self.text.clear();
            self.text.extend_from_slice(&digest);
        }
    }
}
