//! One sampled request in full.
use super::Shown;
use super::requests::{decided, entity};
use crate::form::plain;
use crate::format::{count, micros, time};
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::{query, segment};
use axum::http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

/// The phases of a request in their order, as the answer calls them and as the page does.
const PHASES: [(&str, &str); 4] = [
    ("gateway", "words.gateway"),
    ("connect", "request.connecting_to_the_upstream"),
    ("wait", "request.waiting_for_the_upstream"),
    ("body", "request.sending_the_response"),
];

/// The waterfall: where bars begin, how wide all of them are, and how high a row is.
const BARS_LEFT: f64 = 200.0;
const BARS_WIDTH: f64 = 420.0;
const ROW_HEIGHT: f64 = 26.0;

/// Headers that a repeated request has.
const REPEATED_HEADERS: [&str; 4] = ["accept", "content-type", "origin", "user-agent"];

pub(super) async fn page(visit: &Visit, id: &str) -> Shown {
    let request = match visit.api.get(&format!("/analytics/requests/{}", segment(id))).await {
        Ok(answer) => answer.body,
        Err(error) if error.status == StatusCode::NOT_FOUND => {
            let content = html! {
                div.empty { p { (error.message()) } }
                p { a href=(visit.at("requests")) { (texts::of("request.to_the_requests")) } }
            };
            return Ok(
                Page::new("requests", texts::of("request.request"), content).status(StatusCode::NOT_FOUND)
            );
        }
        Err(error) => return Err(error),
    };
    let title = format!("{} {}", plain(&request["method"]), plain(&request["path"]));
    let content = html! {
        div.bar {
            @if !is_cut(&request) { a.button href=(visit.at(&explain(&request))) { (texts::of("request.explain_this_request")) } }
            a.button href=(visit.at("requests")) { (texts::of("request.all_requests")) }
        }
        (facts(visit, &request))
        h2 { (texts::of("request.where_the_time_went")) }
        (waterfall(&request["us"]))
        (plugins(&request["plugins"]))
        (failures(&request["failures"]))
        h2 { (texts::of("words.headers")) }
        p.about { (texts::of("request.as_plugins_left_them_values")) }
        (headers(texts::of("request.of_the_request"), &request["request_headers"]))
        (headers(texts::of("request.of_the_response"), &request["response_headers"]))
        h2 { (texts::of("request.as_curl")) }
        @if is_cut(&request) {
            p.about { (texts::of("request.method_host_path_or_query")) }
        } @else {
            p.about { (texts::of("request.without_the_body_and_without")) }
            pre.copyable { code { (curl(&request)) } }
        }
    };
    Ok(Page::new("requests", title, content))
}

fn facts(visit: &Visit, request: &Value) -> Markup {
    let traits = [
        ("cached", texts::of("request.from_the_cache")),
        ("reused", texts::of("request.over_a_connection_that_was")),
    ];
    let how: Vec<_> =
        traits.iter().filter(|(name, _)| request[name] == true).map(|(_, text)| *text).collect();
    let upstream = plain(&request["upstream"]);
    let tries = request["tries"].as_u64().unwrap_or_default();
    let bytes = |name: &str| count(request[name].as_u64().unwrap_or_default());
    let at = request["at"].as_f64().unwrap_or_default();
    html! {
        dl.facts {
            dt { (texts::of("words.status")) } dd { (plain(&request["status"])) }
            dt { (texts::of("words.decided_by")) } dd { (decided(request)) }
            dt { (texts::of("request.began")) } dd { (time(at as i64)) }
            dt { (texts::of("request.client")) } dd { (plain(&request["client_ip"])) }
            dt { (texts::of("words.host")) } dd { bdi { (plain(&request["host"])) } }
            dt { (texts::of("request.protocol")) } dd { (texts::filled("request.over", &[("protocol", &plain(&request["protocol"])), ("scheme", &plain(&request["scheme"]))])) }
            dt { (texts::of("words.route")) } dd { (entity(visit, "routes", &request["route"])) }
            dt { (texts::of("words.service")) } dd { (entity(visit, "services", &request["service"])) }
            dt { (texts::of("words.consumer")) } dd { (entity(visit, "consumers", &request["consumer"])) }
            @if tries > 0 {
                dt { (texts::of("words.upstream")) }
                dd { (texts::filled("request.attempts", &[("upstream", &upstream), ("tries", &tries)])) @if !how.is_empty() { ", " (how.join(", ")) } }
            }
            dt { (texts::of("request.bytes_in")) } dd { (bytes("bytes_in")) }
            dt { (texts::of("request.bytes_out")) } dd { (bytes("bytes_out")) }
            dt { (texts::of("request.request_id")) } dd { code { (plain(&request["request_id"])) } }
            @if let Some(trace) = request["trace_id"].as_str() { dt { (texts::of("request.trace_id")) } dd { code { (trace) } } }
            @if let Some(agent) = request["user_agent"].as_str() { dt { (texts::of("request.user_agent")) } dd { bdi { (agent) } } }
            dt { (texts::of("request.kept_as")) } dd { (kept_as(plain(&request["reason"]).as_str())) }
        }
    }
}

