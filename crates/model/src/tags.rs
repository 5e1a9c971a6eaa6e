//! The tags with an effect: which entities may carry them, and the numbers that some of them take, as in
//! `weir-max-requests:100`. Kong's entities have no fields for these, and its tools pass tags through unchanged.

use crate::entity::EntityKind::{self, Routes, Services, Upstreams};
use crate::schema::{did_you_mean, quoted};
use std::ops::RangeInclusive;

/// Speaks HTTP/2 to the service.
pub const UPSTREAM_HTTP2: &str = "weir-upstream-http2";
/// Sends the header of the PROXY protocol, version 1.
pub const PROXY_PROTOCOL_V1: &str = "weir-proxy-protocol-v1";
/// Sends the header of the PROXY protocol, version 2.
pub const PROXY_PROTOCOL_V2: &str = "weir-proxy-protocol-v2";
/// Requests of the route are shed last.
pub const PRIORITY_HIGH: &str = "weir-priority-high";
/// Requests of the route are shed first.
pub const PRIORITY_LOW: &str = "weir-priority-low";
/// Limits the requests in flight to the upstream by its latency.
pub const ADAPTIVE_CONCURRENCY: &str = "weir-adaptive-concurrency";
/// The most requests in flight to the upstream.
pub const MAX_REQUESTS: &str = "weir-max-requests";
/// The most requests in flight to each target.
pub const TARGET_MAX_REQUESTS: &str = "weir-target-max-requests";
/// The most requests that wait for one of these limits.
pub const MAX_WAITING: &str = "weir-max-waiting";
/// The percentage of requests that may be retries.
pub const RETRY_BUDGET: &str = "weir-retry-budget";
/// Ejects a target after so many errors in a row.
pub const EJECT_ERRORS: &str = "weir-eject-errors";
/// Ejects a target with this percentage of errors.
pub const EJECT_ERROR_SHARE: &str = "weir-eject-error-share";
/// Ejects a target that takes so many times as long as the others.
pub const EJECT_LATENCY: &str = "weir-eject-latency";
/// The percentage of targets that may be ejected at a time.
pub const EJECT_MAX_SHARE: &str = "weir-eject-max-share";
/// How many seconds a target is ejected for, the first time.
pub const EJECT_TIME: &str = "weir-eject-time";
/// How many seconds a target that is available again takes to get its whole share.
pub const SLOW_START: &str = "weir-slow-start";

/// A tag with an effect.
struct Tag {
    name: &'static str,
    kinds: &'static [EntityKind],
    /// The numbers that it takes behind a colon, if any.
    numbers: Option<RangeInclusive<u32>>,
}

const fn flag(name: &'static str, kinds: &'static [EntityKind]) -> Tag {
    Tag { name, kinds, numbers: None }
}

const fn number(name: &'static str, kinds: &'static [EntityKind], numbers: RangeInclusive<u32>) -> Tag {
    Tag { name, kinds, numbers: Some(numbers) }
}

const BOTH: &[EntityKind] = &[Services, Upstreams];
const MAX: u32 = 1_000_000;

const TAGS: [Tag; 16] = [
    flag(UPSTREAM_HTTP2, &[Services]),
    flag(PROXY_PROTOCOL_V1, &[Services]),
    flag(PROXY_PROTOCOL_V2, &[Services]),
    flag(PRIORITY_HIGH, &[Routes]),
    flag(PRIORITY_LOW, &[Routes]),
    flag(ADAPTIVE_CONCURRENCY, BOTH),
    number(MAX_REQUESTS, BOTH, 1..=MAX),
    number(TARGET_MAX_REQUESTS, BOTH, 1..=MAX),
    number(MAX_WAITING, BOTH, 0..=MAX),
    number(RETRY_BUDGET, BOTH, 0..=100),
    number(EJECT_ERRORS, &[Upstreams], 1..=MAX),
    number(EJECT_ERROR_SHARE, &[Upstreams], 1..=100),
    number(EJECT_LATENCY, &[Upstreams], 2..=1000),
    number(EJECT_MAX_SHARE, &[Upstreams], 1..=100),
    number(EJECT_TIME, &[Upstreams], 1..=86_400),
    number(SLOW_START, &[Upstreams], 1..=86_400),
];

impl Tag {
    fn named(name: &str) -> Option<&'static Tag> {
        TAGS.iter().find(|tag| tag.name == name)
    }

    /// As it is written, with a number that it takes.
    fn example(&self) -> String {
        match &self.numbers {
            None => self.name.to_owned(),
            Some(numbers) => format!("{}:{}", self.name, numbers.start()),
        }
    }
}

/// The name of a tag, and what is behind its colon.
fn split(tag: &str) -> (&str, Option<&str>) {
    tag.split_once(':').map_or((tag, None), |(name, value)| (name, Some(value)))
}

/// Whether an entity with these tags has one without a number.
pub fn has(tags: &Option<Vec<String>>, name: &str) -> bool {
    tags.iter().flatten().any(|tag| tag == name)
}

/// The number of a tag; none if there is no such tag, or its number is not valid.
pub fn number_of(tags: &Option<Vec<String>>, name: &str) -> Option<u32> {
    let numbers = Tag::named(name)?.numbers.as_ref()?;
    let values = tags.iter().flatten().map(|tag| split(tag)).filter(|(found, _)| *found == name);
    values.filter_map(|(_, value)| value?.parse().ok()).find(|value| numbers.contains(value))
}

