//! A route's compiled criteria. The router evaluates them only for the candidates that the index returns.
use super::hosts::{Host, HostPattern, NamePattern};
use super::pattern::{Literals, Pattern, Patterns};
use super::subroute::{PathKind, Subroute};
use super::{Match, Query, RouteError, Scheme};

/// Longer header values are lower-cased on the heap, shorter ones on the stack.
const STACK_VALUE: usize = 256;

/// The criteria of a candidate that the index has not checked, and the route it belongs to.
#[derive(Debug)]
pub(super) struct Entry {
    index: u32,
    methods: Box<[Box<str>]>,
    /// Empty when the index has already matched the hosts.
    hosts: Box<[HostPattern]>,
    snis: Box<[NamePattern]>,
    path: PathRule,
    headers: Box<[HeaderRule]>,
}

#[derive(Debug)]
enum PathRule {
    Any,
    /// The index has compared it; its length.
    Prefix(u32),
    Patterns(Box<[Pattern]>),
}

/// How a candidate's path matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    length: u32,
    /// The index of the pattern.
    pattern: u32,
}

impl Entry {
    /// Whether the candidate matches, and how its path does.
    pub(super) fn check(&self, query: &Query<'_>, host: Host<'_>) -> Option<Hit> {
        let matches = self.matches_method(query)
            && (self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host)))
            && self.matches_sni(query)
            && self.headers.iter().all(|rule| rule.matches(query));
        if matches { self.path.check(query.path) } else { None }
    }

    pub(super) fn matches_method(&self, query: &Query<'_>) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|method| &**method == query.method)
    }

    /// A request in clear has no SNI to match.
    pub(super) fn matches_sni(&self, query: &Query<'_>) -> bool {
        let matches = |sni| self.snis.iter().any(|pattern| pattern.matches(sni));
        self.snis.is_empty() || query.scheme == Scheme::Http || query.sni.is_some_and(matches)
    }

    /// The headers that the route requires, and whether the request has each.
    pub(super) fn headers<'e>(&'e self, query: &'e Query<'_>) -> impl Iterator<Item = (&'e str, bool)> {
        self.headers.iter().map(|rule| (&*rule.name, rule.matches(query)))
    }

    /// Which of its regexes matches the path.
    pub(super) fn matching_regex(&self, path: &str) -> Option<usize> {
        let PathRule::Patterns(patterns) = &self.path else { return None };
        patterns.iter().position(|pattern| pattern.find(path).is_some())
    }

    pub(super) fn to_match(&self, path: &str, hit: Hit) -> Match {
        let captures = match &self.path {
            PathRule::Patterns(patterns) => patterns.get(hit.pattern as usize).and_then(|p| p.captures(path)),
            _ => None,
        };
        Match { index: self.index, matched_path: hit.length, captures }
    }
}

impl PathRule {
    fn check(&self, path: &str) -> Option<Hit> {
        match self {
            PathRule::Any => Some(Hit { length: path.len().min(1) as u32, pattern: 0 }),
            PathRule::Prefix(length) => Some(Hit { length: *length, pattern: 0 }),
            PathRule::Patterns(patterns) => (0..).zip(patterns).find_map(|(pattern, compiled)| {
                compiled.find(path).map(|length| Hit { length: length as u32, pattern })
            }),
        }
    }
}

/// One header that a route requires: any of its values must equal one of these, or match a regex, without
/// regard to case.
#[derive(Debug)]
struct HeaderRule {
    name: Box<str>,
    exact: Box<[Box<str>]>,
    regexes: Box<[regex::bytes::Regex]>,
}

impl HeaderRule {
    fn matches(&self, query: &Query<'_>) -> bool {
        (query.header)(&self.name, &mut |value| {
            self.exact.iter().any(|exact| exact.as_bytes().eq_ignore_ascii_case(value))
                || (!self.regexes.is_empty() && self.matches_regex(value))
        })
    }

    /// Like Kong, compares regexes in lower case with values in lower case.
    fn matches_regex(&self, value: &[u8]) -> bool {
        lower_case(value, |value| self.regexes.iter().any(|regex| regex.is_match(value)))
    }
}

