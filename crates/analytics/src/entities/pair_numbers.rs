//! The numbers of pairs: a consumer and a route, whose requests are counted together.
use foldhash::HashMap;

/// The most pairs. Further ones are others. A pair takes some 30 bytes, a name several times as much.
pub(super) const MAX_PAIRS: usize = 1 << 15;

/// Separates the names of a consumer and a route in the name of their pair. No consumer's name has it.
const SEPARATOR: char = '/';

/// A consumer's and a route's number.
pub(super) type Pair = (u32, u32);

/// Pairs by number, which are dense and begin at 1.
#[derive(Debug, Default)]
pub(super) struct PairNumbers {
    ids: HashMap<Pair, u32>,
    pairs: Vec<Pair>,
}

impl PairNumbers {
    /// The number of a pair; none if there are too many.
    pub(super) fn intern(&mut self, pair: Pair) -> Option<u32> {
        if let Some(id) = self.find(pair) {
            return Some(id);
        }
        if self.pairs.len() == MAX_PAIRS {
            return None;
        }
        self.pairs.push(pair);
        let id = self.pairs.len() as u32;
        self.ids.insert(pair, id);
        Some(id)
    }

    pub(super) fn find(&self, pair: Pair) -> Option<u32> {
        self.ids.get(&pair).copied()
    }

    pub(super) fn get(&self, id: u32) -> Option<Pair> {
        self.pairs.get((id as usize).checked_sub(1)?).copied()
    }

    /// All pairs with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, Pair)> + '_ {
        (1..).zip(self.pairs.iter().copied())
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.pairs.capacity() * size_of::<Pair>() + self.ids.capacity() * (size_of::<(Pair, u32)>() + 1)
    }
}

/// The name of a pair.
pub(super) fn joined(consumer: &str, route: &str) -> String {
    format!("{consumer}{SEPARATOR}{route}")
}

/// The names that the name of a pair is made of.
pub(super) fn split(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}
