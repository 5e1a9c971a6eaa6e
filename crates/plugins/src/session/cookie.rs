//! Cookies that hold one text: those of a request, and `Set-Cookie` for them. A text that is too long for one cookie is in several,
//! `name`, `name2` and so on. The first character says in how many. The others begin as the text does, so that they are not taken
//! for those of another text.

use std::borrow::Cow;

/// The most bytes of a cookie, name and value, that every browser keeps.
const MAX_COOKIE_LEN: usize = 4096;

/// The most cookies of one text.
const MAX_COOKIES: usize = 9;

/// How many cookies of one name are read. A browser sends several where they are for different paths or domains; other hosts of the
/// domain can set those before ours.
const MAX_SAME_NAME: usize = 16;

/// What the names of cookies begin with that browsers accept from their own host alone (RFC 6265bis, 4.1.3.2).
pub(crate) const HOST_PREFIX: &str = "__Host-";

/// How much of the text further cookies begin with: it is random, because texts begin with their salt.
const MARK_LEN: usize = 8;

/// The cookies of a request whose names begin with one name, with [`HOST_PREFIX`] before it or without.
pub(crate) struct Jar<'l>(Vec<(&'l [u8], &'l [u8])>);

impl<'l> Jar<'l> {
    /// Walks the lines of `Cookie` once: whatever they hold, reading takes time in proportion to their bytes.
    pub(crate) fn of(lines: impl Iterator<Item = &'l [u8]>, name: &str) -> Self {
        let is_own = |cookie: &[u8]| {
            let cookie_after = |prefix: &str| cookie.strip_prefix(prefix.as_bytes());
            ["", HOST_PREFIX]
                .into_iter()
                .filter_map(cookie_after)
                .any(|rest| rest.starts_with(name.as_bytes()))
        };
        let pairs = lines.flat_map(|line| line.split(|byte| *byte == b';')).filter_map(|pair| {
            let (cookie, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=')?);
            Some((cookie.trim_ascii(), value.get(1..)?.trim_ascii()))
        });
        Self(pairs.filter(|(cookie, _)| is_own(cookie)).collect())
    }

    /// The texts under a name.
    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = Cow<'l, [u8]>> + use<'l> {
        let [first, more @ ..] = self.by_number(name);
        first.into_iter().filter_map(move |value| joined(value, &more))
    }

    /// The values of the cookies of a text, as many of each as are read.
    fn by_number(&self, name: &str) -> [Vec<&'l [u8]>; MAX_COOKIES] {
        let mut found = [const { Vec::new() }; MAX_COOKIES];
        for (cookie, value) in &self.0 {
            let number = match cookie.strip_prefix(name.as_bytes()) {
                Some([]) => 1,
                Some([digit @ b'2'..=b'9']) => digit - b'0',
                _ => continue,
            };
            let values: &mut Vec<_> = &mut found[usize::from(number - 1)];
            if values.len() < MAX_SAME_NAME {
                values.push(*value);
            }
        }
        found
    }

    /// The values of `Set-Cookie` that have a browser forget the cookies of a text behind the first ones, as far as it has them.
    pub(crate) fn expire(&self, name: &str, attributes: &str, after: usize) -> Vec<String> {
        let names = (1..=MAX_COOKIES as u8).skip(after).map(|number| numbered(name, number));
        names
            .filter(|name| self.0.iter().any(|(cookie, _)| *cookie == name.as_bytes()))
            .map(|name| format!("{name}={attributes}; Expires=Thu, 01 Jan 1970 00:00:01 GMT; Max-Age=0"))
            .collect()
    }
}

/// The text that begins with this value; `more` has the values of further cookies by their number.
fn joined<'l>(first: &'l [u8], more: &[Vec<&'l [u8]>]) -> Option<Cow<'l, [u8]>> {
    let (count, begin) = first.split_first()?;
    match count {
        b'1' => Some(begin.into()),
        b'2'..=b'9' => {
            let mut text = begin.to_vec();
            let mark = begin.get(..MARK_LEN)?;
            for parts in more.get(..usize::from(count - b'1'))? {
                text.extend_from_slice(parts.iter().find_map(|part| part.strip_prefix(mark))?);
            }
            Some(text.into())
        }
        _ => None,
    }
}

fn numbered(name: &str, number: u8) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}{number}") }
}

