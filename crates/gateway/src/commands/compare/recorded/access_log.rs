//! Access logs: lines with a quoted request line, as of nginx, Apache and Kong, and the JSON records of Kong's log plugins.
use super::{Recorded, Request};
use serde::Deserialize;
use serde_json::{Map, Value};

/// What a log plugin of Kong writes of a request.
#[derive(Deserialize)]
struct Record {
    request: Logged,
}

#[derive(Deserialize)]
struct Logged {
    method: String,
    uri: String,
    #[serde(default)]
    headers: Map<String, Value>,
}

/// Reads a log. What is no request is counted.
pub(super) fn parse(text: &str) -> Recorded {
    let mut recorded = Recorded::default();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let request = if line.starts_with('{') { of_record(line) } else { of_line(line) };
        match request {
            Some(request) => recorded.requests.push(request),
            None => recorded.skip("the line holds no request of HTTP"),
        }
    }
    recorded
}

/// The request line in quotes, and what follows it.
pub(super) fn quoted_request(line: &str) -> Option<(&str, &str)> {
    let quoted = line.split('"').skip(1).step_by(2).find(|text| is_request_line(text))?;
    let end = quoted.as_ptr() as usize - line.as_ptr() as usize + quoted.len() + 1;
    Some((quoted, line.get(end..).unwrap_or_default()))
}

fn is_request_line(text: &str) -> bool {
    let mut words = text.split(' ');
    let method = words
        .next()
        .is_some_and(|word| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_uppercase()));
    method
        && words.next().is_some()
        && words.next().is_some_and(|version| version.starts_with("HTTP/"))
        && words.next().is_none()
}

fn of_line(line: &str) -> Option<Request> {
    let (request_line, rest) = quoted_request(line)?;
    let mut words = request_line.split(' ');
    let mut request = Request::new(words.next()?, words.next()?)?;
    // The combined format continues with the referrer and the user agent.
    let mut quoted = rest.split('"').skip(1).step_by(2);
    for name in ["Referer", "User-Agent"] {
        if let Some(value) = quoted.next().filter(|value| !matches!(*value, "" | "-")) {
            request.add(name, value);
        }
    }
    Some(request)
}

fn of_record(line: &str) -> Option<Request> {
    let record: Record = serde_json::from_str(line).ok()?;
    let mut request = Request::new(&record.request.method, &record.request.uri)?;
    for (name, value) in &record.request.headers {
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        values.iter().filter_map(Value::as_str).for_each(|value| request.add(name, value));
    }
    Some(request)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn the_combined_format_tells_the_user_agent() {
        let line = r#"::1 - - [22/Nov/2026:10:00:00 +0000] "GET /a?b=%20 HTTP/1.1" 200 12 "-" "curl/8.5" kong_request_id: "77""#;
        let recorded = parse(line);
        assert_eq!(recorded.requests[0].target, "/a?b=%20");
        assert_eq!(recorded.requests[0].headers, [("User-Agent".to_owned(), "curl/8.5".to_owned())]);
    }

    #[test]
    fn records_of_log_plugins_tell_all_headers() {
        let line = r#"{"request": {"method": "GET", "uri": "/a", "headers": {"host": "a.test", "x": ["1", "2"]}}, "latencies": {}}"#;
        let recorded = parse(line);
        assert_eq!(recorded.requests[0].host.as_deref(), Some("a.test"));
        let pairs: Vec<_> = recorded.requests[0].headers.iter().map(|(n, v)| format!("{n}={v}")).collect();
        assert_eq!(pairs, ["x=1", "x=2"]);
    }

    #[test]
    fn other_lines_are_counted() {
        let recorded =
            parse("10.0.0.1 - - [x] \"\\x16\\x03\" 400 0\n\n10.0.0.1 - - [x] \"GET / HTTP/1.0\" 200 1\n{}\n");
        assert_eq!(recorded.requests.len(), 1);
        assert_eq!(recorded.skipped.values().sum::<usize>(), 2);
    }
}
