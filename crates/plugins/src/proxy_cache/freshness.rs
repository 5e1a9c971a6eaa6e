//! How long a response is fresh, and what may be done with it when it no longer is (RFC 9111, 4.2; RFC 5861).

use super::directives::{Directives, MAX_SECONDS, members, seconds};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};
use weir_plugin::{Headers, Known};

/// Statuses that may be fresh without saying so (RFC 9110, 15.1).
const HEURISTIC: [u16; 12] = [200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501];

/// The longest time that a response is taken to be fresh without saying so.
const MAX_HEURISTIC: u64 = 86_400;

/// How long a response is fresh, how long it is stored, and what it allows once it is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) lifetime: Duration,
    /// For how long it had been stale when it came.
    pub(super) overdue: Duration,
    /// None: as long as there is room.
    pub(super) stored_for: Option<Duration>,
    /// How old it is already, in seconds.
    pub(super) age_before: u64,
    pub(super) stale: StaleUse,
}

/// What a response allows once it is stale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct StaleUse {
    /// It must be validated before each use, even while it is fresh.
    pub(super) always_validate: bool,
    /// No use without validation, whatever the client accepts.
    pub(super) must_revalidate: bool,
    /// For how many seconds it answers while it is validated.
    pub(super) while_revalidate: u64,
    /// For how many seconds it answers if the upstream fails.
    pub(super) if_error: u64,
}

/// What a stored response can do for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reuse {
    /// Answer it.
    Answer,
    /// Answer it, and be validated meanwhile.
    AnswerAndRevalidate,
    /// Nothing before it was validated.
    Validate,
}

impl StaleUse {
    pub(super) fn of(said: &Directives) -> Self {
        let unless_forbidden =
            |seconds: Option<u64>| seconds.filter(|_| !said.must_revalidate && !said.no_cache).unwrap_or(0);
        Self {
            always_validate: said.no_cache,
            // `s-maxage` forbids it too, but for what the response itself allows.
            must_revalidate: said.must_revalidate || said.shared_max_age.is_some(),
            while_revalidate: unless_forbidden(said.stale_while_revalidate),
            if_error: unless_forbidden(said.stale_if_error),
        }
    }
}

impl Term {
    /// What the response can do for a request with these directives.
    pub(super) fn reuse(&self, elapsed: Duration, asked: &Directives) -> Reuse {
        let age = self.age_before + elapsed.as_secs();
        if self.stale.always_validate || asked.max_age.is_some_and(|most| age > most) {
            return Reuse::Validate;
        }
        if let Some(left) = self.lifetime.checked_sub(elapsed).filter(|left| !left.is_zero()) {
            return match asked.min_fresh {
                Some(least) if left < Duration::from_secs(least) => Reuse::Validate,
                _ => Reuse::Answer,
            };
        }
        if asked.min_fresh.is_some() {
            return Reuse::Validate;
        }
        let staleness = self.staleness(elapsed);
        let is_taken = asked.max_stale.is_some_and(|most| staleness <= Duration::from_secs(most));
        match is_taken && !self.stale.must_revalidate {
            true => Reuse::Answer,
            false if staleness < Duration::from_secs(self.stale.while_revalidate) => {
                Reuse::AnswerAndRevalidate
            }
            false => Reuse::Validate,
        }
    }

    /// Whether it must be validated before each use.
    pub(super) fn is_never_fresh(&self) -> bool {
        self.stale.always_validate || self.lifetime.is_zero()
    }

    /// Whether it answers a request that the upstream failed to.
    pub(super) fn answers_errors(&self, elapsed: Duration, asked: &Directives) -> bool {
        let by_client = asked.stale_if_error.filter(|_| !self.stale.must_revalidate).unwrap_or(0);
        let most = self.stale.if_error.max(by_client);
        !self.stale.always_validate && most > 0 && self.staleness(elapsed) <= Duration::from_secs(most)
    }

    fn staleness(&self, elapsed: Duration) -> Duration {
        elapsed.saturating_sub(self.lifetime) + self.overdue
    }
}

/// The seconds for which a response is fresh from when it was made; none if it does not say, and nothing can be
/// concluded.
pub(super) fn lifetime(said: &Directives, status: u16, headers: &Headers, now: SystemTime) -> Option<u64> {
    if let Some(seconds) = said.shared_max_age.or(said.max_age) {
        return Some(seconds);
    }
    let made = headers.get_known(Known::Date).and_then(date).unwrap_or(now);
    match headers.get_all("Expires").last() {
        _ if said.is_targeted => None,
        Some(expires) => {
            let left = date(expires).and_then(|expires| expires.duration_since(made).ok());
            Some(left.map_or(0, |left| left.as_secs().min(MAX_SECONDS)))
        }
        None if said.public || HEURISTIC.contains(&status) => {
            let changed = headers.get("Last-Modified").and_then(date)?;
            let unchanged_for = made.duration_since(changed).ok()?.as_secs();
            Some((unchanged_for / 10).min(MAX_HEURISTIC))
        }
        None => None,
    }
}

/// How old a response is when it arrives, in seconds, after a request that took so long (RFC 9111, 4.2.3).
pub(super) fn age(headers: &Headers, now: SystemTime, delay: Duration) -> u64 {
    let made = headers.get_known(Known::Date).and_then(date);
    let apparent = made.and_then(|made| now.duration_since(made).ok()).map_or(0, |age| age.as_secs());
    apparent.max(stated_age(headers) + delay.as_secs()).min(MAX_SECONDS)
}

