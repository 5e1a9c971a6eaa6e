//! Consistent hashing: requests with the same hash go to the same target, on every node; when a target is added or
//! removed, only its own share moves.
//!
//! A ring has a number of slots, and each slot belongs to the target with the highest score for it (weighted rendezvous
//! hashing), so removing a target does not reorder the others. A target of a higher priority scores above all of a lower one.

use siphasher::sip::SipHasher13;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use uuid::Uuid;
use weir_model::entity::Upstream;

/// The rings in use, by upstream. Services of one upstream share its ring, and so do snapshots.
#[derive(Default)]
pub struct Rings(Mutex<HashMap<Uuid, (u32, Weak<Ring>)>>);

impl Rings {
    /// The ring of these targets, whose names are to be distinct.
    pub(super) fn get(&self, upstream: &Upstream, targets: impl Iterator<Item = Seed>) -> Arc<Ring> {
        let targets: Box<[Seed]> = targets.collect();
        let mut rings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = rings.get(&upstream.id).filter(|(slots, _)| *slots == upstream.slots);
        let known = known.and_then(|(_, ring)| ring.upgrade());
        if let Some(same) = known.filter(|ring| ring.targets == targets) {
            return same;
        }
        let ring = Arc::new(Ring::new(targets, upstream.slots));
        rings.retain(|_, (_, ring)| ring.strong_count() > 0);
        rings.insert(upstream.id, (upstream.slots, Arc::downgrade(&ring)));
        ring
    }
}

/// Maps each hash to a target.
pub(super) struct Ring {
    /// The target of each slot.
    slots: Box<[u32]>,
    targets: Box<[Seed]>,
}

/// The inputs of a target's scores.
#[derive(PartialEq)]
pub(super) struct Seed {
    hash: u64,
    weight: u16,
    priority: i32,
}

impl Ring {
    fn new(targets: Box<[Seed]>, slots: u32) -> Ring {
        let mut ring = Ring { slots: Box::default(), targets };
        ring.slots =
            (0..u64::from(slots)).filter_map(|slot| Some(ring.best(slot, |_| true)? as u32)).collect();
        ring
    }

    /// The target of a hash among those that are open.
    pub(super) fn find(&self, hash: u64, is_open: impl Fn(usize) -> bool) -> Option<usize> {
        // Without a weight there is no slot.
        let slot = hash.checked_rem(self.slots.len() as u64)?;
        let first = self.slots[slot as usize] as usize;
        if is_open(first) { Some(first) } else { self.best(slot, is_open) }
    }

    fn best(&self, slot: u64, is_open: impl Fn(usize) -> bool) -> Option<usize> {
        let open = (0..self.targets.len()).filter(|&index| self.targets[index].weight > 0 && is_open(index));
        open.map(|index| (index, self.targets[index].score(slot)))
            .max_by(|(_, a), (_, b)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)))
            .map(|(index, _)| index)
    }
}

impl Seed {
    /// The seed of a target of this name.
    pub(super) fn new(name: &str, weight: u16, priority: i32) -> Seed {
        Seed { hash: hash(name.as_bytes()), weight, priority }
    }

    /// Among targets of one priority, highest with a probability in proportion to the weight.
    fn score(&self, slot: u64) -> (i32, f64) {
        let random = mix(self.hash ^ mix(slot));
        // In (0, 1).
        let random = ((random >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
        (self.priority, random.ln() / f64::from(self.weight))
    }
}

/// The same on every node and in every version.
pub(super) fn hash(bytes: &[u8]) -> u64 {
    SipHasher13::new().hash(bytes)
}

/// The finalizer of SplitMix64.
fn mix(number: u64) -> u64 {
    let mixed = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn ring(targets: &[(String, u16)]) -> Ring {
        let seed = |(name, weight): &(String, u16)| Seed::new(name, *weight, 0);
        Ring::new(targets.iter().map(seed).collect(), 1_000)
    }

    fn targets() -> impl Strategy<Value = Vec<(String, u16)>> {
        vec(0u16..300, 2..12).prop_map(|weights| {
            weights.into_iter().enumerate().map(|(i, weight)| (format!("10.0.0.{i}:80"), weight)).collect()
        })
    }

    #[test]
    fn slots_lead_to_any_of_many_targets() {
        let targets: Vec<_> = (0..70_000).map(|i| (format!("target-{i}:80"), 1)).collect();
        let seed = |(name, weight): &(String, u16)| Seed::new(name, *weight, 0);
        let ring = Ring::new(targets.iter().map(seed).collect(), 40);
        let found: Vec<_> = (0..40).map(|slot| ring.find(slot, |_| true)).collect();
        assert!(
            found.iter().flatten().any(|index| *index > usize::from(u16::MAX)),
            "one of 40 is among the last"
        );
        assert!((0..40).all(|slot| found[slot as usize] == ring.best(slot, |_| true)));
    }

    proptest! {
        #[test]
        fn a_target_that_leaves_moves_its_own_share_alone(targets in targets(), gone in any::<prop::sample::Index>()) {
            let gone = gone.index(targets.len());
            let whole = ring(&targets);
            let mut left = targets;
            left.remove(gone);
            let smaller = ring(&left);
            for hash in 0..1_000 {
                let before = whole.find(hash, |_| true);
                let without = smaller.find(hash, |_| true).map(|index| index + usize::from(index >= gone));
                if before != Some(gone) {
                    prop_assert_eq!(before, without);
                }
                // One that is only closed moves as one that is gone.
                prop_assert_eq!(whole.find(hash, |index| index != gone), without);
            }
        }

        #[test]
        fn shares_follow_weights(targets in targets()) {
            let total: f64 = targets.iter().map(|(_, weight)| f64::from(*weight)).sum();
            let ring = ring(&targets);
            for (index, (_, weight)) in targets.iter().enumerate() {
                let share = ring.slots.iter().filter(|slot| **slot as usize == index).count() as f64 / 1_000.0;
                let expected = if total > 0.0 { f64::from(*weight) / total } else { 0.0 };
                prop_assert!((share - expected).abs() < 0.1, "{} rather than {}", share, expected);
                prop_assert!(*weight > 0 || share == 0.0);
            }
        }
    }

    #[test]
    fn a_lower_priority_takes_what_no_higher_one_can() {
        let seed = |index: i32| Seed::new(&format!("10.0.0.{index}:80"), 1, index / 2);
        let whole = Ring::new((0..4).map(seed).collect(), 1_000);
        let higher = Ring::new((2..4).map(seed).collect(), 1_000);
        let lower = Ring::new((0..2).map(seed).collect(), 1_000);
        for hash in 0..1_000 {
            assert_eq!(whole.find(hash, |_| true), higher.find(hash, |_| true).map(|index| index + 2));
            assert_eq!(whole.find(hash, |index| index != 2), Some(3));
            assert_eq!(whole.find(hash, |index| index < 2), lower.find(hash, |_| true));
        }
    }

    #[test]
    fn where_a_hash_leads_is_for_ever() {
        assert_eq!(hash(b"a key"), 18_086_685_653_477_639_229);
    }
}
