//! Kong's router, the crate `atc-router`, and this one agree: on what matches, how much of the path, what groups capture,
//! which route is first, and which expressions are refused. `WEIR_EXPRESSION_PAIRS=1000000` compares as many pairs of an
//! expression and a request.
use super::super::queries::Arguments;
use super::generator;
use crate::hosts::Name;
use crate::pattern::Captures;
use crate::tests::{Request, route};
use crate::{Flavor, Order, Router};
use atc_router::ast::{Type, Value};
use atc_router::context::{Context, Match};
use atc_router::router::Router as KongRouter;
use atc_router::schema::Schema;
use fastrand::Rng;
use weir_model::Uuid;
use weir_model::entity::Route;

/// So many expressions and requests are compared with each other.
const BATCH: usize = 8;

fn schema() -> Schema {
    let mut schema = Schema::default();
    for field in [
        "net.protocol",
        "tls.sni",
        "http.method",
        "http.host",
        "http.path",
        "http.path.segments.*",
        "http.headers.*",
        "http.queries.*",
    ] {
        schema.add_field(field, Type::String);
    }
    for field in ["net.src.port", "net.dst.port", "http.path.segments.len"] {
        schema.add_field(field, Type::Int);
    }
    schema.add_field("net.src.ip", Type::IpAddr);
    schema.add_field("net.dst.ip", Type::IpAddr);
    schema
}

/// The values that Kong takes from a request.
fn context<'s>(schema: &'s Schema, request: &Request) -> Context<'s> {
    let mut context = Context::new(schema);
    let mut add = |field: &str, value: &str| context.add_value(field, Value::String(value.to_owned()));
    add("net.protocol", if request.https { "https" } else { "http" });
    request.sni.iter().for_each(|sni| add("tls.sni", sni));
    add("http.method", &request.method);
    let mut name = Name::default();
    let host = name.parse(&request.host, request.port);
    if !host.name.is_empty() {
        add("http.host", host.name);
    }
    add("http.path", &request.path);
    let segments: Vec<&str> = request.path.get(1..).unwrap_or_default().split_terminator('/').collect();
    for (first, last) in [(0, 0), (1, 1), (0, 1), (1, 3)] {
        let name = if first == last { first.to_string() } else { format!("{first}_{last}") };
        if let Some(range) = segments.get(first..=last) {
            add(&format!("http.path.segments.{name}"), &range.join("/"));
        }
    }
    for (field, header) in [("x_one", "x-one"), ("X_Two", "x-two")] {
        request.headers[header].iter().for_each(|value| add(&format!("http.headers.{field}"), value));
    }
    for argument in ["q", "Q"] {
        Arguments::read(&request.query).visit(argument, &mut |value| {
            add(&format!("http.queries.{argument}"), std::str::from_utf8(value).unwrap());
            false
        });
    }
    context.add_value("http.path.segments.len", Value::Int(segments.len() as i64));
    context.add_value("net.src.port", Value::Int(request.source.port().into()));
    context.add_value("net.dst.port", Value::Int(host.port as i64));
    context.add_value("net.src.ip", Value::IpAddr(request.source.ip()));
    context.add_value("net.dst.ip", Value::IpAddr(request.destination));
    context
}

/// What is compared of a match: the route, the length of the matched path, and what groups captured.
type Found = Option<(Uuid, usize, Vec<Option<String>>)>;

const NAMES: [&str; 2] = ["id", "rest"];

fn kongs(found: Option<Match>, request: &Request) -> Found {
    let found = found?;
    let matched = match found.matches.get("http.path") {
        Some(Value::String(text)) => text.len(),
        _ => 1,
    };
    let numbers = (1..4).map(|number: usize| found.captures.get(&number.to_string()).cloned());
    let captures = numbers.chain(NAMES.map(|name| found.captures.get(name).cloned()));
    let path = &request.path;
    Some((found.uuid, path.floor_char_boundary(matched.min(path.len())), captures.collect()))
}

fn ours(router: &Router, routes: &[&Route], request: &Request) -> Found {
    let found = request.query(|query| router.find(query))?;
    let captures =
        |get: &dyn Fn(&Captures) -> Option<&str>| Some(get(found.captures.as_deref()?)?.to_owned());
    let numbers = (1..4).map(|number| captures(&|captures| captures.get(number)));
    let all = numbers.chain(NAMES.map(|name| captures(&|captures| captures.name(name))));
    Some((routes[found.index as usize].id, found.matched_path as usize, all.collect()))
}

fn expressions_order() -> Order {
    Order { flavor: Flavor::Expressions, ..Order::default() }
}

/// A route that both accept, if they do. Both must refuse the others.
fn accepted(schema: &Schema, text: String, rng: &mut Rng) -> Option<Route> {
    // Kong's parser panics at these.
    if text.matches("not").count() != text.matches("not in").count() {
        return None;
    }
    let id = rng.u128(..);
    let mut kong = KongRouter::new(schema);
    let kongs = kong.add_matcher(0, Uuid::from_u128(id), &text);
    let priority = rng.i64(0..3);
    let route = Route { expression: Some(text), priority, ..route(id) };
    match (kongs, Router::build_with(&[&route], expressions_order())) {
        (Ok(()), Ok(_)) => Some(route),
        (Err(_), Err(_)) => None,
        (Ok(()), Err(errors)) if errors[0].message.contains("illformed") => None,
        (kongs, ours) => panic!("{:?}\nKong: {kongs:?}\nours: {:?}", route.expression, ours.err()),
    }
}

/// Routes as both have them.
fn compare(schema: &Schema, routes: &[&Route], requests: &[Request]) {
    let router = Router::build_with(routes, expressions_order()).unwrap();
    let mut kong = KongRouter::new(schema);
    for route in routes {
        kong.add_matcher(route.priority as usize, route.id, route.expression.as_deref().unwrap()).unwrap();
    }
    for request in requests {
        let mut context = context(schema, request);
        kong.execute(&mut context);
        let (kongs, ours) = (kongs(context.result, request), ours(&router, routes, request));
        let texts = || routes.iter().map(|route| (route.priority, &route.expression)).collect::<Vec<_>>();
        assert_eq!(ours, kongs, "{request:#?}\n{:#?}", texts());
    }
}

#[test]
fn expressions_mean_what_they_mean_to_kong() {
    let pairs = std::env::var("WEIR_EXPRESSION_PAIRS").ok().and_then(|pairs| pairs.parse().ok());
    let pairs: usize = pairs.unwrap_or(50_000);
    let (schema, mut compared, mut accepted_count) = (schema(), 0, 0);
    for seed in 0.. {
        if compared >= pairs {
            break;
        }
        let mut rng = Rng::with_seed(seed);
        let texts: Vec<String> = (0..BATCH).map(|_| generator::expression(&mut rng)).collect();
        let routes: Vec<Route> =
            texts.into_iter().filter_map(|text| accepted(&schema, text, &mut rng)).collect();
        let routes: Vec<&Route> = routes.iter().collect();
        let requests: Vec<Request> = (0..BATCH).map(|_| generator::request(&mut rng)).collect();
        routes.iter().for_each(|route| compare(&schema, &[route], &requests));
        compare(&schema, &routes, &requests);
        compared += routes.len() * requests.len();
        accepted_count += routes.len();
    }
    assert!(accepted_count * 10 > compared / BATCH * 7, "most expressions are accepted");
}
