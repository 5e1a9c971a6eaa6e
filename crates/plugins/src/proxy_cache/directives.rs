//! The directives of `Cache-Control` (RFC 9111, 5.2), and of `CDN-Cache-Control`, which overrides it for shared caches
//! (RFC 9213).

use super::structured::{self, Item};
use weir_plugin::{Headers, Known};

/// The directives that the cache uses.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Directives {
    pub(super) no_store: bool,
    /// Must be validated before each use.
    pub(super) no_cache: bool,
    pub(super) private: bool,
    pub(super) public: bool,
    /// Must not be used once it is stale.
    pub(super) must_revalidate: bool,
    pub(super) must_understand: bool,
    pub(super) only_if_cached: bool,
    pub(super) max_age: Option<u64>,
    pub(super) shared_max_age: Option<u64>,
    pub(super) min_fresh: Option<u64>,
    pub(super) max_stale: Option<u64>,
    pub(super) stale_while_revalidate: Option<u64>,
    pub(super) stale_if_error: Option<u64>,
    /// Response headers that `no-cache` or `private` names: they must not be stored.
    pub(super) unstored: Vec<String>,
    /// They come from `CDN-Cache-Control`: `Expires` and `Cache-Control` do not count.
    pub(super) is_targeted: bool,
}

/// The largest number of seconds; larger ones count as this one.
pub(super) const MAX_SECONDS: u64 = 1 << 31;

impl Directives {
    /// The directives of all fields together.
    pub(super) fn of<'h>(fields: impl Iterator<Item = &'h [u8]>) -> Self {
        let mut found = Self::default();
        for field in fields {
            for directive in members(field) {
                found.add_text(directive);
            }
        }
        found
    }

    /// Those of a response for a shared cache.
    pub(super) fn of_response(headers: &Headers) -> Self {
        Self::targeted(headers.get_all("CDN-Cache-Control"))
            .unwrap_or_else(|| Self::of(headers.get_all_known(Known::CacheControl)))
    }

    /// Those of `CDN-Cache-Control`; none if it is absent, empty or not a structured field.
    fn targeted<'h>(fields: impl Iterator<Item = &'h [u8]>) -> Option<Self> {
        let lines: Vec<_> = fields.collect();
        let mut found = Self { is_targeted: true, ..Self::default() };
        let members = structured::dictionary(&lines.join(&b", "[..]))?;
        for (name, item) in &members {
            match item {
                Item::True => found.add(name.as_bytes(), None),
                Item::Integer(seconds) => found.add(name.as_bytes(), Some(seconds.as_bytes())),
                Item::String(text) if matches!(&**name, "no-cache" | "private") => {
                    found.add(name.as_bytes(), Some(text.as_bytes()));
                }
                Item::String(_) | Item::Other => {}
            }
        }
        (!members.is_empty()).then_some(found)
    }

    fn add_text(&mut self, directive: &[u8]) {
        let mut parts = directive.splitn(2, |byte| *byte == b'=');
        let name = parts.next().unwrap_or_default().trim_ascii();
        self.add(name, parts.next().map(|value| unquoted(value.trim_ascii())));
    }

    fn add(&mut self, name: &[u8], value: Option<&[u8]>) {
        // If there are several, the strictest counts.
        let least = |known: Option<u64>| Some(known.unwrap_or(MAX_SECONDS).min(value.map_or(0, seconds)));
        let at_most =
            |known: Option<u64>| Some(known.unwrap_or(MAX_SECONDS).min(value.map_or(MAX_SECONDS, seconds)));
        match &*name.to_ascii_lowercase() {
            b"no-store" => self.no_store = true,
            b"no-cache" => self.no_cache |= !self.leaves_out(value),
            b"private" => self.private |= !self.leaves_out(value),
            b"public" => self.public = true,
            b"must-revalidate" | b"proxy-revalidate" => self.must_revalidate = true,
            b"must-understand" => self.must_understand = true,
            b"only-if-cached" => self.only_if_cached = true,
            b"max-age" => self.max_age = least(self.max_age),
            b"s-maxage" => self.shared_max_age = least(self.shared_max_age),
            b"min-fresh" => {
                self.min_fresh = Some(self.min_fresh.unwrap_or(0).max(value.map_or(MAX_SECONDS, seconds)));
            }
            b"max-stale" => self.max_stale = at_most(self.max_stale),
            b"stale-while-revalidate" => self.stale_while_revalidate = least(self.stale_while_revalidate),
            b"stale-if-error" => self.stale_if_error = least(self.stale_if_error),
            _ => {}
        }
    }

    /// Notes the header names that qualify a directive; returns whether there are any.
    fn leaves_out(&mut self, value: Option<&[u8]>) -> bool {
        let names = value.and_then(|value| std::str::from_utf8(value).ok()).unwrap_or_default();
        let before = self.unstored.len();
        let named = names.split(',').map(str::trim).filter(|name| !name.is_empty());
        self.unstored.extend(named.map(str::to_owned));
        self.unstored.len() > before
    }

    /// Whether the response may answer requests with other credentials than the one that it was made for (RFC 9111,
    /// 3.5).
    pub(super) fn is_for_all(&self) -> bool {
        self.public || self.must_revalidate || self.shared_max_age.is_some()
    }
}

