//! A route's compiled criteria. The router evaluates them only for the candidates that the index returns.
use super::expressions::{Expression, PortCheck, Request, required_scheme};
use super::hosts::{HostPattern, NamePattern};
use super::keys::Keys;
use super::methods::Methods;
use super::pattern::{Captures, Literals, Pattern, Patterns};
use super::priority::Flavor;
use super::subroute::{PathKind, Subroute};
use super::summary::{Hit, PathEnd, Summary};
use super::vars::{Condition, RequestVariable};
use super::{Match, Query, RouteError, Scheme};

/// Longer header values are lower-cased on the heap, shorter ones on the stack.
const STACK_VALUE: usize = 256;

/// A candidate: what the index has left to check, and the route it belongs to.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Entry {
    pub(super) summary: Summary,
    /// What its expression asks of a port.
    port: Option<PortCheck>,
    rules: Rules,
}

const _: () = assert!(size_of::<Entry>() == 64);

/// What is left to check of a candidate beside its summary.
#[derive(Debug)]
enum Rules {
    /// Nothing, of most routes.
    None,
    Criteria(Box<Criteria>),
    Expression(Expression),
}

/// The criteria that few routes have.
#[derive(Debug)]
struct Criteria {
    /// Where one of them is none of the usual ones.
    methods: Box<[Box<str>]>,
    /// Empty when the index has already matched the hosts.
    hosts: Box<[HostPattern]>,
    snis: Box<[NamePattern]>,
    /// Empty unless the path is a regex.
    patterns: Box<[Pattern]>,
    headers: Box<[HeaderRule]>,
    vars: Option<Condition<RequestVariable>>,
}

impl Entry {
    /// Whether the candidate matches, and how its path does.
    #[inline(always)]
    pub(super) fn check(&self, request: &Request<'_>) -> Option<Hit> {
        if self.port.is_some_and(|port| !port.holds(request)) {
            return None;
        }
        let hit = self.summary.check(request.query)?;
        match &self.rules {
            Rules::None => Some(hit),
            Rules::Criteria(criteria) => criteria.check(request, hit),
            Rules::Expression(expression) => {
                let length = expression.find(request)?;
                Some(Hit { length: length.map_or(hit.length, |length| length as u32), ..hit })
            }
        }
    }

    /// Whether there is nothing to check beyond what the summary has.
    pub(super) fn is_plain(&self) -> bool {
        match &self.rules {
            Rules::None => true,
            Rules::Criteria(_) => false,
            Rules::Expression(expression) => self.port.is_none() && expression.is_indexed(),
        }
    }

    fn criteria(&self) -> Option<&Criteria> {
        match &self.rules {
            Rules::Criteria(criteria) => Some(criteria),
            _ => None,
        }
    }

    /// Whether the scheme is the one that the route serves, where that is a criterion.
    pub(super) fn matches_scheme(&self, query: &Query<'_>) -> Option<bool> {
        self.summary.scheme.map(|scheme| scheme == query.scheme)
    }

    /// Whether the expression, if there is one, matches.
    pub(super) fn matches_expression(&self, request: &Request<'_>) -> bool {
        match &self.rules {
            Rules::Expression(expression) => expression.matches_request(request),
            _ => true,
        }
    }

    pub(super) fn matches_method(&self, query: &Query<'_>) -> bool {
        self.summary.methods.allow(query.method)
            && self.criteria().is_none_or(|criteria| criteria.match_method(query))
    }

    /// A request in clear has no SNI to match.
    pub(super) fn matches_sni(&self, query: &Query<'_>) -> bool {
        self.criteria().is_none_or(|criteria| criteria.match_sni(query))
    }

    /// Whether the request meets the condition on variables, if there is one.
    pub(super) fn matches_vars(&self, request: &Request<'_>) -> bool {
        self.criteria().is_none_or(|criteria| criteria.match_vars(request))
    }

    /// The headers that the route requires, and whether the request has each.
    pub(super) fn headers<'e>(&'e self, query: &'e Query<'_>) -> impl Iterator<Item = (&'e str, bool)> {
        let headers = self.criteria().into_iter().flat_map(|criteria| &criteria.headers);
        headers.map(|rule| (&*rule.name, rule.matches(query)))
    }

    /// Which of its regexes matches the path.
    pub(super) fn matching_regex(&self, path: &str) -> Option<usize> {
        self.criteria()?.patterns.iter().position(|pattern| pattern.find(path).is_some())
    }

    /// What is found.
    pub(super) fn to_match(&self, request: &Request<'_>, hit: Hit) -> Match {
        let matched_path = request.query.path.floor_char_boundary(hit.length as usize) as u32;
        Match { index: hit.index, matched_path, captures: self.captures(request, hit) }
    }

    fn captures(&self, request: &Request<'_>, hit: Hit) -> Option<Box<Captures>> {
        match &self.rules {
            Rules::None => None,
            Rules::Criteria(criteria) => {
                criteria.patterns.get(hit.pattern? as usize)?.captures(request.query.path)
            }
            Rules::Expression(expression) => expression.captures(request),
        }
    }
}

