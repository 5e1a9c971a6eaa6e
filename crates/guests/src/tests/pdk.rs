//! Every function of `kong` and `ngx`, as data: in which phases, with which arguments, and what comes of it.

use super::gateway;
use crate::{LuaSettings, NodeConfiguration};
use serde_json::{Value as Json, json};
use weir_plugin::testing::Gateway;
use weir_plugin::{Exchange, Flow, Hooks, RequestRecord, Source};

/// The request of each case.
const REQUEST: &str = "POST /a%20b/c?x=1&y&x=%202&z=\nX-One: 1\nX-Two: a\nX-Two: b\nCookie: s=t; u=v\n\
                       Content-Type: application/json\nContent-Length: 9\n\n{\"n\":[1]}";

/// The files of cases.
const FILES: [(&str, &str); 3] = [
    ("pdk.cases", include_str!("pdk.cases")),
    ("shared.cases", include_str!("shared.cases")),
    ("cache.cases", include_str!("cache.cases")),
];

/// The cases, with their places.
fn case_lines() -> impl Iterator<Item = (String, &'static str)> {
    let lines = |(file, text): (&'static str, &'static str)| {
        text.lines().zip(1..).map(move |(line, number)| (format!("{file}:{number}"), line))
    };
    let lines = FILES.into_iter().flat_map(lines);
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}

/// A case is `phase | code | what comes of it`. The code is an expression, or statements that return.
#[test]
fn functions() {
    let settings = LuaSettings {
        prefix: "/tmp/node/".to_owned(),
        shared_dicts: vec![("own".to_owned(), 65_536)],
        timeout: std::time::Duration::from_secs(5),
        ..LuaSettings::default()
    };
    let gateway = gateway(settings);
    let configuration = json!({ "proxy_listen": ["0.0.0.0:8000"], "workers": 2, "untrusted_lua": "sandbox", "nothing": null });
    gateway.retained.provide(NodeConfiguration(configuration.as_object().unwrap().clone()));
    gateway.retained.provide(RequestRecord(|exchange| {
        json!({ "path": exchange.path_with_query(), "a": 1 }).to_string().into_bytes()
    }));
    let mut faults = Vec::new();
    for (place, line) in case_lines() {
        let parts: Vec<_> = line.splitn(3, " | ").collect();
        let [phase, code, expected] = *parts else { panic!("{place}: {line}") };
        let found = outcome(&gateway, phase.trim(), code.trim());
        if found.trim() != expected.trim() {
            faults.push(format!("{place}: {code}\n  expected {expected}\n  found    {found}"));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// What code returns in a phase, or raises.
fn outcome(gateway: &Gateway, phase: &str, code: &str) -> String {
    let body = if code.contains("return") { code.to_owned() } else { format!("return {code}") };
    let probe = format!(
        "local function text(v) if type(v) ~= 'table' then return type(v) == 'string' and v or tostring(v) end \
         local keys = {{}} for k in pairs(v) do keys[#keys + 1] = k end \
         table.sort(keys, function(a, b) return tostring(a) < tostring(b) end) \
         for i, k in ipairs(keys) do keys[i] = tostring(k) .. '=' .. text(v[k]) end \
         return '{{' .. table.concat(keys, ' ') .. '}}' end \
         local function all(ok, ...) local t = {{ ... }} for i = 1, select('#', ...) do t[i] = text(t[i]) end \
         return (ok and '' or 'error: ') .. table.concat(t, ', ') end \
         local d, c = ngx.shared.kong, kong.cache d:flush_all() c:purge() \
         local function v(x) return function() return x end end \
         kong.log.set_serialize_value('result', all(pcall(function() {body} end)))"
    );
    let hooks = gateway.plugin("pre-function", json!({ phase: [probe] })).unwrap();
    let mut exchange = gateway.exchange(REQUEST);
    let answer = run(&*hooks, phase, &mut exchange);
    let result =
        exchange.log_fields().and_then(|fields| fields.borrow().last().and_then(|it| it.value.clone()));
    match (result, answer) {
        (Some(Json::String(text)), _) => {
            let text = text.replace("pre-function.access[1]:1: ", "");
            text.replace(&format!("pre-function.{phase}[1]:1: "), "")
        }
        (_, Some(answer)) => answer,
        _ => "nothing".to_owned(),
    }
}

fn run(hooks: &dyn Hooks, phase: &str, exchange: &mut Exchange) -> Option<String> {
    let flow = match phase {
        "rewrite" => hooks.rewrite(exchange),
        "access" => hooks.access(exchange),
        _ => {
            responded(hooks, phase, exchange);
            Flow::Continue
        }
    };
    let Flow::Respond(answer) = flow else { return None };
    let status = answer.status;
    let body = answer.write(exchange, &weir_plugin::ErrorTemplates::default());
    let headers = exchange.response.headers.iter();
    let headers = headers
        .map(|it| format!("{}: {}", String::from_utf8_lossy(it.name), String::from_utf8_lossy(it.value)));
    let body = String::from_utf8_lossy(&body).replace("\n  ", "").replace('\n', "");
    Some(format!("{status} [{}] {body}", headers.collect::<Vec<_>>().join(", ")))
}

fn responded(hooks: &dyn Hooks, phase: &str, exchange: &mut Exchange) {
    exchange.source = Source::Service;
    exchange.response.status = 200;
    exchange.response.headers.append("X-Up", b"u");
    match phase {
        "log" => hooks.log(exchange),
        "body_filter" => {
            hooks.response(exchange);
            let mut filters = exchange.engine.take_body_changes().unwrap().filters;
            filters.chunk(exchange, b"part".to_vec());
            filters.end(exchange);
        }
        _ => hooks.response(exchange),
    }
}
