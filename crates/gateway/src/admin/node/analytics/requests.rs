//! `/analytics/requests`: requests that were sampled, page by page or one in full.
use super::filter::{self, filter};
use super::names::Names;
use super::{Answer, ApiRequest, configuration, invalid, not_recorded, parameters, sample};
use crate::analytics::Analytics;
use crate::settings::SampledRequests;
use axum::http::StatusCode;
use serde_json::{Value, json};
use weir_analytics::query;
use weir_analytics::samples::Samples;
use weir_model::schema::quoted;

/// Why no request is shown.
const NOT_SAMPLED: &str =
    "this node keeps no requests: set analytics_samples=errors, or `all` for some of the others too";

/// The arguments of a list.
pub(super) const ARGUMENTS: &[&[&str]] = &[filter::ARGUMENTS, &["from", "to", "cursor", "limit", "format"]];

/// The columns of the list as CSV.
pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("id", "/id"),
    ("at", "/at"),
    ("reason", "/reason"),
    ("client_ip", "/client_ip"),
    ("method", "/method"),
    ("scheme", "/scheme"),
    ("host", "/host"),
    ("path", "/path"),
    ("protocol", "/protocol"),
    ("status", "/status"),
    ("origin", "/origin"),
    ("cause", "/cause"),
    ("route_id", "/route/id"),
    ("route", "/route/name"),
    ("service_id", "/service/id"),
    ("service", "/service/name"),
    ("consumer_id", "/consumer/id"),
    ("consumer", "/consumer/name"),
    ("upstream", "/upstream"),
    ("tries", "/tries"),
    ("us_total", "/us/total"),
    ("us_gateway", "/us/gateway"),
    ("us_connect", "/us/connect"),
    ("us_wait", "/us/wait"),
    ("us_body", "/us/body"),
    ("bytes_in", "/bytes_in"),
    ("bytes_out", "/bytes_out"),
    ("cached", "/cached"),
    ("reused", "/reused"),
    ("request_id", "/request_id"),
    ("trace_id", "/trace_id"),
    ("user_agent", "/user_agent"),
];

/// Fails if no request is sampled.
pub(super) fn check_sampled(call: &ApiRequest) -> Result<(), (StatusCode, String)> {
    match call.control.settings().analytics_samples {
        SampledRequests::Off => Err((StatusCode::NOT_FOUND, NOT_SAMPLED.to_owned())),
        SampledRequests::Errors | SampledRequests::All => Ok(()),
    }
}

/// The requests that fulfil a filter, newest first.
pub(super) fn list(call: &ApiRequest, analytics: &Analytics) -> Answer {
    check_sampled(call)?;
    let configuration = configuration(call);
    let names = Names::new(&configuration.document, &[]);
    let limit = parameters::rows(call)?;
    let before = call.argument("cursor").map(cursor).transpose()?;
    analytics
        .ask(|store| {
            let (samples, entities) = (&store.samples, store.entities());
            let filter = filter(call, &names, entities)?;
            let page = query::requests(samples, &filter, before, limit, entities);
            let data: Vec<_> = page.requests.iter().map(|it| sample::summary(it, entities)).collect();
            let next = page.next.map(|number| number.to_string());
            let newest = samples.newest().to_string();
            let mut answer = json!({ "data": data, "next": next, "newest": newest });
            add_precision(&mut answer, samples);
            Ok(answer)
        })
        .ok_or_else(not_recorded)?
}

fn cursor(text: &str) -> Result<u64, (StatusCode, String)> {
    let wrong =
        |_| invalid(format!("cursor: `{}` is not a cursor; take it from `next` of a page", quoted(text)));
    text.parse().map_err(wrong)
}

/// How far the list can be relied on: it is always a sample.
fn add_precision(answer: &mut Value, samples: &Samples) {
    let oldest = samples.before(u64::MAX).last().map(|sample| sample.began() as f64 / 1_000.0);
    answer["resolution"] = json!(0.001);
    answer["oldest"] = json!(oldest);
    answer["sampled"] = json!(true);
    answer["dropped"] = json!(samples.skipped());
}

/// One request in full, by its number or by the id that the gateway gave it.
pub(super) fn one(call: &ApiRequest, analytics: &Analytics) -> Answer {
    check_sampled(call)?;
    let asked = call.ids.first().map(String::as_str).unwrap_or_default();
    let found = analytics.ask(|store| {
        let samples = &store.samples;
        let found = match asked.parse() {
            Ok(number) => samples.get(number),
            Err(_) => samples.before(u64::MAX).find(|sample| sample.request_id() == asked),
        };
        found.map(|found| sample::full(found, store.entities()))
    });
    found.ok_or_else(not_recorded)?.ok_or_else(|| {
        let text = "it was not sampled, or it is older than the requests that are kept";
        (StatusCode::NOT_FOUND, format!("there is no request `{}`: {text}", quoted(asked)))
    })
}
