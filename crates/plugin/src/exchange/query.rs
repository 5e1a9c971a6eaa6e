//! The arguments of a request's query.

use super::Exchange;
use crate::form::{self, Pair};

/// How many arguments are read at most, as in Kong.
const MAX_ARGUMENTS: usize = 1000;

/// How many are looked at for one by name, as in Kong.
const SEARCHED_ARGUMENTS: usize = 100;

impl Exchange {
    /// The path as the client sent it, and its query.
    pub fn path_with_query(&self) -> &str {
        self.request.target()
    }

    /// The first arguments of the query, decoded: as many as asked for, and at most 1000. One without `=` has no value.
    pub fn query_args(&self, max: usize) -> impl Iterator<Item = Pair<'_>> {
        form::pairs(self.query().unwrap_or_default()).take(max.min(MAX_ARGUMENTS))
    }

    /// The first argument of this name among the first 100.
    pub fn query_arg(&self, name: &str) -> Option<Pair<'_>> {
        self.query_args(SEARCHED_ARGUMENTS).find(|pair| *pair.name == *name.as_bytes())
    }

    /// Replaces the query that the upstream will get by these arguments, in the order of their names; those of one name
    /// stay in their order. One without a value is written without `=`.
    pub fn set_query_args<'a>(&mut self, args: impl IntoIterator<Item = (&'a str, Option<&'a [u8]>)>) {
        let mut args: Vec<_> = args.into_iter().collect();
        args.sort_by_key(|(name, _)| *name);
        let pairs = args.into_iter().map(|(name, value)| Pair::new(name, value.map(Into::into)).raw);
        self.set_query(pairs.collect::<Vec<_>>().join("&"));
    }

    /// Removes the arguments of this name from the query that the upstream will get.
    pub fn clear_query_arg(&mut self, name: &str) {
        if let Some(query) = self.query().map(|query| form::without(query, name)) {
            self.set_query(query);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::Gateway;

    #[test]
    fn arguments_are_read_and_written() {
        let mut exchange = Gateway::new(&[]).exchange("GET /p?b=2&a=%41&b=3&flag&e=");
        assert_eq!(exchange.path_with_query(), "/p?b=2&a=%41&b=3&flag&e=");
        let value = |name| exchange.query_arg(name).map(|pair| pair.value.map(|v| v.into_owned()));
        assert_eq!(value("b"), Some(Some(b"2".to_vec())));
        assert_eq!(value("a"), Some(Some(b"A".to_vec())));
        assert_eq!((value("flag"), value("e"), value("x")), (Some(None), Some(Some(Vec::new())), None));
        assert_eq!(exchange.query_args(2).count(), 2);

        exchange.clear_query_arg("b");
        assert_eq!(exchange.query(), Some("a=%41&flag&e="));
        let args: [(&str, Option<&[u8]>); 4] =
            [("z", Some(b"1 2")), ("a", None), ("k", Some(b"")), ("a", Some(b"&"))];
        exchange.set_query_args(args);
        assert_eq!(exchange.query(), Some("a&a=%26&k=&z=1%202"));
        assert_eq!(exchange.path_with_query(), "/p?b=2&a=%41&b=3&flag&e=");
        exchange.set_query_args([]);
        assert_eq!(exchange.query(), None);
    }

    #[test]
    fn no_more_arguments_are_read_than_asked_for() {
        let query = (0..2000).map(|n| format!("a{n}=1")).collect::<Vec<_>>().join("&");
        let mut exchange = Gateway::new(&[]).exchange("GET /");
        exchange.set_query(query);
        assert_eq!(exchange.query_args(usize::MAX).count(), 1000);
        assert!(exchange.query_arg("a99").is_some() && exchange.query_arg("a100").is_none());
    }
}