/// The tags of these that limit requests to the upstream of an entity.
pub(crate) fn limits(tags: &Option<Vec<String>>) -> impl Iterator<Item = &str> {
    let tags = tags.iter().flatten().map(String::as_str);
    tags.filter(|tag| Tag::named(split(tag).0).is_some_and(|tag| tag.kinds == BOTH))
}

/// What is probably wrong with a tag of an entity of this kind, if it looks like one of these.
pub(crate) fn doubt(written: &str, kind: EntityKind) -> Option<String> {
    if !written.starts_with("weir-") {
        return None;
    }
    let (shown, (name, value)) = (quoted(written), split(written));
    let Some(tag) = Tag::named(name) else {
        let of_kind = TAGS.iter().filter(|tag| tag.kinds.contains(&kind)).map(|tag| tag.name);
        let (hint, known) = (did_you_mean(name, of_kind.clone()), of_kind.collect::<Vec<_>>().join(", "));
        let known = if known.is_empty() { "none".to_owned() } else { known };
        return Some(format!(
            "the tag `{shown}` has no effect; on {} those with one are: {known}{hint}",
            kind.as_str()
        ));
    };
    if !tag.kinds.contains(&kind) {
        let kinds: Vec<_> = tag.kinds.iter().map(|kind| kind.as_str()).collect();
        return Some(format!(
            "the tag `{shown}` has an effect on {} alone; move it there",
            kinds.join(" and ")
        ));
    }
    match (&tag.numbers, value) {
        (None, None) => None,
        (None, Some(_)) => {
            Some(format!("the tag `{shown}` takes no number and has no effect; write `{name}`"))
        }
        (Some(numbers), value) => {
            let is_valid =
                value.and_then(|value| value.parse().ok()).is_some_and(|value| numbers.contains(&value));
            let (least, most) = (numbers.start(), numbers.end());
            let message = || {
                format!(
                    "the tag `{shown}` has no effect: it needs a number from {least} to {most}, as in `{}`",
                    tag.example()
                )
            };
            (!is_valid).then(message)
        }
    }
}

/// How long a request is spared when some must be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Shed first.
    Low,
    /// Shed at the limit.
    Normal,
    /// Shed last.
    High,
}

impl Priority {
    /// The priority of a route with these tags.
    pub fn of(tags: &Option<Vec<String>>) -> Priority {
        if has(tags, PRIORITY_HIGH) {
            Priority::High
        } else if has(tags, PRIORITY_LOW) {
            Priority::Low
        } else {
            Priority::Normal
        }
    }

    /// What is left of a limit to requests of this priority: four fifths to low ones, a quarter more to high ones.
    pub fn share_of(self, limit: usize) -> usize {
        match self {
            Priority::Low => Priority::least_share_of(limit),
            Priority::Normal => limit,
            Priority::High => limit.saturating_add((limit / 4).max(1)),
        }
    }

    /// What is left of it to those of any priority.
    pub fn least_share_of(limit: usize) -> usize {
        limit - limit / 5
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tags(tags: &[&str]) -> Option<Vec<String>> {
        Some(tags.iter().map(|tag| (*tag).to_owned()).collect())
    }

    #[test]
    fn numbers_are_read_from_tags() {
        let some = tags(&["team", "weir-max-requests:70", "weir-retry-budget:101", "weir-slow-start"]);
        let read = [MAX_REQUESTS, RETRY_BUDGET, SLOW_START, MAX_WAITING].map(|name| number_of(&some, name));
        assert_eq!(read, [Some(70), None, None, None]);
        assert_eq!(number_of(&None, MAX_REQUESTS), None);
        assert!(has(&tags(&[ADAPTIVE_CONCURRENCY]), ADAPTIVE_CONCURRENCY));
    }

    #[test]
    fn a_tag_without_effect_is_doubted() {
        let doubts = [
            ("team:weir", Services, None),
            ("weir-max-requests:1", Services, None),
            ("weir-max-requests:0", Services, Some("from 1 to 1000000, as in `weir-max-requests:1`")),
            ("weir-max-requests", Upstreams, Some("needs a number")),
            ("weir-priority-high", Services, Some("on routes alone")),
            ("weir-priority-high:1", Routes, Some("takes no number")),
            ("weir-adaptive-concurency", Upstreams, Some("did you mean `weir-adaptive-concurrency`?")),
            ("weir-priority", EntityKind::Plugins, Some("those with one are: none")),
        ];
        for (tag, kind, expected) in doubts {
            let found = doubt(tag, kind);
            let is_as_expected = match (&found, expected) {
                (Some(found), Some(expected)) => found.contains(expected),
                (found, expected) => found.is_none() && expected.is_none(),
            };
            assert!(is_as_expected, "{tag}: {found:?}");
        }
    }

    #[test]
    fn priorities_share_a_limit() {
        let shares = |limit| [Priority::Low, Priority::Normal, Priority::High].map(|it| it.share_of(limit));
        assert_eq!(shares(100), [80, 100, 125]);
        assert_eq!(shares(1), [1, 1, 2]);
        assert_eq!(Priority::High.share_of(usize::MAX), usize::MAX);
        assert_eq!(Priority::of(&tags(&["weir-priority-low"])), Priority::Low);
        assert_eq!(Priority::of(&None), Priority::Normal);
    }
}
