//! Which requests a response answers by what its `Vary` names (RFC 9111, 4.1).

use super::directives::members;
use weir_plugin::{Exchange, Headers};

/// The request headers that a response varies by, and their values in the request that it was made for.
pub(super) type Variant = Vec<(String, Vec<Vec<u8>>)>;

/// Lists whose members mean the same in any order and case.
const UNORDERED: [&str; 4] = ["accept", "accept-charset", "accept-encoding", "accept-language"];

/// What the response to a request varies by; none if it varies by more than headers.
pub(super) fn of(exchange: &Exchange) -> Option<Variant> {
    let mut varying = Vec::new();
    for field in exchange.response.headers.get_all("Vary") {
        for name in members(field).map(<[u8]>::trim_ascii).filter(|name| !name.is_empty()) {
            let name = std::str::from_utf8(name).ok().filter(|name| *name != "*")?.to_ascii_lowercase();
            let values = exchange.request.headers.get_all(&name).map(<[u8]>::to_vec).collect();
            varying.push((name, values));
        }
    }
    Some(varying)
}

/// Whether a request with these headers gets this variant.
pub(super) fn suits(variant: &Variant, headers: &Headers) -> bool {
    variant
        .iter()
        .all(|(name, values)| headers.get_all(name).eq(values) || means_the_same(name, values, headers))
}

/// The slow way: values that were written otherwise.
fn means_the_same(name: &str, values: &[Vec<u8>], headers: &Headers) -> bool {
    let sent: Vec<_> = headers.get_all(name).collect();
    sent.is_empty() == values.is_empty()
        && normal(name, values.iter().map(Vec::as_slice)) == normal(name, sent.into_iter())
}

/// The members of all lines; sorted and in lower case if neither order nor case matters.
pub(super) fn normal<'v>(name: &str, values: impl Iterator<Item = &'v [u8]>) -> Vec<Vec<u8>> {
    let trimmed = values.flat_map(|line| members(line).map(<[u8]>::trim_ascii).collect::<Vec<_>>());
    let mut all: Vec<_> = trimmed.filter(|member| !member.is_empty()).map(<[u8]>::to_vec).collect();
    if UNORDERED.contains(&name) {
        all.iter_mut().for_each(|member| member.make_ascii_lowercase());
        all.sort_unstable();
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_mean_the_same_are_the_same() {
        let suits = |name: &str, stored: &[&str], sent: &[&str]| {
            let values = stored.iter().map(|value| value.as_bytes().to_vec()).collect();
            let mut headers = Headers::new();
            sent.iter().for_each(|value| headers.append(name, value.as_bytes()));
            suits(&vec![(name.to_owned(), values)], &headers)
        };
        for (name, stored, sent, expected) in [
            ("x", &["1, 2"][..], &["1", "2"][..], true),
            ("x", &["1,2"], &[" 1 ,  2 "], true),
            ("x", &["1,2"], &["2,1"], false),
            ("x", &["\"1,  2\""], &["\"1,2\""], false),
            ("x", &["a"], &["A"], false),
            ("x", &[], &[""], false),
            ("x", &[], &[], true),
            ("accept-language", &["en, de"], &["De,eN"], true),
            ("accept-language", &["en, de"], &["de"], false),
        ] {
            assert_eq!(suits(name, stored, sent), expected, "{name} {stored:?} {sent:?}");
        }
    }
}
