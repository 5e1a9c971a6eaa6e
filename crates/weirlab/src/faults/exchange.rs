//! What clients and upstream servers agree on: which bytes belong to which request.

/// Clients from this number on are no part of the load: they look whether the gateway answers.
pub(super) const FIRST_PROBE: u32 = 1_000_000;

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

    /// Whether it is of the load, and not of a client that looks whether the gateway answers.
    #[must_use]
    pub(super) fn is_of_load(self) -> bool {
        self.client < FIRST_PROBE
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

    /// Whether a client sends this: a POST with a body of so many bytes, or a GET without one.
    #[must_use]
    pub(super) fn is_as_sent(self, method: &str, body: &[u8], bytes: usize) -> bool {
        match method {
            "POST" => body == self.body(bytes),
            "GET" => body.is_empty(),
            _ => false,
        }
    }

    /// The requests that begin in these bytes of a connection.
    #[must_use]
    pub(super) fn all_in(bytes: &[u8]) -> Vec<Self> {
        let text = String::from_utf8_lossy(bytes);
        // What follows the last blank may be a part of an id.
        let whole = text.rsplit_once(' ').map_or("", |(whole, _)| whole);
        whole.split(' ').filter_map(Self::in_path).collect()
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

    #[test]
    fn a_body_must_be_whole_and_of_its_method() {
        let id = RequestId { client: 3, number: 17 };
        assert!(id.is_as_sent("POST", &id.body(12), 12) && id.is_as_sent("GET", b"", 12));
        for length in (0..12).chain([13]) {
            assert!(!id.is_as_sent("POST", &id.body(length), 12), "{length}");
        }
        let other = RequestId { client: 3, number: 18 };
        assert!(!id.is_as_sent("POST", &other.body(12), 12));
        assert!(!id.is_as_sent("GET", &id.body(12), 12) && !id.is_as_sent("PUT", &id.body(12), 12));
    }

    #[test]
    fn requests_are_found_by_their_paths_alone() {
        let ids = |bytes: &str| RequestId::all_in(bytes.as_bytes());
        let id = RequestId { client: 3, number: 17 };
        assert_eq!(ids("POST /r/3-17 HTTP/1.1\r\nHost: faults\r\n\r\n3-17\n3-17\n"), [id]);
        assert_eq!(ids("GET /r/3-17 "), [id]);
        assert!(ids("GET /r/3-1").is_empty() && ids("3-17\n3-17\n").is_empty() && ids("").is_empty());
    }
}
