//! Caches field names in the types of the crates `h2` and `http`. Each worker caches the names that it used last, because
//! messages have few different ones and parsing them again would allocate.

use http::HeaderName;
use std::cell::RefCell;

/// The size of the cache: this many groups, with [`GROUP`] names in each.
const GROUPS: usize = 1 << GROUP_BITS;
const GROUP_BITS: u32 = 6;
const GROUP: usize = 4;

/// Longer names are not cached.
const MAX_NAME_LEN: usize = 48;

/// Fields whose value is another in nearly every message.
const VARYING: [&str; 4] =
    ["x-kong-request-id", "x-kong-upstream-latency", "x-kong-proxy-latency", "x-kong-response-latency"];

/// A name in the form of the crates.
#[derive(Clone)]
pub(super) struct Name {
    pub(super) name: HeaderName,
    /// The value differs in nearly every message.
    pub(super) varies: bool,
}

/// A name as messages have it, and in the form of the crates.
type Slot = Option<(Box<[u8]>, Name)>;

thread_local! {
    static NAMES: RefCell<Vec<Slot>> = RefCell::new(vec![None; GROUPS * GROUP]);
}

/// The name; none, where it is no name.
pub(super) fn of(name: &[u8]) -> Option<Name> {
    if name.len() > MAX_NAME_LEN {
        return read(name);
    }
    NAMES.with_borrow_mut(|names| {
        let first = group(name) * GROUP;
        let group = &mut names[first..first + GROUP];
        if let Some((_, found)) = group.iter().flatten().find(|(known, _)| **known == *name) {
            return Some(found.clone());
        }
        let read = read(name)?;
        group.rotate_right(1);
        group[0] = Some((name.into(), read.clone()));
        Some(read)
    })
}

fn read(name: &[u8]) -> Option<Name> {
    let name = HeaderName::from_bytes(name).ok()?;
    Some(Name { varies: VARYING.contains(&name.as_str()), name })
}

/// The group of a name, by its length, its beginning and its end.
fn group(name: &[u8]) -> usize {
    let word = |chunk: Option<&[u8; 4]>| u32::from_le_bytes(chunk.copied().unwrap_or_default());
    let (first, last) = (word(name.first_chunk()), word(name.last_chunk()));
    let hash = (first.rotate_left(5) ^ last).wrapping_add(name.len() as u32).wrapping_mul(0x9E37_79B1);
    (hash >> (u32::BITS - GROUP_BITS)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_read_or_kept() {
        let long = "x".repeat(MAX_NAME_LEN + 1);
        for name in ["Via", "via", "X-Kong-Request-Id", "grpc-status", &long] {
            for _ in 0..2 {
                let expected = HeaderName::from_bytes(name.as_bytes()).ok();
                assert_eq!(of(name.as_bytes()).map(|name| name.name), expected, "{name}");
            }
        }
        assert!(of(b"no name").is_none() && of(b"").is_none());
    }

    #[test]
    fn names_of_one_group_replace_each_other() {
        let names: Vec<_> = (0..4 * GROUPS * GROUP).map(|number| format!("x-{number}")).collect();
        for name in names.iter().chain(&names) {
            assert_eq!(of(name.as_bytes()).map(|name| name.name.to_string()).as_ref(), Some(name));
        }
    }

    #[test]
    fn what_varies_is_known_by_its_name() {
        for (name, varies) in [("X-Kong-Request-Id", true), ("X-Kong-Proxy-Latency", true), ("Via", false)] {
            assert_eq!(of(name.as_bytes()).map(|name| name.varies), Some(varies), "{name}");
        }
    }
}
