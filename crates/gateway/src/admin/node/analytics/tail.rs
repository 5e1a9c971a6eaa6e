//! `/analytics/requests/tail`: requests as they end, as server-sent events.
//!
//! Each listener has a place in the order of all requests, which is the id of its last event. It looks for new ones
//! twenty times a second. One that reads too slowly finds that older requests are gone, and gets their number.
use super::filter::{self, filter};
use super::names::Names;
use super::requests::check_sampled;
use super::{ApiRequest, configuration, invalid, not_recorded, sample};
use crate::analytics::{Analytics, Glance};
use crate::control::Control;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde_json::json;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::time::{Interval, MissedTickBehavior, interval};
use weir_analytics::query::{self, Arrivals, RequestFilter};
use weir_analytics::samples::WatchGuard;
use weir_analytics::store::Store;
use weir_model::schema::quoted;

/// How often a listener gets what is new.
const INTERVAL: Duration = Duration::from_millis(50);
/// After this time without a request, a comment shows that the connection is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(5);
/// Requests that a listener gets at once.
const MAX_BATCH: usize = 256;

/// The highest rate that a listener can limit itself to.
const MAX_RATE: u32 = 10_000;
/// The intervals of a second.
const INTERVALS: u32 = 20;

/// The arguments of a tail.
pub(super) const ARGUMENTS: &[&[&str]] = &[filter::ARGUMENTS, &["after", "max_per_second"]];

/// A listener, on its way to the body of its response.
pub(super) struct Listener {
    filter: RequestFilter,
    /// The last request that it knows.
    last: u64,
    /// How many requests had been skipped because of a limit.
    skipped: u64,
    pace: Option<Pace>,
    _watch: WatchGuard,
}

/// Leaves out requests for a listener that takes only so many a second. Those of a second may come at once.
struct Pace {
    per_second: u32,
    /// What may be sent now, in parts of a request.
    credit: u32,
}

impl Pace {
    fn new(per_second: u32) -> Pace {
        Pace { per_second, credit: per_second * INTERVALS }
    }

    /// How many of the requests of an interval are sent.
    fn allow(&mut self, requests: usize) -> usize {
        self.credit = (self.credit + self.per_second).min(self.per_second * INTERVALS);
        let allowed = requests.min((self.credit / INTERVALS) as usize);
        self.credit -= allowed as u32 * INTERVALS;
        allowed
    }
}

/// Begins to listen.
pub(super) fn listen(call: &ApiRequest, analytics: &Analytics) -> Result<Listener, (StatusCode, String)> {
    check_sampled(call)?;
    let configuration = configuration(call);
    let names = Names::new(&configuration.document, &[]);
    let resumed =
        call.headers.get("last-event-id").and_then(|id| id.to_str().ok()).or(call.argument("after"));
    let last = resumed.map(|text| {
        let wrong = |_| invalid(format!("after, Last-Event-ID: `{}` is no id of an event", quoted(text)));
        text.parse::<u64>().map_err(wrong)
    });
    let last = last.transpose()?;
    let pace = max_per_second(call)?.map(Pace::new);
    analytics
        .ask(|store| {
            let samples = &store.samples;
            let filter = filter(call, &names, store.entities())?;
            let too_many =
                "too many listeners watch requests; end one of them, or ask for /analytics/requests";
            let watch = samples.watch().ok_or((StatusCode::SERVICE_UNAVAILABLE, too_many.to_owned()))?;
            let (last, skipped) = (last.unwrap_or(samples.newest()), samples.skipped());
            Ok(Listener { filter, last, skipped, pace, _watch: watch })
        })
        .ok_or_else(not_recorded)?
}

