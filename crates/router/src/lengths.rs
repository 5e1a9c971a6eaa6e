//! Finds the longest prefix of a path among many.
use super::paths::{NONE, Node};
use super::table::Table;
use foldhash::fast::RandomState;
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;

/// Binary search over the lengths of prefixes: a table holds, beside the prefixes, the markers that lead the search to
/// longer ones (M. Waldvogel's scheme for IP routes). It begins with the length that has as many shorter prefixes as longer
/// ones, so that most are found at once.
///
/// The table gives a node for each prefix, and for each marker one that begins with it. A probe trusts the hash, so it
/// reads the table alone; only the longest start found is compared. That is enough: the table misses no prefix and no
/// marker, so none longer than the longest start found is a prefix of the path; and of a node that does begin with this
/// start, the prefixes up to its length are those of the path.
#[derive(Debug)]
pub(super) struct Lengths<S = RandomState> {
    /// The first is where a search begins.
    steps: Box<[Step]>,
    table: Table<S>,
}

/// A length to try, and the step that follows.
#[derive(Debug)]
struct Step {
    length: usize,
    /// Where the table has a start of this length.
    longer: u32,
    /// Where it has none.
    shorter: u32,
}

impl<S: BuildHasher + Default> Lengths<S> {
    /// Indexes sorted nodes.
    pub(super) fn build(nodes: &[Node]) -> Lengths<S> {
        let steps = steps(nodes);
        let mut starts: Vec<(&[u8], u32)> = (0..).zip(nodes).map(|(at, node)| (&*node.prefix, at)).collect();
        let mut known: HashSet<&[u8], RandomState> = starts.iter().map(|(start, _)| *start).collect();
        for (at, node) in (0..).zip(nodes) {
            let new = markers(&steps, &node.prefix).filter(|marker| known.insert(marker));
            starts.extend(new.map(|marker| (marker, at)));
        }
        let mut table = Table::with_capacity(starts.len());
        starts.into_iter().for_each(|(start, node)| table.insert(start, node));
        Lengths { steps: steps.into(), table }
    }

    /// The node of the longest prefix of a path.
    pub(super) fn longest(&self, path: &[u8], nodes: &[Node]) -> u32 {
        let begins = |node: u32, start: &[u8]| nodes[node as usize].prefix.starts_with(start);
        let Some((mut node, mut start)) = self.longest_start(path, |_, _| true) else { return NONE };
        if !begins(node, start) {
            // Another start has the same hash.
            match self.longest_start(path, begins) {
                Some(found) => (node, start) = found,
                None => return NONE,
            }
        }
        while nodes.get(node as usize).is_some_and(|found| found.prefix.len() > start.len()) {
            node = nodes[node as usize].parent;
        }
        node
    }

    /// The longest start of the path that the table has an accepted node for.
    fn longest_start<'p>(
        &self,
        path: &'p [u8],
        accept: impl Fn(u32, &[u8]) -> bool,
    ) -> Option<(u32, &'p [u8])> {
        let (mut step, mut longest) = (self.steps.first(), None);
        while let Some(Step { length, longer, shorter }) = step {
            let start = path.get(..*length);
            let found =
                start.and_then(|start| self.table.find(start, |node| accept(node, start)).zip(Some(start)));
            longest = found.or(longest);
            step = self.steps.get(if found.is_some() { *longer } else { *shorter } as usize);
        }
        longest
    }
}

/// A tree of the lengths of these nodes. What it balances is how many prefixes have a length, and as much again for every
/// length, so that rare lengths are not far from its root.
fn steps(nodes: &[Node]) -> Vec<Step> {
    let mut counts = BTreeMap::<usize, usize>::new();
    nodes.iter().for_each(|node| *counts.entry(node.prefix.len()).or_default() += 1);
    let average = nodes.len().div_ceil(counts.len().max(1));
    let weights: Vec<_> = counts.into_iter().map(|(length, count)| (length, count + average)).collect();
    let mut steps = Vec::new();
    add_steps(&mut steps, &weights);
    steps
}

/// Adds the steps of these lengths, and returns the first.
fn add_steps(steps: &mut Vec<Step>, weights: &[(usize, usize)]) -> u32 {
    let total: usize = weights.iter().map(|(_, weight)| weight).sum();
    let mut before = 0;
    let middle = weights.iter().position(|(_, weight)| {
        before += weight;
        before * 2 >= total
    });
    let Some(middle) = middle else { return NONE };
    let at = steps.len();
    steps.push(Step { length: weights[middle].0, longer: NONE, shorter: NONE });
    steps[at].shorter = add_steps(steps, &weights[..middle]);
    steps[at].longer = add_steps(steps, &weights[middle + 1..]);
    at as u32
}

/// The markers of a prefix: the shorter starts that a search for it must find.
fn markers<'a>(steps: &[Step], prefix: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut step = steps.first();
    std::iter::from_fn(move || {
        while let Some(Step { length, longer, shorter }) = step {
            match length.cmp(&prefix.len()) {
                Ordering::Equal => return None,
                Ordering::Greater => step = steps.get(*shorter as usize),
                Ordering::Less => {
                    step = steps.get(*longer as usize);
                    return Some(&prefix[..*length]);
                }
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::super::paths::tests::nodes;
    use super::super::table::tests::Colliding;
    use super::*;
    use proptest::collection::{btree_set, vec};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn longest<S: BuildHasher + Default>(nodes: &[Node], path: &str) -> Option<Vec<u8>> {
        let at = Lengths::<S>::build(nodes).longest(path.as_bytes(), nodes);
        nodes.get(at as usize).map(|node| node.prefix.to_vec())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        /// Whether hashes collide or not.
        #[test]
        fn the_longest_prefix_is_found(
            prefixes in btree_set("(/[ab]{0,3}){0,6}|/a{28,36}", 1..40),
            paths in vec("(/[ab]{0,4}){0,8}|/a{26,40}", 20),
        ) {
            let nodes = nodes(&prefixes);
            for path in &paths {
                let starts = prefixes.iter().filter(|prefix| path.starts_with(&***prefix));
                let expected = starts.max_by_key(|prefix| prefix.len()).map(|prefix| prefix.clone().into_bytes());
                prop_assert_eq!(longest::<RandomState>(&nodes, path), expected.clone());
                prop_assert_eq!(longest::<Colliding>(&nodes, path), expected);
            }
        }
    }

    #[test]
    fn what_most_prefixes_have_is_tried_first_and_nothing_is_far() {
        let numbered = |most: u32| -> BTreeSet<String> { (0..most).map(|n| format!("/p{n}/")).collect() };
        assert_eq!(steps(&nodes(&numbered(1000)))[0].length, 6);
        let one_each: BTreeSet<String> = (1..=31).map(|length| "/".repeat(length)).collect();
        let tree = steps(&nodes(&one_each));
        let farthest = one_each.iter().map(|prefix| markers(&tree, prefix.as_bytes()).count()).max();
        assert_eq!(farthest, Some(4));
    }
}
