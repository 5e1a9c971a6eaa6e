//! Runs a file of cases: one gateway, a route for each case and version of HTTP.
use super::case::{Asked, Case, File, Refused, Step};
use super::server::{Server, framed};
use super::{expect, http2};
use crate::harness::{Gateway, Message, eventually, weir};
use serde_json::{Map, Value, json};
use std::fs;
use std::time::{Duration, SystemTime};

/// What was found at fault.
pub(crate) fn run(plugin: &str, file: &File) -> Vec<String> {
    let servers = Servers::start();
    let document = servers.expand(document(plugin, file, &servers));
    let listen = "127.0.0.1:0 http2, 127.0.0.1:0 ssl http2";
    let builder = Gateway::builder(&document.to_string()).set("proxy_listen", listen);
    let gateway =
        file.settings.iter().fold(builder, |builder, (name, value)| builder.set(name, value)).start();
    let cases = placed(file).filter_map(|(case, http, name)| {
        let fault = steps(case).enumerate().find_map(|(at, step)| {
            step.check(&case.name);
            let fault = servers.run(&gateway, http, &name, step)?;
            Some(format!("step {}: {fault}", at + 1))
        })?;
        Some(format!("{} (HTTP/{http}): {fault}", case.name))
    });
    let faults: Vec<String> = cases.collect();
    let refused = file.refused.iter().filter_map(|refused| not_told((plugin, file), refused, false));
    let warned = file.warned.iter().filter_map(|warned| not_told((plugin, file), warned, true));
    faults.into_iter().chain(refused).chain(warned).collect()
}

/// Each case, for each version of HTTP, and the name of its route.
fn placed(file: &File) -> impl Iterator<Item = (&Case, u8, String)> {
    let numbered = file.case.iter().enumerate();
    numbered
        .flat_map(|(at, case)| case.http.iter().map(move |http| (case, *http, format!("case-{at}-{http}"))))
}

fn steps(case: &Case) -> impl Iterator<Item = &Step> {
    assert!(case.step.is_empty() != case.only.request.is_none(), "{}: a request, or steps", case.name);
    case.step.iter().chain(case.only.request.is_some().then_some(&case.only))
}

/// The declarative file.
fn document(plugin: &str, file: &File, servers: &Servers) -> Value {
    let (mut services, mut routes) = (Vec::new(), Vec::new());
    for (case, _, name) in placed(file) {
        let own = with(json!({ "name": plugin, "config": case.config }), &case.plugin);
        let plugins: Vec<&Value> = std::iter::once(&own).chain(&case.plugins).collect();
        let host = format!("{name}.test");
        let route =
            json!({ "name": name, "hosts": [host], "protocols": ["http", "https"], "plugins": plugins });
        let mut route = with(route, &case.route);
        if case.service == Some(Value::Bool(false)) {
            routes.push(route);
            continue;
        }
        route["strip_path"] = case.route.get("strip_path").cloned().unwrap_or(json!(false));
        let url = format!("http://{}", servers.upstream.address());
        let service = json!({ "name": name, "url": url, "routes": [route] });
        services.push(with(service, case.service.as_ref().and_then(Value::as_object).unwrap_or(&Map::new())));
    }
    let mut document = json!({ "_format_version": "3.0", "services": services });
    if !routes.is_empty() {
        document["routes"] = json!(routes);
    }
    with(document, &file.entities)
}

fn with(mut value: Value, more: &Map<String, Value>) -> Value {
    more.iter().for_each(|(name, member)| value[name] = member.clone());
    value
}

/// What is said instead of a configuration that is refused, or of a good one that is warned of. Secrets in cases are
/// `hunter2`, which nothing repeats.
fn not_told((plugin, file): (&str, &File), refused: &Refused, good: bool) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kong.yml");
    let entity = with(json!({ "name": plugin, "config": refused.config }), &refused.plugin);
    fs::write(&path, json!({ "_format_version": "3.0", "plugins": [entity] }).to_string()).unwrap();
    let settings = file.settings.iter().map(|(name, value)| (format!("KONG_{}", name.to_uppercase()), value));
    let output = weir().arg("check").arg(&path).envs(settings).output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let is_so = output.status.success() == good && said.contains(&refused.says) && !said.contains("hunter2");
    (!is_so).then(|| format!("of {:?} is not said {:?}, but: {said}", refused.config, refused.says))
}

/// What the gateway talks to.
pub(crate) struct Servers {
    pub(crate) upstream: Server,
    collector: Server,
}

