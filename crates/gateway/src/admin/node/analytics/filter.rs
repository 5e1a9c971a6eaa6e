//! Which requests are asked for.
use super::names::Names;
use super::{ApiRequest, invalid, parameters};
use axum::http::StatusCode;
use std::time::Duration;
use weir_analytics::cause::{Cause, Origin};
use weir_analytics::entities::{Entities, Kind};
use weir_analytics::query::{CauseFilter, RequestFilter};
use weir_model::schema::{did_you_mean, quoted};

/// What a filter takes, beside what each question takes.
pub(super) const ARGUMENTS: &[&str] = &[
    "route",
    "service",
    "consumer",
    "upstream",
    "status",
    "class",
    "method",
    "path",
    "min_latency",
    "origin",
    "cause",
];

type Parsed<T> = Result<T, (StatusCode, String)>;

/// Reads the filter of a list or of a tail. Without `from` and `to`, it holds for all times.
pub(super) fn filter(call: &ApiRequest, names: &Names<'_>, entities: &Entities) -> Parsed<RequestFilter> {
    let find = |kind: Kind| {
        let asked = call.argument(kind.name());
        asked.map(|asked| names.find(kind, asked, entities).map(|entity| entity.id)).transpose()
    };
    let (status_from, status_to) = statuses(call)?;
    let has_frame = call.argument("from").or(call.argument("to")).is_some();
    Ok(RequestFilter {
        frame: has_frame.then(|| parameters::frame(call)).transpose()?,
        route: find(Kind::Route)?,
        service: find(Kind::Service)?,
        consumer: find(Kind::Consumer)?,
        upstream: find(Kind::Upstream)?,
        status_from,
        status_to,
        method: call.argument("method").map(str::to_ascii_uppercase),
        path_prefix: call.argument("path").map(str::to_owned),
        at_least: call.argument("min_latency").map(latency).transpose()?,
        origin: call.argument("origin").map(origin).transpose()?,
        cause: call.argument("cause").map(|text| cause(text, entities)).transpose()?,
    })
}

/// `status` or `class`, as the first and the last status that are asked for.
fn statuses(call: &ApiRequest) -> Parsed<(Option<u16>, Option<u16>)> {
    let (first, last) = match (call.argument("status"), call.argument("class")) {
        (None, None) => return Ok((None, None)),
        (Some(_), Some(_)) => return Err(invalid("status, class: give one of them")),
        (Some(text), None) => {
            let status = text.parse::<u16>().ok().filter(|status| *status < 1_000);
            let status = status.ok_or_else(|| {
                invalid(format!("status: `{}` is not a status; write one as in `502`", quoted(text)))
            })?;
            (status, status)
        }
        (None, Some(text)) => {
            let class = text.strip_suffix("xx").and_then(|class| class.parse::<u16>().ok());
            let class = class.filter(|class| (1..=5).contains(class)).ok_or_else(|| {
                invalid(format!("class: there is no `{}`; use one of 1xx, 2xx, 3xx, 4xx, 5xx", quoted(text)))
            })?;
            (class * 100, class * 100 + 99)
        }
    };
    Ok((Some(first), Some(last)))
}

/// A number with a unit; seconds without one.
fn latency(text: &str) -> Parsed<Duration> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "us" => Some(1e-6),
        "ms" => Some(1e-3),
        "" | "s" => Some(1.0),
        "m" => Some(60.0),
        _ => None,
    };
    let seconds = number.parse::<f64>().ok().zip(unit).map(|(number, unit)| number * unit);
    seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).ok_or_else(|| {
        invalid(format!("min_latency: `{}` is not a time; write as in `250ms`, `1.5s` or `1m`", quoted(text)))
    })
}

fn origin(text: &str) -> Parsed<Origin> {
    let all = [Origin::Client, Origin::Gateway, Origin::Upstream];
    all.into_iter().find(|origin| origin.name() == text).ok_or_else(|| {
        let choices = all.map(Origin::name).join(", ");
        invalid(format!("origin: there is no `{}`; use one of {choices}", quoted(text)))
    })
}

/// A cause as answers show it, or its name without what follows.
fn cause(text: &str, entities: &Entities) -> Parsed<CauseFilter> {
    let unknown = || {
        let hint = did_you_mean(text, Cause::NAMES.iter().copied());
        let choices = Cause::NAMES.join(", ");
        invalid(format!("cause: there is no `{}`{hint}; use one of {choices}", quoted(text)))
    };
    match text.split_once(' ') {
        Some(("plugin", name)) => {
            let number = entities.find(Kind::Plugin, name).and_then(|number| u16::try_from(number).ok());
            number.map(|number| CauseFilter::Exactly(Cause::Plugin(number))).ok_or_else(unknown)
        }
        Some(("grpc_status", status)) => {
            let status = status.parse().map_err(|_| unknown())?;
            Ok(CauseFilter::Exactly(Cause::GrpcStatus(status)))
        }
        None if Cause::NAMES.contains(&text) => Ok(CauseFilter::Named(text.to_owned())),
        _ => Err(unknown()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_a_unit_or_are_seconds() {
        for (text, micros) in
            [("250ms", 250_000), ("1.5s", 1_500_000), ("2", 2_000_000), ("30us", 30), ("1m", 60_000_000)]
        {
            assert_eq!(latency(text).unwrap().as_micros(), micros, "{text}");
        }
        for text in ["", "ms", "-1s", "1h", "1e400", "NaN"] {
            assert_eq!(latency(text).unwrap_err().0, StatusCode::BAD_REQUEST, "{text}");
        }
    }

    #[test]
    fn causes_are_those_of_answers() {
        let entities = Entities::default();
        let plugin = entities.intern(Kind::Plugin, "key-auth") as u16;
        for (text, expected) in [
            ("plugin key-auth", CauseFilter::Exactly(Cause::Plugin(plugin))),
            ("grpc_status 14", CauseFilter::Exactly(Cause::GrpcStatus(14))),
            ("no_route", CauseFilter::Named("no_route".to_owned())),
            ("plugin", CauseFilter::Named("plugin".to_owned())),
        ] {
            assert_eq!(cause(text, &entities), Ok(expected), "{text}");
        }
        for text in ["plugin nope", "no route", "grpc_status x", "no_rout", ""] {
            assert_eq!(cause(text, &entities).unwrap_err().0, StatusCode::BAD_REQUEST, "{text}");
        }
    }
}
