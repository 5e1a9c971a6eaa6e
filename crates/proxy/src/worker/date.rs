//! The time as HTTP writes it (RFC 9110, 5.6.7), written once a second.

use std::cell::Cell;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// `Sun, 06 Nov 1994 08:49:37 GMT`
const LEN: usize = 29;

/// The date of one worker's responses.
pub(crate) struct HttpDate {
    text: Cell<[u8; LEN]>,
    /// When its second is over.
    until: Cell<Option<Instant>>,
}

impl HttpDate {
    pub(crate) fn new() -> Self {
        Self { text: Cell::new([b' '; LEN]), until: Cell::new(None) }
    }

    /// The date at a moment that has just been.
    #[inline]
    pub(crate) fn at(&self, now: Instant) -> [u8; LEN] {
        if self.until.get().is_none_or(|until| now >= until) {
            self.write(now);
        }
        self.text.get()
    }

    #[cold]
    fn write(&self, now: Instant) {
        let time = SystemTime::now();
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let left = Duration::from_secs(1) - Duration::from_nanos(since.subsec_nanos().into());
        if let Some(text) = httpdate::fmt_http_date(time).as_bytes().as_array() {
            self.text.set(*text);
        }
        self.until.set(Some(now + left));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_lasts_for_its_second() {
        let (date, now) = (HttpDate::new(), Instant::now());
        let text = date.at(now);
        let read = httpdate::parse_http_date(str::from_utf8(&text).unwrap()).unwrap();
        assert!(read <= SystemTime::now());
        let until = date.until.get().unwrap();
        assert!(until > now && until <= now + Duration::from_secs(1));
        date.text.set([b'-'; LEN]);
        assert_eq!(date.at(now), [b'-'; LEN], "it is not written again");
        assert_ne!(date.at(until), [b'-'; LEN]);
    }
}