impl Criteria {
    /// Whether they match a candidate whose summary does. Apart, so that checking the other candidates stays small.
    #[inline(never)]
    fn check(&self, request: &Request<'_>, hit: Hit) -> Option<Hit> {
        let (query, host) = (request.query, request.host);
        let matches = self.match_method(query)
            && (self.hosts.is_empty() || self.hosts.iter().any(|pattern| pattern.matches(host)))
            && self.match_sni(query)
            && self.headers.iter().all(|rule| rule.matches(query))
            && self.match_vars(request);
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

    fn match_vars(&self, request: &Request<'_>) -> bool {
        self.vars.as_ref().is_none_or(|condition| condition.is_met(request))
    }

    fn are_none(&self) -> bool {
        self.methods.is_empty()
            && self.hosts.is_empty()
            && self.snis.is_empty()
            && self.patterns.is_empty()
            && self.headers.is_empty()
            && self.vars.is_none()
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
    flavor: Flavor,
    patterns: &'p mut Patterns,
}

impl<'p> Compiler<'p> {
    pub(super) fn new(flavor: Flavor, patterns: &'p mut Patterns) -> Compiler<'p> {
        Compiler { errors: Vec::new(), flavor, patterns }
    }

    /// The entry of a sub-route, and what the index looks up of it. Collects errors: a route that is refused matches
    /// nothing.
    pub(super) fn entry<'a>(&mut self, subroute: &Subroute<'a>) -> (Entry, Keys<'a>) {
        match Expression::indexed_of_route(subroute.route, self.flavor, self.patterns) {
            Ok(None) => self.criteria(subroute),
            Ok(Some((expression, indexed))) => {
                let summary = self.summary(subroute, indexed.methods, indexed.path);
                (Entry { summary, port: indexed.port, rules: Rules::Expression(expression) }, indexed.keys)
            }
            Err(message) => {
                self.errors.push(RouteError { index: subroute.index, route: subroute.route.id, message });
                let (entry, _) = self.criteria(subroute);
                (entry, Keys::default())
            }
        }
    }

    /// The entry of a route with criteria.
    fn criteria<'a>(&mut self, subroute: &Subroute<'a>) -> (Entry, Keys<'a>) {
        let route = subroute.route;
        let mut literals = Vec::new();
        let (length, patterns) = match subroute.kind {
            PathKind::None | PathKind::Expression => (1, Box::default()),
            PathKind::Prefix(length) => (length, Box::default()),
            PathKind::Regex => (0, self.patterns(subroute, &mut literals)),
        };
        let names = route.methods.as_deref().unwrap_or_default();
        let methods = Methods::of(names);
        let named = if methods.is_some() { &[] } else { names };
        let criteria = Criteria {
            methods: named.iter().map(|method| method.as_str().into()).collect(),
            hosts: unindexed_hosts(route.hosts.as_deref().unwrap_or_default()),
            snis: route.snis.iter().flatten().map(|sni| parse_sni(sni)).collect(),
            patterns,
            headers: self.headers(subroute),
            vars: self.vars(subroute),
        };
        let methods = methods.unwrap_or(Methods::ANY);
        let summary = self.summary(subroute, methods, (length, PathEnd::Open));
        let rules = if criteria.are_none() { Rules::None } else { Rules::Criteria(Box::new(criteria)) };
        (Entry { summary, port: None, rules }, Keys::of(subroute, literals))
    }

    fn summary(&self, subroute: &Subroute<'_>, methods: Methods, (length, end): (u32, PathEnd)) -> Summary {
        Summary { index: subroute.index, length, end, methods, scheme: self.scheme(subroute) }
    }

    /// The only scheme that requests may have, where protocols are a criterion.
    fn scheme(&self, subroute: &Subroute<'_>) -> Option<Scheme> {
        let is_criterion = self.flavor == Flavor::Expressions;
        is_criterion.then(|| required_scheme(&subroute.route.protocols)).flatten()
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

    fn vars(&mut self, subroute: &Subroute<'_>) -> Option<Condition<RequestVariable>> {
        match Condition::of_route(subroute.route.vars.as_ref()?) {
            Ok(condition) => Some(condition),
            Err(error) => {
                self.report(subroute, format!("vars: {error}"));
                None
            }
        }
    }

    fn refuse(&mut self, subroute: &Subroute<'_>, place: &str, error: &str) {
        self.report(subroute, format!("{place} is no valid regex: {error}"));
    }

    fn report(&mut self, subroute: &Subroute<'_>, message: String) {
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
