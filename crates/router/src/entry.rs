//! A route's compiled criteria. The router evaluates them only for the candidates that the index returns.
use super::hosts::{Host, HostPattern, NamePattern};
use super::methods::Methods;
use super::pattern::{Captures, Literals, Pattern, Patterns};
use super::subroute::{PathKind, Subroute};
use super::{Match, Query, RouteError, Scheme};

/// Longer header values are lower-cased on the heap, shorter ones on the stack.
const STACK_VALUE: usize = 256;

/// A candidate: what the index has left to check, and the route it belongs to.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) summary: Summary,
    /// None of most routes.
    rules: Option<Box<Rules>>,
}

/// What is left to check of most candidates, which the index stores too.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summary {
    index: u32,
    /// The length of the prefix, which the index has compared. A route without paths counts as matching `/`.
    length: u32,
    methods: Methods,
}

/// The criteria that few routes have.
#[derive(Debug)]
struct Rules {
    /// Where one of them is none of the usual ones.
    methods: Box<[Box<str>]>,
    /// Empty when the index has already matched the hosts.
    hosts: Box<[HostPattern]>,
    snis: Box<[NamePattern]>,
    /// Empty unless the path is a regex.
    patterns: Box<[Pattern]>,
    headers: Box<[HeaderRule]>,
}

/// How a candidate's path matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    index: u32,
    length: u32,
    /// The position of the regex that matched, if one did.
    pattern: Option<u32>,
}

impl Summary {
    /// How the path of a candidate matched that has no other rules, if its method does.
    pub(super) fn check(self, query: &Query<'_>) -> Option<Hit> {
        let length = self.length.min(query.path.len() as u32);
        self.methods.allow(query.method).then_some(Hit { index: self.index, length, pattern: None })
    }
}

impl Entry {
    /// Whether the candidate matches, and how its path does.
    pub(super) fn check(&self, query: &Query<'_>, host: Host<'_>) -> Option<Hit> {
        let hit = self.summary.check(query)?;
        match &self.rules {
            Some(rules) => rules.check(query, host, hit),
            None => Some(hit),
        }
    }

    /// Whether there is nothing to check beyond what the summary has.
    pub(super) fn is_plain(&self) -> bool {
        self.rules.is_none()
    }

    pub(super) fn matches_method(&self, query: &Query<'_>) -> bool {
        self.summary.methods.allow(query.method)
            && self.rules.as_ref().is_none_or(|rules| rules.match_method(query))
    }

    /// A request in clear has no SNI to match.
    pub(super) fn matches_sni(&self, query: &Query<'_>) -> bool {
        self.rules.as_ref().is_none_or(|rules| rules.match_sni(query))
    }

    /// The headers that the route requires, and whether the request has each.
    pub(super) fn headers<'e>(&'e self, query: &'e Query<'_>) -> impl Iterator<Item = (&'e str, bool)> {
        let headers = self.rules.iter().flat_map(|rules| &rules.headers);
        headers.map(|rule| (&*rule.name, rule.matches(query)))
    }

    /// Which of its regexes matches the path.
    pub(super) fn matching_regex(&self, path: &str) -> Option<usize> {
        self.rules.as_ref()?.patterns.iter().position(|pattern| pattern.find(path).is_some())
    }

    fn captures(&self, path: &str, pattern: u32) -> Option<Box<Captures>> {
        self.rules.as_ref()?.patterns.get(pattern as usize)?.captures(path)
    }
}

impl Hit {
    /// What is found: a candidate of this rank.
    pub(super) fn to_match(self, path: &str, entries: &[Entry], rank: u32) -> Match {
        let captures = |pattern| entries.get(rank as usize)?.captures(path, pattern);
        let captures = self.pattern.and_then(captures);
        Match { index: self.index, matched_path: self.length, captures }
    }
}

impl Rules {
    /// Whether they match a candidate whose summary does.
    fn check(&self, query: &Query<'_>, host: Host<'_>, hit: Hit) -> Option<Hit> {
        let matches = self.match_method(query)
            && (self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host)))
            && self.match_sni(query)
            && self.headers.iter().all(|rule| rule.matches(query));
        if !matches || self.patterns.is_empty() {
            return matches.then_some(hit);
        }
        (0..).zip(&self.patterns).find_map(|(pattern, compiled)| {
            let length = compiled.find(query.path)? as u32;
            Some(Hit { length, pattern: Some(pattern), ..hit })
        })
    }

    fn match_method(&self, query: &Query<'_>) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|method| &**method == query.method)
    }

    fn match_sni(&self, query: &Query<'_>) -> bool {
        let matches = |sni| self.snis.iter().any(|pattern| pattern.matches(sni));
        self.snis.is_empty() || query.scheme == Scheme::Http || query.sni.is_some_and(matches)
    }

    fn are_none(&self) -> bool {
        self.methods.is_empty()
            && self.hosts.is_empty()
            && self.snis.is_empty()
            && self.patterns.is_empty()
            && self.headers.is_empty()
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
        let (length, patterns) = match subroute.kind {
            PathKind::None => (1, Box::default()),
            PathKind::Prefix(length) => (length, Box::default()),
            PathKind::Regex => (0, self.patterns(subroute, &mut literals)),
        };
        let names = route.methods.as_deref().unwrap_or_default();
        let methods = Methods::of(names);
        let named = if methods.is_some() { &[] } else { names };
        let rules = Rules {
            methods: named.iter().map(|method| method.as_str().into()).collect(),
            hosts: unindexed_hosts(route.hosts.as_deref().unwrap_or_default()),
            snis: route.snis.iter().flatten().map(|sni| parse_sni(sni)).collect(),
            patterns,
            headers: self.headers(subroute),
        };
        let summary = Summary { index: subroute.index, length, methods: methods.unwrap_or(Methods::ANY) };
        (Entry { summary, rules: (!rules.are_none()).then(|| Box::new(rules)) }, literals)
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
