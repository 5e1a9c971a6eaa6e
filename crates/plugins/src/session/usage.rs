//! When a session was used, in a cookie of its own that is bound to the session's id: a response that says it late changes nothing
//! else, such as a session that was renewed meanwhile, or has ended.

use super::cookie::{Jar, set};
use super::seal::Sealer;
use aws_lc_rs::error::Unspecified;
use weir_plugin::Secret;

/// When a session was used, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// When its rolling timeout began.
    pub(crate) saved: u64,
    /// When its idling timeout began.
    pub(crate) used: u64,
}

/// Reads and writes the cookies that say it.
pub(crate) struct UseCookies(Sealer);

/// The name of the cookie for a session in the cookie of this name.
pub(crate) fn use_cookie(name: &str) -> String {
    format!("{name}_used")
}

impl UseCookies {
    pub(crate) fn new(secret: &Secret, purpose: &str) -> Self {
        Self(Sealer::new(secret, purpose))
    }

    /// What the cookies beside `name` say of the session with this id: the latest, if several do.
    pub(crate) fn read(&self, jar: &Jar<'_>, name: &str, id: &[u8]) -> Option<Usage> {
        let opened = jar.texts(&use_cookie(name)).filter_map(|text| self.0.open(&text, id));
        opened.filter_map(|bytes| Usage::decode(&bytes)).max_by_key(|usage| usage.used)
    }

    /// The values of `Set-Cookie` that say it.
    pub(crate) fn write(
        &self,
        name: &str,
        id: &[u8],
        usage: Usage,
        attributes: &str,
    ) -> Result<Vec<String>, Unspecified> {
        set(&use_cookie(name), &self.0.seal(&usage.encode(), id)?, attributes).ok_or(Unspecified)
    }
}

impl Usage {
    fn encode(self) -> Vec<u8> {
        [self.saved.to_be_bytes(), self.used.to_be_bytes()].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (times, rest) = bytes.as_chunks();
        let ([saved, used], []) = (times, rest) else { return None };
        Some(Self { saved: u64::from_be_bytes(*saved), used: u64::from_be_bytes(*used) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_use_of_a_session_counts_and_of_no_other_session() {
        let cookies = UseCookies::new(&"secret".to_owned().into(), "use");
        let write = |id: &[u8], used| {
            let set = cookies.write("s", id, Usage { saved: 1, used }, "; Path=/").unwrap();
            set[0].split(';').next().unwrap().to_owned()
        };
        let line = format!("{}; s_used=1rubbish; {}; {}", write(b"a", 5), write(b"a", 7), write(b"b", 9));
        let jar = Jar::of([line.as_bytes()].into_iter(), "s");
        let read = |id: &[u8]| cookies.read(&jar, "s", id);
        assert_eq!(read(b"a"), Some(Usage { saved: 1, used: 7 }));
        assert_eq!(read(b"b"), Some(Usage { saved: 1, used: 9 }));
        assert_eq!(read(b"c"), None);
        assert_eq!(cookies.read(&jar, "t", b"a"), None);
    }
}
