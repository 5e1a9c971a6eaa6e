//! Benchmarks applying one change among many entities: milliseconds to gather the document, to compile it and
//! to free the snapshot before it, where a route has changed and where a key has; and the memory of the process that the
//! entities take, and the first snapshot beside them. `cargo bench -p weir-proxy --bench compile [shape]`.
#![allow(clippy::print_stdout, clippy::expect_used, clippy::panic)]

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Instant;
use weir_model::entity::{Entity, EntityKind};
use weir_model::{Document, Entities, Format};
use weir_plugins::PLUGINS;
use weir_proxy::{Compiler, Retained, Snapshot};

const MANY: usize = 10_000;
const MILLION: usize = 1_000_000;
/// Entities are read in files of so many, so that what reading leaves behind does not count as memory of theirs.
const PER_FILE: usize = 10_000;
/// The quickest of these rounds counts: other processes can only slow one down.
const ROUNDS: usize = 9;

/// A set of so many services with a route each, and of so many consumers with a key each: what route n is like, and what
/// there is beside them.
struct Shape {
    name: &'static str,
    services: usize,
    consumers: usize,
    route: fn(usize) -> Value,
    plugins: fn() -> Vec<Value>,
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "keys",
        services: 1,
        consumers: MILLION,
        route: |_| json!({ "paths": ["/"] }),
        plugins: || vec![json!({ "name": "key-auth" })],
    },
    Shape {
        name: "prefixes",
        services: MANY,
        consumers: MANY,
        route: |n| json!({ "paths": [format!("/service-{n}/v1")] }),
        plugins: Vec::new,
    },
    Shape {
        name: "key-auth",
        services: MANY,
        consumers: MANY,
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
        services: MANY,
        consumers: MANY,
        route: |n| json!({ "paths": [format!("~/service-{n}/users/[0-9]+$")] }),
        plugins: Vec::new,
    },
    Shape {
        name: "plugins",
        services: MANY,
        consumers: MANY,
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
        let (services, plugins) = ((0..self.services).map(service).collect::<Vec<_>>(), (self.plugins)());
        let mut document = read(&json!({ "services": services, "plugins": plugins }));
        for first in (0..self.consumers).step_by(PER_FILE) {
            let consumers = (first..self.consumers.min(first + PER_FILE)).map(consumer);
            let more = read(&json!({ "consumers": consumers.collect::<Vec<_>>() }));
            document.consumers.extend(more.consumers);
            more.custom.iter().flat_map(|(_, list)| list).for_each(|key| document.custom.push(key.clone()));
        }
        document
    }
}

fn read(entities: &Value) -> Document {
    let mut file = entities.clone();
    file["_format_version"] = json!("3.0");
    let plugins: Vec<_> = PLUGINS.iter().map(|plugin| plugin.schema).collect();
    Document::read(&file.to_string(), Format::Json, &plugins, &|_| None).expect("a good file").document
}

/// The resident memory of this process, in MiB.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse().map_or(f64::NAN, |kibibytes: f64| kibibytes / 1024.0)
}

/// A route with another tag, and a key with another.
fn changed(entities: &Entities, is_key: bool, round: usize) -> Entity {
    let tags = vec![format!("round-{round}")];
    if is_key {
        let keys = entities.iter().find_map(|entity| match entity {
            Entity::Custom(key) => key.with("tags", json!(tags)),
            _ => None,
        });
        return Entity::Custom(keys.expect("a key"));
    }
    let Some(Entity::Routes(route)) = entities.find(EntityKind::Routes, "route-0") else { panic!("a route") };
    let mut changed = (**route).clone();
    changed.tags = Some(tags);
    Entity::Routes(Arc::new(changed))
}

/// Changes one entity, and returns the milliseconds of each step.
fn change(
    entities: &mut Entities,
    compiler: &Compiler,
    last: &mut Option<Snapshot>,
    changed: Entity,
) -> [f64; 3] {
    entities.put(changed).expect("a good change");
    let mut start = Instant::now();
    let mut step = || std::mem::replace(&mut start, Instant::now()).elapsed().as_secs_f64() * 1e3;
    let document = entities.document();
    let gather = step();
    let snapshot = compiler.compile(&document).unwrap_or_else(|errors| panic!("{errors:?}"));
    let compile = step();
    drop(last.replace(snapshot));
    [gather, compile, step()]
}

fn compiler() -> Compiler {
    Compiler {
        workers: 2,
        default_certificate: weir_net::tls::default_certificate(None).expect("a certificate"),
        client_certificate: None,
        trusted_certificates: Vec::new(),
        upstream_verification: Default::default(),
        log_tls_verify: true,
        router_flavor: weir_router::Flavor::default(),
        plugins: PLUGINS,
        retained: Arc::new(Retained::default()),
    }
}

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    println!("{:<10} {:>9} {:>9} {:>9} {:>9}", "shape", "read ms", "MiB", "first ms", "MiB");
    println!("{:<10} {:>9} {:>9} {:>9} {:>9}", "", "change of", "gather ms", "compile", "free");
    for shape in
        SHAPES.iter().filter(|shape| wanted.is_empty() || wanted.iter().any(|name| name == shape.name))
    {
        measure(shape);
    }
}

fn measure(shape: &Shape) {
    let (compiler, before) = (compiler(), resident());
    let start = Instant::now();
    let mut entities = Entities::of(shape.document());
    let (read, of_entities) = (start.elapsed().as_secs_f64() * 1e3, resident() - before);
    let start = Instant::now();
    let mut last = compiler.compile(&entities.document()).ok();
    let first = start.elapsed().as_secs_f64() * 1e3;
    let of_snapshot = resident() - before - of_entities;
    println!("{:<10} {read:>9.1} {of_entities:>9.1} {first:>9.1} {of_snapshot:>9.1}", shape.name);
    for (what, is_key) in [("a route", false), ("a key", true)] {
        let round = |round| {
            let changed = changed(&entities, is_key, round);
            change(&mut entities, &compiler, &mut last, changed)
        };
        let rounds: Vec<_> = (0..ROUNDS).map(round).collect();
        let [gather, compile, free] =
            [0, 1, 2].map(|step| rounds.iter().map(|round| round[step]).fold(f64::INFINITY, f64::min));
        println!("{:<10} {what:>9} {gather:>9.1} {compile:>9.1} {free:>9.1}", "");
    }
}
