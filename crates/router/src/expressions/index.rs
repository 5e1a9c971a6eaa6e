//! What the index of routes looks up of an expression: values of which every request that it matches has one.
use super::check::{Check, TextCheck};
use super::field::Field;
use super::{Node, Test};
use crate::hosts::NamePattern;
use crate::keys::{Keys, without_longer};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// More alternatives than these would bloat the index. The expression is evaluated for every request instead.
const MAX_ALTERNATIVES: usize = 256;

/// The values by which the index finds an expression.
pub(super) fn keys(node: &Node) -> Keys<'static> {
    let prefixes = alternatives(node, &prefixes, longest_of_all);
    let mut names = BTreeSet::new();
    header_names(node, &mut names);
    let header = |name: &&str| {
        let values = alternatives(node, &|test| exact(test, &Field::Header((*name).into())), fewest)?;
        Some(((*name).to_owned(), values))
    };
    Keys {
        hosts: alternatives(node, &host, fewest).unwrap_or_default(),
        prefixes: prefixes.map_or_else(|| vec![Cow::default()], without_longer),
        methods: alternatives(node, &|test| exact(test, &Field::Method), fewest).unwrap_or_default(),
        headers: names.iter().filter_map(header).collect(),
    }
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
    let Check::Text(check) = &test.check else { return None };
    if test.field != Field::Path || test.lower {
        return None;
    }
    match check {
        TextCheck::Equals(text) | TextCheck::Prefix(text) => Some(vec![Cow::Owned(text.as_bytes().to_vec())]),
        TextCheck::Regex(_, literals) => {
            Some(literals.iter().map(|literal| Cow::Owned(literal.to_vec())).collect())
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