/// The members of a list, whose quoted texts may hold commas.
pub(super) fn members(field: &[u8]) -> impl Iterator<Item = &[u8]> {
    let (mut is_quoted, mut is_escaped) = (false, false);
    field.split(move |byte| {
        let escaped = std::mem::take(&mut is_escaped);
        is_escaped = is_quoted && *byte == b'\\' && !escaped;
        is_quoted ^= *byte == b'"' && !escaped;
        *byte == b',' && !is_quoted
    })
}

fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|value| value.strip_suffix(b"\"")).unwrap_or(value)
}

/// A number of seconds; an invalid one counts as 0.
pub(super) fn seconds(value: &[u8]) -> u64 {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return 0;
    }
    value.iter().fold(0, |seconds: u64, digit| (seconds * 10 + u64::from(digit - b'0')).min(MAX_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: &[&str]) -> Directives {
        Directives::of(fields.iter().map(|field| field.as_bytes()))
    }

    fn targeted(field: &str) -> Option<Directives> {
        Directives::targeted([field.as_bytes()].into_iter())
    }

    #[test]
    fn directives_are_read_whatever_they_look_like() {
        let none = Directives::default;
        let unstored = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        for (fields, expected) in [
            (&["No-Store , max-age=5"][..], Directives { no_store: true, max_age: Some(5), ..none() }),
            (&["max-age=7", "max-age=3"], Directives { max_age: Some(3), ..none() }),
            (&["max-age=99999999999999999999999"], Directives { max_age: Some(MAX_SECONDS), ..none() }),
            (&["max-age=-1"], Directives { max_age: Some(0), ..none() }),
            (&["max-age=\"9\""], Directives { max_age: Some(9), ..none() }),
            (&["max-age"], Directives { max_age: Some(0), ..none() }),
            (&["private"], Directives { private: true, ..none() }),
            (&["private=\"a, no-store\""], Directives { unstored: unstored(&["a", "no-store"]), ..none() }),
            (&["no-cache=\"Set-Cookie\""], Directives { unstored: unstored(&["Set-Cookie"]), ..none() }),
            (&["no-cache=\"\""], Directives { no_cache: true, ..none() }),
            (&["x=\"\\\"\", no-store"], Directives { no_store: true, ..none() }),
            (&["max-stale"], Directives { max_stale: Some(MAX_SECONDS), ..none() }),
            (&["max-stale=4"], Directives { max_stale: Some(4), ..none() }),
            (&["min-fresh=4"], Directives { min_fresh: Some(4), ..none() }),
            (&["s-maxage=6"], Directives { shared_max_age: Some(6), ..none() }),
            (&["stale-while-revalidate"], Directives { stale_while_revalidate: Some(0), ..none() }),
            (&["stale-if-error=5"], Directives { stale_if_error: Some(5), ..none() }),
            (&[",,=,x=y,\"", ""], none()),
        ] {
            assert_eq!(of(fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn a_targeted_field_counts_if_it_is_a_structured_one() {
        let found = targeted("foo, max-age=3600;x=1, no-cache=\"a\"").unwrap();
        assert_eq!(
            (found.max_age, &*found.unstored, found.no_cache),
            (Some(3600), &["a".to_owned()][..], false)
        );
        let wrong_type = targeted("max-age=\"10000\", private").unwrap();
        assert_eq!((wrong_type.max_age, wrong_type.private), (None, true));
        for ignored in ["", "max-age=1, &&&", "max-age =1", "max-age= 1", "Max-Age=1", "max-age=1,"] {
            assert_eq!(targeted(ignored), None, "{ignored:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn directives_in_one_field_and_in_several_are_the_same(
            all in proptest::collection::vec("(max-age|s-maxage|min-fresh|max-stale|private|no-store|x)(=[0-9\"]{0,22})?", 0..6)
        ) {
            let all: Vec<_> = all.iter().map(|it| it.replace('"', "")).collect();
            let fields: Vec<&str> = all.iter().map(String::as_str).collect();
            proptest::prop_assert_eq!(of(&fields), of(&[&all.join(",")[..]]));
        }

        #[test]
        fn no_field_is_too_strange(field in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..64)) {
            let found = Directives::of([&field[..]].into_iter());
            let ages = [found.max_age, found.shared_max_age, found.min_fresh, found.max_stale];
            proptest::prop_assert!(ages.iter().flatten().all(|seconds| *seconds <= MAX_SECONDS));
            Directives::targeted([&field[..]].into_iter());
        }
    }
}
