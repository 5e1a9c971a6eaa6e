//! What clients and upstream servers agree on: which bytes belong to which request.

/// A request of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct RequestId {
    /// The client that sent it.
    pub(super) client: u32,
    /// Its number among those of the client.
    pub(super) number: u32,
}

impl RequestId {
    /// The id in the path of a request, such as `/r/3-17`.
    #[must_use]
    pub(super) fn in_path(path: &str) -> Option<Self> {
        path.strip_prefix("/r/")?.parse().ok()
    }

    /// Whether the response is sent in chunks: every other one is, since a body can be cut short in two ways.
    #[must_use]
    pub(super) fn is_chunked(self) -> bool {
        self.number % 2 == 1
    }

    /// The body that belongs to the request and to no other, in both directions.
    #[must_use]
    pub(super) fn body(self, bytes: usize) -> Vec<u8> {
        let line = format!("{self}\n");
        line.as_bytes().iter().copied().cycle().take(bytes).collect()
    }
}

impl std::fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}-{}", self.client, self.number)
    }
}

impl std::str::FromStr for RequestId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (client, number) = text.split_once('-').ok_or(())?;
        Ok(Self { client: client.parse().map_err(drop)?, number: number.parse().map_err(drop)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_names_its_request() {
        let id = RequestId { client: 3, number: 17 };
        assert_eq!(id.body(12), b"3-17\n3-17\n3-");
        assert_ne!(id.body(12), RequestId { client: 31, number: 7 }.body(12));
        assert_eq!(RequestId::in_path("/r/3-17"), Some(id));
        assert_eq!(RequestId::in_path("/r/3-17x"), None);
    }
}
