//! The bytes that give a head its structure, found sixteen at a time.
//!
//! Nearly every head is plain: complete in the first read, at most 1,024 bytes of visible ASCII, its lines
//! ended by CRLF. Of such a head one pass finds the line ends and the colons. Every other head, also a malformed one, has
//! no marks, and the parser that knows all cases reads it.

use wide::u8x16;

const LANES: usize = 16;
/// Bytes of a block: as many as a word has bits.
const BLOCK: usize = 64;
/// Longer heads are left to the other parser.
const BLOCKS: usize = 16;

/// Where the lines of a plain head end, and where its colons are.
#[derive(Default)]
pub(crate) struct Marks {
    ends: [u64; BLOCKS],
    colons: [u64; BLOCKS],
    len: usize,
}

/// For each byte of a block, whether it is such a byte.
#[derive(Default)]
struct Masks {
    cr: u64,
    lf: u64,
    colon: u64,
    /// A control character, or no ASCII.
    odd: u64,
}

impl Marks {
    /// Finds the marks of the plain head at the start of `input`; false if that is no plain one. Of marks that have found nothing yet:
    /// they are filled where they are, because they are too large to be returned for each head.
    #[inline]
    pub(crate) fn find(&mut self, input: &[u8]) -> bool {
        // The last bytes of the block before, for an end of line across two blocks.
        let mut before = Masks::default();
        for (index, block) in input.chunks(BLOCK).take(BLOCKS).enumerate() {
            let masks = match block.as_array() {
                Some(block) => Masks::of(block),
                None => Masks::of_last(block),
            };
            let after_cr = masks.cr << 1 | before.cr >> (BLOCK - 1);
            let two_after_lf = masks.lf << 2 | before.lf >> (BLOCK - 2);
            let empty_line = masks.lf & after_cr & two_after_lf;
            // All bytes up to the first empty line.
            let head = empty_line ^ empty_line.wrapping_sub(1);
            if masks.lf & head != after_cr & head || masks.odd & head != (masks.cr | masks.lf) & head {
                return false;
            }
            self.ends[index] = masks.cr & head;
            self.colons[index] = masks.colon & head;
            if empty_line != 0 {
                self.len = index * BLOCK + empty_line.trailing_zeros() as usize + 1;
                return true;
            }
            before = masks;
        }
        false
    }

    /// How long the head is, with the empty line that ends it.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where lines end: each CR in order, the last one that of the empty line.
    #[inline]
    pub(crate) fn ends(&self) -> Cursor<'_> {
        Cursor::new(&self.ends)
    }

    /// Each colon in order.
    #[inline]
    pub(crate) fn colons(&self) -> Cursor<'_> {
        Cursor::new(&self.colons)
    }
}

/// Goes through marks in order.
pub(crate) struct Cursor<'a> {
    words: &'a [u64; BLOCKS],
    index: usize,
    word: u64,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn new(words: &'a [u64; BLOCKS]) -> Self {
        Cursor { words, index: 0, word: words[0] }
    }

    /// The next mark at this offset or behind it. Marks before it are passed over for good.
    #[inline]
    pub(crate) fn next_from(&mut self, from: usize) -> Option<usize> {
        self.find(|offset| *offset >= from)
    }
}

impl Iterator for Cursor<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.word == 0 {
            self.index += 1;
            self.word = *self.words.get(self.index)?;
        }
        let offset = self.index * BLOCK + self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(offset)
    }
}

impl Masks {
    #[inline]
    fn of(block: &[u8; BLOCK]) -> Masks {
        let mut masks = Masks::default();
        for (index, lanes) in block.as_chunks::<LANES>().0.iter().enumerate() {
            masks.add(lanes, index);
        }
        masks
    }

    /// Of less than a block.
    #[inline]
    fn of_last(rest: &[u8]) -> Masks {
        let (parts, rest) = rest.as_chunks::<LANES>();
        let mut masks = Masks::default();
        for (index, lanes) in parts.iter().enumerate() {
            masks.add(lanes, index);
        }
        if !rest.is_empty() {
            let mut lanes = [b' '; LANES];
            for (lane, byte) in lanes.iter_mut().zip(rest) {
                *lane = *byte;
            }
            masks.add(&lanes, parts.len());
        }
        masks
    }

    #[inline(always)]
    fn add(&mut self, lanes: &[u8; LANES], index: usize) {
        let bytes = u8x16::new(*lanes);
        let bits = |lanes: u8x16| u64::from(lanes.to_bitmask()) << (index * LANES);
        let is = |byte: u8| bits(bytes.simd_eq(u8x16::splat(byte)));
        self.cr |= is(b'\r');
        self.lf |= is(b'\n');
        self.colon |= is(b':');
        // Visible ASCII and the space are 0x20 to 0x7e.
        self.odd |= bits((bytes - u8x16::splat(0x20)).simd_ge(u8x16::splat(0x5f)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytewise(block: &[u8; BLOCK]) -> Masks {
        let bits = |is: fn(u8) -> bool| {
            block.iter().enumerate().fold(0, |mask, (at, byte)| mask | u64::from(is(*byte)) << at)
        };
        Masks {
            cr: bits(|byte| byte == b'\r'),
            lf: bits(|byte| byte == b'\n'),
            colon: bits(|byte| byte == b':'),
            odd: bits(|byte| !(0x20..0x7f).contains(&byte)),
        }
    }

    #[test]
    fn masks_are_those_found_byte_by_byte() {
        for first in 0..=u8::MAX {
            let block: [u8; BLOCK] = std::array::from_fn(|at| first.wrapping_add((at as u8).wrapping_mul(7)));
            let (fast, plain) = (Masks::of(&block), bytewise(&block));
            let both =
                [(fast.cr, plain.cr), (fast.lf, plain.lf), (fast.colon, plain.colon), (fast.odd, plain.odd)];
            assert!(both.iter().all(|(fast, plain)| fast == plain), "from {first}");
        }
    }

    fn marks_of(input: &[u8]) -> Option<Marks> {
        let mut marks = Marks::default();
        marks.find(input).then_some(marks)
    }

    #[test]
    fn a_head_has_marks_wherever_it_ends() {
        for filler in 1..3 * BLOCK {
            for behind in [0, 1, BLOCK] {
                let head = format!("a: {}\r\nb:\r\n\r\n", "x".repeat(filler));
                let input = [head.as_bytes(), &vec![b'\n'; behind]].concat();
                let marks = marks_of(&input).unwrap();
                assert_eq!(marks.len(), head.len());
                let line = filler + 3;
                assert_eq!(marks.ends().collect::<Vec<_>>(), [line, line + 4, line + 6]);
                assert_eq!(marks.colons().collect::<Vec<_>>(), [1, line + 3]);
            }
        }
    }

    #[test]
    fn a_head_that_is_not_plain_has_none() {
        for filler in 0..2 * BLOCK {
            for odd in ["\t", "\0", "\x7f", "é", "\r", "\n", "\n\r"] {
                let head = format!("a: {}{odd}b\r\nc: d\r\n\r\n", "x".repeat(filler));
                assert!(marks_of(head.as_bytes()).is_none(), "{head:?}");
            }
            let unfinished = format!("a: {}\r\n\r", "x".repeat(filler));
            assert!(marks_of(unfinished.as_bytes()).is_none());
        }
        let long = format!("a: {}\r\n\r\n", "x".repeat(BLOCK * BLOCKS));
        assert!(marks_of(long.as_bytes()).is_none());
    }
}
