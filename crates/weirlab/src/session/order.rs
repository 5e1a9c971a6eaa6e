//! The order of blocks: shuffled, and mirrored round by round, so that whatever drifts meets every target alike.
use fastrand::Rng;

/// A block's place: which cell, in which round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockPosition {
    /// Blocks of one round are compared with each other.
    pub round: u32,
    /// The case's index.
    pub case: usize,
    /// The target's index among those of the case.
    pub target: usize,
}

/// The places of one pair of rounds, `first` and the one after: cases in random order, each case's targets side by side
/// in random order, then everything backwards (A B C C B A). `targets` holds how many targets each case has.
pub fn order(targets: &[usize], first: u32, random: &mut Rng) -> Vec<BlockPosition> {
    let mut cases: Vec<usize> = (0..targets.len()).collect();
    random.shuffle(&mut cases);
    let mut places = Vec::new();
    for case in cases {
        let mut column: Vec<usize> = (0..targets[case]).collect();
        random.shuffle(&mut column);
        places.extend(column.into_iter().map(|target| BlockPosition { round: first, case, target }));
    }
    let back: Vec<BlockPosition> =
        places.iter().rev().map(|place| BlockPosition { round: first + 1, ..*place }).collect();
    places.extend(back);
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_of_rounds_is_its_own_mirror_image_and_complete() {
        let places = order(&[3, 1, 2], 4, &mut Rng::with_seed(7));
        assert_eq!(places.len(), 12);
        for (there, back) in places.iter().zip(places.iter().rev()) {
            assert_eq!((there.case, there.target), (back.case, back.target));
            assert_ne!(there.round, back.round);
        }
        for (case, targets) in [3, 1, 2].into_iter().enumerate() {
            for target in 0..targets {
                for round in [4, 5] {
                    assert_eq!(
                        places
                            .iter()
                            .filter(|place| **place == BlockPosition { round, case, target })
                            .count(),
                        1
                    );
                }
            }
        }
    }

    #[test]
    fn a_case_s_targets_stand_side_by_side() {
        let places = order(&[3, 3], 0, &mut Rng::with_seed(1));
        let cases: Vec<usize> = places[..6].iter().map(|place| place.case).collect();
        assert!(cases == [0, 0, 0, 1, 1, 1] || cases == [1, 1, 1, 0, 0, 0], "{cases:?}");
    }

    #[test]
    fn another_seed_is_another_order() {
        let draw = |seed| order(&[6, 6, 6], 0, &mut Rng::with_seed(seed));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }
}
