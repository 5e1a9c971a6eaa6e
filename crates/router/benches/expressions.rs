#![allow(clippy::print_stdout, clippy::panic)]
//! Benchmarks the lookup of routes with expressions: beside routes with the same criteria, and beside `atc-router`, the router
//! of Kong, on expressions of its own benchmarks. `cargo bench -p weir-router --bench expressions [shape]` prints nanoseconds
//! per request and the ratios.
use atc_router::ast::{Type, Value};
use atc_router::context::Context;
use atc_router::router::Router as KongRouter;
use atc_router::schema::Schema;
use std::hint::black_box;
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;
use weir_model::Uuid;
use weir_model::entity::{PathHandling, Protocol, Route};
use weir_router::{Flavor, Order, Query, Router, Scheme};

const ROUTES: usize = 10_000;
/// The quickest of these rounds counts: other processes can only slow one down.
const ROUNDS: usize = 15;
/// What a round takes at least, in lookups, and in seconds after which it ends.
const FINDS: usize = 20_000;
const MAX_SECONDS: f64 = 0.2;

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 40_000);
const SERVER: [u8; 4] = [192, 0, 2, 2];

/// A request: host, path, and the port that it was sent to.
type Request = (String, String, u16);

/// Routes in both ways, and requests for them.
struct Shape {
    name: &'static str,
    criteria: fn(usize) -> Route,
    expression: fn(usize) -> String,
    request: fn(usize) -> Request,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "prefixes",
        criteria: |n| Route { paths: Some(vec![format!("/service-{n}/v1")]), ..empty(n) },
        expression: |n| format!("http.path ^= \"/service-{n}/v1\""),
        request: |n| ("api.example.com".into(), format!("/service-{n}/v1/users/42"), 80),
    },
    Shape {
        name: "hosts",
        criteria: |n| Route { hosts: Some(vec![format!("tenant-{n}.example.com")]), ..empty(n) },
        expression: |n| format!("http.host == \"tenant-{n}.example.com\""),
        request: |n| (format!("tenant-{n}.example.com"), "/v1/users/42".into(), 80),
    },
    Shape {
        name: "both",
        criteria: |n| Route {
            hosts: Some(vec![format!("tenant-{}.example.com", n / 20)]),
            paths: Some(vec![format!("/service-{n}")]),
            methods: Some(vec!["GET".into()]),
            ..empty(n)
        },
        expression: |n| {
            let host = n / 20;
            format!(
                "(http.host == \"tenant-{host}.example.com\") && (http.path == \"/service-{n}\" || http.path ^= \
                 \"/service-{n}/\") && http.method == \"GET\""
            )
        },
        request: |n| (format!("tenant-{}.example.com", n / 20), format!("/service-{n}/42"), 80),
    },
    Shape {
        name: "regexes",
        criteria: |n| Route { paths: Some(vec![format!("~/service-{n}/users/[0-9]+$")]), ..empty(n) },
        expression: |n| format!("http.path ~ r#\"^/service-{n}/users/[0-9]+$\"#"),
        request: |n| ("api.example.com".into(), format!("/service-{n}/users/42"), 80),
    },
];

/// Expressions as in the benchmarks of `atc-router`, with fields of requests, and a request.
struct KongShape {
    name: &'static str,
    routes: usize,
    expression: fn(usize) -> String,
    request: fn() -> Request,
}

fn mixed(n: usize) -> String {
    format!(
        "(http.path == \"/hello{n}\" && http.method == \"GET\") || !((net.dst.port == 2) && (net.dst.port == 9)) || \
         !(net.dst.port == 1) || (net.dst.port == 3 && net.dst.port == 4) && !(net.dst.port == 5)"
    )
}

const KONG_SHAPES: &[KongShape] = &[
    KongShape {
        name: "match_mix",
        routes: 100_000,
        expression: mixed,
        request: || ("a.test".into(), "/hello49999".into(), 3),
    },
    KongShape {
        name: "not_match_mix",
        routes: 100_000,
        expression: mixed,
        request: || ("a.test".into(), "/hello49999".into(), 5),
    },
    KongShape {
        name: "prefixes",
        routes: ROUTES,
        expression: |n| format!("http.path ^= \"/service-{n}/v1\""),
        request: || ("a.test".into(), "/service-5000/v1/a".into(), 80),
    },
    KongShape {
        name: "regexes",
        routes: ROUTES,
        expression: |n| format!("http.path ~ \"^/service-{n}/[0-9]+$\""),
        request: || ("a.test".into(), "/service-5000/42".into(), 80),
    },
];

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

fn router(count: usize, route: impl Fn(usize) -> Route) -> Router {
    let routes: Vec<Route> = (0..count).map(route).collect();
    let order = Order { flavor: Flavor::Expressions, ..Order::default() };
    let built = Router::build_with(&routes.iter().collect::<Vec<_>>(), order);
    built.unwrap_or_else(|errors| panic!("{:?}", errors.first()))
}

