//! The second level of the index: looks up the longest path prefix, then its shorter ones.
use super::Search;
use super::candidates::Candidates;
use super::subroute::Subroute;
use foldhash::fast::RandomState;
use std::collections::HashMap;

/// Marks the absence of a node.
const NONE: u32 = u32::MAX;

/// Sets of at most this many prefixes use linear search.
const FEW: usize = 8;

/// The candidates of a set of prefixes. Routes without paths are under the empty prefix.
#[derive(Debug, Default)]
pub(super) struct PathIndex {
    nodes: Vec<Node>,
    lookup: Lookup,
}

/// One prefix.
#[derive(Debug)]
struct Node {
    candidates: Candidates,
    /// The longest prefix that this one begins with.
    parent: u32,
    /// The best rank here and among the parents.
    best: u32,
}

impl PathIndex {
    /// Passes the search the candidates under the longest prefix of its path, then those under shorter ones.
    pub(super) fn search(&self, search: &mut Search<'_>) {
        let mut at = self.lookup.longest(search.query.path.as_bytes());
        while let Some(node) = self.nodes.get(at as usize) {
            if !search.wants(node.best) {
                return;
            }
            node.candidates.offer(search);
            at = node.parent;
        }
    }
}

/// Finds the longest prefix of a path.
#[derive(Debug)]
enum Lookup {
    /// Longest first.
    Few(Box<[(Box<[u8]>, u32)]>),
    Many(Lengths),
}

impl Default for Lookup {
    fn default() -> Lookup {
        Lookup::Few(Box::default())
    }
}

impl Lookup {
    fn build(prefixes: &[&[u8]], nodes: &[Node]) -> Lookup {
        if prefixes.len() > FEW {
            return Lookup::Many(Lengths::build(prefixes, nodes));
        }
        let mut few: Vec<(Box<[u8]>, u32)> =
            prefixes.iter().zip(0..).map(|(&prefix, node)| (prefix.into(), node)).collect();
        few.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.len()));
        Lookup::Few(few.into())
    }

    fn longest(&self, path: &[u8]) -> u32 {
        match self {
            Lookup::Few(few) => {
                few.iter().find(|(prefix, _)| path.starts_with(prefix)).map_or(NONE, |few| few.1)
            }
            Lookup::Many(lengths) => lengths.longest(path),
        }
    }
}

/// Binary search over the lengths of prefixes: a table holds, beside the prefixes, the markers that lead
/// the search to longer ones, each with the longest prefix that it begins with (M. Waldvogel's scheme for
/// IP routes). The number of probes is the logarithm of the number of distinct lengths.
#[derive(Debug)]
struct Lengths {
    /// Ascending.
    lengths: Vec<usize>,
    table: HashMap<Box<[u8]>, u32, RandomState>,
}

impl Lengths {
    /// Indexes sorted prefixes, each with the node at the same position.
    fn build(prefixes: &[&[u8]], nodes: &[Node]) -> Lengths {
        let mut lengths: Vec<usize> = prefixes.iter().map(|prefix| prefix.len()).collect();
        lengths.sort_unstable();
        lengths.dedup();
        let mut table = HashMap::with_capacity_and_hasher(prefixes.len() * 2, RandomState::default());
        for (&prefix, node) in prefixes.iter().zip(0u32..) {
            table.insert(prefix.into(), node);
        }
        for (&prefix, node) in prefixes.iter().zip(0u32..) {
            for marker in markers(&lengths, prefix) {
                if !table.contains_key(marker) {
                    table.insert(marker.into(), longest_within(node, marker.len(), prefixes, nodes));
                }
            }
        }
        Lengths { lengths, table }
    }

    fn longest(&self, path: &[u8]) -> u32 {
        let (mut low, mut high, mut longest) = (0, self.lengths.len(), NONE);
        while low < high {
            let middle = low.midpoint(high);
            match path.get(..self.lengths[middle]).and_then(|start| self.table.get(start)) {
                Some(&node) => (longest, low) = (node, middle + 1),
                None => high = middle,
            }
        }
        longest
    }
}

/// The markers of a prefix: the shorter starts that a binary search for it must find.
fn markers<'a>(lengths: &[usize], prefix: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let (mut low, mut high) = (0, lengths.len());
    std::iter::from_fn(move || {
        while low < high {
            let middle = low.midpoint(high);
            match lengths[middle].cmp(&prefix.len()) {
                std::cmp::Ordering::Equal => return None,
                std::cmp::Ordering::Greater => high = middle,
                std::cmp::Ordering::Less => {
                    low = middle + 1;
                    return Some(&prefix[..lengths[middle]]);
                }
            }
        }
        None
    })
}

/// The longest prefix of at most this length that the given one begins with.
fn longest_within(mut node: u32, length: usize, prefixes: &[&[u8]], nodes: &[Node]) -> u32 {
    while prefixes.get(node as usize).is_some_and(|prefix| prefix.len() > length) {
        node = nodes[node as usize].parent;
    }
    node
}

/// Collects the candidates of one host.
#[derive(Debug, Default)]
pub(super) struct PathIndexBuilder<'a>(Vec<(&'a [u8], u32)>);

impl<'a> PathIndexBuilder<'a> {
    /// Adds a candidate whose path begins with this.
    pub(super) fn add(&mut self, rank: u32, prefix: &'a [u8]) {
        self.0.push((prefix, rank));
    }

    pub(super) fn build(mut self, subroutes: &[Subroute<'_>]) -> PathIndex {
        self.0.sort_unstable();
        self.0.dedup();
        let mut prefixes: Vec<&[u8]> = Vec::new();
        let mut nodes: Vec<Node> = Vec::new();
        for group in self.0.chunk_by(|a, b| a.0 == b.0) {
            let (prefix, best) = group[0];
            let parent = parent_of(prefix, &prefixes, &nodes);
            let best = nodes.get(parent as usize).map_or(best, |parent| parent.best.min(best));
            let ranks: Vec<u32> = group.iter().map(|&(_, rank)| rank).collect();
            nodes.push(Node { candidates: Candidates::build(ranks, subroutes), parent, best });
            prefixes.push(prefix);
        }
        let lookup = Lookup::build(&prefixes, &nodes);
        PathIndex { nodes, lookup }
    }
}

/// The longest of the prefixes so far, which are sorted, that this one begins with: it is the last of them,
/// or one of its parents.
fn parent_of(prefix: &[u8], prefixes: &[&[u8]], nodes: &[Node]) -> u32 {
    let mut node = (nodes.len() as u32).checked_sub(1).unwrap_or(NONE);
    while prefixes.get(node as usize).is_some_and(|parent| !prefix.starts_with(parent)) {
        node = nodes[node as usize].parent;
    }
    node
}
