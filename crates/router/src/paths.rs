//! The second level of the index: looks up the longest path prefix, then its shorter ones.
use super::Search;
use super::candidates::Candidates;
use super::entry::Entry;
use super::keys::Keys;
use super::lengths::Lengths;
use super::text::Text;
use std::borrow::Cow;

/// Marks the absence of a node.
pub(super) const NONE: u32 = u32::MAX;

/// Sets of at most this many prefixes use linear search.
const FEW: usize = 8;

/// The candidates of a set of prefixes. Routes without paths are under the empty prefix.
#[derive(Debug, Default)]
pub(super) struct PathIndex {
    /// Sorted by prefix.
    nodes: Box<[Node]>,
    /// Of many prefixes alone.
    lengths: Option<Box<Lengths>>,
}

/// One prefix: what most look-ups need of it fills a cache line.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Node {
    pub(super) prefix: Text,
    candidates: Candidates,
    /// The longest prefix that this one begins with.
    pub(super) parent: u32,
    /// The best rank here and among the parents.
    best: u32,
}

const _: () = assert!(size_of::<Node>() == 64);

impl PathIndex {
    /// Passes the search the candidates under the longest prefix of its path, then those under shorter ones.
    pub(super) fn search(&self, search: &mut Search<'_>) {
        let mut at = self.longest(search.request.query.path.as_bytes());
        while let Some(node) = self.nodes.get(at as usize) {
            if !search.wants(node.best) {
                return;
            }
            node.candidates.offer(search);
            at = node.parent;
        }
    }

    fn longest(&self, path: &[u8]) -> u32 {
        match &self.lengths {
            Some(lengths) => lengths.longest(path, &self.nodes),
            // A prefix is sorted before those that begin with it.
            None => {
                let longest = self.nodes.iter().rposition(|node| path.starts_with(&node.prefix));
                longest.map_or(NONE, |node| node as u32)
            }
        }
    }
}

/// Collects the candidates of one host.
#[derive(Debug, Default)]
pub(super) struct PathIndexBuilder<'a>(Vec<(&'a [u8], u32)>);

impl<'a> PathIndexBuilder<'a> {
    /// Adds a candidate whose path begins with one of these.
    pub(super) fn add_all(&mut self, rank: u32, prefixes: &'a [Cow<'_, [u8]>]) {
        self.0.extend(prefixes.iter().map(|prefix| (&**prefix, rank)));
    }

    pub(super) fn build(mut self, keys: &[Keys<'_>], entries: &[Entry]) -> PathIndex {
        self.0.sort_unstable();
        self.0.dedup();
        let mut nodes: Vec<Node> = Vec::new();
        for group in self.0.chunk_by(|a, b| a.0 == b.0) {
            let (prefix, best) = group[0];
            let parent = parent_of(prefix, &nodes);
            let best = nodes.get(parent as usize).map_or(best, |parent| parent.best.min(best));
            let ranks: Vec<u32> = group.iter().map(|&(_, rank)| rank).collect();
            let candidates = Candidates::build(ranks, keys, entries);
            nodes.push(Node { prefix: Text::new(prefix), candidates, parent, best });
        }
        let lengths = (nodes.len() > FEW).then(|| Box::new(Lengths::build(&nodes)));
        PathIndex { nodes: nodes.into(), lengths }
    }
}

/// The longest of the prefixes so far, which are sorted, that this one begins with: it is the last of them,
/// or one of its parents.
fn parent_of(prefix: &[u8], nodes: &[Node]) -> u32 {
    let mut at = (nodes.len() as u32).checked_sub(1).unwrap_or(NONE);
    while nodes.get(at as usize).is_some_and(|parent| !prefix.starts_with(&parent.prefix)) {
        at = nodes[at as usize].parent;
    }
    at
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Nodes of these prefixes, without candidates.
    pub(crate) fn nodes(prefixes: &std::collections::BTreeSet<String>) -> Vec<Node> {
        let mut nodes = Vec::new();
        for prefix in prefixes {
            let (parent, candidates) = (parent_of(prefix.as_bytes(), &nodes), Candidates::default());
            nodes.push(Node { prefix: Text::new(prefix.as_bytes()), candidates, parent, best: 0 });
        }
        nodes
    }
}
