//! Smooth weighted round-robin: the order of the targets, and each worker's position in it.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// The maximum length of the order; larger weights are scaled down to fit.
const MAX_ORDER_LEN: u64 = 4096;

/// The order of an upstream's targets of one priority.
pub(super) struct SmoothWeightedRoundRobin {
    /// Indices of targets, each as often as its weight says, spread evenly.
    order: Vec<u32>,
}

/// Each worker's position. Retained by upstream; only its own worker writes a position.
pub struct Cursors(Vec<Cursor>);

#[repr(align(64))]
#[derive(Default)]
struct Cursor(AtomicU32);

impl Cursors {
    /// One position for each worker.
    pub fn new(workers: usize) -> Self {
        // Workers start apart, so that a few requests on each still spread over all targets.
        let apart = |worker| Cursor(AtomicU32::new((worker as u32).wrapping_mul(0x9E37_79B9) >> 8));
        Self((0..workers).map(apart).collect())
    }

    /// The worker's position, which moves on by one.
    pub(super) fn next(&self, worker: usize) -> usize {
        let cursor = &self.0[worker % self.0.len()].0;
        let at = cursor.load(Ordering::Relaxed);
        cursor.store(at.wrapping_add(1), Ordering::Relaxed);
        at as usize
    }
}

impl SmoothWeightedRoundRobin {
    /// The order of the targets in a range of those with these weights.
    pub(super) fn new(weights: &[u16], range: Range<usize>) -> Self {
        let first = range.start as u32;
        Self { order: order(&weights[range]).into_iter().map(|index| first + index).collect() }
    }

    /// The target at a position; `None` if no target has a weight.
    pub(super) fn at(&self, position: usize) -> Option<usize> {
        let place = position.checked_rem(self.order.len())?;
        Some(self.order[place] as usize)
    }

    /// All turns.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        self.order.iter().map(|index| *index as usize)
    }
}

/// Targets of one weight, which take the turns of their weight one after the other.
#[derive(Default)]
struct Equals {
    targets: Vec<u32>,
    taken: usize,
}

impl Equals {
    /// The next target, and how many turns it has taken.
    fn next(&self) -> (u32, usize) {
        (self.targets[self.taken % self.targets.len()], self.taken / self.targets.len())
    }
}

/// Spreads each target over the order as evenly as its weight allows (smooth weighted round-robin): the target that is
/// furthest behind takes the next turn. Groups targets by weight, because there are few different weights.
fn order(weights: &[u16]) -> Vec<u32> {
    let mut equals: BTreeMap<i64, Equals> = BTreeMap::new();
    let mut sum = 0;
    for (index, weight) in scaled(weights).enumerate().filter(|(_, weight)| *weight > 0) {
        equals.entry(weight).or_default().targets.push(index as u32);
        sum += weight;
    }
    let take = |turn: i64| {
        let behind = |(weight, equals): &(&i64, &mut Equals)| {
            let (target, turns) = equals.next();
            (turn * **weight - turns as i64 * sum, Reverse(target))
        };
        let (_, next) = equals.iter_mut().max_by_key(behind)?;
        let (target, _) = next.next();
        next.taken += 1;
        Some(target)
    };
    (1..=sum).map_while(take).collect()
}

/// As small as their ratios allow, and together not much beyond the longest order.
fn scaled(weights: &[u16]) -> impl Iterator<Item = i64> {
    let divisor = weights.iter().fold(0, |a, &b| gcd(a, u64::from(b))).max(1);
    let total: u64 = weights.iter().map(|&w| u64::from(w) / divisor).sum();
    weights.iter().map(move |&w| {
        let w = u64::from(w) / divisor;
        if total > MAX_ORDER_LEN && w > 0 { (w * MAX_ORDER_LEN / total).max(1) as i64 } else { w as i64 }
    })
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn turns_follow_weights_and_spread() {
        assert_eq!(order(&[100, 100]), [0, 1]);
        assert_eq!(order(&[3, 1]), [0, 0, 1, 0]);
        assert_eq!(order(&[0, 7]), [1]);
        assert_eq!(order(&[0, 0]), [0u32; 0]);
        assert_eq!(order(&[5, 1, 1]), [0, 0, 1, 0, 2, 0, 0]);
        let long = order(&[65535, 65534, 1]);
        assert!(long.len() <= MAX_ORDER_LEN as usize + 3);
        assert_eq!(long.iter().filter(|&&t| t == 2).count(), 1);
    }

    #[test]
    fn every_one_of_many_targets_has_its_turn() {
        let mut weights = vec![100; 70_000];
        assert!(order(&weights).into_iter().eq(0..70_000));
        weights[0] = 50_000;
        weights[69_999] = 0;
        let mut turns = order(&weights);
        turns.sort_unstable();
        turns.dedup();
        assert!(turns.into_iter().eq(0..69_999));
    }

    /// The algorithm as nginx describes it, one step for each target and turn.
    fn step_by_step(weights: &[u16]) -> Vec<u32> {
        let weights: Vec<i64> = scaled(weights).collect();
        let sum: i64 = weights.iter().sum();
        let mut current = vec![0; weights.len()];
        let turn = |_| {
            current.iter_mut().zip(&weights).for_each(|(current, weight)| *current += weight);
            let best = (0..current.len()).max_by_key(|&i| (current[i], Reverse(i))).unwrap_or(0);
            current[best] -= sum;
            best as u32
        };
        (0..sum).map(turn).collect()
    }

    proptest! {
        #[test]
        fn turns_are_those_of_smooth_weighted_round_robin(
            weights in prop::collection::vec(prop_oneof![0u16..4, 0u16..200, any::<u16>()], 0..20),
        ) {
            prop_assert_eq!(order(&weights), step_by_step(&weights));
        }
    }
}