impl Servers {
    pub(crate) fn start() -> Servers {
        Servers { upstream: Server::start(), collector: Server::start() }
    }

    /// What of a step is not as it should be.
    pub(crate) fn run(&self, gateway: &Gateway, http: u8, name: &str, step: &Step) -> Option<String> {
        let host = format!("{name}.test");
        self.upstream.begin(&self.text(step.answer.as_deref().unwrap_or("200\n\nhi"), &host));
        self.collector.begin(&self.text(step.collector.as_deref().unwrap_or("200"), &host));
        let response = send(gateway, http, &host, &self.text(step.request.as_deref().unwrap(), &host));
        let fault = step.response.as_ref().and_then(|expected| expect::response(expected, &response));
        fault.or_else(|| self.upstream_fault(step)).or_else(|| self.collected_fault(step))
    }

    fn upstream_fault(&self, step: &Step) -> Option<String> {
        let asked = self.upstream.asked();
        let fault = match (step.upstream.as_ref()?, asked.last()) {
            (Asked::No(false), None) | (Asked::No(true), Some(_)) => None,
            (Asked::No(false), Some(request)) => Some(format!("was asked: {:?}", request.head)),
            (_, None) => Some("was not asked".into()),
            (Asked::With(expected), Some(request)) => expect::request(expected, request),
        };
        fault.map(|fault| format!("upstream: {fault}"))
    }

    /// What is sent behind a request's back is waited for.
    fn collected_fault(&self, step: &Step) -> Option<String> {
        let expected = step.collected.as_ref()?;
        let mut fault = None;
        let arrived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            eventually("the collector is asked as expected", || {
                let asked = self.collector.asked();
                fault = Some("was not asked".to_owned());
                asked.iter().any(|request| {
                    fault = expect::request(expected, request);
                    fault.is_none()
                })
            });
        }));
        arrived.err().map(|_| format!("collector: {}", fault.unwrap_or_default()))
    }

    /// A text with what stands for addresses, the route's host, repeated text (`${a*9000}`), and dates so many seconds
    /// from now (`${date+60}`).
    fn text(&self, text: &str, host: &str) -> String {
        let named =
            text.replace("${host}", host).replace("${upstream}", &self.upstream.address().to_string());
        let mut rest = &*named.replace("${collector}", &self.collector.address().to_string());
        let mut expanded = String::new();
        while let Some((before, behind)) = rest.split_once("${") {
            let (inner, after) = behind.split_once('}').expect("a closing brace");
            expanded.push_str(before);
            if let Some(seconds) = inner.strip_prefix("date") {
                expanded.push_str(&date(seconds.parse().expect("a number of seconds")));
            } else {
                let (piece, times) = inner.rsplit_once('*').expect("${text*times}");
                expanded.push_str(&piece.repeat(times.parse().expect("a number")));
            }
            rest = after;
        }
        expanded + rest
    }

    fn expand(&self, value: Value) -> Value {
        match value {
            Value::String(text) if text.contains("${") => Value::String(self.text(&text, "")),
            Value::Array(items) => items.into_iter().map(|item| self.expand(item)).collect(),
            Value::Object(members) => {
                members.into_iter().map(|(name, value)| (name, self.expand(value))).collect()
            }
            value => value,
        }
    }
}

/// The date so many seconds from now, as HTTP writes it.
fn date(seconds: i64) -> String {
    let (now, distance) = (SystemTime::now(), Duration::from_secs(seconds.unsigned_abs()));
    httpdate::fmt_http_date(if seconds < 0 { now - distance } else { now + distance })
}

/// Sends a request that is written as a line, lines of a head and, behind an empty line, a body.
fn send(gateway: &Gateway, http: u8, host: &str, text: &str) -> Message {
    let (head, body) = text.split_once("\n\n").unwrap_or((text.trim_end(), ""));
    let mut lines = head.trim_start().lines();
    let (method, target) = lines.next().and_then(|line| line.split_once(' ')).expect("a method and a target");
    let field = |line: &str| {
        let (name, value) = line.split_once(':').expect("a header has a colon");
        (name.to_owned(), value.trim().to_owned())
    };
    let fields: Vec<_> = lines.map(field).collect();
    if http == 2 {
        return http2::exchange(gateway.proxy(), (method, target, host), &fields, body);
    }
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let (length, sent) = framed(&fields, body);
    let length = if sent.is_empty() { "" } else { &length };
    let request = format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\n{fields}{length}\r\n{sent}");
    gateway.connect().send(request).response_to(method)
}
