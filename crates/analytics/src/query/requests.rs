//! Single requests: page by page, or as they arrive.
use crate::bucket::Bucket;
use crate::cause::{Cause, Origin};
use crate::entities::Entities;
use crate::query::Frame;
use crate::samples::{Sample, Samples};
use std::sync::Arc;
use std::time::Duration;

/// Which requests to show. What is not set holds for all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestFilter {
    /// That ended in this frame.
    pub frame: Option<Frame>,
    /// Of this route.
    pub route: Option<u32>,
    /// Of a route that has this service.
    pub service: Option<u32>,
    /// Of this consumer.
    pub consumer: Option<u32>,
    /// To this address.
    pub upstream: Option<u32>,
    /// With a status from here
    pub status_from: Option<u16>,
    /// to here.
    pub status_to: Option<u16>,
    /// With this method.
    pub method: Option<String>,
    /// With a path that begins so.
    pub path_prefix: Option<String>,
    /// That took at least this long.
    pub at_least: Option<Duration>,
    /// With an outcome from this side.
    pub origin: Option<Origin>,
    /// With this cause.
    pub cause: Option<CauseFilter>,
}

/// Which causes to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CauseFilter {
    /// All of this name, such as every plugin.
    Named(String),
    /// This one.
    Exactly(Cause),
}

impl CauseFilter {
    fn matches(&self, cause: Cause) -> bool {
        match self {
            Self::Named(name) => name == cause.name(),
            Self::Exactly(exactly) => *exactly == cause,
        }
    }
}

impl RequestFilter {
    /// Whether a sample fulfils all conditions.
    pub fn matches(&self, sample: &Sample, entities: &Entities) -> bool {
        let record = &sample.record;
        let slow = self.at_least.map(Bucket::of_duration);
        self.frame.is_none_or(|frame| (frame.from..frame.to).contains(&(sample.at / 1_000)))
            && self.route.is_none_or(|route| route == record.route)
            && self.service.is_none_or(|service| service == entities.service_of(record.route))
            && self.consumer.is_none_or(|consumer| consumer == record.consumer)
            && self.upstream.is_none_or(|upstream| upstream == record.upstream)
            && self.status_from.is_none_or(|status| record.status >= status)
            && self.status_to.is_none_or(|status| record.status <= status)
            && self.method.as_deref().is_none_or(|method| method == sample.method())
            && self.path_prefix.as_deref().is_none_or(|prefix| sample.path().starts_with(prefix))
            && slow.is_none_or(|bucket| record.total.is_some() && record.total >= bucket)
            && self.origin.is_none_or(|origin| origin == record.cause.origin())
            && self.cause.as_ref().is_none_or(|cause| cause.matches(record.cause))
    }
}

/// Some requests, newest first.
#[derive(Debug, Clone, PartialEq)]
pub struct Page {
    /// The requests.
    pub requests: Vec<Arc<Sample>>,
    /// Give this number to get the next page; none on the last one.
    pub next: Option<u64>,
}

/// The requests that fulfil a filter, newest first, at most `limit`, from before a number that a page has given.
pub fn requests(
    samples: &Samples,
    filter: &RequestFilter,
    before: Option<u64>,
    limit: usize,
    entities: &Entities,
) -> Page {
    let limit = limit.max(1);
    let mut matching =
        samples.before(before.unwrap_or(u64::MAX)).filter(|sample| filter.matches(sample, entities));
    let requests: Vec<_> = matching.by_ref().take(limit).cloned().collect();
    let next = matching.next().and(requests.last()).map(|sample| sample.number);
    Page { requests, next }
}

/// Requests that have arrived for one who watches.
#[derive(Debug, Clone, PartialEq)]
pub struct Arrivals {
    /// The requests, oldest first.
    pub requests: Vec<Arc<Sample>>,
    /// The number to go on from.
    pub last: u64,
    /// Samples in between that are gone already.
    pub missed: u64,
}

/// The requests that fulfil a filter and arrived after a number, oldest first, at most `limit`. A number from before the
/// start stands for the first one, and one that is not given yet for the last one.
pub fn arrivals(
    samples: &Samples,
    filter: &RequestFilter,
    after: u64,
    limit: usize,
    entities: &Entities,
) -> Arrivals {
    let last = after.clamp(samples.first() - 1, samples.newest());
    let mut arrivals = Arrivals { requests: Vec::new(), last, missed: 0 };
    let mut known = samples.after(last).peekable();
    if let Some(first) = known.peek() {
        arrivals.missed = first.number - 1 - last;
    }
    for sample in known {
        if arrivals.requests.len() == limit {
            break;
        }
        arrivals.last = sample.number;
        if filter.matches(sample, entities) {
            arrivals.requests.push(Arc::clone(sample));
        }
    }
    arrivals
}
