//! The first level of the index: looks up exact host names, then wildcards.
use super::entry::Entry;
use super::keys::Keys;
use super::paths::{PathIndex, PathIndexBuilder};
use super::table::Table;
use super::text::Text;
use std::collections::{BTreeMap, BTreeSet};

/// Longer names are in no DNS; they match no host.
const MAX_NAME: usize = 255;

/// A request's host: its name in lower case, and the port that `host:port` is compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Host<'a> {
    pub(super) name: &'a str,
    pub(super) port: u64,
}

impl<'a> Host<'a> {
    /// The name, in lower case.
    pub(crate) fn name(&self) -> &'a str {
        self.name
    }
}

/// Room for a name in lower case, where that is not how it was sent.
#[derive(Default)]
pub(super) struct Name(Option<[u8; MAX_NAME]>);

impl Name {
    /// Takes an authority apart.
    pub(super) fn parse<'a>(&'a mut self, authority: &'a str, dst_port: u16) -> Host<'a> {
        // Most hosts have neither a colon nor a capital letter, so they are read once.
        let (mut name, mut port) = (authority, None);
        if !is_plain(authority.as_bytes()) {
            (name, port) = split_port(authority);
            if !is_plain(name.as_bytes()) {
                name = self.lower(name);
            }
        }
        let name = if name.len() > MAX_NAME { "" } else { name };
        Host { name, port: port.unwrap_or(u64::from(dst_port)) }
    }

    /// The name in lower case, unless it is too long.
    #[cold]
    #[inline(never)]
    fn lower<'a>(&'a mut self, name: &'a str) -> &'a str {
        if name.len() > MAX_NAME {
            return "";
        }
        let room = &mut self.0.insert([0; MAX_NAME])[..name.len()];
        room.copy_from_slice(name.as_bytes());
        room.make_ascii_lowercase();
        std::str::from_utf8(room).unwrap_or_default()
    }
}

/// Whether no byte is a colon or a capital letter. Eight at a time; the last eight may overlap those before.
fn is_plain(authority: &[u8]) -> bool {
    let is_plain = |byte: &u8| !(b':'..=b'Z').contains(byte);
    let all = |bytes: &[u8; 8]| bytes.iter().fold(true, |all, byte| all & is_plain(byte));
    match authority.last_chunk() {
        Some(last) => all(last) && authority.as_chunks().0.iter().all(all),
        None => authority.iter().all(is_plain),
    }
}

/// Splits `name:port` at the first colon, as Kong does: what isn't followed by a number alone is all name,
/// IPv6 addresses with it.
fn split_port(authority: &str) -> (&str, Option<u64>) {
    // Names are short: searching byte by byte is quicker than calling the vectorized search.
    let colon = authority.bytes().position(|byte| byte == b':');
    match colon.and_then(|at| Some((&authority[..at], number(&authority[at + 1..])?))) {
        Some((name, port)) => (name, Some(port)),
        None => (authority, None),
    }
}

/// The number that a text of digits says; the largest one if it says more.
fn number(digits: &str) -> Option<u64> {
    let add = |number: u64, byte: u8| {
        let digit = byte.wrapping_sub(b'0');
        (digit <= 9).then(|| number.saturating_mul(10).saturating_add(digit.into()))
    };
    if digits.is_empty() { None } else { digits.bytes().try_fold(0, add) }
}

/// One of a route's hosts.
#[derive(Debug)]
pub(super) struct HostPattern {
    name: NamePattern,
    port: Option<u64>,
}

/// A name, perhaps with a wildcard at one end. Also serves SNIs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NamePattern {
    /// This name.
    Exact(Box<str>),
    /// `*` and what the name ends in.
    Suffix(Box<str>),
    /// What the name begins with, and `*`.
    Prefix(Box<str>),
}

impl HostPattern {
    pub(super) fn parse(host: &str) -> HostPattern {
        let (name, port) = split_port(host);
        HostPattern { name: NamePattern::parse(name), port }
    }

    pub(super) fn matches(&self, host: Host<'_>) -> bool {
        self.name.matches(host.name) && self.port.is_none_or(|port| port == host.port)
    }

    /// Whether the index finds exactly what this pattern matches, so that there is nothing left to check.
    pub(super) fn is_indexed(&self) -> bool {
        self.port.is_none() && self.name.is_label_wise()
    }
}

impl NamePattern {
    /// The name in `name:port`.
    pub(super) fn of(host: &str) -> NamePattern {
        NamePattern::parse(split_port(host).0)
    }

    pub(super) fn parse(name: &str) -> NamePattern {
        let name = name.to_ascii_lowercase();
        if let Some(suffix) = name.strip_prefix('*') {
            NamePattern::Suffix(suffix.into())
        } else if let Some(prefix) = name.strip_suffix('*') {
            NamePattern::Prefix(prefix.into())
        } else {
            NamePattern::Exact(name.into())
        }
    }