fn kept_as(reason: &str) -> &'static str {
    match reason {
        "error" => texts::of("request.an_error"),
        "slow" => texts::of("request.one_of_the_slowest_of"),
        _ => texts::of("request.one_of_many"),
    }
}

/// A bar for each phase, one below the other.
fn waterfall(us: &Value) -> Markup {
    let total = us["total"].as_f64().unwrap_or_default();
    let scale = BARS_WIDTH / total.max(1.0);
    let mut bars = Vec::new();
    let mut start = 0.0;
    for (name, label) in PHASES {
        let took = us[name].as_f64().unwrap_or_default();
        bars.push((name, texts::of(label), BARS_LEFT + start * scale, took * scale, micros(took)));
        start += took;
    }
    let spoken: Vec<_> = bars.iter().map(|(_, label, _, _, took)| format!("{label} {took}")).collect();
    let height = ROW_HEIGHT * (PHASES.len() as f64 + 1.0);
    html! {
        div.scroll tabindex="0" role="region" aria-label=(texts::of("request.phases")) {
            svg.waterfall viewBox=(format!("0 0 720 {height}")) width="720" height=(height) role="img"
                aria-label=(texts::filled("request.waterfall", &[("total", &micros(total)), ("phases", &spoken.join(", "))])) {
                @for (row, (name, label, left, width, took)) in bars.iter().enumerate() {
                    @let top = row as f64 * ROW_HEIGHT;
                    text x="0" y=(top + 17.0) { (label) }
                    rect class=(name) x=(format!("{left:.1}")) y=(top + 4.0) width=(format!("{:.1}", width.max(1.0)))
                        height=(ROW_HEIGHT - 8.0) { title { (label) " " (took) } }
                    text.value x="716" y=(top + 17.0) { (took) }
                }
                line x1=(BARS_LEFT) x2=(BARS_LEFT) y1="0" y2=(height - ROW_HEIGHT) {}
                text.total x="0" y=(height - 9.0) { (texts::of("words.total")) }
                text.total.value x="716" y=(height - 9.0) { (micros(total)) }
            }
        }
    }
}

/// What plugins took, if they were measured.
fn plugins(plugins: &Value) -> Markup {
    let rows = plugins.as_array().map_or(&[][..], Vec::as_slice);
    html! {
        h2 { (texts::of("words.plugins")) }
        @if rows.is_empty() {
            p.about { (texts::of("request.the_time_of_plugins_is")) }
        } @else {
            table {
                caption.unseen { (texts::of("request.time_of_each_plugin")) }
                thead { tr { th scope="col" { (texts::of("words.plugin")) } th.number scope="col" { (texts::of("request.ran")) } th.number scope="col" { (texts::of("request.waited_for_others")) } } }
                tbody { @for row in rows { tr {
                    th scope="row" { (plain(&row["name"])) }
                    td.number { (micros(row["us"].as_f64().unwrap_or_default())) }
                    td.number { (micros(row["us_waited"].as_f64().unwrap_or_default())) }
                } } }
            }
        }
    }
}

/// The attempts that failed, if any did.
fn failures(failures: &Value) -> Markup {
    let rows = failures.as_array().map_or(&[][..], Vec::as_slice);
    html! {
        @if !rows.is_empty() {
            h2 { (texts::of("request.failed_attempts")) }
            table {
                caption.unseen { (texts::of("request.attempts_that_got_no_response")) }
                thead { tr { th scope="col" { (texts::of("words.address")) } th.number scope="col" { (texts::of("request.would_be_answered")) } th.number scope="col" { (texts::of("request.took")) } } }
                tbody { @for row in rows { tr {
                    th scope="row" { (row["address"].as_str().unwrap_or(texts::of("request.no_address"))) }
                    td.number { (plain(&row["status"])) }
                    td.number { (micros(row["us"].as_f64().unwrap_or_default())) }
                } } }
            }
        }
    }
}

fn headers(title: &str, headers: &Value) -> Markup {
    let rows = headers.as_array().map_or(&[][..], Vec::as_slice);
    html! {
        details open[rows.len() <= 12] {
            summary { (title) " (" (rows.len()) ")" }
            dl.facts { @for row in rows { dt { bdi { (plain(&row["name"])) } } dd { bdi { (plain(&row["value"])) } } } }
        }
    }
}

