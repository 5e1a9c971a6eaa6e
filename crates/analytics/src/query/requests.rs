//! Single requests, page by page.
use crate::cause::Origin;
use crate::samples::{Sample, Samples};
use std::sync::Arc;
use std::time::Duration;

/// Which requests to show. What is not set holds for all.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RequestFilter {
    /// Of this route.
    pub route: Option<u32>,
    /// Of a route that has this service.
    pub routes: Option<Vec<u32>>,
    /// Of this consumer.
    pub consumer: Option<u32>,
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
}

impl RequestFilter {
    /// Whether a sample fulfils all conditions.
    pub fn matches(&self, sample: &Sample) -> bool {
        let record = &sample.record;
        let slow = self.at_least.map(crate::bucket::Bucket::of_duration);
        self.route.is_none_or(|route| route == record.route)
            && self.routes.as_ref().is_none_or(|routes| routes.contains(&record.route))
            && self.consumer.is_none_or(|consumer| consumer == record.consumer)
            && self.status_from.is_none_or(|status| record.status >= status)
            && self.status_to.is_none_or(|status| record.status <= status)
            && self.method.as_deref().is_none_or(|method| method == sample.method())
            && self.path_prefix.as_deref().is_none_or(|prefix| sample.path().starts_with(prefix))
            && slow.is_none_or(|bucket| record.total.is_some() && record.total >= bucket)
            && self.origin.is_none_or(|origin| origin == record.cause.origin())
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
pub fn requests(samples: &Samples, filter: &RequestFilter, before: Option<u64>, limit: usize) -> Page {
    let limit = limit.max(1);
    let mut matching = samples.before(before.unwrap_or(u64::MAX)).filter(|sample| filter.matches(sample));
    let requests: Vec<_> = matching.by_ref().take(limit).cloned().collect();
    let next = matching.next().and(requests.last()).map(|sample| sample.number);
    Page { requests, next }
}