/// The values of `Set-Cookie` for a text, each with these attributes; none if it is too long.
pub(crate) fn set(name: &str, text: &str, attributes: &str) -> Option<Vec<String>> {
    // A name is followed by a digit and `=`, and the first value begins with the number of cookies.
    let room = MAX_COOKIE_LEN.checked_sub(name.len() + 2 + MARK_LEN).filter(|room| *room > MARK_LEN)?;
    let parts: Vec<&[u8]> = text.as_bytes().chunks(room).collect();
    let count =
        u8::try_from(parts.len()).ok().filter(|count| (1..=MAX_COOKIES).contains(&usize::from(*count)))?;
    let cookie = |(number, part): (u8, &&[u8])| {
        let begin = if number == 1 { count.to_string() } else { text.chars().take(MARK_LEN).collect() };
        format!("{}={begin}{}{attributes}", numbered(name, number), String::from_utf8_lossy(part))
    };
    Some((1..).zip(&parts).map(cookie).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(lines: &[&str], name: &str) -> Vec<String> {
        let jar = Jar::of(lines.iter().map(|line| line.as_bytes()), name);
        jar.texts(name).map(|text| String::from_utf8(text.into_owned()).unwrap()).collect()
    }

    fn forgotten(line: &str, after: usize) -> Vec<String> {
        let expired = Jar::of([line.as_bytes()].into_iter(), "s").expire("s", "; Path=/", after);
        expired.iter().map(|cookie| cookie.split('=').next().unwrap().to_owned()).collect()
    }

    #[test]
    fn cookies_are_found_by_their_whole_names() {
        for (lines, expected) in [
            (&["a=1x; s=1one; b=2"][..], &["one"][..]),
            (&["s=1"], &[""]),
            (&["s = 1one ;t=1x"], &["one"]),
            (&["xs=1no; s2=1no; S=1no; s; =1"], &[]),
            (&["s=; s=0x; s=ax; s=1one", "s=1=two="], &["one", "=two="]),
            (&["s=2first-of-text", "s3=first-ofno; s2=no; s2=first-of-two; s2=no"], &["first-of-text-two"]),
            (&["s=3first-of-text; s2=first-of-two"], &[]),
            (&["s=2first; s2=first"], &[]),
            (&["s=2another-text; s2=no; s=2first-of-text; s2=first-of"], &["first-of-text"]),
            (&["s=1a", "s=1b; s=1c;s=1d;s=1e"], &["a", "b", "c", "d", "e"]),
        ] {
            assert_eq!(read(lines, "s"), expected, "{lines:?}");
        }
    }

    #[test]
    fn many_cookies_of_a_name_are_read_once_and_few_of_them_joined() {
        let own: String = (2..=8).map(|number| format!("s{number}=AAAAAAAA; ")).collect();
        let line = "s=9AAAAAAAA; ".repeat(128) + &"a; ".repeat(6000) + &own.repeat(128);
        let walks = std::cell::Cell::new(0);
        let lines = [line.as_bytes()].into_iter().inspect(|_| walks.set(walks.get() + 1));
        let jar = Jar::of(lines, "s");
        assert_eq!((jar.0.len(), jar.texts("s").count()), (128 + 7 * 128, 0));
        assert_eq!(walks.get(), 1);
        let kept = jar.by_number("s").map(|values| values.len());
        assert_eq!(kept, [16, 16, 16, 16, 16, 16, 16, 16, 0]);
        assert_eq!(read(&[&"s=1x; ".repeat(128)], "s").len(), 16);
    }

    #[test]
    fn a_text_that_no_cookies_hold_is_not_set() {
        let most = "x".repeat(MAX_COOKIES * (MAX_COOKIE_LEN - 3 - MARK_LEN));
        assert_eq!(set("s", &most, "").map(|cookies| cookies.len()), Some(MAX_COOKIES));
        assert_eq!(set("s", &(most + "x"), ""), None);
        assert_eq!((set("s", "", ""), set(&"n".repeat(5000), "x", "")), (None, None));
    }

    #[test]
    fn cookies_that_the_browser_has_are_forgotten() {
        assert_eq!(forgotten("s=1; s2=x; s9=y; s10=z; t=1", 0), ["s", "s2", "s9"]);
        assert_eq!(forgotten("s=1; s2=x; s3=y", 2), ["s3"]);
        assert_eq!(
            Jar::of([&b"s=x"[..]].into_iter(), "s").expire("s", "; Path=/", 0),
            ["s=; Path=/; Expires=Thu, 01 Jan 1970 00:00:01 GMT; Max-Age=0"]
        );
    }

    proptest! {
        #[test]
        fn what_is_set_is_read_again(text in "[A-Za-z0-9_-]{1,20000}", name in "[A-Za-z]{1,20}") {
            let cookies = set(&name, &text, "; Path=/").unwrap();
            prop_assert!(cookies.iter().all(|cookie| cookie.len() <= MAX_COOKIE_LEN + "; Path=/".len()));
            let pairs: Vec<&str> = cookies.iter().map(|cookie| cookie.split(';').next().unwrap()).collect();
            prop_assert_eq!(read(&[&pairs.join("; ")], &name), [text]);
        }

        #[test]
        fn no_line_panics(line in prop::collection::vec(any::<u8>(), 0..200), name in "[a-c]{1,2}") {
            let lines = [&line[..], b"a=2x; a2=y"];
            let found = Jar::of(lines.into_iter(), &name).texts(&name).count();
            prop_assert!(found <= MAX_SAME_NAME);
        }
    }
}
