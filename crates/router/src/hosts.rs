//! The first level of the index: looks up exact host names, then wildcards.
use super::paths::{PathIndex, PathIndexBuilder};
use super::pattern::Literals;
use super::subroute::{PathKind, Subroute};
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Longer names are in no DNS; they match no host.
const MAX_NAME: usize = 255;

/// A request's host: its name in lower case, and the port that `host:port` is compared with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Host<'a> {
    pub(super) name: &'a str,
    port: u64,
}

/// Room for a name in lower case.
pub(super) struct Name([u8; MAX_NAME]);

impl Default for Name {
    fn default() -> Name {
        Name([0; MAX_NAME])
    }
}

impl Name {
    /// Takes an authority apart.
    pub(super) fn parse<'a>(&'a mut self, authority: &'a str, dst_port: u16) -> Host<'a> {
        let (name, port) = split_port(authority);
        Host { name: self.lower(name), port: port.unwrap_or(u64::from(dst_port)) }
    }

    fn lower<'a>(&'a mut self, name: &'a str) -> &'a str {
        let Some(room) = self.0.get_mut(..name.len()) else { return "" };
        if !name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return name;
        }
        room.copy_from_slice(name.as_bytes());
        room.make_ascii_lowercase();
        std::str::from_utf8(room).unwrap_or_default()
    }
}

/// Splits `name:port` at the first colon, as Kong does: what isn't followed by a number alone is all name,
/// IPv6 addresses with it.
fn split_port(authority: &str) -> (&str, Option<u64>) {
    let colon = memchr::memchr(b':', authority.as_bytes());
    match colon.map(|at| (&authority[..at], &authority[at + 1..])) {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => {
            (name, Some(port.parse().unwrap_or(u64::MAX)))
        }
        _ => (authority, None),
    }
}

/// One of a route's hosts.
#[derive(Debug)]
pub(super) struct HostPattern {
    name: NamePattern,
    port: Option<u64>,
}

/// A name, perhaps with a wildcard at one end. Also serves SNIs.
#[derive(Debug, PartialEq, Eq)]
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
    fn of(host: &str) -> NamePattern {
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
    fn is_label_wise(&self) -> bool {
        match self {
            NamePattern::Exact(_) => true,
            NamePattern::Suffix(suffix) => suffix.starts_with('.'),
            NamePattern::Prefix(prefix) => prefix.ends_with('.'),
        }
    }
}

/// Path indexes by name, and the lengths of these names in ascending order.
#[derive(Debug)]
struct Names<T> {
    lengths: Vec<usize>,
    map: HashMap<Box<str>, T, RandomState>,
}

impl<T> Default for Names<T> {
    fn default() -> Names<T> {
        Names { lengths: Vec::new(), map: HashMap::default() }
    }
}

impl<T: Default> Names<T> {
    fn entry(&mut self, name: Box<str>) -> &mut T {
        if let Err(at) = self.lengths.binary_search(&name.len()) {
            self.lengths.insert(at, name.len());
        }
        self.map.entry(name).or_default()
    }
}

impl<T> Names<T> {
    fn map<U>(self, f: impl Fn(T) -> U) -> Names<U> {
        let map = self.map.into_iter().map(|(name, value)| (name, f(value))).collect();
        Names { lengths: self.lengths, map }
    }
}

/// Path indexes by host.
#[derive(Debug, Default)]
struct Hosts<T> {
    exact: Names<T>,
    suffixes: Names<T>,
    prefixes: Names<T>,
    /// Routes without hosts, and wildcards that end within a label.
    any: T,
}

/// The path index of each host.
#[derive(Debug, Default)]
pub(super) struct HostIndex(Hosts<PathIndex>);

impl HostIndex {
    /// Indexes sub-routes given best first, with the literals that their regexes begin with.
    pub(super) fn build<'a>(subroutes: &'a [Subroute<'a>], literals: &'a [Literals]) -> HostIndex {
        let mut hosts: Hosts<PathIndexBuilder<'a>> = Hosts::default();
        for ((rank, subroute), literals) in (0u32..).zip(subroutes).zip(literals) {
            let add = |paths: &mut PathIndexBuilder<'a>| match subroute.kind {
                PathKind::None => paths.add(rank, b""),
                PathKind::Prefix(_) => {
                    subroute.paths.iter().for_each(|path| paths.add(rank, path.as_bytes()))
                }
                PathKind::Regex => literals.iter().for_each(|literal| paths.add(rank, literal)),
            };
            match subroute.route.hosts.as_deref() {
                None | Some([]) => add(&mut hosts.any),
                Some(names) => names.iter().for_each(|host| add(hosts.of(NamePattern::of(host)))),
            }
        }
        HostIndex(hosts.map(|paths| paths.build(subroutes)))
    }

    /// Calls `visit` with the path index of every host pattern that may match the name.
    pub(super) fn visit(&self, name: &str, visit: &mut dyn FnMut(&PathIndex)) {
        let hosts = &self.0;
        if let Some(paths) = hosts.exact.map.get(name) {
            visit(paths);
        }
        for &length in &hosts.suffixes.lengths {
            let Some(start) = name.len().checked_sub(length) else { break };
            if name.as_bytes()[start] == b'.' {
                hosts.suffixes.map.get(&name[start..]).into_iter().for_each(&mut *visit);
            }
        }
        for &length in &hosts.prefixes.lengths {
            if length > name.len() {
                break;
            }
            if name.as_bytes()[length - 1] == b'.' {
                hosts.prefixes.map.get(&name[..length]).into_iter().for_each(&mut *visit);
            }
        }
        visit(&hosts.any);
    }
}

impl<T: Default> Hosts<T> {
    fn of(&mut self, pattern: NamePattern) -> &mut T {
        if !pattern.is_label_wise() {
            return &mut self.any;
        }
        match pattern {
            NamePattern::Exact(name) => self.exact.entry(name),
            NamePattern::Suffix(suffix) => self.suffixes.entry(suffix),
            NamePattern::Prefix(prefix) => self.prefixes.entry(prefix),
        }
    }
}

impl<T> Hosts<T> {
    fn map<U>(self, f: impl Fn(T) -> U) -> Hosts<U> {
        Hosts {
            exact: self.exact.map(&f),
            suffixes: self.suffixes.map(&f),
            prefixes: self.prefixes.map(&f),
            any: f(self.any),
        }
    }
}
