//! The keys under which responses are in Redis, and the commands that put them there.

use crate::proxy_cache::record;
use crate::proxy_cache::stored::Stored;
use crate::proxy_cache::vary;
use redis::{Cmd, cmd};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::Duration;
use weir_plugin::Headers;

/// What all keys begin with.
pub(super) const PREFIX: &str = "proxy-cache:";
/// The longest time that a response is stored.
pub(super) const MAX_TIME: Duration = Duration::from_secs(86_400);

/// The key of the response to requests with this key of the cache and this path, or of what it varies by.
pub(in crate::proxy_cache) fn response_key(key: &str, path: &str) -> String {
    format!("{PREFIX}response:{key}:-:{path}")
}

/// The key of the response to a request with these headers, if it varies by those that are named.
pub(in crate::proxy_cache) fn variant_key(
    key: &str,
    path: &str,
    names: &[String],
    headers: &Headers,
) -> String {
    let values = names.iter().map(|name| vary::normal(name, headers.get_all(name)));
    format!("{PREFIX}response:{key}:{}:{path}", digest(names.iter().zip(values)))
}

/// The key of a response.
pub(in crate::proxy_cache) fn stored_key(stored: &Stored) -> String {
    let (key, path) = (&stored.key, &stored.subject.path);
    if stored.vary.is_empty() {
        return response_key(key, path);
    }
    let normal =
        stored.vary.iter().map(|(name, values)| (name, vary::normal(name, values.iter().map(Vec::as_slice))));
    format!("{PREFIX}response:{key}:{}:{path}", digest(normal))
}

/// A digest of header names and the members of their values.
fn digest<'n>(values: impl Iterator<Item = (&'n String, Vec<Vec<u8>>)>) -> String {
    let mut hash = Sha256::new();
    for (name, members) in values {
        for part in std::iter::once(name.as_bytes()).chain(members.iter().map(Vec::as_slice)) {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        hash.update(u64::MAX.to_le_bytes());
    }
    hash.finalize()[..16].iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

pub(super) fn path_of(key: &str) -> &str {
    key.splitn(5, ':').nth(4).unwrap_or_default()
}

pub(super) fn tag_label(tag: &str) -> String {
    format!("{PREFIX}tag:{tag}")
}

pub(super) fn resource_label(name: &str) -> String {
    format!("{PREFIX}resource:{name}")
}

/// Writes the record, and adds its key to the sets of its tags and its resource, from which others that have expired are
/// removed.
pub(super) fn commands_to_put(stored: &Stored, record: Vec<u8>) -> Vec<(String, Cmd)> {
    let time = stored.term.stored_for.map_or(MAX_TIME, |time| time.min(MAX_TIME)).as_millis().max(1) as u64;
    let key = stored_key(stored);
    let set = |key: &str, record: Vec<u8>| cmd("SET").arg(key).arg(record).arg("PX").arg(time).to_owned();
    let mut commands = vec![(key.clone(), set(&key, record))];
    if !stored.vary.is_empty() {
        let names = response_key(&stored.key, &stored.subject.path);
        commands.push((names.clone(), set(&names, record::write_names(&stored.vary))));
    }
    let tags = stored.subject.tags.iter().map(|tag| tag_label(tag));
    let now = stored.timestamp * 1000;
    for label in tags.chain(stored.subject.resource.name.as_deref().map(resource_label)) {
        let expired = cmd("ZREMRANGEBYSCORE").arg(&label).arg("-inf").arg(now).to_owned();
        let add = cmd("ZADD").arg(&label).arg(now + time).arg(&key).to_owned();
        // As long as any member may be stored.
        let expire = cmd("PEXPIRE").arg(&label).arg(MAX_TIME.as_millis() as u64).to_owned();
        commands.extend([expired, add, expire].map(|command| (label.clone(), command)));
    }
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_found_in_a_key() {
        assert_eq!(path_of(&response_key("00", "/a:b/c")), "/a:b/c");
        let key = variant_key("00", "/a", &["x".to_owned()], &Headers::new());
        assert_eq!(path_of(&key), "/a");
    }
}
