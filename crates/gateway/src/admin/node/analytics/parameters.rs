//! The arguments of questions to analytics.
use super::{ApiError, ApiRequest, invalid};
use crate::analytics::now;
use axum::http::StatusCode;
use weir_analytics::entities::Kind;
use weir_analytics::query::Frame;
use weir_model::schema::{did_you_mean, quoted};

/// The frame that is shown if none is asked for, in seconds.
const DEFAULT_FRAME: u64 = 10 * 60;
/// A chart has about so many points if no step is asked for.
const DEFAULT_POINTS: u64 = 120;
const DEFAULT_LIMIT: usize = 10;
const MAX_LIMIT: usize = 1_000;

/// The kinds of entities that can be asked for.
const KINDS: [Kind; 6] =
    [Kind::Route, Kind::Service, Kind::Consumer, Kind::Upstream, Kind::Model, Kind::Node];

type Parsed<T> = Result<T, (StatusCode, String)>;

/// Whose errors are asked for.
pub(super) enum WantedErrors<'a> {
    EachRoute,
    Route(&'a str),
    /// Without a look at routes, of which there may be many.
    Node,
}

/// `route` and `by` of a question about errors.
pub(super) fn errors(call: &ApiRequest) -> Parsed<WantedErrors<'_>> {
    match (call.argument("by"), call.argument("route")) {
        (None | Some("route"), None) => Ok(WantedErrors::EachRoute),
        (None | Some("route"), Some(route)) => Ok(WantedErrors::Route(route)),
        (Some("outcome"), None) => Ok(WantedErrors::Node),
        (Some("outcome"), Some(_)) => {
            Err(invalid("by, route: by=outcome is about all routes; leave one of them out"))
        }
        (Some(other), _) => {
            Err(invalid(format!("by: errors are not grouped by `{}`; use route or outcome", quoted(other))))
        }
    }
}

/// Refuses arguments that a question does not take.
pub(super) fn check_arguments(call: &ApiRequest, known: &[&[&str]]) -> Result<(), ApiError> {
    let known = known.concat();
    let Some(unknown) = call.argument_beside(&known) else { return Ok(()) };
    let shown = quoted(unknown);
    let hint = did_you_mean(unknown, known.iter().copied());
    let known = if known.is_empty() {
        "it takes none".to_owned()
    } else {
        format!("there are: {}", known.join(", "))
    };
    Err(ApiError::Malformed(format!("unknown argument `{shown}`; {known}{hint}")))
}

/// `from` and `to`: the last ten minutes unless they say otherwise.
pub(super) fn frame(call: &ApiRequest) -> Parsed<Frame> {
    let now = now() / 1_000;
    // The second that has begun is in the frame.
    let to = time(call, "to", now)?.unwrap_or(now + 1);
    let from = time(call, "from", now)?.unwrap_or(to.saturating_sub(DEFAULT_FRAME));
    if from >= to {
        return Err(invalid("from, to: the frame is empty; `to` must be after `from`"));
    }
    Ok(Frame { from, to })
}

/// Seconds since 1970, or a time before now.
fn time(call: &ApiRequest, name: &str, now: u64) -> Parsed<Option<u64>> {
    let Some(text) = call.argument(name) else { return Ok(None) };
    let time = match text.strip_prefix('-') {
        Some(ago) => duration(ago).map(|ago| now.saturating_sub(ago)),
        None if text == "now" => Some(now + 1),
        None => text.parse().ok(),
    };
    // Times beyond this cannot be multiplied.
    let time = time.filter(|time| *time <= u64::from(u32::MAX)).map(Some);
    time.ok_or_else(|| {
        let shown = quoted(text);
        invalid(format!(
            "{name}: `{shown}` is not a time; write seconds since 1970, `now`, or a time before now as in `-90s`, \
             `-10m`, `-2h` or `-7d`"
        ))
    })
}

/// Seconds, or a number with a unit.
fn duration(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    let unit = match &text[number.len()..] {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// `step`: how far points are apart, in seconds.
pub(super) fn step(call: &ApiRequest, frame: Frame) -> Parsed<u64> {
    let Some(text) = call.argument("step") else {
        return Ok(((frame.to - frame.from) / DEFAULT_POINTS).max(1));
    };
    duration(text).filter(|step| (1..=u64::from(u32::MAX)).contains(step)).ok_or_else(|| {
        let shown = quoted(text);
        invalid(format!("step: `{shown}` is not a distance; write seconds, or as in `10s`, `1m` or `1h`"))
    })
}

/// `limit`: how many rows a table has at most.
pub(super) fn rows(call: &ApiRequest) -> Parsed<usize> {
    Ok(limit(call)?.unwrap_or(DEFAULT_LIMIT))
}

/// `limit`, if it is given.
pub(super) fn limit(call: &ApiRequest) -> Parsed<Option<usize>> {
    let Some(text) = call.argument("limit") else { return Ok(None) };
    text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit)).map(Some).ok_or_else(|| {
        invalid(format!("limit: `{}` is not a number of rows; write 1 to {MAX_LIMIT}", quoted(text)))
    })
}

/// `by`: the kind of the rows.
pub(super) fn kind(call: &ApiRequest) -> Parsed<Kind> {
    let Some(text) = call.argument("by") else { return Ok(Kind::Route) };
    KINDS.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
        let choices = KINDS.map(Kind::name).join(", ");
        invalid(format!("by: there are no rows by `{}`; use one of {choices}", quoted(text)))
    })
}

/// The entities that are asked for by their kinds, as in `route=orders`: none, one, or a route and a consumer, in this order.
pub(super) fn entities(call: &ApiRequest) -> Parsed<Vec<(Kind, &str)>> {
    let named: Vec<_> =
        KINDS.into_iter().filter_map(|kind| Some((kind, call.argument(kind.name())?))).collect();
    match named[..] {
        [] | [_] | [(Kind::Route, _), (Kind::Consumer, _)] => Ok(named),
        _ => {
            let names = named.iter().map(|(kind, _)| kind.name()).collect::<Vec<_>>().join(", ");
            Err(invalid(format!("{names}: requests are counted by pairs of route and consumer alone")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::duration;

    #[test]
    fn durations_have_a_unit_or_are_seconds() {
        let cases = [("90", Some(90)), ("10m", Some(600)), ("2h", Some(7_200)), ("7d", Some(604_800))];
        for (text, seconds) in cases {
            assert_eq!(duration(text), seconds, "{text}");
        }
        for text in ["", "m", "1w", "1ms", "-1", "99999999999999999999", "300000000000000d"] {
            assert_eq!(duration(text), None, "{text}");
        }
    }
}
