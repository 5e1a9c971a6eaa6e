//! Of which time anything is known, so that a chart shows no requests and no knowledge as different things.
//!
//! A node knows the time in which it has counted; a control plane the time of which a data plane has handed in everything.
use crate::varint::{self, DecodeError, Reader};

/// The most periods. If there are more, the two oldest become one.
const MAX_PERIODS: usize = 4_096;

/// Periods that are known, in seconds since 1970.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Known {
    /// Their first seconds and the seconds after them. They are sorted, and neither overlap nor touch.
    periods: Vec<(u64, u64)>,
}

impl Known {
    /// Adds the time from a second until another.
    pub(crate) fn add(&mut self, from: u64, until: u64) {
        if from >= until {
            return;
        }
        let first = self.periods.partition_point(|(_, end)| *end < from);
        let after = self.periods.partition_point(|(start, _)| *start <= until);
        let joined = self.periods[first..after].iter().copied();
        let period = joined.fold((from, until), |sum, it| (sum.0.min(it.0), sum.1.max(it.1)));
        self.periods.splice(first..after, [period]);
        if self.periods.len() > MAX_PERIODS {
            let (start, _) = self.periods.remove(0);
            self.periods[0].0 = start;
        }
    }

    /// Adds all periods of another.
    pub(crate) fn merge(&mut self, other: &Known) {
        other.periods.iter().for_each(|(from, until)| self.add(*from, *until));
    }

    /// Whether something is known of the time from a second until another.
    pub fn overlaps(&self, from: u64, until: u64) -> bool {
        let place = self.periods.partition_point(|(_, end)| *end <= from);
        self.periods.get(place).is_some_and(|(start, _)| *start < until)
    }

    pub(crate) fn encode(&self, bytes: &mut Vec<u8>) {
        self.periods
            .iter()
            .flat_map(|(from, until)| [*from, *until])
            .for_each(|time| varint::put(bytes, time));
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Known, DecodeError> {
        let (mut reader, mut known) = (Reader::new(bytes), Known::default());
        while !reader.is_empty() {
            known.add(reader.number()?, reader.number()?);
        }
        Ok(known)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn known(periods: &[(u64, u64)]) -> Known {
        let mut known = Known::default();
        periods.iter().for_each(|(from, until)| known.add(*from, *until));
        known
    }

    #[test]
    fn periods_that_touch_become_one() {
        assert_eq!(known(&[(30, 40), (10, 20), (20, 30), (5, 5)]).periods, [(10, 40)]);
        assert_eq!(known(&[(30, 40), (10, 20)]).periods, [(10, 20), (30, 40)]);
    }

    #[test]
    fn periods_are_bounded() {
        let many: Vec<_> = (0..2 * MAX_PERIODS as u64).map(|n| (10 * n, 10 * n + 5)).collect();
        let known = known(&many);
        assert_eq!((known.periods.len(), known.overlaps(6, 7)), (MAX_PERIODS, true));
        assert!(!known.overlaps(many[many.len() - 2].1, many[many.len() - 1].0), "the newest gap stays");
    }

    proptest! {
        #[test]
        fn every_second_of_a_period_is_known_and_no_other(
            periods in prop::collection::vec((0..60u64, 0..20u64), 0..8),
        ) {
            let periods: Vec<_> = periods.into_iter().map(|(from, length)| (from, from + length)).collect();
            let known = known(&periods);
            let mut bytes = Vec::new();
            known.encode(&mut bytes);
            prop_assert_eq!(Known::decode(&bytes), Ok(known.clone()));
            for second in 0..90 {
                let is_in = periods.iter().any(|(from, until)| (*from..*until).contains(&second));
                prop_assert_eq!(known.overlaps(second, second + 1), is_in, "second {}", second);
            }
        }
    }
}
