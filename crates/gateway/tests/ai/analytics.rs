//! What calls of models come to in the analytics.

use super::{Provider, ask, config, providers};
use crate::harness::{Builder, Gateway, Upstream, chromium, closed_port, eventually};
use serde_json::{Value as Json, json};

/// A provider that answers streams, and anything else with a whole response.
fn answering(provider: &Provider) -> Upstream {
    let stream = provider.events.concat() + provider.end;
    let kind = provider.content_type;
    Upstream::start(move |mut peer, _| {
        while let Some(request) = peer.request() {
            let (kind, body) = match String::from_utf8_lossy(&request.body).contains("\"stream\":true") {
                true => (kind, stream.clone()),
                false => {
                    let usage = json!({ "prompt_tokens": 4, "completion_tokens": 6 });
                    let choices = json!([{ "message": { "content": "Hello" } }]);
                    ("application/json", json!({ "choices": choices, "usage": usage }).to_string())
                }
            };
            let length = body.len();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n{body}"
            ));
        }
    })
}

fn gateway(plugins: &Json) -> Gateway {
    builder(plugins).start()
}

fn builder(plugins: &Json) -> Builder {
    let document = json!({
        "_format_version": "3.0",
        "services": [{ "name": "models", "url": "http://127.0.0.1:1", "routes": [{ "name": "chat", "paths": ["/"] }] }],
        "plugins": plugins,
    });
    Gateway::builder(&document.to_string())
}

pub(super) fn rows(gateway: &Gateway) -> Vec<Json> {
    let answer = gateway.admin("/analytics/top?by=model&of=prompt_tokens");
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["data"].as_array().unwrap().clone()
}

#[test]
fn models_have_tokens_and_times_in_the_analytics() {
    let openai = providers().into_iter().find(|provider| provider.name == "openai").unwrap();
    let upstream = answering(&openai);
    let url = format!("http://{}/", upstream.address);
    let gateway = gateway(&json!([{ "name": "ai-proxy", "config": config("openai", &url, &json!({})) }]));
    for stream in [true, false, true] {
        assert_eq!(ask(&gateway, stream).response().status, 200);
    }
    eventually("all calls are counted", || rows(&gateway).first().is_some_and(|row| row["requests"] == 3));
    let row = rows(&gateway).remove(0);
    assert_eq!((&row["name"], &row["errors"]), (&json!("openai/m"), &json!(0)), "{row}");
    assert_eq!((&row["prompt_tokens"], &row["completion_tokens"]), (&json!(18), &json!(10)), "{row}");
    let is_positive = |name: &str| row[name].as_f64().is_some_and(|value| value > 0.0);
    for name in ["mean", "p99", "p50_first_token", "p99_first_token", "mean_tokens_per_second"] {
        assert!(is_positive(name), "{name}: {row}");
    }
    assert_eq!(row.get("bytes_in"), None, "{row}");
    let series = gateway.admin("/analytics/series?metric=completion_tokens&model=openai/m").json();
    assert_eq!(series["columns"][0]["total"], 10.0, "{series}");
    let series = gateway.admin("/analytics/series?metric=p99_first_token&by=model").json();
    assert_eq!(series["columns"][0]["label"], "openai/m", "{series}");
    let refused = gateway.admin("/analytics/series?metric=p99_first_token");
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("is counted of models alone"), "{}", refused.text());
    assert_eq!(gateway.admin("/analytics/series?model=openai/other").status, 404);
    let table = gateway.admin("/analytics/top?by=model&format=csv");
    assert!(table.text().lines().next().unwrap().contains("p50_first_token"), "{}", table.text());
}

#[test]
fn the_table_of_models_fits_into_a_window() {
    let openai = providers().into_iter().find(|provider| provider.name == "openai").unwrap();
    let upstream = answering(&openai);
    let config = config("openai", &format!("http://{}/", upstream.address), &json!({}));
    let plugins = json!([{ "name": "ai-proxy", "config": config }]);
    let gateway = builder(&plugins).set("admin_gui_listen", "127.0.0.1:0").start();
    assert_eq!(ask(&gateway, true).response().status, 200);
    eventually("the call is counted", || !rows(&gateway).is_empty());
    let table = "document.querySelector('table.dense').parentElement";
    let steps = ["screen:1280 light", &format!("{table}.scrollWidth - {table}.clientWidth")];
    let seen = chromium(&format!("http://{}/traffic?by=model", gateway.web_ui()), &steps);
    assert_eq!(seen[1..], [json!(0), json!([])], "{seen:?}");
}

#[test]
fn calls_that_fail_are_errors_of_models_that_are_known() {
    let mut config = config("openai", &format!("http://{}/", closed_port()), &json!({}));
    config["model"]["name"] = json!("$(headers.x-model)");
    let gateway = gateway(&json!([{ "name": "ai-proxy", "config": config }]));
    let body = json!({ "messages": [{ "role": "user", "content": "Hi" }] }).to_string();
    let length = body.len();
    let request =
        format!("POST / HTTP/1.1\r\nHost: a\r\nX-Model: any\r\nContent-Length: {length}\r\n\r\n{body}");
    assert_eq!(gateway.connect().send(request).response().status, 502);
    eventually("it is counted", || rows(&gateway).first().is_some_and(|row| row["errors"] == 1));
    assert_eq!(rows(&gateway)[0]["name"], "others");
}

#[test]
fn a_configured_model_has_a_name_although_its_calls_fail() {
    let config = config("openai", &format!("http://{}/", closed_port()), &json!({}));
    let gateway = gateway(&json!([{ "name": "ai-proxy", "config": config }]));
    assert_eq!(ask(&gateway, false).response().status, 502);
    eventually("it is counted", || rows(&gateway).first().is_some_and(|row| row["errors"] == 1));
    assert_eq!(rows(&gateway)[0]["name"], "openai/m");
}

#[test]
fn nothing_is_kept_without_statistics() {
    let openai = providers().into_iter().find(|provider| provider.name == "openai").unwrap();
    let upstream = answering(&openai);
    let mut config = config("openai", &format!("http://{}/", upstream.address), &json!({}));
    config["logging"]["log_statistics"] = json!(false);
    let gateway = gateway(&json!([{ "name": "ai-proxy", "config": config }]));
    assert_eq!(ask(&gateway, true).response().status, 200);
    let requests = || gateway.admin("/analytics/series").json()["columns"][0]["total"].clone();
    eventually("the request is counted", || requests() == 1.0);
    assert!(rows(&gateway).is_empty());
}