/// `max_per_second`: how many requests a listener takes.
fn max_per_second(call: &ApiRequest) -> Result<Option<u32>, (StatusCode, String)> {
    let Some(text) = call.argument("max_per_second") else { return Ok(None) };
    let rate = text.parse().ok().filter(|rate| (1..=MAX_RATE).contains(rate));
    rate.map(Some).ok_or_else(|| {
        let shown = quoted(text);
        invalid(format!("max_per_second: `{shown}` is not a number of requests; write 1 to {MAX_RATE}"))
    })
}

/// The response to a listener, which ends with the node.
pub(super) fn response(control: Arc<Control>, listener: Listener) -> Response {
    let mut clock = interval(INTERVAL);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let body = TailBody { control, listener, clock, sent: None };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // nginx would wait until it has a buffer full.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::new(body)).into_response()
}

/// Events, for as long as the client reads them.
struct TailBody {
    control: Arc<Control>,
    listener: Listener,
    clock: Interval,
    /// When something was sent last.
    sent: Option<Instant>,
}

impl TailBody {
    /// What is to be sent now; none if the node has stopped.
    fn next(&mut self) -> Option<String> {
        let listener = &mut self.listener;
        let mut text = match self.control.analytics()?.glance(|store| listener.events(store)) {
            Glance::Seen(text) => text,
            Glance::Busy => String::new(),
            Glance::Over => return None,
        };
        if self.sent.is_none() {
            text.insert_str(0, "retry: 1000\n\n");
        }
        if text.is_empty() && self.sent.is_some_and(|sent| sent.elapsed() >= KEEP_ALIVE) {
            // An id without data moves the client's place, and is no event.
            text = format!(": keep-alive\nid: {}\n\n", listener.last);
        }
        if !text.is_empty() {
            self.sent = Some(Instant::now());
        }
        Some(text)
    }
}

impl Listener {
    /// The events since the last time.
    fn events(&mut self, store: &Store) -> String {
        let (samples, entities) = (&store.samples, store.entities());
        let Arrivals { requests, last, missed } =
            query::arrivals(samples, &self.filter, self.last, MAX_BATCH, entities);
        let skipped = samples.skipped();
        let over_limit = skipped - std::mem::replace(&mut self.skipped, skipped);
        let allowed = self.pace.as_mut().map_or(requests.len(), |pace| pace.allow(requests.len()));
        let (thinned, requests) = requests.split_at(requests.len() - allowed);
        let mut text = String::new();
        if missed + over_limit + thinned.len() as u64 > 0 {
            let counts =
                json!({ "slow_listener": missed, "over_limit": over_limit, "thinned": thinned.len() });
            let before = requests.first().map_or(last, |first| first.number - 1);
            write_event(&mut text, before, "missed", &counts);
        }
        for request in requests {
            write_event(&mut text, request.number, "request", &sample::summary(request, entities));
        }
        self.last = last;
        text
    }
}

/// Writing to a string cannot fail.
fn write_event(text: &mut String, id: u64, event: &str, data: &serde_json::Value) {
    let _ = write!(text, "id: {id}\nevent: {event}\ndata: {data}\n\n");
}

impl HttpBody for TailBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            ready!(self.clock.poll_tick(cx));
            match self.next() {
                None => return Poll::Ready(None),
                Some(text) if text.is_empty() => {}
                Some(text) => return Poll::Ready(Some(Ok(Frame::data(text.into())))),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_gets_its_rate_and_what_comes_at_once_after_a_rest() {
        let mut pace = Pace::new(40);
        assert_eq!([100, 100, 1, 100].map(|requests| pace.allow(requests)), [40, 2, 1, 3]);
        for _ in 0..INTERVALS {
            pace.allow(0);
        }
        assert_eq!(pace.allow(30), 30, "a burst within the rate");
        let second: usize = (0..INTERVALS).map(|_| pace.allow(50)).sum();
        assert!((40..=50).contains(&second), "{second}");
        let mut slow = Pace::new(1);
        slow.allow(5);
        assert_eq!((0..INTERVALS).map(|_| slow.allow(5)).sum::<usize>(), 1);
    }
}
