//! The arguments of a query, as OpenResty reads them.
use std::borrow::Cow;

/// The arguments of a query in their order.
pub(super) struct Arguments<'q>(Vec<Argument<'q>>);

/// A name and a value, decoded.
type Argument<'q> = (Cow<'q, [u8]>, Cow<'q, [u8]>);

impl<'q> Arguments<'q> {
    /// Reads a query. An argument without a name is none.
    pub(super) fn read(query: &'q str) -> Arguments<'q> {
        let pairs = query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let named = pairs.filter(|(name, _)| !name.is_empty());
        Arguments(named.map(|(name, value)| (decoded(name), decoded(value))).collect())
    }

    /// Visits the values of the argument of this name until the predicate returns true; returns whether it did.
    pub(super) fn visit(&self, name: &str, visit: &mut dyn FnMut(&[u8]) -> bool) -> bool {
        let mut own = self.0.iter().filter(|(own, _)| **own == *name.as_bytes());
        own.any(|(_, value)| visit(value))
    }
}

/// A text with its escapes and its plus signs decoded. What is no escape stays.
fn decoded(text: &str) -> Cow<'_, [u8]> {
    if memchr::memchr2(b'%', b'+', text.as_bytes()).is_none() {
        return text.as_bytes().into();
    }
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let escape = if byte == b'%' { escape(tail) } else { None };
        out.push(escape.unwrap_or(if byte == b'+' { b' ' } else { byte }));
        rest = if escape.is_some() { &tail[2..] } else { tail };
    }
    out.into()
}

/// The byte that two hexadecimal digits stand for.
fn escape(digits: &[u8]) -> Option<u8> {
    let [high, low, ..] = digits else { return None };
    let digit = |byte: u8| char::from(byte).to_digit(16);
    Some((digit(*high)? * 16 + digit(*low)?) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(query: &str, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        Arguments::read(query).visit(name, &mut |value| {
            found.push(String::from_utf8_lossy(value).into_owned());
            false
        });
        found
    }

    #[test]
    fn arguments_are_decoded_and_may_repeat() {
        assert_eq!(values("a=1&b=2&a=3", "a"), ["1", "3"]);
        assert_eq!(values("a&a=&a=x=y", "a"), ["", "", "x=y"]);
        assert_eq!(values("%61=%20+%zz%", "a"), ["  %zz%"]);
        assert!(values("A=1&=2&", "a").is_empty() && values("=2", "").is_empty());
    }
}
