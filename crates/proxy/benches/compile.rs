//! Benchmarks applying one change among many entities: milliseconds to gather the document, to compile it and
//! to free the snapshot before it. `cargo bench -p weir-proxy --bench compile [shape]`.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Document, Entities, Format};
use weir_plugins::PLUGINS;
use weir_proxy::{Compiler, Retained, Snapshot};

const MANY: usize = 10_000;
/// The quickest of these rounds counts: other processes can only slow one down.
const ROUNDS: usize = 9;

/// A set of so many services, routes and consumers: what route n is like, and what there is beside them.
struct Shape {
    name: &'static str,
    route: fn(usize) -> Value,
    plugins: fn() -> Vec<Value>,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "prefixes",
        route: |n| json!({ "paths": [format!("/service-{n}/v1")] }),
        plugins: Vec::new,
    },
    Shape {
        name: "key-auth",
        route: |n| json!({ "paths": [format!("/service-{n}/v1")] }),
        plugins: || {
            vec![
                json!({ "name": "key-auth" }),
                json!({ "name": "rate-limiting", "config": { "minute": 60 } }),
            ]
        },
    },
    Shape {
        name: "regexes",
        route: |n| json!({ "paths": [format!("~/service-{n}/users/[0-9]+$")] }),
        plugins: Vec::new,
    },
    Shape {
        name: "plugins",
        route: |n| {
            let plugin = json!({ "name": "rate-limiting", "config": { "minute": 60 } });
            json!({ "paths": [format!("/service-{n}/v1")], "plugins": [plugin] })
        },
        plugins: Vec::new,
    },
];

impl Shape {
    fn document(&self) -> Document {
        let service = |n: usize| {
            let mut route = (self.route)(n);
            route["name"] = json!(format!("route-{n}"));
            json!({ "name": format!("service-{n}"), "url": format!("http://10.0.{}.{}:8080", n / 250, n % 250),
                    "routes": [route] })
        };
        let consumer = |n: usize| json!({ "username": format!("consumer-{n}"), "keyauth_credentials": [{ "key": format!("key-{n}") }] });
        let file = json!({
            "_format_version": "3.0",
            "services": (0..MANY).map(service).collect::<Vec<_>>(),
            "consumers": (0..MANY).map(consumer).collect::<Vec<_>>(),
            "plugins": (self.plugins)(),
        });
        let plugins: Vec<_> = PLUGINS.iter().map(|plugin| plugin.schema).collect();
        Document::read(&file.to_string(), Format::Json, &plugins, &|_| None).expect("a good file").document
    }
}

/// Changes one route, and returns the milliseconds of each step.
fn change(
    entities: &mut Entities,
    compiler: &Compiler,
    last: &mut Option<Snapshot>,
    round: usize,
) -> [f64; 3] {
    let Some(Entity::Routes(route)) = entities.find(EntityKind::Routes, "route-77") else {
        panic!("a route")
    };
    let mut changed = (**route).clone();
    changed.tags = Some(vec![format!("round-{round}")]);
    entities.put(Entity::Routes(Arc::new(changed))).expect("a good change");
    let mut start = Instant::now();
    let mut step = || std::mem::replace(&mut start, Instant::now()).elapsed().as_secs_f64() * 1e3;
    let document = entities.document();
    let gather = step();
    let snapshot = compiler.compile(&document).unwrap_or_else(|errors| panic!("{errors:?}"));
    let compile = step();
    drop(last.replace(snapshot));
    [gather, compile, step()]
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    println!("{:<10} {:>10} {:>10} {:>10} {:>10}", "shape", "first ms", "gather ms", "compile ms", "free ms");
    for shape in
        SHAPES.iter().filter(|shape| wanted.is_empty() || wanted.iter().any(|name| name == shape.name))
    {
        let compiler = Compiler {
            workers: 2,
            default_certificate: weir_net::tls::default_certificate(None).expect("a certificate"),
            client_certificate: None,
            trusted_certificates: Vec::new(),
            log_tls_verify: true,
            plugins: PLUGINS,
            retained: Arc::new(Retained::default()),
        };
        let mut entities = Entities::of(shape.document());
        let start = Instant::now();
        let mut last = compiler.compile(&entities.document()).ok();
        let first = start.elapsed().as_secs_f64() * 1e3;
        let rounds: Vec<_> =
            (0..ROUNDS).map(|round| change(&mut entities, &compiler, &mut last, round)).collect();
        let [gather, compile, free] =
            [0, 1, 2].map(|step| rounds.iter().map(|round| round[step]).fold(f64::INFINITY, f64::min));
        println!("{:<10} {first:>10.1} {gather:>10.1} {compile:>10.1} {free:>10.1}", shape.name);
    }
}
