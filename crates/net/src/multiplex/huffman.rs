//! Decodes the Huffman code of HPACK and QPACK (RFC 7541, appendix B). The lengths of the codes define it, because it is
//! canonical.

/// The end-of-string symbol (EOS), which no text contains.
const END: usize = 256;
const MIN_CODE_LEN: usize = 5;
const MAX_CODE_LEN: usize = 30;
/// Codes of at most this many bits are looked up in one step.
const SHORT: usize = 8;

/// How many bits the code of each byte has, and that of [`END`].
const LENGTHS: [u8; END + 1] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28,
    28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6,
    6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7,
    8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7,
    15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24,
    23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23,
    23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26,
    26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20,
    21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27,
    27, 27, 26, 30,
];

/// The codes, ordered by length and symbol.
struct Codes {
    symbols: [u16; END + 1],
    /// The first code of each length.
    first: [u32; MAX_CODE_LEN + 1],
    /// How many codes have each length.
    count: [u32; MAX_CODE_LEN + 1],
    /// Where the symbols of each length begin.
    start: [u32; MAX_CODE_LEN + 1],
}

static CODES: Codes = codes();
/// The symbol whose code a byte begins with, and how many bits it has; no bits where it is longer.
static SHORT_CODES: [(u8, u8); 1 << SHORT] = short_codes(&codes());

const fn codes() -> Codes {
    let mut codes = Codes {
        symbols: [0; END + 1],
        first: [0; MAX_CODE_LEN + 1],
        count: [0; MAX_CODE_LEN + 1],
        start: [0; MAX_CODE_LEN + 1],
    };
    let (mut length, mut code, mut placed) = (MIN_CODE_LEN, 0, 0);
    while length <= MAX_CODE_LEN {
        (codes.first[length], codes.start[length]) = (code, placed);
        let mut symbol = 0;
        while symbol <= END {
            if LENGTHS[symbol] as usize == length {
                codes.symbols[placed as usize] = symbol as u16;
                placed += 1;
            }
            symbol += 1;
        }
        codes.count[length] = placed - codes.start[length];
        code = (code + codes.count[length]) << 1;
        length += 1;
    }
    codes
}

const fn short_codes(codes: &Codes) -> [(u8, u8); 1 << SHORT] {
    let mut short = [(0, 0); 1 << SHORT];
    let mut bits = 0;
    while bits < short.len() {
        let mut length = MIN_CODE_LEN;
        while length <= SHORT {
            let at = ((bits >> (SHORT - length)) as u32).wrapping_sub(codes.first[length]);
            if at < codes.count[length] {
                short[bits] = (codes.symbols[(codes.start[length] + at) as usize] as u8, length as u8);
                break;
            }
            length += 1;
        }
        bits += 1;
    }
    short
}

/// Appends the text that the bytes stand for; none where they stand for no text.
pub(crate) fn decode(coded: &[u8], text: &mut Vec<u8>) -> Option<()> {
    // The next bits are the uppermost.
    let (mut bits, mut available) = (0_u64, 0);
    let mut coded = coded.iter();
    loop {
        while available <= u64::BITS as usize - 8 {
            let Some(byte) = coded.next() else { break };
            bits |= u64::from(*byte) << (u64::BITS as usize - 8 - available);
            available += 8;
        }
        let (symbol, length) = match SHORT_CODES[(bits >> (u64::BITS as usize - SHORT)) as usize] {
            (_, 0) => long(bits)?,
            (symbol, length) => (usize::from(symbol), usize::from(length)),
        };
        if length > available {
            break;
        }
        text.push(u8::try_from(symbol).ok()?);
        bits <<= length;
        available -= length;
    }
    // What is left is padding: the beginning of the code of the end.
    (available < 8 && bits.leading_ones() as usize >= available).then_some(())
}

fn long(bits: u64) -> Option<(usize, usize)> {
    (SHORT + 1..=MAX_CODE_LEN).find_map(|length| {
        let at = ((bits >> (u64::BITS as usize - length)) as u32).wrapping_sub(CODES.first[length]);
        let symbol =
            (at < CODES.count[length]).then(|| CODES.symbols[(CODES.start[length] + at) as usize])?;
        Some((usize::from(symbol), length))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn encode(text: &[u8]) -> Vec<u8> {
        let (mut coded, mut bits, mut available) = (Vec::new(), 0_u64, 0);
        for byte in text {
            let length = usize::from(LENGTHS[usize::from(*byte)]);
            let at = CODES.symbols.iter().position(|symbol| *symbol == u16::from(*byte)).unwrap() as u32;
            bits = bits << length | u64::from(CODES.first[length] + at - CODES.start[length]);
            available += length;
            while available >= 8 {
                available -= 8;
                coded.push((bits >> available) as u8);
            }
        }
        if available > 0 {
            coded.push((bits << (8 - available)) as u8 | 0xff >> available);
        }
        coded
    }

    fn decoded(coded: &[u8]) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        decode(coded, &mut text).map(|()| text)
    }

    #[test]
    fn texts_of_the_rfc() {
        let cases: [(&[u8], &str); 4] = [
            (b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff", "www.example.com"),
            (b"\xa8\xeb\x10\x64\x9c\xbf", "no-cache"),
            (b"\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f", "custom-key"),
            (b"", ""),
        ];
        for (coded, text) in cases {
            assert_eq!(decoded(coded).as_deref(), Some(text.as_bytes()), "{text}");
            assert_eq!(encode(text.as_bytes()), coded, "{text}");
        }
    }

    #[test]
    fn padding_is_short_and_of_ones_and_the_end_is_in_no_text() {
        // A zero in the padding, a whole byte of padding, the code of the end.
        for coded in [&b"\x18"[..], b"\x1f\xff", b"\xff\xff\xff\xff"] {
            assert_eq!(decoded(coded), None, "{coded:?}");
        }
        assert_eq!(decoded(b"\x1f").as_deref(), Some(&b"a"[..]));
    }

    proptest! {
        #[test]
        fn every_text_comes_back(text in proptest::collection::vec(any::<u8>(), 0..100)) {
            prop_assert_eq!(decoded(&encode(&text)), Some(text));
        }
    }
}
