//! Where connections live: a table whose tokens stay invalid when their slot is given to another.

/// Names an entry of a [`Slots`]: its kind, its generation and its index, as epoll carries them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

const GENERATIONS: u32 = 1 << 24;

impl Token {
    pub(super) const fn new(kind: u8, generation: u32, index: u32) -> Self {
        Self((kind as u64) << 56 | (generation as u64) << 32 | index as u64)
    }

    /// The kind that its table was made with.
    pub fn kind(self) -> u8 {
        (self.0 >> 56) as u8
    }

    pub(super) fn index(self) -> u32 {
        self.0 as u32
    }

    fn generation(self) -> u32 {
        (self.0 >> 32) as u32 % GENERATIONS
    }

    /// The same entry, seen as another kind.
    #[must_use]
    pub fn with_kind(self, kind: u8) -> Self {
        Self::new(kind, self.generation(), self.index())
    }
}

impl From<Token> for u64 {
    fn from(token: Token) -> u64 {
        token.0
    }
}

impl From<u64> for Token {
    fn from(bits: u64) -> Self {
        Self(bits)
    }
}

/// A table of connections of one kind.
pub struct Slots<T> {
    kind: u8,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Slots<T> {
    /// An empty table. Kind 0 is the event loop's own.
    pub fn new(kind: u8) -> Self {
        Self { kind, entries: Vec::new(), free: Vec::new() }
    }

    /// Puts a value in.
    pub fn insert(&mut self, value: T) -> Token {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            (self.entries.len() - 1) as u32
        });
        let entry = &mut self.entries[index as usize];
        entry.value = Some(value);
        Token::new(self.kind, entry.generation, index)
    }

    /// The value, unless it was removed.
    #[inline]
    pub fn get_mut(&mut self, token: Token) -> Option<&mut T> {
        let entry = self.entries.get_mut(token.index() as usize)?;
        if entry.generation == token.generation() { entry.value.as_mut() } else { None }
    }

    /// Takes the value out; its token is never valid again, but for one in 2²⁴ reuses.
    pub fn remove(&mut self, token: Token) -> Option<T> {
        let entry = self.entries.get_mut(token.index() as usize)?;
        if entry.generation != token.generation() {
            return None;
        }
        let value = entry.value.take()?;
        entry.generation = (entry.generation + 1) % GENERATIONS;
        self.free.push(token.index());
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_a_removed_value_finds_nothing_in_the_reused_slot() {
        let mut slots = Slots::new(3);
        let first = slots.insert("first");
        assert_eq!(first.kind(), 3);
        assert_eq!(slots.remove(first), Some("first"));
        let second = slots.insert("second");
        assert_eq!(second.index(), first.index());
        assert_eq!(slots.get_mut(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!(slots.get_mut(Token::from(u64::from(second))), Some(&mut "second"));
        assert_eq!(second.with_kind(9).kind(), 9);
    }
}