/// Calls `f` with a header's value in lower case.
pub(super) fn lower_case<T>(value: &[u8], f: impl FnOnce(&[u8]) -> T) -> T {
    let mut room = [0; STACK_VALUE];
    match room.get_mut(..value.len()) {
        Some(room) => {
            room.copy_from_slice(value);
            room.make_ascii_lowercase();
            f(room)
        }
        None => f(&value.to_ascii_lowercase()),
    }
}

/// A header's name as requests send it: like Kong, treats an underscore as a dash.
pub fn header_name(name: &str) -> String {
    name.to_ascii_lowercase().replace('_', "-")
}

/// Compiles entries and collects the errors of routes.
pub(super) struct Compiler<'p> {
    pub(super) errors: Vec<RouteError>,
    patterns: &'p mut Patterns,
}

impl<'p> Compiler<'p> {
    pub(super) fn new(patterns: &'p mut Patterns) -> Compiler<'p> {
        Compiler { errors: Vec::new(), patterns }
    }

    /// The entry of a sub-route, and the literal prefixes of its regexes. Collects errors.
    pub(super) fn entry(&mut self, subroute: &Subroute<'_>) -> (Entry, Literals) {
        let route = subroute.route;
        let mut literals = Vec::new();
        let path = match subroute.kind {
            PathKind::None => PathRule::Any,
            PathKind::Prefix(length) => PathRule::Prefix(length),
            PathKind::Regex => PathRule::Patterns(self.patterns(subroute, &mut literals)),
        };
        let entry = Entry {
            index: subroute.index,
            methods: route.methods.iter().flatten().map(|method| method.as_str().into()).collect(),
            hosts: unindexed_hosts(route.hosts.as_deref().unwrap_or_default()),
            snis: route.snis.iter().flatten().map(|sni| parse_sni(sni)).collect(),
            path,
            headers: self.headers(subroute),
        };
        (entry, literals)
    }

    fn patterns(&mut self, subroute: &Subroute<'_>, literals: &mut Literals) -> Box<[Pattern]> {
        let mut patterns = Vec::new();
        for path in &subroute.paths {
            match self.patterns.path(&path[1..]) {
                Ok((pattern, starts)) => {
                    patterns.push(pattern);
                    literals.extend(starts);
                }
                Err(error) => self.refuse(subroute, &format!("paths: \"{path}\""), &error),
            }
        }
        patterns.into()
    }

    fn headers(&mut self, subroute: &Subroute<'_>) -> Box<[HeaderRule]> {
        let headers = subroute.route.headers.iter().flatten();
        headers.map(|(name, values)| self.header(subroute, name, values)).collect()
    }

    fn header(&mut self, subroute: &Subroute<'_>, name: &str, values: &[String]) -> HeaderRule {
        let (mut exact, mut regexes) = (Vec::new(), Vec::new());
        for value in values {
            let lower = value.to_ascii_lowercase();
            let Some(pattern) = lower.strip_prefix("~*") else {
                exact.push(lower.into());
                continue;
            };
            match self.patterns.header(pattern) {
                Ok(regex) => regexes.push(regex),
                Err(error) => self.refuse(subroute, &format!("headers.{name}: \"{value}\""), &error),
            }
        }
        let name = header_name(name).into();
        HeaderRule { name, exact: exact.into(), regexes: regexes.into() }
    }

    fn refuse(&mut self, subroute: &Subroute<'_>, place: &str, error: &str) {
        let message = format!("{place} is no valid regex: {error}");
        self.errors.push(RouteError { index: subroute.index, route: subroute.route.id, message });
    }
}

fn unindexed_hosts(hosts: &[String]) -> Box<[HostPattern]> {
    let patterns: Vec<HostPattern> = hosts.iter().map(|host| HostPattern::parse(host)).collect();
    if patterns.iter().all(HostPattern::is_indexed) { Box::default() } else { patterns.into() }
}

/// Removes the trailing dot of a fully qualified name, because clients do not send it as SNI.
pub fn parse_sni(sni: &str) -> NamePattern {
    NamePattern::parse(if sni.len() > 1 { sni.strip_suffix('.').unwrap_or(sni) } else { sni })
}
