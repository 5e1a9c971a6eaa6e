//! What the index looks up of a candidate: every request that the candidate matches has one value of each list.
use super::hosts::NamePattern;
use super::pattern::Literals;
use super::subroute::{PathKind, Subroute};
use std::borrow::Cow;

/// The values by which a candidate is indexed.
#[derive(Debug, Default)]
pub(super) struct Keys<'a> {
    /// Empty where any host will do.
    pub(super) hosts: Vec<NamePattern>,
    /// What the path begins with: one of these.
    pub(super) prefixes: Vec<Cow<'a, [u8]>>,
    /// Empty where any method will do.
    pub(super) methods: Vec<Cow<'a, str>>,
    /// Headers, and the exact values of each, in any case.
    pub(super) headers: Vec<(String, Vec<Cow<'a, str>>)>,
}

impl<'a> Keys<'a> {
    /// Whether there is nothing to look up.
    pub(super) fn are_none(&self) -> bool {
        self.hosts.is_empty()
            && self.methods.is_empty()
            && self.headers.is_empty()
            && self.prefixes.iter().any(|prefix| prefix.is_empty())
    }

    /// The keys of a sub-route with traditional criteria; `literals` are what its regexes begin with.
    pub(super) fn of(subroute: &Subroute<'a>, literals: Literals) -> Keys<'a> {
        let route = subroute.route;
        let names = |names: &'a Option<Vec<String>>| names.iter().flatten().map(String::as_str);
        let prefixes = match subroute.kind {
            PathKind::None | PathKind::Expression => vec![Cow::default()],
            PathKind::Prefix(_) => subroute.paths.iter().map(|path| Cow::Borrowed(path.as_bytes())).collect(),
            PathKind::Regex => literals.into_iter().map(|literal| Cow::Owned(literal.into())).collect(),
        };
        let headers = route.headers.iter().flatten();
        let exact = headers.filter(|(_, values)| !values.iter().any(|value| value.starts_with("~*")));
        let borrowed = |values: &'a [String]| values.iter().map(|value| Cow::Borrowed(&**value)).collect();
        Keys {
            hosts: names(&route.hosts).map(NamePattern::of).collect(),
            prefixes,
            methods: names(&route.methods).map(Cow::Borrowed).collect(),
            headers: exact.map(|(name, values)| (super::header_name(name), borrowed(values))).collect(),
        }
    }
}

/// Prefixes without those that begin with another of them.
pub(super) fn without_longer(mut prefixes: Vec<Cow<'_, [u8]>>) -> Vec<Cow<'_, [u8]>> {
    prefixes.sort_unstable();
    prefixes.dedup_by(|longer, shorter| longer.starts_with(shorter));
    prefixes
}
