#![allow(clippy::print_stdout, clippy::panic)]
//! Benchmarks route lookup among 1, 100, 10,000 and 100,000 routes: nanoseconds per request, and
//! milliseconds to build the index, once. `cargo bench -p weir-router --bench route [shape]`.
use std::hint::black_box;
use std::time::Instant;
use weir_model::Uuid;
use weir_model::entity::{PathHandling, Protocol, Route};
use weir_router::{Match, Query, Router, Scheme};

const COUNTS: [usize; 4] = [1, 100, 10_000, 100_000];
/// Fewer than the other shapes, because regexes compile slowly and this benchmark measures lookups.
const MAX_REGEXES: usize = 10_000;
/// The quickest of these rounds counts: other processes can only slow one down.
const ROUNDS: usize = 20;
const FINDS: usize = 20_000;

/// A set of routes: the route at a place, and the host and path of a request for it.
struct Shape {
    name: &'static str,
    most: usize,
    route: fn(usize) -> Route,
    request: fn(usize) -> (String, String),
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "prefixes",
        most: usize::MAX,
        route: |n| Route { paths: Some(vec![format!("/service-{n}/v1")]), ..empty(n) },
        request: |n| ("api.example.com".into(), format!("/service-{n}/v1/users/42")),
    },
    Shape {
        name: "hosts",
        most: usize::MAX,
        route: |n| Route { hosts: Some(vec![format!("tenant-{n}.example.com")]), ..empty(n) },
        request: |n| (format!("tenant-{n}.example.com"), "/v1/users/42".into()),
    },
    Shape {
        name: "wildcards",
        most: usize::MAX,
        route: |n| Route { hosts: Some(vec![format!("*.tenant-{n}.example.com")]), ..empty(n) },
        request: |n| (format!("www.tenant-{n}.example.com"), "/v1/users/42".into()),
    },
    Shape {
        name: "regexes",
        most: MAX_REGEXES,
        route: |n| Route { paths: Some(vec![format!("~/service-{n}/users/[0-9]+$")]), ..empty(n) },
        request: |n| ("api.example.com".into(), format!("/service-{n}/users/42")),
    },
    Shape {
        name: "methods",
        most: usize::MAX,
        route: |n| Route {
            paths: Some(vec![format!("/service-{}", n / 4)]),
            methods: Some(vec![["GET", "POST", "PUT", "DELETE"][n % 4].into()]),
            ..empty(n)
        },
        request: |n| ("api.example.com".into(), format!("/service-{}/42", n / 4)),
    },
    Shape {
        name: "headers",
        most: usize::MAX,
        route: |n| Route {
            paths: Some(vec!["/".into()]),
            headers: Some([("x-tenant".into(), vec![format!("tenant-{n}")])].into()),
            ..empty(n)
        },
        request: |n| (format!("tenant-{n}"), "/v1/users/42".into()),
    },
    Shape { name: "mixed", most: MAX_REGEXES, route: mixed_route, request: mixed_request },
];

fn mixed_route(n: usize) -> Route {
    let host = Some(vec![format!("tenant-{}.example.com", n / 20)]);
    match n % 5 {
        0 => Route { paths: Some(vec![format!("~/v[12]/items-{n}/(?<id>[0-9]+)")]), hosts: host, ..empty(n) },
        1 => Route { paths: Some(vec![format!("/service-{n}")]), ..empty(n) },
        2 => Route { paths: Some(vec!["/".into()]), hosts: host, ..empty(n) },
        _ => Route { paths: Some(vec![format!("/a/{n}"), format!("/api/b/{n}/")]), hosts: host, ..empty(n) },
    }
}

fn mixed_request(n: usize) -> (String, String) {
    let path = match n % 5 {
        0 => format!("/v1/items-{n}/42"),
        1 => format!("/service-{n}/42"),
        2 => "/index.html".into(),
        _ => format!("/api/b/{n}/42"),
    };
    (format!("tenant-{}.example.com", n / 20), path)
}

fn empty(n: usize) -> Route {
    Route {
        id: Uuid::from_u128(n as u128 + 1),
        name: None,
        protocols: vec![Protocol::Http, Protocol::Https],
        https_redirect_status_code: 426,
        strip_path: true,
        preserve_host: false,
        request_buffering: true,
        response_buffering: true,
        regex_priority: 0,
        path_handling: PathHandling::V0,
        methods: None,
        hosts: None,
        paths: None,
        headers: None,
        snis: None,
        sources: None,
        destinations: None,
        expression: None,
        priority: 0,
        vars: None,
        tags: None,
        service: None,
        created_at: None,
        updated_at: None,
    }
}

/// Nanoseconds per find and milliseconds to build.
fn measure(shape: &Shape, count: usize) -> (f64, f64) {
    let routes: Vec<Route> = (0..count).map(shape.route).collect();
    let routes: Vec<&Route> = routes.iter().collect();
    let start = Instant::now();
    let router = Router::build(&routes).unwrap_or_else(|errors| panic!("{errors:?}"));
    let build = start.elapsed().as_secs_f64() * 1e3;

    let requests: Vec<_> = (0..count.min(1000)).map(|n| (shape.request)(n * 7919 % count)).collect();
    let round = || {
        let start = Instant::now();
        let found = |(host, path): &&(String, String)| find(&router, black_box(host), path).is_some();
        assert!(
            requests.iter().cycle().take(FINDS).filter(found).count() > 0,
            "{} finds nothing",
            shape.name
        );
        start.elapsed().as_secs_f64() * 1e9 / FINDS as f64
    };
    ((0..ROUNDS).map(|_| round()).fold(f64::INFINITY, f64::min), build)
}

/// A query whose every header says the host.
fn find(router: &Router, host: &str, path: &str) -> Option<Match> {
    let header = |_: &str, test: &mut dyn FnMut(&[u8]) -> bool| test(host.as_bytes());
    router.find(&Query {
        method: "GET",
        host,
        path,
        scheme: Scheme::Http,
        sni: None,
        query: "",
        source: ([192, 0, 2, 1], 40_000).into(),
        destination: [192, 0, 2, 2].into(),
        dst_port: 8000,
        header: &header,
    })
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    println!("{:<10} {:>8} {:>10} {:>10}", "shape", "routes", "find ns", "build ms");
    for shape in
        SHAPES.iter().filter(|shape| wanted.is_empty() || wanted.iter().any(|name| name == shape.name))
    {
        for count in COUNTS.into_iter().filter(|&count| count <= shape.most) {
            let (find, build) = measure(shape, count);
            println!("{:<10} {count:>8} {find:>10.0} {build:>10.1}", shape.name);
        }
    }
}
