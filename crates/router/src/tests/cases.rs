//! Cases kept as data, under `tests/cases`.
use super::reference::Reference;
use super::{Request, route};
use crate::{Calculation, Order, Router, normalize_path, upstream_path};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use weir_model::entity::{Protocol, Route};

fn read<T: DeserializeOwned>(file: &str) -> T {
    let path = format!("{}/tests/cases/{file}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    toml::from_str(&text).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases {
    case: Vec<Case>,
}

/// Routes, and which of them requests find.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    name: String,
    routes: Vec<CaseRoute>,
    requests: Vec<CaseRequest>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRoute {
    name: String,
    id: Option<u32>,
    #[serde(default)]
    regex_priority: i64,
    protocols: Option<Vec<String>>,
    hosts: Option<Vec<String>>,
    paths: Option<Vec<String>>,
    methods: Option<Vec<String>>,
    headers: Option<BTreeMap<String, Vec<String>>>,
    snis: Option<Vec<String>>,
}

/// A request, and what it finds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CaseRequest {
    method: Option<String>,
    host: Option<String>,
    path: Option<String>,
    #[serde(default)]
    https: bool,
    sni: Option<String>,
    port: Option<u16>,
    #[serde(default)]
    headers: BTreeMap<String, Vec<String>>,
    /// With the documented calculation of priorities rather than Kong's own.
    #[serde(default)]
    strict: bool,
    finds: Option<String>,
    matched: Option<u32>,
    captures: Option<Vec<String>>,
    named: Option<BTreeMap<String, String>>,
}

impl CaseRoute {
    fn to_route(&self, place: usize) -> Route {
        let mut route = route(self.id.map_or(place as u128 + 1, u128::from));
        if let Some(protocols) = &self.protocols {
            route.protocols = protocols.iter().map(|protocol| parse_protocol(protocol)).collect();
        }
        Route {
            name: Some(self.name.clone()),
            regex_priority: self.regex_priority,
            hosts: self.hosts.clone(),
            paths: self.paths.clone(),
            methods: self.methods.clone(),
            headers: self.headers.clone(),
            snis: self.snis.clone(),
            ..route
        }
    }
}

fn parse_protocol(protocol: &str) -> Protocol {
    match protocol {
        "http" => Protocol::Http,
        "https" => Protocol::Https,
        "grpc" => Protocol::Grpc,
        "tls" => Protocol::Tls,
        other => panic!("unknown protocol {other}"),
    }
}

fn run_cases(file: &str) {
    for case in read::<Cases>(file).case {
        let routes: Vec<Route> = case.routes.iter().enumerate().map(|(n, route)| route.to_route(n)).collect();
        for expected in &case.requests {
            expected.check(&routes, &case.name);
        }
    }
}

impl CaseRequest {
    fn request(&self) -> Request {
        let Request { method, host, path, port, .. } = Request::default();
        Request {
            method: self.method.clone().unwrap_or(method),
            host: self.host.clone().unwrap_or(host),
            path: self.path.clone().unwrap_or(path),
            https: self.https,
            sni: self.sni.clone(),
            port: self.port.unwrap_or(port),
            headers: self.headers.clone(),
            ..Request::default()
        }
    }

    fn check(&self, routes: &[Route], case: &str) {
        let calculation = if self.strict { Calculation::Strict } else { Calculation::Original };
        let router =
            Router::build_with(&routes.iter().collect::<Vec<_>>(), Order { calculation, ..Order::default() })
                .unwrap();
        let request = self.request();
        let found = request.query(|query| router.find(query));
        let context = format!("{case}: {request:?}");
        let name = found.as_ref().and_then(|found| routes[found.index as usize].name.as_deref());
        assert_eq!(name, self.finds.as_deref(), "{context}");
        // Holds the reference itself to the cases.
        let reference = Reference::new(routes, calculation).find(&request);
        assert_eq!(
            reference.map(|found| found.0),
            found.as_ref().map(|found| found.index as usize),
            "{context}"
        );

        let Some(found) = found else { return };
        if let Some(matched) = self.matched {
            assert_eq!(found.matched_path, matched, "{context}");
            let groups = found.captures.as_ref().map(|captures| {
                captures.iter().map(|(_, text)| text.unwrap_or_default().to_owned()).collect::<Vec<_>>()
            });
            assert_eq!(groups, self.captures, "{context}");
        }
        for (name, text) in self.named.iter().flatten() {
            assert_eq!(found.captures.as_ref().unwrap().name(name), Some(&**text), "{context}");
        }
    }
}

#[test]
fn hosts() {
    run_cases("hosts");
}

#[test]
fn paths() {
    run_cases("paths");
}

#[test]
fn criteria() {
    run_cases("criteria");
}

#[test]
fn priority() {
    run_cases("priority");
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tables<Row> {
    table: Vec<Table<Row>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table<Row> {
    name: String,
    #[serde(default)]
    strip_path: bool,
    rows: Vec<Row>,
}

#[test]
fn upstream() {
    for table in read::<Tables<[String; 4]>>("upstream").table {
        for [service, route_path, request, expected] in &table.rows {
            let paths = (!route_path.is_empty()).then(|| vec![route_path.clone()]);
            let router = Router::build(&[&Route { paths, ..route(1) }]).unwrap();
            let request = Request { path: request.clone(), ..Request::default() };
            let found = request.query(|query| router.find(query)).unwrap_or_else(|| panic!("{request:?}"));
            let mut out = Vec::new();
            let service = (!service.is_empty()).then_some(service.as_str());
            upstream_path(&mut out, service, &request.path, found.matched_path as usize, table.strip_path);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                *expected,
                "{}: {service:?} {route_path} {request:?}",
                table.name
            );
        }
    }
}

#[test]
fn normal() {
    for table in read::<Tables<[String; 2]>>("normal").table {
        for [path, expected] in &table.rows {
            assert_eq!(normalize_path(path), &**expected, "{}: {path:?}", table.name);
        }
    }
}

#[test]
fn normal_paths_are_borrowed() {
    for path in ["/", "/a/b", "/a/.b"] {
        let borrowed = matches!(normalize_path(path), std::borrow::Cow::Borrowed(_));
        assert_eq!(borrowed, path != "/a/.b", "{path}");
    }
}

/// What a route's error says, for a path or a header that is wrong.
#[test]
fn errors_say_how_to_fix() {
    let errors = [
        (
            "~/a(",
            "paths: \"~/a(\" is no valid regex: unclosed group; correct it, or write \\ before a character",
        ),
        (
            "~/a(?=b)",
            "look-around, including look-ahead and look-behind, is not supported; rewrite it without",
        ),
        ("~/(a{1000}){1000}{1000}", "when compiled; make its repetitions smaller"),
    ];
    for (path, expected) in errors {
        let good = Route { paths: Some(vec!["/".into()]), ..route(1) };
        let bad = Route { paths: Some(vec!["/".into(), path.into()]), ..route(2) };
        let errors = Router::build(&[&good, &bad]).unwrap_err();
        assert_eq!(errors.iter().map(|error| (error.index, error.route)).collect::<Vec<_>>(), [(1, bad.id)]);
        assert!(errors[0].message.contains(expected), "{}", errors[0]);
    }
    let headers = Some(BTreeMap::from([("x-a".to_owned(), vec!["~*[".to_owned()])]));
    let errors = Router::build(&[&Route { headers, ..route(1) }]).unwrap_err();
    assert!(errors[0].message.starts_with("headers.x-a: \"~*[\" is no valid regex: "), "{}", errors[0]);
}
