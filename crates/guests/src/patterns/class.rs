//! What a single item of a pattern matches: a character, a class such as `%a`, or a set such as `[^a-z]`.

/// Whether `byte` belongs to the class that the letter after `%` names. A capital letter is the complement.
fn in_class(byte: u8, letter: u8) -> bool {
    let member = match letter.to_ascii_lowercase() {
        b'a' => byte.is_ascii_alphabetic(),
        b'c' => byte.is_ascii_control(),
        b'd' => byte.is_ascii_digit(),
        b'g' => byte.is_ascii_graphic(),
        b'l' => byte.is_ascii_lowercase(),
        b'p' => byte.is_ascii_punctuation(),
        b's' => byte.is_ascii_whitespace() || byte == 0x0b,
        b'u' => byte.is_ascii_uppercase(),
        b'w' => byte.is_ascii_alphanumeric(),
        b'x' => byte.is_ascii_hexdigit(),
        b'z' => byte == 0,
        _ => return byte == letter,
    };
    member == letter.is_ascii_lowercase()
}

/// Whether `byte` belongs to `set`, which begins with `[` and ends with `]`.
pub(super) fn in_set(byte: u8, set: &[u8]) -> bool {
    let inner = &set[1..set.len() - 1];
    let (negated, mut items) = match inner {
        [b'^', items @ ..] => (true, items),
        items => (false, items),
    };
    while let Some((member, rest)) = next_item(byte, items) {
        if member {
            return !negated;
        }
        items = rest;
    }
    negated
}

/// Whether the first item of a set matches, and the items after it.
fn next_item(byte: u8, items: &[u8]) -> Option<(bool, &[u8])> {
    Some(match items {
        [] => return None,
        [b'%', letter, rest @ ..] => (in_class(byte, *letter), rest),
        // A set that ends in `%` has its `]` as the letter.
        [b'%'] => (byte == b']', &[]),
        [from, b'-', to, rest @ ..] => ((*from..=*to).contains(&byte), rest),
        [first, rest @ ..] => (byte == *first, rest),
    })
}

/// Whether `byte` matches a single item: `.`, `%a`, `[…]` or a character.
pub(super) fn matches(byte: u8, item: &[u8]) -> bool {
    match item {
        [b'.'] => true,
        [b'%', letter] => in_class(byte, *letter),
        [b'[', _, ..] => in_set(byte, item),
        _ => item == [byte],
    }
}