/// The address of the form that explains such a request.
fn explain(request: &Value) -> String {
    let headers: Vec<_> = repeated(request).map(|(name, value)| format!("{name}: {value}")).collect();
    let (method, url, headers) = (plain(&request["method"]), url(request), headers.join("\n"));
    format!(
        "try{}",
        query([("method", method.as_str()), ("url", url.as_str()), ("headers", headers.as_str())])
    )
}

/// Whether only the beginning was kept of what a repeated request needs.
fn is_cut(request: &Value) -> bool {
    ["method", "host", "path"].iter().any(|name| plain(&request[*name]).contains('…'))
}

/// The URL as it was asked for, without the values of arguments.
fn url(request: &Value) -> String {
    let path = plain(&request["path"]);
    let shown = match path.split_once('?') {
        Some((path, arguments)) => {
            let names = arguments
                .split('&')
                .filter_map(|one| one.split_once('='))
                .filter(|(name, _)| is_kept(name))
                .map(|(name, _)| format!("{name}="))
                .collect::<Vec<_>>();
            if names.is_empty() { path.to_owned() } else { format!("{path}?{}", names.join("&")) }
        }
        None => path,
    };
    format!("{}://{}{shown}", plain(&request["scheme"]), plain(&request["host"]))
}

/// The headers that a repeated request has, as far as their values were kept.
fn repeated(request: &Value) -> impl Iterator<Item = (String, String)> {
    let rows = request["request_headers"].as_array().into_iter().flatten();
    let pairs = rows.map(|row| (plain(&row["name"]), plain(&row["value"])));
    pairs.filter(|(name, value)| {
        REPEATED_HEADERS.contains(&name.to_ascii_lowercase().as_str()) && is_kept(value)
    })
}

/// Whether a text is there in full rather than its length or its beginning.
fn is_kept(text: &str) -> bool {
    !text.ends_with(" bytes>") && !text.ends_with('…')
}

/// The command that repeats the request, with the path as it is.
fn curl(request: &Value) -> String {
    let (method, url) = (plain(&request["method"]), url(request));
    let mut command = format!("curl -i -g --path-as-is -X {} {}", quoted(&method), quoted(&url));
    for (name, value) in repeated(request) {
        command.push_str(&format!(" \\\n  -H {}", quoted(&format!("{name}: {value}"))));
    }
    command
}

/// A word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn request() -> Value {
        json!({
            "method": "GET", "scheme": "http", "host": "a.test:8000", "path": "/it's?token=<11 bytes>&<3 bytes>&<40 bytes>=<1 bytes>&b=<1 bytes>",
            "request_headers": [
                { "name": "User-Agent", "value": "x'; rm -rf /" },
                { "name": "Accept", "value": "<9 bytes>" },
                { "name": "X-Other", "value": "a" },
            ],
        })
    }

    #[test]
    fn a_command_repeats_what_is_known_and_runs_nothing_else() {
        let expected = "curl -i -g --path-as-is -X 'GET' 'http://a.test:8000/it'\\''s?token=&b=' \\\n  -H 'User-Agent: x'\\''; rm -rf /'";
        assert_eq!(curl(&request()), expected);
    }

    #[test]
    fn what_was_cut_is_not_repeated() {
        assert!(!is_cut(&request()));
        for (name, value) in [("path", "/a…?b=<1 bytes>"), ("path", "/a?b=<1 by…"), ("host", "a…")] {
            let mut request = request();
            request[name] = json!(value);
            assert!(is_cut(&request), "{name}: {value}");
        }
        let agent = json!({ "request_headers": [{ "name": "User-Agent", "value": "curl…" }] });
        assert_eq!(repeated(&agent).count(), 0);
        assert_eq!(url(&json!({ "scheme": "http", "host": "a", "path": "/?<3 bytes>" })), "http://a/");
    }

    #[test]
    fn the_form_that_explains_gets_the_request() {
        let address = explain(&request());
        assert!(address.starts_with(
            "try?method=GET&url=http%3A%2F%2Fa.test%3A8000%2Fit%27s%3Ftoken%3D%26b%3D&headers="
        ));
    }

    #[test]
    fn phases_follow_one_another() {
        let us = json!({ "total": 1_000, "gateway": 250, "connect": 0, "wait": 500, "body": 250 });
        let shown = waterfall(&us).into_string();
        for part in
            ["x=\"200.0\"", "width=\"105.0\"", "x=\"305.0\"", "x=\"515.0\"", "Total 1.0 ms: Gateway 250 µs"]
        {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }
}
