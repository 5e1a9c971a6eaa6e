//! Cookies that hold one text: those of a request, and `Set-Cookie` for them. A text that is too long for one cookie is in several,
//! `name`, `name2` and so on. The first character says in how many. The others begin as the text does, so that they are not taken
//! for those of another text.

use std::borrow::Cow;

/// The most bytes of a cookie, name and value, that every browser keeps.
const MAX_COOKIE_LEN: usize = 4096;

/// The most cookies of one text.
const MAX_COOKIES: usize = 9;

/// How many cookies of one name are read. A browser sends several where they are for different paths or domains; other hosts of the
/// domain can set those before ours, but not so many that a line has room for.
const MAX_SAME_NAME: usize = 128;

/// How much of the text further cookies begin with: it is random, because texts begin with their salt.
const MARK_LEN: usize = 8;

/// The texts that these lines of `Cookie` have under a name.
pub(crate) fn texts<'l>(
    lines: impl Iterator<Item = &'l [u8]> + Clone,
    name: &str,
) -> impl Iterator<Item = Cow<'l, [u8]>> {
    let first = values(lines.clone(), name.as_bytes()).take(MAX_SAME_NAME);
    first.filter_map(move |value| joined(lines.clone(), name, value))
}

fn values<'l>(lines: impl Iterator<Item = &'l [u8]>, name: &[u8]) -> impl Iterator<Item = &'l [u8]> {
    lines.flat_map(|line| line.split(|byte| *byte == b';')).filter_map(move |pair| {
        let value = pair.trim_ascii_start().strip_prefix(name)?.trim_ascii_start().strip_prefix(b"=")?;
        Some(value.trim_ascii())
    })
}

/// The text that begins with this value.
fn joined<'l>(
    lines: impl Iterator<Item = &'l [u8]> + Clone,
    name: &str,
    first: &'l [u8],
) -> Option<Cow<'l, [u8]>> {
    let (count, begin) = first.split_first()?;
    match count {
        b'1' => Some(begin.into()),
        b'2'..=b'9' => {
            let mut text = begin.to_vec();
            let mark = begin.get(..MARK_LEN)?;
            for number in 2..=count - b'0' {
                let name = numbered(name, number);
                let mut parts = values(lines.clone(), name.as_bytes());
                text.extend_from_slice(parts.find_map(|part| part.strip_prefix(mark))?);
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

/// The values of `Set-Cookie` that have a browser forget the cookies of a text, as far as the request has them.
pub(crate) fn expire<'l>(
    lines: impl Iterator<Item = &'l [u8]> + Clone,
    name: &str,
    attributes: &str,
    after: usize,
) -> Vec<String> {
    let sent = (1..=MAX_COOKIES as u8).skip(after).map(|number| numbered(name, number));
    sent.filter(|name| values(lines.clone(), name.as_bytes()).next().is_some())
        .map(|name| format!("{name}={attributes}; Expires=Thu, 01 Jan 1970 00:00:01 GMT; Max-Age=0"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(lines: &[&str], name: &str) -> Vec<String> {
        let texts = texts(lines.iter().map(|line| line.as_bytes()), name);
        texts.map(|text| String::from_utf8(text.into_owned()).unwrap()).collect()
    }

    fn forgotten(line: &str, after: usize) -> Vec<String> {
        let expired = expire([line.as_bytes()].into_iter(), "s", "; Path=/", after);
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
            expire([&b"s=x"[..]].into_iter(), "s", "; Path=/", 0),
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
            let found = texts(lines.into_iter(), &name).count();
            prop_assert!(found <= MAX_SAME_NAME);
        }
    }
}
