//! What a sample keeps of a text: the beginning, and lengths in the place of what might be secret.
use std::borrow::Cow;

/// The longest query with lengths for values.
pub(super) const MAX_QUERY_LEN: usize = 96;
/// A longer name of a query argument may be a value.
const MAX_ARGUMENT_NAME_LEN: usize = 32;
/// What a text ends with that was cut.
const CUT: &str = "…";

/// A query with the length of each value, at least as far as it is kept.
pub(super) fn masked(query: &str) -> String {
    let mut lengths = String::new();
    for argument in query.split('&').filter(|argument| !argument.is_empty()) {
        if lengths.len() > MAX_QUERY_LEN {
            break;
        }
        lengths.push(if lengths.is_empty() { '?' } else { '&' });
        lengths.push_str(&masked_argument(argument));
    }
    lengths
}

/// An argument with the length of its value. Without a value the name may be one, also one in Base64, which ends in `=`.
fn masked_argument(argument: &str) -> String {
    let (name, value) = argument.split_once('=').unwrap_or_default();
    if value.trim_start_matches('=').is_empty() {
        return length_of(argument.as_bytes());
    }
    let value = length_of(value.as_bytes());
    match name.len() <= MAX_ARGUMENT_NAME_LEN {
        true => format!("{name}={value}"),
        false => format!("{}={value}", length_of(name.as_bytes())),
    }
}

pub(super) fn length_of(value: &[u8]) -> String {
    format!("<{} bytes>", value.len())
}

/// The beginning of a text, cut between characters and marked if so.
pub(super) fn cut(text: &str, max_len: usize) -> Cow<'_, str> {
    if text.len() <= max_len {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("{}{CUT}", &text[..text.floor_char_boundary(max_len - CUT.len())]))
}

/// The beginning of a text without control characters.
pub(super) fn clean(text: &str, max_len: usize) -> String {
    cut(text, max_len).replace(char::is_control, " ")
}
