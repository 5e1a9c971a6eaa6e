//! What the index of routes looks up of an expression: values of which every request that it matches has one.
use super::check::{Check, TextCheck};
use super::field::Field;
use super::port::PortCheck;
use super::{Node, Test};
use crate::hosts::NamePattern;
use crate::keys::{Keys, without_longer};
use crate::methods::Methods;
use crate::summary::PathEnd;
use std::borrow::Cow;
use std::collections::BTreeSet;

/// More alternatives than these would bloat the index. The expression is evaluated for every request instead.
const MAX_ALTERNATIVES: usize = 256;

/// By what the index finds an expression, and what is checked without evaluating it.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) keys: Keys<'static>,
    pub(crate) methods: Methods,
    /// The length of the path's prefix, and what may follow it.
    pub(crate) path: (u32, PathEnd),
    /// What is checked beside the index, before the rest.
    pub(crate) port: Option<PortCheck>,
}

/// What the index looks up, the conjuncts of which that leaves nothing to evaluate, and the others.
pub(super) fn split(root: Node) -> (Indexed, [Vec<Node>; 2]) {
    let mut conjuncts = Vec::new();
    add_conjuncts(&mut conjuncts, root);
    let hosts = of_best(&conjuncts, &host, fewest);
    let methods = of_best(&conjuncts, &|test| exact(test, &Field::Method), fewest);
    let checked_host = hosts.as_ref().map(|(at, _)| *at).filter(|at| is_checked_host(&conjuncts[*at]));
    let checked_methods =
        methods.as_ref().and_then(|(at, names)| Some((*at, only_methods(&conjuncts[*at], names)?)));
    let checked_path = only_path(&conjuncts);
    let port = conjuncts.iter().enumerate().find_map(|(at, node)| Some((at, PortCheck::of(node)?)));
    let indexed = Indexed {
        methods: checked_methods.map_or(Methods::ANY, |(_, methods)| methods),
        path: checked_path.map_or((1, PathEnd::Open), |(_, path)| path),
        port: port.map(|(_, port)| port),
        keys: Keys {
            hosts: hosts.map(|(_, hosts)| hosts).unwrap_or_default(),
            prefixes: of_best(&conjuncts, &prefixes, longest_of_all)
                .map_or_else(|| vec![Cow::default()], |(_, prefixes)| without_longer(prefixes)),
            methods: methods.map(|(_, methods)| methods).unwrap_or_default(),
            headers: headers(&conjuncts),
        },
    };
    let checked = [
        checked_host,
        checked_methods.map(|(at, _)| at),
        checked_path.map(|(at, _)| at),
        port.map(|(at, _)| at),
    ];
    (indexed, apart(conjuncts, &checked))
}

fn add_conjuncts(conjuncts: &mut Vec<Node>, node: Node) {
    match node {
        Node::All(nodes) => nodes.into_iter().for_each(|node| add_conjuncts(conjuncts, node)),
        other => conjuncts.push(other),
    }
}

/// The conjuncts at these positions, and the others: those first that are quick to evaluate.
fn apart(conjuncts: Vec<Node>, checked: &[Option<usize>]) -> [Vec<Node>; 2] {
    let (mut indexed, mut rest) = (Vec::new(), Vec::new());
    for (at, node) in conjuncts.into_iter().enumerate() {
        if checked.contains(&Some(at)) { &mut indexed } else { &mut rest }.push(node);
    }
    rest.sort_by_key(|node| !is_quick(node));
    [indexed, rest]
}

/// Whether evaluating it takes little, and leaves nothing beside its outcome.
fn is_quick(node: &Node) -> bool {
    match node {
        Node::Test(Test { check: Check::Integer(..) | Check::Address(..), field, .. }) => {
            *field != Field::SegmentCount
        }
        Node::Test(test) => test.field == Field::Method && !test.records(),
        Node::Not(inner) => is_quick(inner),
        Node::All(nodes) | Node::Any(nodes) => nodes.iter().all(is_quick),
    }
}

/// The conjunct that gives the values that are worth the most, and these.
fn of_best<T>(
    conjuncts: &[Node],
    of: &impl Fn(&Test) -> Option<Vec<T>>,
    worth: fn(&[T]) -> usize,
) -> Option<(usize, Vec<T>)> {
    let each = conjuncts.iter().enumerate();
    let each = each.filter_map(|(at, node)| Some((at, alternatives(node, of, worth)?)));
    each.max_by_key(|(_, values)| worth(values))
}

/// The tests of a node that holds when one of them does.
fn any_of(node: &Node) -> Option<Vec<&Test>> {
    match node {
        Node::Test(test) => Some(vec![test]),
        Node::Any(nodes) => nodes.iter().map(as_test).collect(),
        _ => None,
    }
}

fn as_test(node: &Node) -> Option<&Test> {
    match node {
        Node::Test(test) => Some(test),
        _ => None,
    }
}

/// Whether the index finds the hosts that this node asks for and no others.
fn is_checked_host(node: &Node) -> bool {
    let is_checked = |test: &&Test| {
        let patterns = host(test).filter(|_| !test.lower).unwrap_or_default();
        patterns.iter().any(|pattern| *pattern != NamePattern::Exact("".into()) && pattern.is_label_wise())
    };
    any_of(node).is_some_and(|tests| tests.iter().all(is_checked))
}

