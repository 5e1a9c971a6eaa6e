//! What is left to check of most candidates once the index has found them. The index stores it beside the prefix.
use super::methods::Methods;
use super::{Query, Scheme};

/// What is left to check of most candidates.
#[derive(Debug, Clone, Copy)]
pub(super) struct Summary {
    pub(super) index: u32,
    /// The length of the prefix, which the index has compared. A route without paths counts as matching `/`.
    pub(super) length: u32,
    /// What may follow the prefix.
    pub(super) end: PathEnd,
    pub(super) methods: Methods,
    /// The only scheme that requests may have, where that is a criterion.
    pub(super) scheme: Option<Scheme>,
}

/// What may follow the prefix of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathEnd {
    /// Anything.
    Open,
    /// Nothing: `http.path == "/a"`.
    Whole,
    /// Nothing, or a slash, which counts as matched: `http.path == "/a" || http.path ^= "/a/"`.
    Segment,
}

/// How a candidate's path matched.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hit {
    pub(super) index: u32,
    pub(super) length: u32,
    /// The position of the regex that matched, if one did.
    pub(super) pattern: Option<u32>,
}

const _: () = assert!(size_of::<Summary>() == 12);

impl Summary {
    /// How the path of a candidate matched that has no other rules, if the rest of the request does.
    pub(super) fn check(self, query: &Query<'_>) -> Option<Hit> {
        let matches =
            self.scheme.is_none_or(|scheme| scheme == query.scheme) && self.methods.allow(query.method);
        let length = self.end.matched(self.length, query.path).filter(|_| matches)?;
        Some(Hit { index: self.index, length, pattern: None })
    }
}

impl PathEnd {
    /// How many bytes of a path matched that begins with a prefix of this length.
    fn matched(self, length: u32, path: &str) -> Option<u32> {
        let next = path.as_bytes().get(length as usize);
        match (self, next) {
            (PathEnd::Open, Some(_)) | (PathEnd::Whole | PathEnd::Segment, None) => Some(length),
            (PathEnd::Open, None) => Some(path.len() as u32),
            (PathEnd::Segment, Some(b'/')) => Some(length + 1),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_follows_a_prefix_decides() {
        let matched = |end: PathEnd| ["/a", "/a/b", "/ab"].map(|path| end.matched(2, path));
        assert_eq!(matched(PathEnd::Open), [Some(2); 3]);
        assert_eq!(matched(PathEnd::Whole), [Some(2), None, None]);
        assert_eq!(matched(PathEnd::Segment), [Some(2), Some(3), None]);
        assert_eq!(PathEnd::Open.matched(1, ""), Some(0));
    }
}