    /// `name` is in lower case.
    pub fn matches(&self, name: &str) -> bool {
        match self {
            NamePattern::Exact(exact) => name == &**exact,
            NamePattern::Suffix(suffix) => !name.is_empty() && name.ends_with(&**suffix),
            NamePattern::Prefix(prefix) => !name.is_empty() && name.starts_with(&**prefix),
        }
    }

    /// Whether the wildcard, if any, stands for whole labels; otherwise the name can't be looked up.
    pub(super) fn is_label_wise(&self) -> bool {
        match self {
            NamePattern::Exact(_) => true,
            NamePattern::Suffix(suffix) => suffix.starts_with('.'),
            NamePattern::Prefix(prefix) => prefix.ends_with('.'),
        }
    }
}

/// Path indexes by name while they are collected.
type Collected<'a> = BTreeMap<Box<str>, PathIndexBuilder<'a>>;

/// Path indexes by name.
#[derive(Debug)]
struct Names {
    /// The lengths of the names, in ascending order.
    lengths: Box<[usize]>,
    names: Box<[Named]>,
    table: Table,
}

/// A name and its path index.
#[derive(Debug)]
#[repr(align(64))]
struct Named {
    name: Text,
    paths: PathIndex,
}

impl Names {
    fn build(names: Collected<'_>, keys: &[Keys<'_>], entries: &[Entry]) -> Names {
        let lengths: BTreeSet<usize> = names.keys().map(|name| name.len()).collect();
        let mut table = Table::with_capacity(names.len());
        (0..).zip(names.keys()).for_each(|(at, name)| table.insert(name.as_bytes(), at));
        let named = names.into_iter().map(|(name, paths)| Named {
            name: Text::new(name.as_bytes()),
            paths: paths.build(keys, entries),
        });
        Names { lengths: lengths.into_iter().collect(), names: named.collect(), table }
    }

    fn get(&self, name: &[u8]) -> Option<&PathIndex> {
        let at = self.table.find(name, |at| *self.names[at as usize].name == *name)?;
        self.names.get(at as usize).map(|named| &named.paths)
    }
}

/// The path index of each host.
#[derive(Debug, Default)]
pub(super) struct HostIndex {
    exact: Option<Names>,
    suffixes: Option<Names>,
    prefixes: Option<Names>,
    /// Of routes without hosts, and of wildcards that end within a label.
    any: PathIndex,
}

impl HostIndex {
    /// Indexes entries given best first, by their keys, but for the first of them.
    pub(super) fn build(keys: &[Keys<'_>], entries: &[Entry], leading: usize) -> HostIndex {
        let mut hosts = HostIndexBuilder::default();
        for (rank, keys) in (0u32..).zip(keys).skip(leading) {
            match keys.hosts.as_slice() {
                [] => hosts.any.add_all(rank, &keys.prefixes),
                names => names.iter().for_each(|name| hosts.of(name).add_all(rank, &keys.prefixes)),
            }
        }
        let names = |names: Collected<'_>| (!names.is_empty()).then(|| Names::build(names, keys, entries));
        HostIndex {
            exact: names(hosts.exact),
            suffixes: names(hosts.suffixes),
            prefixes: names(hosts.prefixes),
            any: hosts.any.build(keys, entries),
        }
    }

    /// Calls `visit` with the path index of every host pattern that may match the name.
    pub(super) fn visit(&self, name: &str, visit: &mut dyn FnMut(&PathIndex)) {
        let name = name.as_bytes();
        if let Some(exact) = &self.exact {
            exact.get(name).into_iter().for_each(&mut *visit);
        }
        if let Some(suffixes) = &self.suffixes {
            let starts = suffixes.lengths.iter().map_while(|length| name.len().checked_sub(*length));
            let starts = starts.filter(|start| name[*start] == b'.');
            starts.filter_map(|start| suffixes.get(&name[start..])).for_each(&mut *visit);
        }
        if let Some(prefixes) = &self.prefixes {
            let lengths = prefixes.lengths.iter().take_while(|length| **length <= name.len());
            let lengths = lengths.filter(|length| name[**length - 1] == b'.');
            lengths.filter_map(|length| prefixes.get(&name[..*length])).for_each(&mut *visit);
        }
        visit(&self.any);
    }
}

/// Collects path indexes by host.
#[derive(Default)]
struct HostIndexBuilder<'a> {
    exact: Collected<'a>,
    suffixes: Collected<'a>,
    prefixes: Collected<'a>,
    any: PathIndexBuilder<'a>,
}

impl<'a> HostIndexBuilder<'a> {
    fn of(&mut self, pattern: &NamePattern) -> &mut PathIndexBuilder<'a> {
        if !pattern.is_label_wise() {
            return &mut self.any;
        }
        match pattern {
            NamePattern::Exact(name) => self.exact.entry(name.clone()).or_default(),
            NamePattern::Suffix(suffix) => self.suffixes.entry(suffix.clone()).or_default(),
            NamePattern::Prefix(prefix) => self.prefixes.entry(prefix.clone()).or_default(),
        }
    }
}
