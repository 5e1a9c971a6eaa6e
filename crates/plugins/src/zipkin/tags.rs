//! The tags that clients add: `one=first; two=second`.

/// Name and value of each tag in a header. Malformed ones are left out.
pub(super) fn of(header: &str) -> impl Iterator<Item = (&str, &str)> {
    header.split(';').filter_map(tag)
}

/// The name has no spaces, and is as long as possible.
fn tag(item: &str) -> Option<(&str, &str)> {
    let item = item.trim();
    let word = &item[..item.find(char::is_whitespace).unwrap_or(item.len())];
    let rest = item[word.len()..].trim_start();
    if let Some(value) = rest.strip_prefix('=').map(str::trim)
        && !word.is_empty()
        && !value.is_empty()
    {
        return Some((word, value));
    }
    let parts = word.rmatch_indices('=').map(|(at, _)| (&item[..at], item[at + 1..].trim()));
    parts.into_iter().find(|(name, value)| !name.is_empty() && !value.is_empty())
}
