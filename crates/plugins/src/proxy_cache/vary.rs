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
    for name in names(&exchange.response.headers)? {
        let values = exchange.request.headers.get_all(&name).map(<[u8]>::to_vec).collect();
        varying.push((name, values));
    }
    Some(varying)
}

/// The names in the `Vary` of a response, in lower case; none if it varies by more than headers.
fn names(headers: &Headers) -> Option<Vec<String>> {
    let members = headers.get_all("Vary").flat_map(members).map(<[u8]>::trim_ascii);
    let name = |name| std::str::from_utf8(name).ok().filter(|name| *name != "*").map(str::to_ascii_lowercase);
    members.filter(|name| !name.is_empty()).map(name).collect()
}

/// Whether a response with these headers varies by what the variant does.
pub(super) fn is_unchanged(variant: &Variant, headers: &Headers) -> bool {
    names(headers).is_some_and(|names| names.iter().eq(variant.iter().map(|(name, _)| name)))
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
    fn a_response_may_come_to_vary_by_something_else() {
        let variant = vec![("x".to_owned(), Vec::new()), ("y".to_owned(), Vec::new())];
        for (lines, expected) in [
            (&["X, y"][..], true),
            (&["x", "Y"], true),
            (&["x"], false),
            (&["x, y, z"], false),
            (&["*"], false),
            (&[], false),
        ] {
            let mut headers = Headers::new();
            lines.iter().for_each(|line| headers.append("Vary", line.as_bytes()));
            assert_eq!(is_unchanged(&variant, &headers), expected, "{lines:?}");
        }
    }

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