fn of_expressions(count: usize, expression: impl Fn(usize) -> String) -> Router {
    let priority = |n| (count - n) as i64;
    router(count, |n| Route { expression: Some(expression(n)), priority: priority(n), ..empty(n) })
}

/// A request as the router sees it.
fn query((host, path, port): &Request) -> Query<'_> {
    Query {
        method: "GET",
        host,
        path,
        scheme: Scheme::Http,
        sni: None,
        query: "",
        source: SocketAddr::from(CLIENT),
        destination: IpAddr::from(SERVER),
        dst_port: *port,
        header: &|_, _| false,
    }
}

/// Whether a route is found.
fn find(router: &Router, request: &Request) -> bool {
    router.find(&query(request)).is_some()
}

/// Nanoseconds of a lookup in the quickest round, of each of two in turn: so that what slows the machine down slows both.
fn measure(requests: &[Request], mut finds: [&mut dyn FnMut(&Request) -> bool; 2]) -> [f64; 2] {
    let mut quickest = [f64::INFINITY; 2];
    for _ in 0..ROUNDS {
        for (quickest, find) in quickest.iter_mut().zip(&mut finds) {
            *quickest = quickest.min(round(requests, *find));
        }
    }
    quickest
}

fn round(requests: &[Request], find: &mut dyn FnMut(&Request) -> bool) -> f64 {
    let (start, mut finds) = (Instant::now(), 0_u32);
    for request in requests.iter().cycle().take(FINDS) {
        black_box(find(black_box(request)));
        finds += 1;
        // The clock takes longer to read than a route to find.
        if finds.is_power_of_two() && start.elapsed().as_secs_f64() > MAX_SECONDS {
            break;
        }
    }
    start.elapsed().as_secs_f64() * 1e9 / f64::from(finds)
}

fn schema() -> Schema {
    let mut schema = Schema::default();
    ["http.path", "http.host", "http.method"].iter().for_each(|field| schema.add_field(field, Type::String));
    schema.add_field("net.dst.port", Type::Int);
    schema
}

/// The lookup of one request in Kong's router and in this one: alone, and with the values of the request.
fn measure_kong_shape(shape: &KongShape) -> [[f64; 2]; 2] {
    let (request, schema) = ((shape.request)(), schema());
    let ours = of_expressions(shape.routes, shape.expression);
    let mut kong = KongRouter::new(&schema);
    for n in 0..shape.routes {
        let added =
            kong.add_matcher(shape.routes - n, Uuid::from_u128(n as u128 + 1), &(shape.expression)(n));
        added.unwrap_or_else(|error| panic!("{error}"));
    }
    let (mut context_filled, filled) = (context(&schema, &request), query(&request));
    let one = std::slice::from_ref(&request);
    let alone = measure(
        one,
        [&mut |_| kong.execute(&mut context_filled), &mut |_| ours.find(black_box(&filled)).is_some()],
    );
    let with_values = measure(
        one,
        [&mut |request| kong.execute(&mut context(&schema, request)), &mut |request| find(&ours, request)],
    );
    [alone, with_values]
}

/// The values that Kong takes from a request.
fn context<'s>(schema: &'s Schema, (host, path, port): &Request) -> Context<'s> {
    let mut context = Context::new(schema);
    let text = |text: &str| Value::String(text.to_owned());
    context.add_value("http.host", text(host));
    context.add_value("http.path", text(path));
    context.add_value("http.method", text("GET"));
    context.add_value("net.dst.port", Value::Int((*port).into()));
    context
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    println!("{ROUTES} routes: nanoseconds per request");
    println!("{:<14} {:>10} {:>11} {:>8}", "", "criteria", "expressions", "ratio");
    for shape in SHAPES.iter().filter(|shape| is_wanted(shape.name)) {
        let requests: Vec<Request> = (0..1000).map(|n| (shape.request)(n * 7919 % ROUTES)).collect();
        let (criteria, expressions) =
            (router(ROUTES, shape.criteria), of_expressions(ROUTES, shape.expression));
        assert!(requests.iter().all(|request| find(&criteria, request) && find(&expressions, request)));
        let [criteria, expressions] = measure(
            &requests,
            [&mut |request| find(&criteria, request), &mut |request| find(&expressions, request)],
        );
        println!("{:<14} {criteria:>10.0} {expressions:>11.0} {:>7.2}x", shape.name, expressions / criteria);
    }
    println!("\nlookup alone, and with the values of the request filled in");
    println!(
        "{0:<14} {1:>10} {2:>11} {3:>8} {1:>11} {2:>11} {3:>8}",
        "", "atc-router", "expressions", "ratio"
    );
    for shape in KONG_SHAPES.iter().filter(|shape| is_wanted(shape.name)) {
        let [[kong, ours], [kong_filling, ours_filling]] = measure_kong_shape(shape);
        println!(
            "{:<14} {kong:>10.0} {ours:>11.0} {:>7.1}x {kong_filling:>11.0} {ours_filling:>11.0} {:>7.1}x",
            shape.name,
            kong / ours,
            kong_filling / ours_filling
        );
    }
}