/// The methods that this node asks for, if each of these names has a bit and it asks for nothing else.
fn only_methods(node: &Node, names: &[Cow<'static, str>]) -> Option<Methods> {
    any_of(node).and_then(|_| Methods::of(names))
}

/// The only conjunct about the path, if a prefix and what may follow it say all of it.
fn only_path(conjuncts: &[Node]) -> Option<(usize, (u32, PathEnd))> {
    let mut about_path = conjuncts.iter().enumerate().filter(|(_, node)| mentions_path(node));
    let (at, node) = about_path.next().filter(|_| about_path.next().is_none())?;
    Some((at, prefix_and_end(&any_of(node)?)?))
}

fn mentions_path(node: &Node) -> bool {
    match node {
        Node::Test(test) => test.field == Field::Path,
        Node::Not(inner) => mentions_path(inner),
        Node::All(nodes) | Node::Any(nodes) => nodes.iter().any(mentions_path),
    }
}

fn prefix_and_end(tests: &[&Test]) -> Option<(u32, PathEnd)> {
    let checks: Vec<&TextCheck> = tests.iter().map(|test| path_check(test)).collect::<Option<_>>()?;
    match *checks {
        [TextCheck::Prefix(text)] => Some((text.len() as u32, PathEnd::Open)),
        [TextCheck::Equals(text)] => Some((text.len() as u32, PathEnd::Whole)),
        [TextCheck::Equals(text), TextCheck::Prefix(start)]
        | [TextCheck::Prefix(start), TextCheck::Equals(text)] => {
            (start.strip_suffix('/') == Some(text)).then_some((text.len() as u32, PathEnd::Segment))
        }
        _ => None,
    }
}

/// How a test checks the path as it is.
fn path_check(test: &Test) -> Option<&TextCheck> {
    match &test.check {
        Check::Text(check) if test.field == Field::Path && !test.lower => Some(check),
        _ => None,
    }
}

/// The headers that the conjuncts ask for by value.
fn headers(conjuncts: &[Node]) -> Vec<(String, Vec<Cow<'static, str>>)> {
    let mut names = BTreeSet::new();
    conjuncts.iter().for_each(|node| header_names(node, &mut names));
    let header = |name: &&str| {
        let (_, values) = of_best(conjuncts, &|test| exact(test, &Field::Header((*name).into())), fewest)?;
        Some(((*name).to_owned(), values))
    };
    names.iter().filter_map(header).collect()
}

/// Values of which every match has one. Of several conjuncts the one that is worth the most gives them.
fn alternatives<T>(
    node: &Node,
    of: &impl Fn(&Test) -> Option<Vec<T>>,
    worth: fn(&[T]) -> usize,
) -> Option<Vec<T>> {
    match node {
        Node::Test(test) => of(test),
        Node::Not(_) => None,
        Node::All(nodes) => {
            let each = nodes.iter().filter_map(|node| alternatives(node, of, worth));
            each.max_by_key(|values| worth(values))
        }
        Node::Any(nodes) => {
            let mut all = Vec::new();
            for node in nodes {
                all.extend(alternatives(node, of, worth)?);
                if all.len() > MAX_ALTERNATIVES {
                    return None;
                }
            }
            Some(all)
        }
    }
}

fn longest_of_all(prefixes: &[Cow<'static, [u8]>]) -> usize {
    prefixes.iter().map(|prefix| prefix.len()).min().unwrap_or(usize::MAX)
}

fn fewest<T>(values: &[T]) -> usize {
    usize::MAX - values.len()
}

/// The prefixes of the path that a test asks for.
fn prefixes(test: &Test) -> Option<Vec<Cow<'static, [u8]>>> {
    match path_check(test)? {
        TextCheck::Equals(text) | TextCheck::Prefix(text) => Some(vec![Cow::Owned(text.as_bytes().to_vec())]),
        TextCheck::Regex(regex) => {
            Some(regex.literals.iter().map(|literal| Cow::Owned(literal.to_vec())).collect())
        }
        _ => None,
    }
}

/// The host that a test asks for. It is in lower case already.
fn host(test: &Test) -> Option<Vec<NamePattern>> {
    let Check::Text(check) = &test.check else { return None };
    if test.field != Field::Host {
        return None;
    }
    let pattern = match check {
        TextCheck::Equals(name) => NamePattern::Exact(name.clone()),
        TextCheck::Prefix(start) => NamePattern::Prefix(start.clone()),
        TextCheck::Suffix(end) => NamePattern::Suffix(end.clone()),
        _ => return None,
    };
    Some(vec![pattern])
}

/// The value of a field that a test asks for.
fn exact(test: &Test, field: &Field) -> Option<Vec<Cow<'static, str>>> {
    match &test.check {
        Check::Text(TextCheck::Equals(text)) if test.field == *field && !test.lower => {
            Some(vec![Cow::Owned(text.to_string())])
        }
        _ => None,
    }
}

fn header_names<'n>(node: &'n Node, names: &mut BTreeSet<&'n str>) {
    match node {
        Node::Test(Test { field: Field::Header(name), .. }) => drop(names.insert(name)),
        Node::Test(_) | Node::Not(_) => {}
        Node::All(nodes) | Node::Any(nodes) => nodes.iter().for_each(|node| header_names(node, names)),
    }
}