/// What `Age` says: the first member counts, and one that is no number does not.
pub(super) fn stated_age(headers: &Headers) -> u64 {
    let first = headers.get("Age").and_then(|field| members(field).next());
    first.map_or(0, |member| seconds(member.trim_ascii()))
}

pub(super) fn date(value: &[u8]) -> Option<SystemTime> {
    httpdate::parse_http_date(std::str::from_utf8(value).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Directives {
        Directives::of([text.as_bytes()].into_iter())
    }

    fn term(seconds: u64, said: &str) -> Term {
        let stale = StaleUse::of(&asked(said));
        let (lifetime, overdue) = (Duration::from_secs(seconds), Duration::ZERO);
        Term { lifetime, overdue, stored_for: None, age_before: 0, stale }
    }

    #[test]
    fn stale_responses_answer_whom_they_may() {
        use Reuse::{Answer, AnswerAndRevalidate, Validate};
        for (said, elapsed, text, expected) in [
            ("", 59, "", Answer),
            ("", 60, "", Validate),
            ("", 60, "max-stale", Answer),
            ("", 70, "max-stale=10", Answer),
            ("", 71, "max-stale=10", Validate),
            ("", 70, "max-stale, max-age=69", Validate),
            ("", 70, "max-stale, min-fresh=0", Validate),
            ("", 50, "min-fresh=10", Answer),
            ("", 51, "min-fresh=10", Validate),
            ("", 50, "max-age=50", Answer),
            ("", 51, "max-age=50", Validate),
            ("must-revalidate", 59, "max-stale", Answer),
            ("must-revalidate", 60, "max-stale", Validate),
            ("proxy-revalidate", 60, "max-stale", Validate),
            ("s-maxage=60", 60, "max-stale", Validate),
            ("no-cache", 0, "", Validate),
            ("stale-while-revalidate=9", 68, "", AnswerAndRevalidate),
            ("stale-while-revalidate=9", 69, "", Validate),
            ("stale-while-revalidate=9", 61, "min-fresh=0", Validate),
            ("stale-while-revalidate=9", 61, "max-age=60", Validate),
            ("s-maxage=60, stale-while-revalidate=9", 61, "", AnswerAndRevalidate),
            ("stale-while-revalidate=9, must-revalidate", 61, "", Validate),
        ] {
            let found = term(60, said).reuse(Duration::from_secs(elapsed), &asked(text));
            assert_eq!(found, expected, "{said} {elapsed} {text}");
        }
        let aged = Term { age_before: 30, ..term(60, "") };
        assert_eq!(aged.reuse(Duration::from_secs(21), &asked("max-age=50")), Validate);
    }

    #[test]
    fn errors_are_answered_for_as_long_as_allowed() {
        for (said, elapsed, text, expected) in [
            ("", 61, "", false),
            ("stale-if-error=5", 65, "", true),
            ("stale-if-error=5", 66, "", false),
            ("stale-if-error=5, must-revalidate", 61, "", false),
            ("stale-if-error=5, no-cache", 61, "", false),
            ("", 65, "stale-if-error=5", true),
            ("s-maxage=60", 65, "stale-if-error=5", false),
            ("must-revalidate", 65, "stale-if-error=5", false),
        ] {
            let found = term(60, said).answers_errors(Duration::from_secs(elapsed), &asked(text));
            assert_eq!(found, expected, "{said} {elapsed} {text}");
        }
    }

    #[test]
    fn what_was_stale_when_it_came_is_staler_now() {
        let overdue = Duration::from_secs(4);
        let late = Term { overdue, ..term(0, "stale-if-error=5, stale-while-revalidate=5") };
        for (elapsed, answers) in [(0, true), (1, true), (2, false)] {
            let elapsed = Duration::from_secs(elapsed);
            assert_eq!(late.answers_errors(elapsed, &asked("")), answers, "{elapsed:?}");
        }
        assert_eq!(late.reuse(Duration::ZERO, &asked("")), Reuse::AnswerAndRevalidate);
        assert_eq!(late.reuse(Duration::from_secs(1), &asked("")), Reuse::Validate);
    }

    #[test]
    fn only_the_first_age_counts_and_only_if_it_is_one() {
        for (lines, expected) in [
            (&["7200, 0"][..], 7200),
            (&["0, 7200"], 0),
            (&["5", "7200"], 5),
            (&["abc"], 0),
            (&["-7200"], 0),
            (&["7200.0"], 0),
            (&["99999999999"], MAX_SECONDS),
        ] {
            let mut headers = Headers::new();
            lines.iter().for_each(|line| headers.append("Age", line.as_bytes()));
            assert_eq!(stated_age(&headers), expected, "{lines:?}");
        }
    }

    #[test]
    fn a_response_is_as_old_as_its_date_or_its_age_says() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let mut headers = Headers::new();
        headers.append("Date", httpdate::fmt_http_date(now - Duration::from_secs(40)).as_bytes());
        assert_eq!(age(&headers, now, Duration::from_secs(3)), 40);
        headers.append("Age", b"39");
        assert_eq!(age(&headers, now, Duration::from_secs(3)), 42);
    }
}
