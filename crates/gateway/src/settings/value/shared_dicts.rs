//! Dictionaries that Lua shares between workers.

use super::{Bytes, Value};

/// The smallest dictionary, as in nginx.
const MIN_SIZE: u64 = 8192;

/// Dictionaries by name, with their sizes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SharedDicts(pub(crate) Vec<(String, u64)>);

impl Value for SharedDicts {
    const KIND: &'static str = "names and sizes (`tokens 10m, counters 1m`)";
    /// Kong's way to declare several is to end the directive and to begin another, so that is read too.
    fn parse(text: &str) -> Result<Self, String> {
        let parts = text.split([',', ';']).map(str::trim).filter(|part| !part.is_empty());
        let parts = parts.map(|part| part.strip_prefix("lua_shared_dict ").unwrap_or(part));
        parts.map(dict).collect::<Result<Vec<_>, _>>().map(Self)
    }
}

fn dict(part: &str) -> Result<(String, u64), String> {
    let wrong =
        || format!("`{part}` is not a name and a size: write `tokens 10m`, and `,` before the next one");
    let (name, size) = part.split_once(char::is_whitespace).ok_or_else(wrong)?;
    match Bytes::parse(size.trim()).map_err(|_| wrong())? {
        Bytes(size) if size >= MIN_SIZE => Ok((name.to_owned(), size)),
        Bytes(_) => Err(format!("`{part}` is too small: write at least `{name} 8k`")),
    }
}

#[cfg(test)]
mod tests {
    use super::{SharedDicts, Value};

    #[test]
    fn names_have_sizes() {
        let parsed = |text: &str| SharedDicts::parse(text).map(|dicts| dicts.0);
        let one = |name: &str, size: u64| (name.to_owned(), size);
        assert_eq!(parsed(""), Ok(vec![]));
        assert_eq!(parsed("tokens 10m"), Ok(vec![one("tokens", 10 << 20)]));
        let two = Ok(vec![one("a", 8192), one("b", 1 << 20)]);
        assert_eq!(parsed("a 8k, b  1m"), two);
        assert_eq!(parsed("a 8k; lua_shared_dict b 1m;"), two);
        for wrong in ["a", "a b", "a 8k b 1m", "a 8191", "a -1"] {
            assert!(parsed(wrong).is_err_and(|error| error.contains('`')), "{wrong}");
        }
    }
}
