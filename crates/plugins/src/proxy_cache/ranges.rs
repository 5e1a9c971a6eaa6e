//! Parts of a stored response that is complete (RFC 9110, 14).

use super::freshness::date;
use super::stored::Stored;
use std::ops::Range;
use std::sync::Arc;
use weir_plugin::{Bytes, Known, LocalResponse, RequestHead};

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Whole,
    Part(Range<usize>),
    /// Nothing that there is.
    Beyond,
}

/// The part that the request asks for, or why there is none; none if it gets the whole.
pub(super) fn part(stored: &Stored, request: &RequestHead) -> Option<LocalResponse> {
    let asked = request.headers.get_known(Known::Range)?;
    if stored.status != 200 || request.method_str() != "GET" || !is_of_this(stored, request) {
        return None;
    }
    let length = stored.body.len();
    match wanted(asked, length) {
        Wanted::Whole => None,
        Wanted::Part(range) => {
            let sent = format!("bytes {}-{}/{length}", range.start, range.end - 1);
            let (headers, body) = (stored.headers.clone(), stored.body.slice(range));
            Some(LocalResponse::cached(206, headers, body).header("Content-Range", sent))
        }
        Wanted::Beyond => {
            let answer = LocalResponse::cached(416, Arc::default(), Bytes::new());
            Some(answer.header("Content-Range", format!("bytes */{length}")))
        }
    }
}

/// Whether the part is to be one of this response: what `If-Range` says.
fn is_of_this(stored: &Stored, request: &RequestHead) -> bool {
    let Some(condition) = request.headers.get("If-Range") else { return true };
    match date(condition) {
        Some(known) => stored.headers.get("Last-Modified").and_then(date) == Some(known),
        None => !condition.starts_with(b"W/") && stored.headers.get("ETag") == Some(condition),
    }
}

/// One range of bytes; more than one, and what is not understood, is the whole.
fn wanted(asked: &[u8], length: usize) -> Wanted {
    let text = std::str::from_utf8(asked).unwrap_or_default().trim();
    let Some((unit, range)) = text.split_once('=') else { return Wanted::Whole };
    let Some((first, last)) = range.trim().split_once('-') else { return Wanted::Whole };
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !unit.eq_ignore_ascii_case("bytes") || !is_number(first) || !is_number(last) {
        return Wanted::Whole;
    }
    // Numbers that are too large lie beyond the end.
    let number = |text: &str| text.parse::<usize>().unwrap_or(usize::MAX);
    match (first, last) {
        ("", "") => Wanted::Whole,
        ("", last) if number(last) == 0 || length == 0 => Wanted::Beyond,
        ("", last) => Wanted::Part(length.saturating_sub(number(last))..length),
        (first, last) if !last.is_empty() && number(last) < number(first) => Wanted::Whole,
        (first, _) if number(first) >= length => Wanted::Beyond,
        (first, "") => Wanted::Part(number(first)..length),
        (first, last) => Wanted::Part(number(first)..number(last).saturating_add(1).min(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::{Wanted, wanted};

    #[test]
    fn ranges_are_cut_to_what_there_is() {
        for (asked, expected) in [
            ("bytes=0-1", Wanted::Part(0..2)),
            ("Bytes = 0-1", Wanted::Whole),
            ("bytes=1-", Wanted::Part(1..10)),
            ("bytes=-1", Wanted::Part(9..10)),
            ("bytes=-99", Wanted::Part(0..10)),
            ("bytes=5-99999999999999999999999", Wanted::Part(5..10)),
            ("bytes=9-9", Wanted::Part(9..10)),
            ("bytes=10-", Wanted::Beyond),
            ("bytes=-0", Wanted::Beyond),
            ("bytes=2-1", Wanted::Whole),
            ("bytes=0-1,3-4", Wanted::Whole),
            ("bytes=-", Wanted::Whole),
            ("bytes=a-b", Wanted::Whole),
            ("lines=0-1", Wanted::Whole),
            ("bytes", Wanted::Whole),
        ] {
            assert_eq!(wanted(asked.as_bytes(), 10), expected, "{asked}");
        }
        assert_eq!((wanted(b"bytes=0-", 0), wanted(b"bytes=-1", 0)), (Wanted::Beyond, Wanted::Beyond));
    }
}
